"""What the logd front-end asks of a broker, in which order it answers, and what it makes of what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.api import Deletion, FeedOrigin, FeedPiece, NodeStats, Part, Settings
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.errors import IndexOutOfRange, TopicDeleted, TopicNotFound
from logboom.protocols.logd.answers import PIECE_RECORDS
from support.brokers.memory import MemoryBroker
from support.peers.logd import LogdPeer, serve
from support.peers.served import LOOPS, run

STORED = bytes(build([b"stored"]).data)


async def events(hold: bool = False) -> MemoryBroker:
    broker = MemoryBroker(hold)
    await broker.create_topic("events")
    return broker


def test_messages_that_come_together_are_one_append_with_an_answer_each() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(b"".join(b"MSG events 3\r\n%03d\r\n" % number for number in range(500)))
            assert [await peer.line() for _ in range(500)] == [b"OK %d 1" % number for number in range(500)]
            assert len(broker.appends) < 10
            meter = node.front_end.meter
            assert (meter.records_in, meter.append.shown().count) == (500, meter.batches_in)

    run(story())


def test_messages_that_come_while_an_append_is_under_way_are_gathered() -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peers = [await node.peer() for _ in range(5)]
            for number, peer in enumerate(peers):
                assert await peer.ask(b"PING\r\nMSG events 1\r\n%d\r\n" % number) == b"PONG"
            await node.until(lambda: bool(broker.held))
            broker.release()
            assert await peers[0].line() == b"OK 0 1"
            broker.release()
            assert [await peer.line() for peer in peers[1:]] == [b"OK %d 1" % number for number in range(1, 5)]
            assert len(broker.appends) == 2

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_waits_for_those_before_it(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        await broker.create_topic("others")
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(b"MSG events 1\na\nPING\nMSG others 1\nb\nHEAD others\nPING\n")
            await node.until(lambda: len(broker.held) == 2)
            broker.release(1)
            assert await (await node.peer()).ask(b"PING\n") == b"PONG"
            broker.release(0)
            assert [await peer.line() for _ in range(5)] == [b"OK 0 1", b"PONG", b"OK 0 1", b"OK 0 1", b"PONG"]

    run(story(), loop)


def test_what_was_refused_is_refused_one_by_one() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            peer.send(b"MSG none 1\na\nMSG none 1\nb\nMSG events 1\nc\n")
            assert [await peer.line() for _ in range(3)] == [b"ERR not found", b"ERR not found", b"OK 0 1"]

    run(story())


def test_an_error_that_nobody_foresaw_is_reported_and_the_peer_told_little() -> None:
    class Broken(MemoryBroker):
        async def stats(self, *, caller: Caller = EVERYBODY) -> NodeStats:
            raise KeyError("secret")

    async def story() -> None:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["exception"]))
        async with serve(Broken()) as node:
            peer = await node.peer()
            assert await peer.ask(b"STATS\r\n") == b"ERR unavailable"
            assert await peer.ask(b"PING\r\n") == b"PONG"
            assert [type(report) for report in reports] == [KeyError]

    run(story())


def test_a_page_read_is_counted() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer = await node.peer()
            assert await peer.ask(b"MSG events 1\na\n") == b"OK 0 1"
            peer.send(b"READ events 0 10\r\nREAD events 1 10\r\n")
            assert await peer.values() == [b"a"]
            assert await peer.values() == []
            meter = node.front_end.meter
            assert (meter.records_out, meter.read.shown().count) == (1, 1)

    run(story())


def test_records_stay_whole_where_batches_must_be_small(tmp_path: Path) -> None:
    async def story() -> None:
        limits = Limits(batch_bytes=4096)
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(limits=limits))
        async with serve(broker, limits) as node:
            peer = await node.peer()
            peer.send(b"MSG events 500\n%b\n" % bytes(500) * 100 + b"MSG events 4090\n%b\n" % bytes(4090))
            assert [await peer.line() for _ in range(100)] == [b"OK %d 1" % number for number in range(100)]
            assert await peer.line() == b"ERR too large"
            assert await peer.ask(b"PING\r\n") == b"PONG"
        await broker.close()

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_for_several_logs_are_one_append_each_and_answered_in_their_order(loop: str) -> None:
    async def story() -> None:
        broker = MemoryBroker(hold=True)
        for name in ("a", "b"):
            await broker.create_topic(name)
        async with serve(broker, Limits(topics_per_connection=3)) as node:
            peer = await node.peer()
            peer.send(b"MSG a 1\n0\nMSG b 1\n1\nMSG none 1\n2\nMSG a 1\n3\nMSG d 1\n4\nMSG b 1\n5\nPING\n")
            await node.until(lambda: len(broker.held) == 3)
            assert [parts[0].batches[0].values() for parts, _ in broker.appends] == [[b"0", b"3"], [b"1", b"5"], [b"2"]]
            broker.release()
            assert await peer.line() == b"OK 0 1"
            broker.release(1)
            broker.release()
            answers = [b"OK 0 1", b"ERR not found", b"OK 1 1", b"ERR maximum topics allowed", b"OK 1 1", b"PONG"]
            assert [await peer.line() for _ in range(6)] == answers
            assert node.front_end.meter.records_in == 4

    run(story(), loop)


def test_however_many_commands_come_at_once_others_have_their_turn() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            peer, other = await node.peer(), await node.peer()
            commands = b"MSG events 0\n\nPING\n" * 5000
            long = asyncio.create_task(node.front_end.converse(commands, EVERYBODY))
            peer.send(commands)
            assert await other.ask(b"PING\n") == b"PONG"
            assert not long.done()
            assert (await long).count(b"PONG\r\n") == 5000
            answers = [await peer.line() for _ in range(10_000)]
            assert answers[1::2] == [b"PONG"] * 5000

    run(story())


@pytest.mark.parametrize("ask", [b"READ events %d 1000000\n", b"READ events 0 0\n"])
def test_what_is_stored_small_and_reads_large_is_answered_piece_by_piece(ask: bytes, tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        large, many = build([bytes(2**19)] * 8, codec="zstd"), build([b""] * 40_000, codec="zstd")
        await broker.append([Part("events", [*[large] * 5, many])])
        async with serve(broker) as node:
            peer = await node.peer()
            seqno, sizes, counts = 0, [], []
            while seqno < 40_040:
                if b"%d" in ask or not seqno:
                    peer.send(ask.replace(b"%d", b"%d" % seqno))
                values = await peer.values()
                sizes.append(sum(map(len, values)))
                counts.append(len(values))
                seqno += counts[-1]
            assert sizes[:6] == [8 * 2**19] * 5 + [0]
            assert seqno == 40_040
            assert max(counts) <= PIECE_RECORDS
        await broker.close()

    run(story())


def test_all_commands_at_once_get_all_their_answers() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            converse = node.front_end.converse
            assert await converse(b"", EVERYBODY) == b""
            assert await converse(b"MSG events 1\na\nPING\nHEAD events\n", EVERYBODY) == b"OK 0 1\r\nPONG\r\nOK 0 1\r\n"
            assert await converse(b"PING\nCLOSE\nPING\n", EVERYBODY) == b"PONG\r\nOK 0 0\r\n"
            assert await converse(b"PING\nHUH\nPING\n", EVERYBODY) == b"PONG\r\nERR invalid protocol\r\n"
            assert await converse(b"PING\nMSG events 5\nhel", EVERYBODY) == b"PONG\r\nERR invalid protocol\r\n"
            endless = b"READ events 0 0\nTAIL events 1\nREPLICATE events/0 1\nPING\n"
            assert await converse(endless, EVERYBODY) == b"ERR invalid request\r\n" * 3 + b"PONG\r\n"
            assert node.front_end.receive_memory.bytes == 0

    run(story())


def test_answers_to_commands_at_once_are_bounded() -> None:
    async def story() -> None:
        broker = await events()
        for _ in range(20):
            broker.logs["events"].append(bytes(build([bytes(50_000)]).data), 1)
        async with serve(broker, Limits(read_bytes=100_000)) as node:
            found = await node.front_end.converse(b"READ events 0 100\n" * 100 + b"PING\n", EVERYBODY)
            assert len(found) < 300_000
            assert found.endswith(b"ERR too large\r\nERR too large\r\nPONG\r\n")

    run(story())


def test_who_gives_up_a_conversation_leaves_nothing_behind() -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            conversing = asyncio.create_task(node.front_end.converse(b"MSG events 1\na\nHEAD events\n", EVERYBODY))
            await node.until(lambda: bool(broker.held))
            conversing.cancel()
            await asyncio.wait([conversing])
            broker.release()
            await asyncio.sleep(0)
            assert not node.front_end._tasks

    run(story())


class Fed:
    """A feed that gives what a test puts into it."""

    def __init__(self, index: int) -> None:
        self.origin = FeedOrigin("n", "c", "events", "t", 1, 0, Settings(), index, b"snapshot")
        self.queue: asyncio.Queue[FeedPiece | Exception] = asyncio.Queue()
        self.last = FeedPiece(memoryview(b""), index, 0, 0, 0)
        self.closed = 0

    def put(self, data: bytes, first: int = 0) -> None:
        index = self.last.next_index + (1 if data else 0)
        self.last = FeedPiece(memoryview(data), index, first, index, index)
        self.queue.put_nowait(self.last)

    async def next(self, max_bytes: int = 0, wait_ms: int = 1000) -> FeedPiece:
        if not wait_ms and self.queue.empty():
            return self.last
        found = await self.queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        self.closed += 1


class Feeding:
    def __init__(self) -> None:
        self.feeds: dict[str, Fed] = {}

    async def feed(self, topic: str, partition: int | None, index: int, *, caller: Caller = EVERYBODY) -> Fed:
        if topic == "none":
            raise TopicNotFound(topic, "here")
        if index > 100:
            raise IndexOutOfRange(index, 1, 100)
        feed = self.feeds[f"{topic}/{partition}"] = Fed(index)
        return feed

    def deleted(self, topic_ids: Sequence[str], *, caller: Caller = EVERYBODY) -> list[Deletion]:
        return []

    def access(self, version: str, *, caller: Caller = EVERYBODY) -> tuple[str, dict[bytes, bytes] | None]:
        return "7f", None

    def groups(self, version: str, *, caller: Caller = EVERYBODY) -> tuple[str, dict[bytes, bytes] | None]:
        return "7f", None


@pytest.mark.parametrize("loop", LOOPS)
def test_several_logs_are_fed_over_one_connection(loop: str) -> None:
    async def story() -> None:
        feeding = Feeding()
        async with serve(await events(), feeds=feeding) as node:
            peer = await node.peer()
            size = int((await peer.ask(b"REPLICATE events/0 7\r\n")).split()[1])
            line = await peer.reader.readexactly(size)
            assert line.endswith(b"\r\n")
            origin = msgspec.json.decode(line.removeprefix(b"origin: "), type=FeedOrigin)
            assert origin == feeding.feeds["events/0"].origin
            assert await peer.line() == b"STORED events/0 0 7 0 0 0"
            size = int((await peer.ask(b"REPLICATE others/3 1\r\n")).split()[1])
            await peer.reader.readexactly(size)
            assert await peer.line() == b"STORED others/3 0 1 0 0 0"
            feeding.feeds["events/0"].put(STORED)
            assert await peer.line() == b"STORED events/0 %d 8 0 8 8" % len(STORED)
            assert await peer.reader.readexactly(len(STORED)) == STORED
            feeding.feeds["others/3"].put(b"", first=5)
            assert await peer.line() == b"STORED others/3 0 1 5 1 1"
            assert await peer.ask(b"PING\r\n") == b"PONG"
            feeding.feeds["events/0"].queue.put_nowait(TopicDeleted("events", "t"))
            assert await peer.line() == b"GONE events/0"
            assert await peer.ask(b"REPLICATE none/0 1\r\n") == b"ERR not found"
            assert await peer.ask(b"REPLICATE events/0 101\r\n") == b"ERR invalid request"
            assert await peer.ask(b"MSG events 1\r\na\r\n") == b"ERR invalid request"
            peer.send(b"CLOSE\r\n")
            assert await peer.rest() == b"OK 0 0\r\n"
            await node.until(lambda: not node.front_end._tasks)
            assert [feed.closed for feed in feeding.feeds.values()] == [1, 1]

    run(story(), loop)


def test_a_copy_that_does_not_read_is_sent_no_more() -> None:
    async def story() -> None:
        feeding = Feeding()
        async with serve(await events(), feeds=feeding) as node:
            peer = await node.peer()
            size = int((await peer.ask(b"REPLICATE events/0 1\r\n")).split()[1])
            await peer.reader.readexactly(size)
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            feed = feeding.feeds["events/0"]
            for _ in range(200):
                feed.put(bytes(256 * 1024))
            transport = node.transport
            await node.until(lambda: transport.get_write_buffer_size() > 1 << 20)
            other = await node.peer()
            for _ in range(20):
                assert await other.ask(b"PING\n") == b"PONG"
            assert feed.queue.qsize() > 100
            assert transport.get_write_buffer_size() < 2 << 20

    run(story())


def test_a_node_that_feeds_nobody_says_so() -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            assert await (await node.peer()).ask(b"REPLICATE events/0 1\r\n") == b"ERR invalid request"

    run(story())


def test_all_partitions_of_a_topic_are_followed_where_that_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path))
        await broker.create_topic("rooms", 3)
        for partition in range(3):
            values = [b"%d-%d" % (partition, number) for number in range(5)]
            await broker.append([Part("rooms", [build(values)], partition)], "durable")
        async with serve(broker) as node:
            peer = await node.peer()
            assert await peer.ask(b"TAIL rooms 2\r\n") == b"ERR not found"
            assert await peer.ask(b"TAIL rooms 2 all\r\n") == b"ERR invalid request"
            assert await peer.ask(b"TAIL nothing 2 ALL\r\n") == b"ERR not found"
            peer.send(b"TAIL ro*,rooms/1 2 ALL\r\n")
            found = [await _page(peer) for _ in range(3)]
            assert sorted(found) == [(b"rooms/%d" % n, [b"%d-3" % n, b"%d-4" % n]) for n in range(3)]
            await broker.create_topic("roofs", 1)
            await broker.append([Part("roofs", [build([b"new"])])], "durable")
            assert await _page(peer) == (b"roofs/0", [b"new"])
            assert await peer.ask(b"PING\r\n") == b"PONG"
        await broker.close()

    run(story())


async def _page(peer: LogdPeer) -> tuple[bytes, list[bytes]]:
    """An answer with one batch: its log, and its values."""
    assert (await peer.line()).startswith(b"OK ")
    word, _, log, _, count = (await peer.line()).split()
    assert word == b"BATCH"
    values = []
    for _ in range(int(count)):
        assert (await peer.line()).startswith(b"MSG ")
        values.append(await peer.line())
    return log, values
