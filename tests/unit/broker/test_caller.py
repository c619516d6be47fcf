"""Who asks: no call of the broker goes without it, and it comes as the connection has it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Protocol, get_type_hints

import pytest

from logboom.access.principal import ANONYMOUS
from logboom.broker import api
from logboom.broker.api import Broker, Feeds
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.local import LocalBroker
from logboom.client.remote import RemoteBroker
from support.brokers.memory import MemoryBroker

PARTS = [part for part in Broker.__mro__ if part not in (Broker, Protocol) and "Calls" in part.__name__]


def calls_of(protocol: type) -> Iterator[str]:
    for name, _ in inspect.getmembers(protocol, inspect.isfunction):
        if not name.startswith("_"):
            yield name


def caller_of(owner: type, call: str) -> inspect.Parameter:
    return inspect.signature(getattr(owner, call)).parameters["caller"]


CALLS = [*calls_of(Broker)]
FEEDS = [*calls_of(Feeds)]


def test_the_broker_is_the_sum_of_its_parts() -> None:
    assert {part.__name__ for part in PARTS} == {name for name in api.__all__ if name.endswith("Calls")}
    assert {call for part in PARTS for call in calls_of(part)} == set(CALLS)
    assert not [name for name in vars(Broker) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("protocol", "call"), [*((Broker, call) for call in CALLS), *((Feeds, call) for call in FEEDS)]
)
def test_every_call_demands_a_caller_by_name(protocol: type, call: str) -> None:
    caller = caller_of(protocol, call)
    assert caller.kind is inspect.Parameter.KEYWORD_ONLY
    assert caller.default is inspect.Parameter.empty
    assert caller.annotation == "Caller"


@pytest.mark.parametrize("kind", [LocalBroker, RemoteBroker, MemoryBroker])
@pytest.mark.parametrize("call", CALLS)
def test_every_kind_of_broker_takes_the_caller_and_knows_everybody(kind: type, call: str) -> None:
    caller = caller_of(kind, call)
    assert (caller.kind, caller.default) == (inspect.Parameter.KEYWORD_ONLY, EVERYBODY)


@pytest.mark.parametrize("call", FEEDS)
def test_a_node_that_is_copied_takes_the_caller(call: str) -> None:
    assert caller_of(LocalBroker, call).kind is inspect.Parameter.KEYWORD_ONLY


def test_a_caller_is_a_value_and_everybody_is_anonymous() -> None:
    assert Caller() == EVERYBODY
    assert EVERYBODY.principal == ANONYMOUS
    fields = {"principal", "groups", "protocol", "address", "by", "expires", "account", "client", "through"}
    assert set(get_type_hints(Caller)) == fields
    assert not hasattr(EVERYBODY, "__dict__")
    with pytest.raises(AttributeError):
        EVERYBODY.principal = "root"  # type: ignore[misc]


def test_callers_are_alike_by_principal_and_groups_wherever_they_call_from() -> None:
    ann = Caller("ann", frozenset({"ops"}), "http", "127.0.0.1:1")
    assert ann.is_like(Caller("ann", frozenset({"ops"}), "logd", "127.0.0.1:2"))
    assert not ann.is_like(Caller("ann", frozenset(), "http", "127.0.0.1:1"))
    assert not ann.is_like(Caller("ann", frozenset({"ops"}), "http", "127.0.0.1:1", client="d7"))
    assert not ann.is_like(EVERYBODY)
