"""Both readers against a node, in this process and in one of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from logboom import AsyncReader, Reader, connect
from logboom.batch import build
from logboom.broker.api import Part, ReadRequest, Settings, Start
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.client.link.address import Address
from logboom.client.link.async_link import AsyncLink
from logboom.client.link.blocking_link import BlockingLink
from logboom.errors import (
    ConnectionLost,
    CursorMovedBack,
    InvalidPattern,
    OutcomeUnknown,
    RemoteProtocolError,
    SeqnoOutOfRange,
    TopicNotFound,
    TopicRecreated,
)
from logboom.storage.data.topic import SegmentSettings
from support.brokers.places import served
from support.nodes.process import NodeProcess

Ask = Callable[[str], Awaitable[Any]]


async def fill(broker: LocalBroker, topic: str = "events", count: int = 300, per_batch: int = 30) -> None:
    if not await broker.list_topics(topic):
        await broker.create_topic(topic, 1, Settings(segment=SegmentSettings(bytes=4096)))
    begin = (await broker.describe_topic(topic)).partitions[0].next
    for start in range(begin, begin + count, per_batch):
        numbers = range(start, start + per_batch)
        batch = build(
            [b"%d" % n for n in numbers],
            timestamps=[1_000_000 * n for n in numbers],
            channels=[f"site/{n % 3}" for n in numbers],
            tags=[["ten"] if n % 10 == 0 else [] for n in numbers],
        )
        await broker.append([Part(topic, [batch])], "durable")


def with_node(
    tmp_path: Path, story: Callable[[LocalBroker, str], Awaitable[None]], place: Literal["tcp", "unix"] = "tcp"
) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), served(tmp_path, place) as (broker, address):
            await fill(broker)
            await story(broker, address)

    asyncio.run(run())


FORMS: dict[str, Callable[..., list[int]]] = {
    "records": lambda reader, **how: [record.seqno or 0 for record in reader.records(**how)],
    "iteration": lambda reader: [record.seqno or 0 for record in reader],
    "lists": lambda reader, **how: [n for _, numbers in reader.lists(["value", "seqno"], **how) for n in numbers],
    "tables": lambda reader, **how: [
        n for table in reader.tables(["seqno"], **how) for n in table.column(0).to_pylist()
    ],
    "table": lambda reader: reader.table(["value", "seqno"]).column("seqno").to_pylist(),
    "frames": lambda reader, **how: [n for frame in reader.frames(["seqno"], **how) for n in frame["seqno"]],
}


@pytest.mark.parametrize("place", ["tcp", "unix"])
def test_a_reader_gives_the_log_in_every_form_from_every_start(place: Literal["tcp", "unix"], tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def read() -> None:
            for take in FORMS.values():
                with Reader("events", address, seqno=47) as reader:
                    assert take(reader) == list(range(47, 300))
                    assert (reader.seqno, reader.first, reader.committed, reader.at_end) == (300, 0, 300, True)
                with Reader("events", address, seqno=47, tags_any=["ten"]) as reader:
                    assert take(reader) == list(range(50, 300, 10))
                    assert reader.at_end
            moment = datetime(1970, 1, 1, 0, 3, 20, tzinfo=UTC)
            for start, first in (
                ({}, 0),
                ({"at": "earliest"}, 0),
                ({"timestamp": moment}, 200),
                ({"timestamp": 123_000_001}, 124),
            ):
                with Reader("events", address, **start) as reader:
                    assert next(iter(reader)).seqno == first
            with Reader("events", address, seqno=33) as reader:
                assert sum(len(batch) for batch in reader.batches()) == 270, "the first begins before the position"

        await asyncio.to_thread(read)

    with_node(tmp_path, story, place)


def test_an_async_reader_does_the_same(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        async with AsyncReader("events", address, seqno=47) as reader:
            assert [record.seqno async for record in reader] == list(range(47, 300))
            await reader.seek(290)
            assert [n async for (numbers,) in reader.lists(["seqno"]) for n in numbers] == list(range(290, 300))
            await reader.seek(295)
            assert (await reader.table(["seqno"])).column(0).to_pylist() == list(range(295, 300))
            await reader.seek(299)
            assert [list(frame["seqno"]) async for frame in reader.frames(["seqno"])] == [[299]]
            await reader.seek(270)
            assert [len(batch) async for batch in reader.batches()] == [30]
            await fill(broker, count=30)
            await reader.refresh()
            assert (reader.committed, reader.at_end) == (330, False)
        unopened = AsyncReader("events", address, channel="site/1")
        assert "not opened" in repr(unopened)
        assert [record.seqno async for record in unopened] == list(range(1, 330, 3))
        await unopened.close()

    with_node(tmp_path, story)


def test_a_follower_sees_what_is_written_and_ends_when_nothing_comes(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        seen: list[int] = []

        def follow() -> None:
            with Reader("events", address, at="latest") as reader:
                pinned.set()
                seen.extend(record.seqno or 0 for record in reader.records(follow=True, timeout_s=3.0))

        pinned = threading.Event()
        async with AsyncReader("events", address, at="latest") as reader:
            following = asyncio.create_task(asyncio.to_thread(follow))
            await asyncio.to_thread(pinned.wait)
            for _ in range(5):
                await fill(broker, count=30)
            found = [record.seqno async for record in reader.records(follow=True, timeout_s=3.0)]
        await following
        assert seen == found == list(range(300, 450))

    with_node(tmp_path, story)


def test_inside_a_loop_the_bookmark_is_behind_the_last_record_given(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def read() -> None:
            for options in ({}, {"tags_any": ["ten"]}):
                seqnos = []
                bookmark = None
                for _ in range(400):
                    with Reader("events", address, bookmark=bookmark, **options) as reader:  # type: ignore[arg-type]
                        record = next(reader.records(), None)
                        if record is None:
                            break
                        seqnos.append(record.seqno)
                        bookmark = reader.bookmark
                assert seqnos == list(range(0, 300, 10 if options else 1))

        await asyncio.to_thread(read)

    with_node(tmp_path, story)


def test_a_cursor_goes_on_where_it_was_committed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def read() -> None:
            with Reader("events", address, cursor="billing") as reader:
                for record in reader:
                    if record.seqno == 99:
                        reader.commit()
                        break
            with Reader("events", address, cursor="billing") as reader:
                assert next(iter(reader)).seqno == 100
            with Reader("events", address, cursor="other", at="latest") as reader:
                assert reader.seqno == 300
            with Reader("events", address) as reader, pytest.raises(ValueError, match="cursor"):
                reader.commit()

        await asyncio.to_thread(read)
        async with AsyncReader("events", address, cursor="billing", seqno=7) as reader:
            assert (await anext(aiter(reader))).seqno == 7
            with pytest.raises(CursorMovedBack, match="stands at seqno 100"):
                await reader.commit()
            await reader.commit(force=True)
        (info,) = await broker.list_cursors("events")
        assert (info.cursor, info.seqno) == ("billing", 8)

    with_node(tmp_path, story)


def test_what_is_gone_is_named_or_skipped(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await broker.trim("events", None, 100)

        def read() -> None:
            with pytest.raises(SeqnoOutOfRange) as gone:
                Reader("events", address, seqno=5)
            assert gone.value.first == 100
            with Reader("events", address, seqno=5, gaps="skip") as reader:
                assert FORMS["records"](reader) == list(range(100, 300))
                assert reader.skipped == 95
                assert isinstance(reader.last_gap, SeqnoOutOfRange)
            with pytest.raises(TopicNotFound):
                Reader("nothing", address)

        await asyncio.to_thread(read)
        async with AsyncReader("events", address, seqno=150) as reader:
            records = reader.records()
            assert (await anext(records)).seqno == 150
            bookmark = reader.bookmark
            await broker.delete_topic("events")
            await fill(broker, count=60)
            with pytest.raises(TopicRecreated):
                _ = [record async for record in reader.records()]
        with pytest.raises(TopicRecreated):
            await AsyncReader("events", address, bookmark=bookmark).open()
        async with AsyncReader("events", address, bookmark=bookmark, gaps="skip") as reader:
            assert [record.seqno async for record in reader] == list(range(60))
            assert isinstance(reader.last_gap, TopicRecreated)

    with_node(tmp_path, story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seqno": 1, "timestamp": 2},
        {"at": "end"},
        {"gaps": "none"},
        {"seqno": -1},
        {"bookmark": "nonsense"},
        {"channel": "a/#/b"},
        {"tags_any": "red"},
        {"servers": "a b"},
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, InvalidPattern)):
        Reader("events", **{"servers": "127.0.0.1:1", **wrong})


def test_a_node_that_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(ConnectionLost, match="logboom serve"):
        Reader("events", "127.0.0.1:1", connect_timeout_s=0.1)

    async def ask() -> None:
        async with connect("127.0.0.1:1"):
            pass

    with pytest.raises(ConnectionLost, match="logboom serve"):
        asyncio.run(ask())
    with pytest.raises(ConnectionLost, match="unix:/nowhere"):
        Reader("events", "unix:/nowhere", connect_timeout_s=0.1)


class Stranger(asyncio.Protocol):
    """Something that is no node."""

    def __init__(self, met: list[asyncio.Transport], answer: bytes, hang_up: bool) -> None:
        self._met, self._answer, self._hang_up = met, answer, hang_up

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._met.append(transport)

    def data_received(self, data: bytes) -> None:
        self._met[-1].write(self._answer)
        if self._hang_up:
            self._met[-1].close()


@pytest.mark.parametrize(
    ("answer", "hang_up", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, RemoteProtocolError),
        (b"", True, ConnectionLost),
        (b"", False, ConnectionLost),
    ],
)
def test_a_peer_that_is_no_node_is_told_from_one(answer: bytes, hang_up: bool, error: type[Exception]) -> None:
    async def run() -> None:
        met: list[asyncio.Transport] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Stranger(met, answer, hang_up), "127.0.0.1", 0)
        place = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises((error, ConnectionLost)):
            await asyncio.to_thread(BlockingLink.connect, place, 0.2)
        with pytest.raises((error, ConnectionLost)):
            await AsyncLink.connect(place, 0.2)
        server.close()
        for transport in met:
            transport.abort()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_whoever_waits_on_a_lost_connection_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as (broker, address):
            await fill(broker)
            through = await Proxy.open(Address.parse(address).port)
            async with connect(through.address) as remote:
                await broker.create_topic("quiet")
                waiting = asyncio.ensure_future(remote.read(ReadRequest("quiet", wait_ms=60_000)))
                subscription = await remote.subscribe(ReadRequest("quiet"))
                pushed = asyncio.ensure_future(subscription.next())
                assert await remote.ping() < 60
                through.hold()
                append = remote.append([Part("quiet", [build([b"x"])])])
                await asyncio.sleep(0.05)
                through.cut()
                with pytest.raises(ConnectionLost):
                    await waiting
                with pytest.raises(ConnectionLost):
                    await pushed
                with pytest.raises(OutcomeUnknown):
                    await append
                with pytest.raises(ConnectionLost):
                    await remote.append([Part("quiet", [build([b"x"])])])
                with pytest.raises(ConnectionLost):
                    await remote.ping()
                assert "lost" in repr(remote)
            await through.close()

    asyncio.run(run())


class Proxy:
    """Between a client and a node: passes bytes on, until it is told not to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._holds = False
        self._is_cut = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.address = ""

    @classmethod
    async def open(cls, port: int) -> Proxy:
        proxy = cls(port)
        proxy._server = await asyncio.start_server(proxy._meet, "127.0.0.1", 0)
        proxy.address = f"127.0.0.1:{proxy._server.sockets[0].getsockname()[1]}"
        return proxy

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        self._tasks += [asyncio.create_task(self._pass(*ends)) for ends in ((reader, back), (there, writer))]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not self._holds:
                    writer.write(data)
        if self._holds:
            await self._is_cut.wait()  # not even the end is passed on
        writer.close()

    def hold(self) -> None:
        """Swallow everything from now on: the peers do not know."""
        self._holds = True

    def cut(self) -> None:
        """Reset every connection."""
        self._is_cut.set()
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks)
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


