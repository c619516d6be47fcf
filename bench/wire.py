"""What does the node leave of the network and of the disk?

Batches of 64 KiB, built before. Flush os, acks leader, one connection, 16 in flight: against a bare TCP stream over
loopback between two Python processes, which keeps nothing. Acks durable, 4 connections, 16 in flight on each: against
one process that writes groups of as many bytes and calls fdatasync after each; the group is what the node itself put
under one sync, on average, by its own count.

Then what it costs to go on and on: 64 KiB and 256 KiB, 1 and 4 connections with 16 in flight on each, a quarter of a
gigabyte at a time. Flush os, acks leader stands against flush each, acks durable, both on the same node: not to wait
for the disk must never be slower. The CPU that the node takes for a batch, in all its threads, stands against that of a
bare process which receives the same bytes, writes them to a file and answers with one byte. Both write to a new file,
in memory that another has given back just before. Minor page faults are those of the node, for a million bytes.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from time import perf_counter_ns

from append import make_batches
from bare import Store, SyncedFile, bare_peer
from harness import QUICK, Row, Subject, compare, free_memory, rate, report, summarise, time_prepared
from logboom.broker.api import Acks
from logboom.storage.data.topic import Settings
from node import DURABLE, OS, Feed, Node, Sender, Spent, feed, running_node

BATCH_BYTES = 64 * 1024
STREAMED = 512
SYNCED = 256
WRITERS = 4
ROUNDS = 5 if QUICK else 25
STEADY_BYTES = 256 * 1024 * 1024
WARM = 16
"""Batches of each writer before the clock runs: they begin a file."""
STEADY_ROUNDS = 2 if QUICK else 5
CPU_GOAL = 2.0
FAULTS_GOAL = 25.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, running_node(f"{directory}/node") as node:
        (batch,) = make_batches(1, BATCH_BYTES)
        rows = [*_streamed(node, batch), *_synced(node, batch, directory)]
        for size_bytes in (64 * 1024, 256 * 1024):
            for writers in (1, WRITERS):
                rows += _steady(node, size_bytes, writers, directory)
        report("wire", rows)


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


def _steady(node: Node, batch_bytes: int, writers: int, directory: str) -> list[Row]:
    (batch,) = make_batches(1, batch_bytes)
    each = STEADY_BYTES // len(batch) // writers
    batches = each * writers
    store = Store(os.path.join(directory, "store"), batch, writers, (each + WARM) * writers * len(batch))
    what = f"{batch_bytes // 1024} KiB, {writers} writer{'s' if writers > 1 else ''}"
    bare, leader, durable = f"bare recv and write, {what}", f"os/leader, {what}", f"each/durable, {what}"
    took_us: dict[str, list[float]] = {bare: [], leader: [], durable: []}
    cpu_us: dict[str, list[float]] = {bare: [], leader: [], durable: []}
    faults: list[float] = []
    ways: tuple[tuple[str, Settings, Acks], ...] = ((durable, DURABLE, "durable"), (leader, OS, "leader"))

    def measure(name: str, pid: int, feeds: Sequence[Sender]) -> None:
        free_memory(directory, STEADY_BYTES)
        feed(feeds, WARM)
        before, began = Spent.by(pid), perf_counter_ns()
        feed(feeds, each)
        took_us[name].append((perf_counter_ns() - began) / 1000)
        spent = Spent.by(pid).since(before)
        cpu_us[name].append(spent.cpu_us / batches)
        if name != bare:
            faults.append(spent.faults / (batches * len(batch) / 1e6))

    for _ in range(STEADY_ROUNDS):
        measure(bare, store.pid, store.feeds)
        for name, settings, acks in ways:
            node.recreate("steady", settings)
            feeds = [Feed(node, "steady", batch, acks) for _ in range(writers)]
            measure(name, node.pid, feeds)
            for one in feeds:
                one.close()
    store.close()
    times = {name: summarise(samples) for name, samples in took_us.items()}
    costs = {f"CPU for a batch, {name}": summarise(samples) for name, samples in cpu_us.items()}
    bare_cost, *our_costs = costs
    amount, worst = batches * len(batch), max(faults)
    return [
        rate(bare, times, amount),
        rate(durable, times, amount, bare),
        rate(leader, times, amount, durable, 1.0),
        compare(bare_cost, costs),
        *(compare(cost, costs, bare_cost, CPU_GOAL) for cost in our_costs),
        Row(f"page faults, {what}, the worst round", worst, "a MB", goal=FAULTS_GOAL, met=worst <= FAULTS_GOAL),
    ]


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
