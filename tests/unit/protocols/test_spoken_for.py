"""A gateway speaks for its callers: with their rights, where it may manage them, and never for the node itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from logboom.access.credential import Credential
from logboom.access.principal import NODE, OPERATOR
from logboom.access.rule import Rule
from logboom.batch import build
from logboom.broker.api import Part, ReadRequest
from logboom.broker.caller import EVERYBODY, ITSELF, Caller
from logboom.client.link.profile import Profile
from logboom.client.remote import RemoteBroker, connect
from logboom.errors import (
    LogboomError,
    NotAllowed,
    RemoteProtocolError,
    SignInRequired,
    TopicNotFound,
)
from logboom.protocols.binary.messages import Kind, SpokenFor
from logboom.protocols.binary.spoken_for import GATEWAYS_MOST, head_of, spoken_for
from logboom.server.node import Node
from support.callers.closed_node import address, closed_node
from support.callers.everybody import PASSWORD
from support.peers.binary import serve

CREDENTIAL = Credential.derive(PASSWORD, b"salt" * 4, iterations=4096)
ALICE = Caller("alice", protocol="http", address="192.0.2.7:99", by="certificate")
GATEWAY = Caller("gateway", by="password")


def allow(who: str, right: str, kind: str = "topic", name: str = "*") -> Rule:
    return Rule("allow", who, (right,), kind, name)


@asynccontextmanager
async def gateway(path: Path, *rules: Rule) -> AsyncIterator[tuple[Node, RemoteBroker]]:
    """A node with topics orders and secret, and who speaks to it: with the right to manage alice, or as rules say."""
    async with closed_node(path) as node:
        for topic in ("orders", "secret"):
            await node.broker.create_topic(topic, caller=ITSELF)
        await node.broker.add_user("gateway", [CREDENTIAL], caller=ITSELF)
        for rule in rules or (allow("gateway", "manage", "user", "alice"), allow("alice", "read", name="orders")):
            await node.broker.add_rule(rule, caller=ITSELF)
        profile = Profile(address(node, "binary"), "gateway", PASSWORD)
        async with connect(profile, speaks_for_callers=True) as remote:
            yield node, remote


def test_whoever_is_spoken_for_has_his_own_rights_and_not_those_of_the_gateway(tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway(tmp_path) as (node, remote):
            await node.broker.add_rule(allow("gateway", "read", name="secret"), caller=ITSELF)
            await remote.read(ReadRequest("orders"), caller=ALICE)
            for asked in (ReadRequest("secret"), ReadRequest("orders")):
                with pytest.raises(TopicNotFound):
                    await remote.read(asked, caller=ALICE if asked.topic == "secret" else ITSELF)
            await remote.read(ReadRequest("secret"), caller=ITSELF)  # which is the gateway itself
            with pytest.raises(SignInRequired):
                await remote.read(ReadRequest("orders"))
            (answer,) = await remote.append([Part("orders", [build([b"x"])])], caller=ALICE)
            assert isinstance(answer, NotAllowed)
            assert (await remote.whoami(caller=ALICE)).principal == "alice"
            subscription = await remote.subscribe(ReadRequest("orders"), caller=ALICE)
            await remote.whoami(caller=EVERYBODY)
            await node.broker.append([Part("orders", [build([b"news"])])], caller=ITSELF)
            assert [record.value for record in (await subscription.next()).records()] == [b"news"]

    asyncio.run(story())


def test_a_gateway_speaks_for_those_alone_whom_it_may_manage_and_only_as_long(tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway(tmp_path) as (node, remote):
            await node.broker.add_rule(allow("bob", "all"), caller=ITSELF)
            with pytest.raises(NotAllowed, match="gateway may not manage user 'bob'"):
                await remote.list_topics(caller=replace(ALICE, principal="bob"))
            subscription = await remote.subscribe(ReadRequest("orders"), caller=ALICE)
            manages = (await node.broker.list_rules(caller=ITSELF))[0].number
            await node.broker.remove_rule(manages, caller=ITSELF)
            with pytest.raises(NotAllowed, match="gateway may not manage user 'alice'"):
                await remote.read(ReadRequest("orders"), caller=ALICE)
            await node.broker.append([Part("orders", [build([b"x"])])], caller=ITSELF)
            with pytest.raises(NotAllowed):
                await subscription.next()
            assert (await remote.whoami(caller=ALICE)).groups == []

    asyncio.run(story())


def test_groups_are_given_by_gateways_that_may_manage_all_users(tmp_path: Path) -> None:
    async def story() -> None:
        rules = allow("gateway", "manage", "user", "ali*"), allow("group:ops", "read", name="orders")
        async with gateway(tmp_path, *rules) as (node, remote):
            in_ops = replace(ALICE, groups=frozenset({"ops"}))
            with pytest.raises(TopicNotFound):
                await remote.read(ReadRequest("orders"), caller=in_ops)
            await node.broker.add_rule(allow("gateway", "manage", "user"), caller=ITSELF)
            await remote.read(ReadRequest("orders"), caller=in_ops)

    asyncio.run(story())


@pytest.mark.parametrize("principal", [NODE, OPERATOR, "role:admin", "*", "a b"])
def test_who_speaks_for_the_node_or_for_nobody_there_can_be_is_sent_away(principal: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway(tmp_path, allow("gateway", "manage", "user")) as (_, remote):
            remote._link.send(Kind.SPEAK_FOR, SpokenFor(principal))
            with pytest.raises(LogboomError):
                await remote.whoami(caller=ITSELF)
            assert isinstance(remote._link.lost, LogboomError)

    asyncio.run(story())


def test_who_has_only_a_token_makes_none_by_speaking_for_others(tmp_path: Path) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node:
            for name, roles in (("gateway", ["admin"]), ("alice", [])):
                await node.broker.add_user(name, [CREDENTIAL], roles=roles, caller=ITSELF)
            alice = await node.broker.sign_in.with_password(Caller(address="192.0.2.1:1"), "alice", PASSWORD)
            token = await node.broker.create_token("gateway", caller=ITSELF)
            profile = Profile(address(node, "binary"), token=token.token)
            async with connect(profile, speaks_for_callers=True) as remote:
                assert [info.name for info in await remote.list_users(caller=alice)] == ["alice"]
                with pytest.raises(NotAllowed):
                    await remote.create_token("alice", caller=alice)

    asyncio.run(story())


def test_the_audit_trail_names_both(tmp_path: Path) -> None:
    async def story() -> None:
        rules = allow("gateway", "manage", "user", "alice"), allow("alice", "create", name="new*")
        async with gateway(tmp_path, *rules) as (node, remote):
            await remote.create_topic("new", caller=ALICE)
            found: list[dict[str, str]] = []
            while not any(record["object"] == "new" for record in found):
                await asyncio.sleep(0.01)
                chunk = await node.broker.read(ReadRequest("_audit"), caller=ITSELF)
                found = [json.loads(record.value or b"") for record in chunk.records()]
            (made,) = [record for record in found if record["object"] == "new"]
            assert (made["who"], made["through"], made["by"]) == ("alice", "gateway", "certificate")
            assert (made["address"], made["protocol"]) == ("192.0.2.7:99", "http")

    asyncio.run(story())


def test_what_is_nested_without_end_ends_the_connection_and_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway(tmp_path) as (node, remote):
            deep = b"\x82\xa9principal\xa1a\xa7through" * 2_000 + b"\xc0"
            remote._link.send(Kind.SPEAK_FOR, msgspec.Raw(deep))
            with pytest.raises(LogboomError):
                await remote.whoami(caller=ITSELF)
            async with connect(Profile(address(node, "binary"), "gateway", PASSWORD)) as another:
                assert (await another.whoami()).principal == "gateway"

    asyncio.run(story())


def test_a_gateway_behind_a_gateway_must_be_one_that_it_may_speak_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gateway(tmp_path) as (_, outer),
            serve(outer) as front,
            connect(f"127.0.0.1:{front.port}", speaks_for_callers=True) as inner,
        ):
            assert (await inner.whoami(caller=ALICE)).principal == "alice"
            with pytest.raises(SignInRequired):
                await inner.read(ReadRequest("orders"), caller=EVERYBODY)
            with pytest.raises(NotAllowed, match="anonymous may not manage user 'alice'"):  # the one between
                await inner.read(ReadRequest("orders"), caller=ALICE)

    asyncio.run(story())


def test_a_node_that_does_not_know_of_it_is_not_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with closed_node(tmp_path) as node:
            await node.broker.add_user("gateway", [CREDENTIAL], caller=ITSELF)
            monkeypatch.setattr("logboom.client.link.session.Welcome.speaks_for", False, raising=False)
            profile = Profile(address(node, "binary"), "gateway", PASSWORD)
            with pytest.raises(RemoteProtocolError, match="too old"):
                await RemoteBroker.connect(profile, speaks_for_callers=True)

    asyncio.run(story())


def test_a_caller_is_the_same_there_and_back() -> None:
    known = Caller("alice", frozenset({"b", "a"}), "http", "192.0.2.7:1", "password", 7, (1, 2))
    behind = replace(known, through=replace(ALICE, through=None))
    assert spoken_for(GATEWAY, head_of(known)) == replace(known, through=GATEWAY)
    assert spoken_for(GATEWAY, head_of(behind)) == replace(known, through=replace(ALICE, through=GATEWAY))
    assert spoken_for(GATEWAY, head_of(ITSELF)) == GATEWAY


@pytest.mark.parametrize(
    "head",
    [
        SpokenFor("alice", groups=["g"] * 101),
        SpokenFor("alice", groups=["role:admin"]),
        SpokenFor("alice", address="x" * 201),
        SpokenFor("alice", through=SpokenFor(NODE)),
    ],
)
def test_what_is_said_of_somebody_is_bounded(head: SpokenFor) -> None:
    with pytest.raises(RemoteProtocolError):
        spoken_for(GATEWAY, head)


def test_no_more_than_a_few_gateways_stand_one_behind_the_other() -> None:
    head = SpokenFor("alice")
    for _ in range(GATEWAYS_MOST + 1):
        head = SpokenFor("alice", through=head)
    with pytest.raises(RemoteProtocolError):
        spoken_for(GATEWAY, head)
