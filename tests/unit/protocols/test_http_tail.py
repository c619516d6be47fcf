"""Server-sent events: every record once, however often the connection is lost; and how a tail ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from logboom.batch import Record, build_records
from logboom.broker.api import Part, Settings
from logboom.protocols.http import tail_events as tail
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from logboom.storage.data.topic import FlushSettings
from support.brokers.any_broker import AnyBroker
from support.nodes.web import RawPeer, WebNode, tell
from unit.protocols.test_http_reading import break_header, crash

TAIL = "/topics/t/tail"


class Event(NamedTuple):
    id: str | None
    kind: str
    data: str


class Events:
    """As the specification of EventSource has it: the id counts with the blank line that ends its block."""

    def __init__(self, last: str | None = None) -> None:
        self.last = last
        self.comments = 0
        self.retry: int | None = None
        self._rest = b""

    def take(self, data: bytes) -> list[Event]:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        return [event for event in map(self._block, blocks) if event is not None]

    def _block(self, block: bytes) -> Event | None:
        kind, lines = "message", []
        for line in block.decode().split("\n"):
            name, _, text = line.partition(":")
            text = text.removeprefix(" ")
            if not name:
                self.comments += 1
            elif name == "id":
                self.last = text
            elif name == "event":
                kind = text
            elif name == "retry":
                self.retry = int(text)
            elif name == "data":
                lines.append(text)
        return Event(self.last, kind, "\n".join(lines)) if lines else None


class Stream:
    def __init__(self, chunks: AsyncIterator[bytes], events: Events) -> None:
        self._chunks = chunks
        self.events = events
        self._ready: list[Event] = []

    async def read(self) -> bool:
        """Whether there was more."""
        chunk = await anext(self._chunks, None)
        if chunk is not None:
            self._ready += self.events.take(chunk)
        return chunk is not None

    async def next(self) -> Event | None:
        while not self._ready:
            if not await self.read():
                return None
        return self._ready.pop(0)

    async def values(self, count: int) -> list[Any]:
        return [json.loads(event.data)["value"] for event in [await self.next() for _ in range(count)] if event]


@asynccontextmanager
async def tailing(node: WebNode, query: str = "", last: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if last is None else {"last-event-id": last}
    async with node.client.stream("GET", f"{TAIL}{query}", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = Stream(answer.aiter_bytes(), Events(last))
        await stream.read()
        yield stream


async def append(broker: AnyBroker, *values: bytes, tags: tuple[str, ...] = (), partition: int | None = None) -> None:
    batch = build_records([Record(value, tags=tags) for value in values])
    await broker.append([Part("t", [batch], partition)], "durable")


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_records_come_as_they_are_written_and_each_one_tells_how_to_go_on(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, b"before")
        async with tailing(node) as stream:
            assert stream.events.retry == tail.RETRY_MS
            assert stream.events.last is not None
            assert Bookmark.parse(stream.events.last).seqno == 1
            await append(node.broker, b"a", b"b\nc")
            first, second = await stream.next(), await stream.next()
            assert first is not None
            assert second is not None
            page = (await node.client.get("/topics/t/records?from=1")).json()
            assert [json.loads(event.data) for event in (first, second)] == page["records"]
            assert (first.kind, second.id) == ("message", page["next"])
            await append(node.broker, b"d")
            assert await stream.values(1) == ["d"]
        async with tailing(node, last=first.id) as stream:
            assert await stream.values(2) == ["b\nc", "d"]

    assert tell(tmp_path, story) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?from=earliest", ["0", "1", "2"]),
        ("?from=2", ["2", "3", "4"]),
        ("?from=1970-01-01T00:00:00Z", ["0", "1", "2"]),
        ("?from=earliest&tag=x", ["1", "3"]),
        ("?from=2&tag=x&tag=y", ["2", "3", "4"]),
        ("?from=earliest&channel=c/%2B", ["2"]),
        ("?from=earliest&key=k4", ["4"]),
    ],
)
def test_a_tail_begins_anywhere_and_takes_filters(tmp_path: Path, query: str, expected: list[str]) -> None:
    async def story(node: WebNode) -> None:
        records = [
            Record(b"%d." % n, b"k%d" % n, channel=f"c/{n}" if n == 2 else None, tags=("x",) if n % 2 else ("y",))
            for n in range(5)
        ]
        await node.broker.append([Part("t", [build_records(records[:2]), build_records(records[2:])])], "durable")
        async with tailing(node, query) as stream:
            assert await stream.values(len(expected)) == [f"{number}." for number in expected]

    tell(tmp_path, story)


@pytest.mark.parametrize("query", ["?from=earliest", "?from=earliest&tag=x"])
@pytest.mark.parametrize("seed", range(3))
def test_every_record_comes_once_however_often_the_connection_is_lost(tmp_path: Path, query: str, seed: int) -> None:
    dice = random.Random(seed)
    count = 300

    async def write(broker: AnyBroker) -> None:
        number = 0
        while number < count:
            size = min(count - number, dice.choice([1, 1, 2, 7, 30]))
            await append(broker, *(b"v%d" % (number + n) for n in range(size)), tags=("x",))
            await append(broker, b"other", tags=("y",))
            number += size

    async def story(node: WebNode) -> None:
        await node.broker.create_topic("t")
        writing = asyncio.ensure_future(write(node.broker))
        seen: list[str] = []
        last: str | None = None
        lives = 0
        while len(seen) < count:
            lives += 1
            peer = await node.connect()
            await peer.send(request(query, last))
            await peer.reader.readuntil(b"\r\n\r\n")
            events = Events(last)
            left = dice.randrange(1, 5000)
            while left > 0 and len(seen) < count:
                data = await read_chunk(peer)
                data, left = data[:left], left - len(data)  # the connection breaks in the middle of anything
                values = [json.loads(event.data)["value"] for event in events.take(data)]
                seen += [value for value in values if value != "other"]
            last = events.last
            peer.writer.transport.abort()
        assert seen == [f"v{number}" for number in range(count)]
        assert lives > 3
        await writing

    assert tell(tmp_path, story) == []


def request(query: str, last: str | None) -> bytes:
    header = f"last-event-id: {last}\r\n" if last else ""
    return f"GET {TAIL}{query} HTTP/1.1\r\nhost: localhost\r\n{header}\r\n".encode()


async def read_chunk(peer: RawPeer) -> bytes:
    """Of a chunked body."""
    size = int(await peer.reader.readline(), 16)
    return (await peer.reader.readexactly(size + 2))[:-2]


def test_nothing_is_lost_to_those_who_lose_the_connection_before_the_first_record(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, b"before")
        async with tailing(node) as stream:
            last = stream.events.last
        await append(node.broker, b"meanwhile")
        async with tailing(node, "?from=latest", last) as stream:
            assert await stream.values(1) == ["meanwhile"]

    tell(tmp_path, story)


def test_a_heartbeat_moves_the_id_over_what_a_filter_passes_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "HEARTBEAT_S", 0.02)

    async def story(node: WebNode) -> None:
        await append(node.broker, b"a")
        async with tailing(node, "?tag=x") as stream:
            while stream.events.comments < 2:
                await stream.read()
            await append(node.broker, b"b", b"c")
            while stream.events.last is None or Bookmark.parse(stream.events.last).seqno < 3:
                await stream.read()
            await append(node.broker, b"d", tags=("x",))
            assert await stream.values(1) == ["d"]

    tell(tmp_path, story)


def test_closing_ends_a_tail_without_an_error(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, b"a")
        async with tailing(node) as stream:
            node.front_end.closing.set()
            assert await stream.next() is None

    assert tell(tmp_path, story) == []


def test_whoever_hangs_up_leaves_no_subscription(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, b"a")
        async with tailing(node, "?from=0") as stream:
            assert await stream.values(1) == ["a"]
            assert (await node.broker.stats()).reads["subscriptions"] == 1
        while (await node.broker.stats()).reads["subscriptions"]:
            await asyncio.sleep(0.001)

    assert tell(tmp_path, story) == []


def test_the_end_of_the_topic_is_an_event_and_the_last_one(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, b"a")
        async with tailing(node) as stream:
            await node.broker.delete_topic("t")
            event = await stream.next()
            assert event is not None
            assert (event.kind, json.loads(event.data)["code"]) == ("error", "topic-deleted")
            assert stream.events.retry == tail.RETRY_IN_VAIN_MS
            assert await stream.next() is None
            last = stream.events.last
        async with tailing(node, last=last) as stream:
            event = await stream.next()
            assert event is not None
            assert json.loads(event.data)["code"] == "topic-not-found"
        await append(node.broker, b"another")
        async with tailing(node, last=last) as stream:
            event = await stream.next()
            assert event is not None
            assert (event.kind, json.loads(event.data)["code"]) == ("error", "topic-recreated")
            assert await stream.next() is None

    assert tell(tmp_path, story) == []


def test_what_retention_took_from_a_reader_is_an_event(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, b"a", b"b", b"c")
        async with tailing(node, "?from=0") as stream:
            first = await stream.next()
        assert first is not None
        await node.broker.trim("t", None, 2)
        async with tailing(node, last=first.id) as stream:
            event = await stream.next()
            assert event is not None
            told = json.loads(event.data)
            assert (told["code"], told["data"]) == ("seqno-out-of-range", {"seqno": 1, "first": 2, "next": 3})
        async with tailing(node, "?gaps=skip", first.id) as stream:
            assert await stream.values(1) == ["c"]

    tell(tmp_path, story)


@pytest.mark.parametrize("query", ["?from=0", "?from=0&tag=x"])
def test_a_lost_tail_is_noticed_by_the_id_of_any_event(tmp_path: Path, query: str) -> None:
    async def live(node: WebNode) -> None:
        if not await node.broker.list_topics():
            await node.broker.create_topic("t", 1, Settings(flush=FlushSettings("os")))
        await append(node.broker, b"a.", b"b.", tags=("x",))
        await append(node.broker, b"c.", tags=("x",))

    async def look(node: WebNode) -> None:
        ids: list[Bookmark] = []
        async with tailing(node, query) as stream:
            while len(ids) < 6:
                event = await stream.next()
                assert event is not None
                ids.append(Bookmark.parse(event.id or ""))
        assert [place.seqno for place in ids] == [1, 2, 3, 4, 5, 6]
        known = [place.term for place in ids if place.term != TERM_UNKNOWN]
        assert known == [0, 0, 0, 1, 1, 1] or ("tag" in query and known in ([], [1]))
        async with tailing(node, query, str(ids[4]._replace(term=0))) as stream:
            event = await stream.next()
            assert event is not None
            assert (event.kind, json.loads(event.data)["code"]) == ("error", "bookmark-lost")
        async with tailing(node, query, str(ids[4])) as stream:
            assert await stream.values(1) == ["c."]

    for _ in range(2):
        tell(tmp_path, live)
        crash(tmp_path)
    tell(tmp_path, look)


def test_what_cannot_be_followed_is_a_problem_before_anything_is_sent(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        assert problem(await node.client.get(TAIL)) == (404, "topic-not-found")
        await node.broker.create_topic("t", 2)
        assert problem(await node.client.get(f"{TAIL}?partition=2")) == (404, "partition-not-found")
        assert problem(await node.client.get(f"{TAIL}?partition=0&from=9")) == (416, "seqno-out-of-range")
        assert problem(await node.client.get(f"{TAIL}?partition=0&channel=a%23")) == (400, "invalid-pattern")
        assert problem(await node.client.get(f"{TAIL}?partition=0&limit=1")) == (400, "bad-parameter")
        answer = await node.client.get(f"{TAIL}?partition=0", headers={"last-event-id": "7"})
        assert (problem(answer), answer.json()["parameter"]) == ((400, "bad-parameter"), "Last-Event-ID")
        await append(node.broker, b"a", partition=1)
        async with tailing(node, "?partition=1&from=0") as stream:
            assert await stream.values(1) == ["a"]
            last = stream.events.last
        await append(node.broker, b"b", partition=1)
        async with tailing(node, last=last) as stream:
            assert await stream.values(1) == ["b"]

    tell(tmp_path, story)


def test_large_and_compressed_chunks_come_whole(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        values = [b"%05d" % number + b"x" * 2000 for number in range(2000)]
        batch = build_records([Record(value) for value in values], codec="zstd")
        await node.broker.append([Part("t", [batch, batch])], "durable")
        async with tailing(node, "?from=0") as stream:
            assert await stream.values(4000) == [value.decode() for value in values * 2]

    tell(tmp_path, story)


def test_a_value_as_large_as_a_batch_is_one_event(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        value = "\0ü" * 1_000_000
        await append(node.broker, b"before", value.encode(), b"behind")
        async with tailing(node, "?from=0") as stream:
            assert await stream.values(3) == ["before", value, "behind"]
            last = stream.events.last
        async with tailing(node, last=last) as stream:
            await append(node.broker, b"more")
            assert await stream.values(1) == ["more"]

    assert tell(tmp_path, story) == []


def test_what_is_sound_behind_a_broken_header_is_not_skipped_with_it(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for number in range(10):
            await append(node.broker, b"%d" % number)
        break_header(tmp_path, 3)
        async with tailing(node, "?from=0&gaps=skip") as stream:
            assert await stream.values(9) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        async with tailing(node, "?from=0") as stream:
            assert await stream.values(3) == [0, 1, 2]
            event = await stream.next()
            assert event is not None
            assert (event.kind, json.loads(event.data)["code"]) == ("error", "damage")

    assert tell(tmp_path, story) == []


def test_a_reader_that_does_not_read_holds_one_chunk(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        for _ in range(40):
            await append(node.broker, *[b"x" * 1000] * 500)
        peer = await node.connect()
        await peer.send(request("?from=0", None))
        (connection,) = node.front_end.state.connections
        while not connection.flow.write_paused:  # type: ignore[union-attr]
            await asyncio.sleep(0.001)
        held = (await node.broker.stats()).reads["bytes"]
        for _ in range(10):
            await append(node.broker, b"more")
        assert (await node.broker.stats()).reads["bytes"] == held < 12_000_000

    tell(tmp_path, story)


def test_events_are_counted(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        await append(node.broker, b"a", b"b")
        async with tailing(node, "?from=0") as stream:
            await stream.values(2)
        assert node.front_end.meter.shown().records_out == 2

    tell(tmp_path, story)
