"""How fast does one Python program read records, next to the same program and another server?

Values of 100 bytes and of 1 KiB, all there before, read from the first to the last. Logboom's Reader reads into Arrow
tables and into lists of bytes, with every checksum verified. The others are read into lists of bytes, for that is what
they give, by clients that take every value to be as long as the first, verify nothing, and let one regular expression
or one call of `struct` find the values. The best of them is what Logboom is compared with.

Below, the others with our batches of 64 KiB as their messages, each verified and read into Arrow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from harness import QUICK, Row, Subject, Timing, rate, report, time_prepared
from logboom import Reader, Writer
from logboom.batch import Batch, build
from node import Node, running_node
from peers import Peer, running_peers
from produce import make_values, per_batch

SHAPES = ((100, 400), (1024, 500))
"""Bytes of a value, batches of 64 KiB."""
ROUNDS = 3 if QUICK else 9


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_peers(directory) as peers,
        running_node(f"{directory}/node") as node,
    ):
        rows = [row for size, batches in SHAPES for row in _read(node, peers, size, batches)]
    report("consume", rows)


def _read(node: Node, peers: Sequence[Peer], size: int, batches: int) -> list[Row]:
    values = make_values(size, batches)
    topic = node.create(f"consume-{size}")
    with Writer(topic, node.address, acks="leader") as writer:
        writer.write_many(values)
    for peer in peers:
        peer.reset()
        peer.produce(values)
    count, amount = len(values), len(values) * size
    theirs: dict[str, Subject] = {f"{peer.name}, {size} B": partial(peer.consume, count, size) for peer in peers}
    tables, column, lists = (f"Reader.{what}, {size} B" for what in ("tables", "tables of values alone", "lists"))
    ours: dict[str, Subject] = {
        tables: partial(_tables, node, topic, None, count),
        column: partial(_tables, node, topic, ("value",), count),
        lists: partial(_lists, node, topic, count),
    }
    assert all(call() == values for call in theirs.values())
    timings = time_prepared({name: (_nothing, call) for name, call in {**theirs, **ours}.items()}, ROUNDS)
    best = min(theirs, key=lambda name: timings[name].median_us, default=None)
    return [
        *(rate(name, timings, amount) for name in theirs),
        rate(tables, timings, amount, best, 1.0),
        rate(column, timings, amount, best),
        rate(lists, timings, amount, best, 0.5),
        *_carried(peers, values, size, {tables: ours[tables]}),
    ]


def _carried(peers: Sequence[Peer], values: list[bytes], size: int, ours: dict[str, Subject]) -> list[Row]:
    """The others with whole batches of ours as messages, beside ours again."""
    step = per_batch(size)
    batches = [bytes(build(values[start : start + step]).data) for start in range(0, len(values), step)]
    for peer in peers:
        peer.reset()
        peer.produce(batches)
    theirs: dict[str, Subject] = {
        f"{peer.name}, our batches of {size} B": partial(_unpack, peer, len(batches), len(batches[0])) for peer in peers
    }
    timings: dict[str, Timing] = time_prepared(
        {name: (_nothing, call) for name, call in {**theirs, **ours}.items()}, ROUNDS
    )
    amount = len(values) * size
    return [
        *(rate(name, timings, amount) for name in theirs),
        *(rate(name, timings, amount, peer) for name in ours for peer in theirs),
    ]


def _tables(node: Node, topic: str, columns: tuple[str, ...] | None, count: int) -> None:
    with Reader(topic, node.address) as reader:
        tables = list(reader.tables(columns))
    assert sum(map(len, tables)) == count


def _lists(node: Node, topic: str, count: int) -> None:
    values: list[bytes] = []
    with Reader(topic, node.address) as reader:
        for (part,) in reader.lists(("value",)):
            values += part
    assert len(values) == count


def _unpack(peer: Peer, count: int, size: int) -> pa.Table:
    batches = [Batch.parse(message) for message in peer.consume(count, size)]
    for batch in batches:
        batch.verify()
    return pa.Table.from_batches([batch.to_arrow() for batch in batches])


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
