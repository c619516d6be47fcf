"""What do idle connections and many topics cost?

Two nodes run beside each other. One has nothing but the connection that writes to it; the other gets 100 and then
10,000 more connections that have said hello and then nothing, or topics that hold one record each. A feed writes
batches of 64 KiB to both in turn, flush os, acks leader: its throughput shall not fall by more than a fifth. Memory is
what the process of the node has grown by, without mapped files and without the kernel's buffers of its sockets. Readers
that never read have subscribed from the first record, with credit for 64 MiB each, to a log that is larger, and take
nothing of what comes.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from append import make_batches
from harness import QUICK, Row, Subject, rate, report, time_prepared
from logboom.batch import Batch, build
from logboom.broker.api import Part, ReadRequest
from logboom.client.remote import RemoteBroker
from logboom.client.session import Session
from logboom.protocols.binary.messages import Hello, Kind, Read
from node import OS, Feed, Node, feed, running_node

COUNTS = (100, 1000) if QUICK else (100, 10_000)
BATCH_BYTES = 64 * 1024
BATCHES = 128
ROUNDS = 7 if QUICK else 25
READERS = 100
LOG_BYTES = 96 * 2**20
AT_ONCE = 64


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows: list[Row] = []
    for section in (_connections, _topics, _stuck_readers):
        with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
            rows += section(directory)
    report("scale", rows)


@contextmanager
def _pair(directory: str) -> Iterator[tuple[Node, Node]]:
    with running_node(f"{directory}/small") as small, running_node(f"{directory}/large") as large:
        small.create("written")
        large.create("written")
        yield small, large


def _connections(directory: str) -> list[Row]:
    open_connections: list[socket.socket] = []

    def grow(large: Node, count: int) -> None:
        while len(open_connections) < count:
            open_connections.append(connect_idle(large)[0])

    try:
        return _compare_growing(directory, "idle connections", "connection", grow)
    finally:
        for connection in open_connections:
            connection.close()


def connect_idle(node: Node) -> tuple[socket.socket, Session]:
    """A connection that has said hello."""
    host, _, port = node.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    session = Session(Hello())
    connection.sendall(b"".join(session.hello()))
    while session.welcome is None:
        list(session.received(connection.recv_into(session.buffer())))
    return connection, session


def _topics(directory: str) -> list[Row]:
    made = 0

    def grow(large: Node, count: int) -> None:
        nonlocal made
        large.call(partial(_make_topics, made, count))
        made = count

    return _compare_growing(directory, "topics", "topic", grow)


async def _make_topics(start: int, end: int, broker: RemoteBroker) -> None:
    """Topics with one record each."""
    data = bytes(build([b"one"]).data)
    numbers = iter(range(start, end))

    async def make() -> None:
        for number in numbers:
            name = f"topic-{number}"
            await broker.create_topic(name, 1, OS)
            (answer,) = await broker.append([Part(name, [Batch.parse(data)])], "leader")
            assert not isinstance(answer, Exception), answer

    await asyncio.gather(*(make() for _ in range(AT_ONCE)))


def _compare_growing(directory: str, what: str, one: str, grow: Callable[[Node, int], None]) -> list[Row]:
    (batch,) = make_batches(1, BATCH_BYTES)
    rows: list[Row] = []
    with _pair(directory) as (small, large):
        feeds = [Feed(node, "written", batch, "leader") for node in (small, large)]
        for each in feeds:
            feed([each], BATCHES)
        for count in COUNTS:
            before = large.memory_bytes()
            grow(large, count)
            added = count - (COUNTS[COUNTS.index(count) - 1] if count != COUNTS[0] else 0)
            memory = (large.memory_bytes() - before) / added
            base, grown = f"one writer, beside {count:,} {what}", f"one writer, {count:,} {what}"
            subjects: dict[str, tuple[Subject, Subject]] = {
                base: (_nothing, partial(feed, [feeds[0]], BATCHES)),
                grown: (_nothing, partial(feed, [feeds[1]], BATCHES)),
            }
            timings = time_prepared(subjects, ROUNDS)
            size_bytes = BATCHES * len(batch)
            rows += [rate(base, timings, size_bytes), rate(grown, timings, size_bytes, base, 0.8)]
            rows.append(Row(f"memory per {one}, {count:,} {what}", memory / 1024, "KiB"))
        for each in feeds:
            each.close()
    return rows


def _stuck_readers(directory: str) -> list[Row]:
    (batch,) = make_batches(1, BATCH_BYTES)
    with running_node(f"{directory}/node") as node:
        node.create("read")
        one = Feed(node, "read", batch, "leader")
        feed([one], LOG_BYTES // len(batch))
        before = node.memory_bytes()
        readers = []
        for _ in range(READERS):
            connection, session = connect_idle(node)
            _, buffers = session.request(Kind.SUBSCRIBE, Read(ReadRequest("read"), 64 * 2**20))
            connection.sendall(b"".join(buffers))
            readers.append(connection)
        feed([one], LOG_BYTES // len(batch))
        memory = (node.memory_bytes() - before) / READERS
        for connection in readers:
            connection.close()
        one.close()
    return [Row(f"memory per reader that never reads, {READERS}", memory / 1024, "KiB")]


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
