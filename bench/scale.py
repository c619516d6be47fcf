"""What do idle connections and many topics cost?

Two nodes run beside each other. One has nothing but the connection that writes to it; the other has 100 or 10,000 more
connections that have said hello and then nothing, or topics that hold one record each. A feed writes batches of 64 KiB
to both in turn, flush os, acks leader: its throughput shall not fall by more than a fifth. Memory is what the process
has for itself; mapped files and the kernel's buffers of sockets are not in it. Readers that never read have subscribed
from the first record, with credit for 64 MiB each, to a log that is larger, and take nothing of what comes.
"""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from functools import partial

from append import make_batches
from harness import QUICK, Row, Subject, rate, report, time_prepared
from logboom.batch import Batch
from logboom.broker.api import ReadRequest
from logboom.client.link.session import Session
from logboom.protocols.binary.messages import Hello, Kind, Read
from logboom.storage import DataDirectory
from node import OS, Feed, Node, feed, running_node
from unsynced import UnsyncedDisk

COUNTS = (100, 1000) if QUICK else (100, 10_000)
BATCH_BYTES = 64 * 1024
BATCHES = 128
ROUNDS = 7 if QUICK else 25
READERS = 1000
LOG_BYTES = 96 * 2**20


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows: list[Row] = []
    for section in (_connections, _topics, _stuck_readers):
        with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
            rows += section(directory)
    report("scale", rows)


def _connections(directory: str) -> list[Row]:
    rows: list[Row] = []
    with running_node(f"{directory}/small") as small, running_node(f"{directory}/large") as large:
        feeds = _feeds(small, large)
        idle: list[socket.socket] = []
        before = large.memory_bytes()
        for count in COUNTS:
            while len(idle) < count:
                idle.append(connect_idle(large)[0])
            more = large.memory_bytes() - before
            rows += _compare(f"{count:,} idle connections", feeds)
        rows.append(Row(f"memory per connection, {len(idle):,}", more / len(idle) / 1024, "KiB"))
        for connection in (*idle, *(each.socket for each in feeds)):
            connection.close()
    return rows


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
    rows: list[Row] = []
    for count in COUNTS:
        name = f"{directory}/{count}"
        _make_topics(f"{name}-large/data", count)
        with running_node(f"{name}-small") as small, running_node(f"{name}-large") as large:
            more = large.memory_bytes() - small.memory_bytes()
            feeds = _feeds(small, large)
            rows += _compare(f"{count:,} topics", feeds)
            for each in feeds:
                each.close()
    return [*rows, Row(f"memory per topic, {count:,}", more / count / 1024, "KiB")]


def _make_topics(directory: str, count: int) -> None:
    """A data directory with topics of one record each, made without waiting for the disk."""
    os.makedirs(directory)
    (batch,) = make_batches(1, 128)
    with DataDirectory.open(directory, UnsyncedDisk(directory)) as data:
        for number in range(count):
            data.create_topic(f"topic-{number}", 1, OS)
            (log,) = data.open_topic(f"topic-{number}")
            log.append_one(Batch.parse(batch), 1)
            log.close()
    os.sync()


def _feeds(small: Node, large: Node) -> list[Feed]:
    """One writer for each of the two, both warm."""
    (batch,) = make_batches(1, BATCH_BYTES)
    feeds = [Feed(node, node.create("written"), batch, "leader") for node in (small, large)]
    for each in feeds:
        feed([each], BATCHES)
    return feeds


def _compare(what: str, feeds: list[Feed]) -> list[Row]:
    alone, among = f"one writer, beside {what}", f"one writer, {what}"
    subjects: dict[str, tuple[Subject, Subject]] = {
        name: (_nothing, partial(feed, [each], BATCHES)) for name, each in zip((alone, among), feeds, strict=True)
    }
    timings = time_prepared(subjects, ROUNDS)
    size_bytes = BATCHES * BATCH_BYTES
    return [rate(alone, timings, size_bytes), rate(among, timings, size_bytes, alone, 0.8)]


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
