"""How fast does one Python program write records, next to the same program and another server?

Values of 100 bytes and of 1 KiB, in a list; the clock stops when the last is acknowledged. Nobody syncs before it
acknowledges: Logboom with flush os and acks leader, Redis Streams with an append-only file and appendfsync no, NATS
JetStream with file storage, RabbitMQ streams as they are. Logboom's Writer is the one users have, with checksums and
numbers against repeats. `write` is called once for each record; `write_many` gets the list, as the clients of the
others do, which are plain sockets and join many messages in one step. `sub-entries` packs many records into one
message for RabbitMQ.

Below, what the others do when our client packs records into batches of 64 KiB for them: each batch is one message then,
and it is up to the reader to take it apart.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from harness import QUICK, Row, Subject, rate, report, time_prepared
from logboom import Writer
from logboom.batch import build
from node import Node, running_node
from peers import Peer, running_peers

BATCH_BYTES = 64 * 1024
SHAPES = ((100, 100, 5.0), (1024, 250, 3.0))
"""Bytes of a value, batches of 64 KiB in a round, goal."""
ROUNDS = 3 if QUICK else 9


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_peers(directory) as peers,
        running_node(f"{directory}/node") as node,
    ):
        rows = [row for size, batches, goal in SHAPES for row in _records(node, peers, size, batches, goal)]
    report("produce", rows)


def make_values(size: int, batches: int) -> list[bytes]:
    """Random hexadecimal digits, as many values as fill so many batches."""
    return [os.urandom(size // 2).hex().encode() for _ in range(batches * per_batch(size))]


def per_batch(size: int) -> int:
    return (BATCH_BYTES - 128) // (size + 4)


def _records(node: Node, peers: Sequence[Peer], size: int, batches: int, goal: float) -> list[Row]:
    values = make_values(size, batches)
    table = pa.table({"value": pa.array(values, pa.binary())})
    what = f"{size} B"
    with Writer(node.create(f"produce-{size}"), node.address, acks="leader") as writer:

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

        ours: dict[str, Subject] = {
            f"Writer.{call.__name__}, {what}": call for call in (write, write_many, write_table)
        }
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
        *(rate(name, timings, len(values), unit="M records/s") for name in theirs),
        *(rate(name, timings, len(values), peer, goal, "M records/s") for name in ours for peer in theirs),
        *(rate(f"Writer.write_many, {what}", timings, len(values), name, unit="M records/s") for name in carried),
        *(rate(name, timings, len(values), unit="M records/s") for name in carried),
    ]


def _carry(peer: Peer, values: list[bytes], size: int) -> None:
    step = per_batch(size)
    peer.produce([bytes(build(values[start : start + step]).data) for start in range(0, len(values), step)])


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