def test_a_reader_survives_connections_that_are_cut_again_and_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), served(tmp_path) as (broker, address):
            await fill(broker, count=3000)
            through = await Proxy.open(Address.parse(address).port)
            seen: list[int] = []

            def read() -> None:
                with Reader("events", through.address) as reader:
                    for record in reader:
                        seen.append(record.seqno or 0)
                        if record.seqno and record.seqno % 500 == 0:
                            loop.call_soon_threadsafe(through.cut)

            loop = asyncio.get_running_loop()
            await asyncio.to_thread(read)
            assert seen == list(range(3000))
            again: list[int] = []
            async with AsyncReader("events", through.address) as reader:
                async for record in reader.records():
                    again.append(record.seqno or 0)
                    if len(again) % 500 == 0:
                        through.cut()
                        await asyncio.sleep(0.01)
            assert again == list(range(3000))
            await through.close()

    asyncio.run(run())


def test_a_peer_that_says_nothing_any_more_is_given_up(tmp_path: Path) -> None:
    async def run() -> None:
        limits = BrokerConfig(limits=Limits(idle_ms=1000))
        async with asyncio.timeout(300), served(tmp_path, "tcp", limits) as (broker, address):
            await fill(broker, count=30)
            quiet, loud = [await Proxy.open(Address.parse(address).port) for _ in range(2)]

            def follow() -> list[int]:
                with Reader("events", [quiet.address, loud.address]) as reader:
                    records = reader.records(follow=True, timeout_s=300)
                    seen = [next(records).seqno or 0 for _ in range(30)]
                    loop.call_soon_threadsafe(quiet.hold)
                    return seen + [next(records).seqno or 0 for _ in range(30)]

            loop = asyncio.get_running_loop()
            following = asyncio.create_task(asyncio.to_thread(follow))
            async with connect(quiet.address) as remote:
                waiting = remote.read(ReadRequest("events", Start(at="latest"), wait_ms=60_000))
                with pytest.raises(ConnectionLost, match="not been heard of"):
                    await waiting
            await fill(broker, count=30)
            quiet.cut()
            assert await following == list(range(60))
            await quiet.close()
            await loud.close()

    asyncio.run(run())


