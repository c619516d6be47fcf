"""Every call of a broker asks the rules in the name of its caller, before it does anything."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from logboom.batch import build
from logboom.broker.api import ActivityRequest, Answer, Broker, Feeds, Part, PublishKey, ReadRequest, Settings, Start
from logboom.broker.caller import Caller
from logboom.broker.local import LocalBroker
from logboom.broker.rules import ObjectKind, Right
from logboom.errors import LogboomError

SOMEBODY = Caller("somebody", protocol="test")
ASKED: dict[str, list[tuple[str, str, str]]] = {
    "create_topic": [("create", "topic", "new")],
    "configure_topic": [("configure", "topic", "events")],
    "describe_topic": [("describe", "topic", "events")],
    "list_topics": [("describe", "topic", "")],
    "delete_topic": [("delete", "topic", "events")],
    "trim": [("delete", "topic", "events")],
    "append": [("write", "topic", "events")],
    "append_then": [("write", "topic", "events")],
    "read": [("read", "topic", "events"), ("read", "cursor", "billing")],
    "subscribe": [("read", "topic", "events"), ("read", "cursor", "billing")],
    "commit_cursor": [("write", "cursor", "billing"), ("read", "topic", "events")],
    "fetch_cursor": [("read", "cursor", "billing"), ("read", "topic", "events")],
    "list_cursors": [("describe", "cursor", "")],
    "delete_cursor": [("delete", "cursor", "billing")],
    "open_stage": [("create", "stage", "")],
    "stage": [("write", "topic", "events")],
    "publish": [("write", "key", "orders")],
    "publish_batches": [("write", "key", "orders"), ("write", "topic", "events")],
    "discard": [("delete", "stage", "s1"), ("delete", "stage", "s2")],
    "list_stages": [("describe", "stage", "")],
    "list_keys": [("describe", "key", "")],
    "forget_key": [("delete", "key", "orders")],
    "stats": [("describe", "node", "")],
    "measures": [("describe", "topic", "")],
    "history": [("describe", "node", "")],
    "activity": [("describe", "topic", "")],
    "topic_history": [("describe", "topic", "events")],
    "segments": [("describe", "topic", "events")],
    "incidents": [("describe", "node", "")],
    "refuse": [("manage", "node", "")],
    "accept": [("manage", "node", "")],
    "promote": [("manage", "node", "")],
    "feed": [("read", "topic", "events")],
    "deleted": [("describe", "topic", "")],
}
"""What each call asks for first, with the arguments below. A call that is new must be here."""
NAMES = {"create_topic": "new", "forget_key": "orders"}


class NotAllowed(LogboomError):
    """What these rules say."""


class Scribe:
    """Writes down what it is asked. Allows everything before the last question it is told of, and then nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.callers: set[Caller] = set()
        self.allowed: int | None = None

    def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        if self.allowed is not None:
            self.callers.add(caller)
            self.asked.append((right, kind, name))
            if len(self.asked) > self.allowed:
                raise NotAllowed(f"{caller.principal} may not {right} {kind} {name}")


def calls() -> Iterator[str]:
    for protocol in (*Broker.__mro__, Feeds):
        if protocol not in (Protocol, object):
            yield from (name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_")


def arguments(call: str, answers: list[Answer]) -> dict[str, Any]:
    """For every parameter that has no default, by its name. Who is called back is `answers`."""
    known: dict[str, Any] = {
        "name": NAMES.get(call, "events"),
        "topic": "events",
        "topic_ids": ["0" * 32],
        "settings": Settings(),
        "partition": 0,
        "seqno": 1,
        "index": 1,
        "acks": None,
        "then": answers.extend,
        "parts": [Part("events", [build([b"x"])])],
        "request": ActivityRequest() if call == "activity" else ReadRequest("events", Start(cursor="billing")),
        "cursor": "billing",
        "bookmark": "",
        "stage": "s1",
        "stages": ["s1", "s2"] if call == "discard" else [],
        "key": PublishKey("orders", 1),
    }
    parameters = list(inspect.signature(getattr(LocalBroker, call)).parameters.values())[1:]
    return {each.name: known[each.name] for each in parameters if each.default is inspect.Parameter.empty}


async def ask(broker: LocalBroker, call: str) -> list[LogboomError]:
    """What a call is refused with, alone or as the answer of each of its batches."""
    answers: list[Answer] = []
    try:
        answer = getattr(broker, call)(**arguments(call, answers), caller=SOMEBODY)
        if inspect.isawaitable(answer):
            answer = await answer
    except LogboomError as error:
        return [error]
    if isinstance(answer, list):
        answers = answer
    return [each for each in answers if isinstance(each, LogboomError)]


def test_what_each_call_asks_for_is_known() -> None:
    assert set(calls()) == ASKED.keys()


@pytest.mark.parametrize("call", sorted(ASKED))
def test_a_call_asks_in_the_name_of_its_caller_and_does_nothing_where_that_is_refused(
    call: str, tmp_path: Path
) -> None:
    async def story() -> None:
        rules = Scribe()
        broker = await LocalBroker.open(str(tmp_path), rules=rules)
        try:
            await broker.create_topic("events", settings=Settings())
            await broker.append([Part("events", [build([b"a", b"b"])])])
            before = await broker.list_topics()
            for allowed in range(len(ASKED[call])):
                rules.asked.clear()
                rules.allowed = allowed
                refused = await ask(broker, call)
                rules.allowed = None
                assert [type(error) for error in refused] == [NotAllowed]
                assert rules.asked == ASKED[call][: allowed + 1]
            assert rules.callers == {SOMEBODY}
            assert broker.rejections["NotAllowed"] == len(ASKED[call])
            assert (await broker.list_topics(), (await broker.stats()).refused) == (before, None)
        finally:
            await broker.close()

    asyncio.run(story())


def test_a_write_that_would_make_its_topic_asks_for_that_too(tmp_path: Path) -> None:
    async def story() -> None:
        rules = Scribe()
        broker = await LocalBroker.open(str(tmp_path), rules=rules)
        try:
            rules.allowed = 1
            (answer,) = await broker.append([Part("new", [build([b"x"])])], caller=SOMEBODY)
            assert rules.asked == [("write", "topic", "new"), ("create", "topic", "new")]
            rules.allowed = None
            assert isinstance(answer, NotAllowed)
            assert await broker.list_topics() == []
        finally:
            await broker.close()

    asyncio.run(story())
