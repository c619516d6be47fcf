"""How fast does one Python program write records, next to the same program and another server?

Values of 100 bytes and of 1 KiB, in a list; the clock stops when the last is acknowledged. Logboom's Writer is the one
users have, with checksums and numbers against repeats: `write` is called once for each record, `write_many` gets the
list, `write_table` an Arrow table.

First come the clients that people use for the others, each as fast as it can be set up: confluent-kafka, redis-py with
hiredis, nats-py on uvloop, rstream. Nobody syncs before the answer: Logboom with flush os and acks leader, Kafka 4 with
acks=1 and acks=all, which are one thing on one node, Redis with an append-only file and appendfsync no, NATS JetStream
with file storage, RabbitMQ streams as they are. `synced` are ours with flush each and acks durable: what is answered
is on the disk, which none of the others does. The best of the others in the run is what ours are compared with.

kafka-python is left out. It can be had, and works with Kafka 4, but it is Python throughout: tried once, it wrote at a
twentieth and read at a fifth of the pace of confluent-kafka.

Then, with plain sockets, what the servers do for clients of ours that join many messages in one step, as no client does
that must take any value; `sub-entries` packs many records into one message for RabbitMQ. Below, what they do when our
client packs records into batches of 64 KiB for them: each batch is one message then, and it is up to the reader to take
it apart.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from clients import Client
from harness import QUICK, Row, Subject, best_of, rate, report, time_prepared
from logboom import Writer
from logboom.batch import build
from node import DURABLE, Node, running_node
from peers import Peer, running_peers

BATCH_BYTES = 64 * 1024
SHAPES = ((100, 100, 5.0, 5.0), (1024, 250, 3.0, 2.5))
"""Bytes of a value, batches of 64 KiB in a round, goals against our clients and for columns against those of others."""
BY_RECORD, BY_RECORD_KAFKA = 1.5, 2.0
"""Goals of `write` against the best client of others, and against Kafka's with a call for each record."""
ROUNDS = 3 if QUICK else 7
UNIT = "M records/s"


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_peers(directory) as peers,
        running_node(f"{directory}/node") as node,
    ):
        rows: list[Row] = []
        for size, batches, raw_goal, goal in SHAPES:
            values = make_values(size, batches)
            rows += _beside_clients(node, peers.clients, values, size, goal)
            rows += _beside_sockets(node, peers.raw, values, size, raw_goal)
        report("produce", rows, peers.described())


def make_values(size: int, batches: int) -> list[bytes]:
    """Random hexadecimal digits, as many values as fill so many batches."""
    return [os.urandom(size // 2).hex().encode() for _ in range(batches * per_batch(size))]


def per_batch(size: int) -> int:
    return (BATCH_BYTES - 128) // (size + 4)


def _beside_clients(node: Node, clients: Sequence[Client], values: list[bytes], size: int, goal: float) -> list[Row]:
    what = f"{size} B"
    theirs: dict[str, Subject] = {}
    for client in clients:
        client.reset()
        theirs |= {f"{client.name}, {how}, {what}": partial(call, values) for how, call in client.calls.items()}
    node.create(f"synced-{size}", DURABLE)
    with (
        Writer(node.create(f"clients-{size}"), node.address, acks="leader") as writer,
        Writer(f"synced-{size}", node.address, acks="durable") as synced,
    ):
        unsynced = {f"{name}, {what}": call for name, call in _calls(writer, values).items()}
        durable = {f"{name}, synced, {what}": call for name, call in _calls(synced, values).items()}
        subjects = {**theirs, **unsynced, **durable}
        for call in subjects.values():
            call()  # a JVM is slow before it is fast
        timings = time_prepared({name: (_nothing, call) for name, call in subjects.items()}, ROUNDS)
    best = best_of(timings, theirs)
    by_record, *by_column = unsynced
    kafka = next((name for name in theirs if name.startswith("Kafka")), None)
    return [
        *(rate(name, timings, len(values), unit=UNIT) for name in theirs),
        rate(by_record, timings, len(values), best, BY_RECORD, UNIT),
        rate(by_record, timings, len(values), kafka, BY_RECORD_KAFKA, UNIT),
        *(rate(name, timings, len(values), best, goal, UNIT) for name in by_column),
        *(rate(name, timings, len(values), best, unit=UNIT) for name in durable),
    ]


def _beside_sockets(node: Node, peers: Sequence[Peer], values: list[bytes], size: int, goal: float) -> list[Row]:
    what = f"{size} B"
    with Writer(node.create(f"produce-{size}"), node.address, acks="leader") as writer:
        ours = {f"{name}, {what}": call for name, call in _calls(writer, values).items()}
        theirs: dict[str, Subject] = {f"{peer.name}, {what}": partial(peer.produce, values) for peer in peers}
        carried: dict[str, Subject] = {
            f"{peer.name}, our batches of {what}": partial(_carry, peer, values, size) for peer in peers
        }
        resets = {name: peer.reset for names in (theirs, carried) for name, peer in zip(names, peers, strict=True)}
        subjects: dict[str, tuple[Subject, Subject]] = {
            name: (resets.get(name, _nothing), call) for name, call in {**ours, **theirs, **carried}.items()
        }
        timings = time_prepared(subjects, ROUNDS)
    return [
        *(rate(name, timings, len(values), unit=UNIT) for name in theirs),
        *(rate(name, timings, len(values), peer, goal, UNIT) for name in ours for peer in theirs),
        *(rate(f"Writer.write_many, {what}", timings, len(values), name, unit=UNIT) for name in carried),
        *(rate(name, timings, len(values), unit=UNIT) for name in carried),
    ]


def _calls(writer: Writer, values: list[bytes]) -> dict[str, Subject]:
    """All the ways to write the values, by name; each returns when the last is acknowledged."""
    table = pa.table({"value": pa.array(values, pa.binary())})

    def write() -> None:
        for value in values:
            writer.write(value)
        writer.flush()

    def write_many() -> None:
        writer.write_many(values)
        writer.flush()

    def write_table() -> None:
        writer.write_table(table)
        writer.flush()

    return {f"Writer.{call.__name__}": call for call in (write, write_many, write_table)}


def _carry(peer: Peer, values: list[bytes], size: int) -> None:
    step = per_batch(size)
    peer.produce([bytes(build(values[start : start + step]).data) for start in range(0, len(values), step)])


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