def test_a_connection_on_which_nothing_happens_is_kept_alive(tmp_path: Path) -> None:
    async def run() -> None:
        limits = BrokerConfig(limits=Limits(idle_ms=2000))
        async with asyncio.timeout(300), served(tmp_path, "tcp", limits) as (broker, address):
            await fill(broker, count=30)

            def follow() -> None:
                with Reader("events", address, at="latest") as reader:
                    link = reader._link
                    assert not list(reader.records(follow=True, timeout_s=4.5))
                    assert reader._link is link

            async with connect(address) as remote:
                await asyncio.to_thread(follow)
                assert await remote.ping() < 60

    asyncio.run(run())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path, "--unix", str(tmp_path / "socket")) as running:
        yield running


def test_a_follower_goes_on_exactly_where_it_was_after_the_node_was_killed(node: NodeProcess, tmp_path: Path) -> None:
    async def write(start: int) -> None:
        async with connect(node.address) as broker:
            for n in range(start, start + 500, 50):
                await broker.append([Part("events", [build([b"%d" % k for k in range(n, n + 50)])])], "durable")

    asyncio.run(write(0))
    with Reader("events", ["127.0.0.1:1", f"unix:{tmp_path / 'socket'}", node.address]) as reader:
        records = reader.records(follow=True, timeout_s=300)
        seen = [next(records).seqno for _ in range(275)]
        node.kill()
        node.start()
        asyncio.run(write(500))
        seen += [next(records).seqno for _ in range(725)]
        assert seen == list(range(1000))


def test_a_closed_reader_connects_again_when_it_is_asked_to(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        def read() -> None:
            reader = Reader("events", address)
            assert next(iter(reader)).seqno == 0
            reader.close()
            assert [record.seqno for record in reader] == list(range(1, 300))
            reader.close()

        await asyncio.to_thread(read)

    with_node(tmp_path, story)
