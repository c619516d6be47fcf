"""Who somebody is on the logd port: AUTH, what a stranger may say, and how little of him is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logboom.access.credential import Credential
from logboom.access.rule import Rule
from logboom.broker.caller import ITSELF, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.errors import NotAllowed
from logboom.protocols.logd.codec import LOCKED_BYTES_MAX, Decoder, SharedMemory
from logboom.protocols.logd.errors import SIGN_IN_REQUIRED, TOO_LARGE
from logboom.protocols.logd.requests import Auth, Refusal
from support.peers.logd import Served, serve
from support.peers.served import LOOPS, run

PASSWORD = "häß lich  & lang"


@asynccontextmanager
async def guarded(path: Path, limits: Limits = Limits()) -> AsyncIterator[tuple[LocalBroker, Served]]:  # noqa: B008
    """A node where alice may do everything, bob may describe the node, and others nothing."""
    broker = await LocalBroker.open(str(path), BrokerConfig(anonymous="none"))
    credential = Credential.derive(PASSWORD, b"salt" * 4, iterations=4096)
    await broker.add_user("alice", [credential], roles=["admin"], caller=ITSELF)
    await broker.add_user("bob", [credential], caller=ITSELF)
    async with serve(broker, limits, broker, broker.sign_in, shutdown=True) as node:
        node.front_end.check_end = broker.check_manager
        yield broker, node
    await broker.close()


def auth(user: str, password: str = PASSWORD) -> bytes:
    return f"AUTH {user} {password}\r\n".encode()


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_sent_together_with_the_sign_in_is_done_in_that_name(tmp_path: Path, loop: str) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (_, node):
            peer = await node.peer()
            peer.send(auth("alice") + b"MSG news 5\r\nhello\r\n" * 1000 + b"HEAD news\r\n")
            peer.writer.write_eof()
            answers = (await peer.rest()).split(b"\r\n")
            assert answers == [b"OK 0 0", *(b"OK %d 1" % number for number in range(1000)), b"OK 999 1", b""]

    run(story(), loop)


def test_a_token_says_who_somebody_is_and_counts_until_it_is_revoked(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            made = await broker.create_token("alice", caller=ITSELF)
            peer = await node.peer()
            line = f"AUTH {made.token}\r\n".encode()
            assert await peer.ask(line) == b"OK 0 0"
            assert await peer.ask(b"ACCEPT\r\n") == b"OK 0 0"
            await broker.revoke_token(made.info.id, caller=ITSELF)
            assert await peer.ask(b"ACCEPT\r\n") == b"ERR not allowed"
            assert await (await node.peer()).ask(line) == b"ERR sign-in failed"

    run(story())


@pytest.mark.parametrize(
    "line",
    [
        auth("alice", "wrong-secret"),
        auth("nobody", "wrong-secret"),
        b"AUTH alice wrong-secret\xff\xfe\r\n",
        b"AUTH wrong-secret\r\n",
        b"AUTH alice \r\n",
        b"AUTH alice " + b"wrong-secret" * 300 + b"\r\n",
    ],
)
def test_a_wrong_secret_ends_the_connection_and_is_repeated_nowhere(tmp_path: Path, line: bytes) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            peer = await node.peer()
            peer.send(line + b"PING\r\n")
            said = await peer.rest()
            assert said == b"ERR sign-in failed\r\n"
            incidents = [*node.front_end.rejections.incidents.recent(), *broker.rejections.incidents.recent()]
            assert "wrong-secret" not in f"{incidents}{said!r}"

    run(story())


def test_a_request_does_not_show_its_secret() -> None:
    decoder = Decoder(100, SharedMemory(1 << 20))
    (request,) = decoder.receive(auth("alice"))
    assert request == Auth("alice", PASSWORD)
    assert "lang" not in repr(request) + repr([request])


def test_a_sign_in_without_a_name_is_no_sign_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (_, node):
            peer = await node.peer()
            for line in (b"AUTH\r\n", b"AUTH \r\n", b"AUTH  x\r\n"):
                assert await peer.ask(line) == b"ERR invalid request"
            assert await peer.ask(auth("alice")) == b"OK 0 0"

    run(story())


def test_a_stranger_is_told_nothing_of_the_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            await broker.create_topic("news", caller=ITSELF)
            peer = await node.peer()
            for line in (b"STATS", b"CONFIG", b"TOPICS", b"CURSORS", b"HEAD news", b"READ news 0 0", b"TAIL news 1"):
                assert await peer.ask(line + b"\r\n") == b"ERR sign-in required"
            for line in (b"REFUSE", b"ACCEPT news", b"REPLICATE news/0 1", b"DELETED " + b"0" * 32, b"SHUTDOWN"):
                assert await peer.ask(line + b"\r\n") == b"ERR sign-in required"
            assert await peer.ask(b"PING\r\n") == b"PONG"
            peer.send(b"CLOSE\r\n")
            assert await peer.rest() == b"OK 0 0\r\n"

    run(story())


def test_who_has_signed_in_may_do_what_rules_say_and_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            await broker.create_topic("news", caller=ITSELF)
            await broker.create_topic("secret", caller=ITSELF)
            await broker.add_rule(Rule("allow", "bob", ("read",), "topic", "news"), caller=ITSELF)
            peer = await node.peer()
            assert await peer.ask(auth("bob")) == b"OK 0 0"
            for line in (b"STATS", b"CONFIG", b"REFUSE", b"CURSORS", b"REFUSE news", b"MSG news 1\r\na"):
                assert await peer.ask(line + b"\r\n") == b"ERR not allowed", line
            for line in (b"HEAD secret", b"READ secret 0 1", b"REPLICATE secret/0 1", b"REPLICATE _access/0 1"):
                assert await peer.ask(line + b"\r\n") == b"ERR not found", line
            assert await peer.ask(b"HEAD news\r\n") == b"OK 0 0"
            size = int((await peer.ask(b"TOPICS\r\n")).split()[1])
            assert (await peer.reader.readexactly(size)).startswith(b"news/0: ")
            assert (await peer.ask(b"REPLICATE news/0 1\r\n")).startswith(b"MOK")

    run(story())


def test_rules_may_let_strangers_do_something(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            await broker.add_rule(Rule("allow", "anonymous", ("create", "write"), "topic", "open*"), caller=ITSELF)
            peer = await node.peer()
            assert await peer.ask(b"MSG open 1\r\na\r\n") == b"OK 0 1"
            assert await peer.ask(b"MSG other 1\r\na\r\n") == b"ERR not found"

    run(story())


def test_who_does_not_sign_in_in_time_is_sent_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path, Limits(hello_ms=100)) as (_, node):
            peer, other = await node.peer(), await node.peer()
            assert await other.ask(auth("alice")) == b"OK 0 0"
            assert await peer.rest() == b"ERR unavailable\r\n"
            assert await other.ask(b"PING\r\n") == b"PONG"

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_little_is_kept_of_a_stranger_whatever_he_sends(tmp_path: Path, loop: str) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            release = asyncio.Event()

            async def slow(caller: Caller, user: str, password: str) -> Caller:
                await release.wait()
                return replace(caller, principal=user, by="certificate")

            broker.sign_in.with_password = slow  # type: ignore[method-assign]
            memory = node.front_end.receive_memory
            peers = [await node.peer() for _ in range(20)]
            for peer in peers:
                peer.send(auth("alice") + b"MSG news 1000000\r\n" + bytes(1_000_000) + b"\r\n")
            await node.until(lambda: memory.bytes > 0)
            for _ in range(50):
                await asyncio.sleep(0.002)
                assert memory.bytes <= len(peers) * LOCKED_BYTES_MAX
            release.set()
            assert {await peer.line() for peer in peers} == {b"OK 0 0"}
            assert {(await peer.line())[:2] for peer in peers} == {b"OK"}

    run(story(), loop)


def test_a_stranger_is_cut_off_where_he_sends_too_much_behind_his_name() -> None:
    memory = SharedMemory(1 << 30)
    decoder = Decoder(1 << 20, memory)
    decoder.is_locked = True
    assert decoder.receive(auth("alice") + b"MSG") == [Auth("alice", PASSWORD)]
    assert decoder.receive(bytes(LOCKED_BYTES_MAX - 3)) == []
    assert memory.bytes == LOCKED_BYTES_MAX
    assert decoder.receive(b"x") == [Refusal(TOO_LARGE, is_last=True)]
    assert memory.bytes == 0


def test_a_stranger_sends_no_bodies() -> None:
    for line in (b"MSG news 1000000\r\n", b"BATCH 1000000 news 1 1\r\n"):
        decoder = Decoder(1 << 20, SharedMemory(1 << 30))
        decoder.is_locked = True
        assert decoder.receive(line) == [Refusal(SIGN_IN_REQUIRED, is_last=True)]


def test_a_conversation_over_another_protocol_has_nobody_to_sign_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (_, node):
            caller = Caller("alice", by="certificate")
            said = await node.front_end.converse(auth("alice") + b"ACCEPT\r\n", caller)
            assert said == b"ERR invalid request\r\nOK 0 0\r\n"
            assert await node.front_end.converse(b"STATS\r\nPING\r\n", Caller()) == b"ERR sign-in required\r\nPONG\r\n"

    run(story())


def test_only_who_manages_the_node_ends_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            ended: list[bool] = []
            node.front_end.shutdown = lambda: ended.append(True)
            peer = await node.peer()
            assert await peer.ask(auth("bob") + b"SHUTDOWN\r\n") == b"OK 0 0"
            assert await peer.line() == b"ERR not allowed"
            assert await peer.ask(auth("alice") + b"SHUTDOWN\r\n") == b"OK 0 0"
            assert await peer.line() == b"OK 0 0"
            assert ended == [True]
            with pytest.raises(NotAllowed):
                broker.check_manager(Caller("bob", by="certificate"))

    run(story())
