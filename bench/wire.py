"""What does the node leave of the network and of the disk?

Batches of 64 KiB, built before. Flush os, acks leader, one connection, 16 in flight: against a bare TCP stream over
loopback between two Python processes, which keeps nothing. Acks durable, 4 connections, 16 in flight on each: against
one process that writes groups of as many bytes and calls fdatasync after each; the group is what the node itself put
under one sync, on average, by its own count.
"""

from __future__ import annotations

import os
import socket
import tempfile
from functools import partial

from append import make_batches
from bare import SyncedFile, bare_peer
from harness import QUICK, Row, Subject, rate, report, time_prepared
from node import DURABLE, Feed, Node, feed, running_node

BATCH_BYTES = 64 * 1024
STREAMED = 512
SYNCED = 256
WRITERS = 4
ROUNDS = 5 if QUICK else 25


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, running_node(f"{directory}/node") as node:
        (batch,) = make_batches(1, BATCH_BYTES)
        report("wire", [*_streamed(node, batch), *_synced(node, batch, directory)])


def _streamed(node: Node, batch: bytes) -> list[Row]:
    size_bytes = STREAMED * len(batch)
    bare, ours = "bare TCP stream", "node, flush os, acks leader"
    with bare_peer("sink", size_bytes) as sink:
        node.create("streamed")
        one = Feed(node, "streamed", batch, "leader")
        subjects: dict[str, tuple[Subject, Subject]] = {
            bare: (_nothing, partial(_stream, sink, batch)),
            ours: (partial(node.recreate, "streamed"), partial(feed, [one], STREAMED)),
        }
        timings = time_prepared(subjects, ROUNDS)
        one.close()
    return [rate(bare, timings, size_bytes), rate(ours, timings, size_bytes, bare, 0.6)]


def _stream(sink: socket.socket, batch: bytes) -> None:
    for _ in range(STREAMED):
        sink.sendall(batch)
    assert sink.recv(1) == b"!"


def _synced(node: Node, batch: bytes, directory: str) -> list[Row]:
    size_bytes = SYNCED * len(batch)
    node.create("synced", DURABLE)
    feeds = [Feed(node, "synced", batch, "durable") for _ in range(WRITERS)]
    group = _group_size(node, feeds)
    file = SyncedFile(os.path.join(directory, "bare"))
    groups = [[batch] * min(group, SYNCED - start) for start in range(0, SYNCED, group)]

    def write() -> None:
        for batches in groups:
            file.append(batches)

    bare = f"bare write and fdatasync, groups of {group}"
    ours = f"node, acks durable, {WRITERS} writers with 16 in flight"
    subjects: dict[str, tuple[Subject, Subject]] = {
        bare: (file.clear, write),
        ours: (partial(node.recreate, "synced", DURABLE), partial(feed, feeds, SYNCED // WRITERS)),
    }
    timings = time_prepared(subjects, ROUNDS)
    file.close()
    for one in feeds:
        one.close()
    return [rate(bare, timings, size_bytes), rate(ours, timings, size_bytes, bare, 0.6)]


def _group_size(node: Node, feeds: list[Feed]) -> int:
    """Batches per sync, by the node's own count."""
    before = node.call(lambda broker: broker.stats())
    feed(feeds, 2 * SYNCED // WRITERS)
    after = node.call(lambda broker: broker.stats())
    syncs = after.syncs["count"] - before.syncs["count"]
    return max(1, round((after.writes["batches"] - before.writes["batches"]) / syncs))


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
