"""Rules on channels and tags on the logd port: every seqno that is said is right, and reading comes to the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logboom.access.rule import Rule
from logboom.batch import build
from logboom.broker.api import Part
from logboom.broker.caller import ITSELF
from logboom.broker.local import LocalBroker
from logboom.protocols.logd import pages
from support.peers.logd import LogdPeer
from support.peers.served import run
from unit.protocols.test_logd_sign_in import auth, guarded


async def prepare(broker: LocalBroker, *channels: str | None) -> None:
    for text in ("allow bob all topic *", "deny bob read channel b", "deny bob write channel b"):
        effect, who, rights, kind, name = text.split()
        await broker.add_rule(Rule(effect, who, (rights,), kind, name), caller=ITSELF)  # type: ignore[arg-type]
    await broker.create_topic("news", caller=ITSELF)
    await write(broker, *channels)


async def write(broker: LocalBroker, *channels: str | None) -> None:
    batch = build([b"%d" % number for number in range(len(channels))], channels=list(channels))
    await broker.append([Part("news", [batch])], caller=ITSELF)


async def page(peer: LogdPeer, start: int, limit: int = 100) -> tuple[int, list[str]]:
    """The seqno and the values of one answer."""
    head = await peer.ask(b"READ news %d %d\r\n" % (start, limit))
    seqno, batches = map(int, head.removeprefix(b"OK ").split())
    values: list[str] = []
    for _ in range(batches):
        size = int((await peer.line()).split()[1])
        values += re.findall(r"MSG \d+\r\n(.*)\r\n", (await peer.reader.readexactly(size)).decode())
    return seqno, values


def test_each_answer_has_records_that_follow_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            await prepare(broker, "a", "a", "b", "a", None, "b", "b", "a")
            peer = await node.peer()
            await peer.ask(auth("bob"))
            assert await page(peer, 0) == (0, ["0", "1"])
            assert await page(peer, 0, 1) == (0, ["0"])
            assert await page(peer, 1) == (1, ["1"])
            assert await page(peer, 2) == (3, ["3", "4"])
            assert await page(peer, 5) == (7, ["7"])
            assert await page(peer, 8) == (8, [])
            await write(broker, "b", "b")
            assert await page(peer, 8) == (10, [])

    run(story())


def test_a_long_stretch_that_is_left_out_does_not_look_like_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.broker.read.log_reader.FILTER_PATIENCE_S", 0.0)
    monkeypatch.setattr("logboom.broker.read.log_reader.FILTER_BYTES", 1)

    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            await prepare(broker, "b")
            for _ in range(20):
                await write(broker, "b", "b")
            await write(broker, "a")
            peer = await node.peer()
            await peer.ask(auth("bob"))
            assert await page(peer, 0) == (41, ["0"])
            monkeypatch.setattr(pages, "PATIENCE_S", 0.0)
            seqno, values = await page(peer, 0)
            assert (0 < seqno < 41, values) == (True, [])

    run(story())


def test_who_follows_sees_what_he_may_with_its_seqno(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            await prepare(broker, "b", "a", "b")
            peer = await node.peer()
            await peer.ask(auth("bob"))
            peer.send(b"TAIL news 3\r\n")
            found: list[tuple[int, str]] = []

            async def until(count: int) -> None:
                while len(found) < count:
                    seqno, batches = map(int, (await peer.line()).removeprefix(b"OK ").split())
                    for _ in range(batches):
                        size = int((await peer.line()).split()[1])
                        values = re.findall(r"MSG \d+\r\n(.*)\r\n", (await peer.reader.readexactly(size)).decode())
                        found.extend((seqno + number, value) for number, value in enumerate(values))
                        seqno += len(values)

            await until(1)
            for channels in (("a", "b", "a", "a"), ("b",), ("a",)):
                await write(broker, *channels)
            await until(5)
            assert found == [(1, "1"), (3, "0"), (5, "2"), (6, "3"), (8, "0")]

    run(story())


def test_what_may_not_be_written_or_copied_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as (broker, node):
            await prepare(broker, "a")
            await broker.add_rule(Rule("allow", "bob", ("write",), "channel", "a"), caller=ITSELF)
            peer = await node.peer()
            await peer.ask(auth("bob"))
            assert await peer.ask(b"MSG news 2\r\nhi\r\n") == b"ERR not allowed"
            assert await peer.ask(b"REPLICATE news/0 1\r\n") == b"ERR not allowed"
            alice = await node.peer()
            await alice.ask(auth("alice"))
            assert await alice.ask(b"MSG news 2\r\nhi\r\n") == b"OK 1 1"

    run(story())
