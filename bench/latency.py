"""How long does one record take, and how many do those who wait for theirs get through together?

First beside the clients that people use for other servers, with records of 100 bytes and of 1 KiB: one is sent, its
answer waited for, then the next. Nobody syncs before the answer but `Writer, synced`, with flush each and acks durable.

Then against a bare TCP echo of a message as long, between two Python processes, with 100 bytes, flush os, acks leader:
`Writer.send().result()` and `await AsyncWriter.send()`. The feed is a plain socket that sends a batch built before:
what of it is the node's. Then 64 connections, each with one record under way, acks durable: on one log, and on 64.
Their rate stands against that of one process that writes such a batch and calls fdatasync, over and over.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from statistics import quantiles
from time import perf_counter_ns

from bare import SyncedFile, bare_peer
from clients import Client
from harness import QUICK, Row, Subject, Timing, compare, rate, report, summarise, time_prepared
from logboom import AsyncWriter, Writer
from logboom.batch import build
from node import DURABLE, Feed, Node, feed, running_node
from peers import running_peers

VALUE = b"x" * 100
SIZES = (100, 1024)
MESSAGES = 100 if QUICK else 300
ROUNDS = 5 if QUICK else 20
WRITERS = 64
EACH = 16
GOALS = (3.0, 5.0)
"""Of an echo: for the node, and for those who write through a Writer."""

Samples = list[float]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, running_node(f"{directory}/node") as node:
        with running_peers(directory) as peers:
            rows = [row for size in SIZES for row in _beside_clients(node, peers.clients, size)]
            others = peers.described()
        rows += [*_alone(node), *_together(node, directory, 1, 5.0), *_together(node, directory, WRITERS, 4.0)]
        report("latency", rows, others)


def _beside_clients(node: Node, clients: Sequence[Client], size: int) -> list[Row]:
    value = b"x" * size
    node.create(f"beside-synced-{size}", DURABLE)
    with (
        Writer(node.create(f"beside-{size}"), node.address, acks="leader", linger_ms=0) as writer,
        Writer(f"beside-synced-{size}", node.address, acks="durable", linger_ms=0) as synced,
    ):
        sends: dict[str, Callable[[], object]] = {client.name: partial(client.send, value) for client in clients}
        sends |= {"Writer": lambda: writer.send(value).result(), "Writer, synced": lambda: synced.send(value).result()}
        p50, p99 = _percentiles({name: partial(_samples, send) for name, send in sends.items()})
    kafka = next((name for name in sends if name.startswith("Kafka")), None)
    rows = []
    for what, timings in (("p50", p50), ("p99", p99)):
        named = {f"{name}, {size} B, {what}": timing for name, timing in timings.items()}
        against = f"{kafka}, {size} B, {what}" if kafka else None
        rows += [compare(name, named, None if name == against else against) for name in named]
    return rows


def _alone(node: Node) -> list[Row]:
    batch = bytes(build([VALUE]).data)
    one = Feed(node, node.create("feed"), batch, "leader", 1)
    with (
        bare_peer("echo", len(batch)) as echo,
        Writer(node.create("sync"), node.address, acks="leader", linger_ms=0) as writer,
        asyncio.Runner() as runner,
    ):
        awaited = runner.run(_open(node.create("async"), node.address))
        subjects: dict[str, Callable[[], Samples]] = {
            "bare TCP echo": partial(_samples, partial(_echo, echo, batch)),
            "node, fed": partial(_samples, partial(feed, [one], 1)),
            "Writer": partial(_samples, lambda: writer.send(VALUE).result()),
            "AsyncWriter": lambda: runner.run(_awaited_samples(awaited)),
        }
        p50, p99 = _percentiles(subjects)
        runner.run(awaited.close())
    one.close()
    rows = []
    for name, timings, goals in (("p50", p50, GOALS), ("p99", p99, (None, None))):
        named = {f"{subject}, {name}": timing for subject, timing in timings.items()}
        bare, fed, *writers = named
        rows += [compare(bare, named), compare(fed, named, bare, goals[0])]
        rows += [compare(subject, named, bare, goals[1]) for subject in writers]
    return rows


async def _open(topic: str, address: str) -> AsyncWriter:
    return await AsyncWriter(topic, address, acks="leader", linger_ms=0).__aenter__()


def _percentiles(subjects: dict[str, Callable[[], Samples]]) -> tuple[dict[str, Timing], dict[str, Timing]]:
    """Every subject in every round; the percentiles of each round, and of those the middle."""
    p50: dict[str, Samples] = {name: [] for name in subjects}
    p99: dict[str, Samples] = {name: [] for name in subjects}
    for _ in range(ROUNDS):
        for name, sample in subjects.items():
            shares = quantiles(sample(), n=100)
            p50[name].append(shares[49])
            p99[name].append(shares[98])
    return {name: summarise(s) for name, s in p50.items()}, {name: summarise(s) for name, s in p99.items()}


def _samples(subject: Subject) -> Samples:
    samples = []
    for _ in range(MESSAGES):
        start = perf_counter_ns()
        subject()
        samples.append((perf_counter_ns() - start) / 1000)
    return samples


async def _awaited_samples(writer: AsyncWriter) -> Samples:
    samples = []
    for _ in range(MESSAGES):
        start = perf_counter_ns()
        await writer.send(VALUE)
        samples.append((perf_counter_ns() - start) / 1000)
    return samples


def _echo(connection: socket.socket, message: bytes) -> None:
    connection.sendall(message)
    left = len(message)
    while left:
        left -= len(connection.recv(left))


def _together(node: Node, directory: str, logs: int, goal: float) -> list[Row]:
    batch = bytes(build([VALUE]).data)
    topic = node.create(f"together-{logs}", DURABLE, logs)
    feeds = [Feed(node, topic, batch, "durable", 1, number % logs) for number in range(WRITERS)]
    file = SyncedFile(f"{directory}/bare-{logs}")
    count = WRITERS * EACH

    def write() -> None:
        for _ in range(count):
            file.append([batch])

    where = "one log" if logs == 1 else f"{logs} logs"
    bare, ours = f"bare write and fdatasync, beside {where}", f"node, {WRITERS} writers on {where}, acks durable"
    subjects: dict[str, tuple[Subject, Subject]] = {
        bare: (file.clear, write),
        ours: (_nothing, partial(feed, feeds, EACH)),
    }
    timings = time_prepared(subjects, ROUNDS)
    for one in feeds:
        one.close()
    file.close()
    amount = count * 1000
    return [
        rate(bare, timings, amount, unit="k/s"),
        rate(ours, timings, amount, bare, goal, "k/s"),
    ]


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
