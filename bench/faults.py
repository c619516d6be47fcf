"""How much fresh memory do client and node take for a megabyte of values, once they are warm?

Minor page faults per MB (10^6 bytes): memory that was not used just before costs one for each page of 4 KiB, 244 for a
megabyte that is copied into it once, and on a virtual machine each may go to the host. The client's own, counted by
getrusage, while it writes and reads values of 100 bytes and of 1 KiB through a node; the node's, from /proc, while it
takes batches of 64 KiB that were built before, on one connection, 16 in flight, and while one client reads them. Flush
os, acks leader. In each round everything is done twice on the same connection, and the second time counts.

A page of a mapped file is a fault too when it is first read, or sixteen of them together. What the kernel itself takes
for the files it keeps is not counted here.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import quantiles

import pyarrow as pa

from append import make_batches
from harness import QUICK, Row, report
from logboom import Reader, Writer
from logboom.batch import Batch
from node import Feed, Node, feed, running_node
from produce import make_values

GOAL = 25.0
SHAPES = (100, 1024)
BATCHES = 250 if QUICK else 500
"""Of 64 KiB, each of the two times."""
ROUNDS = 3 if QUICK else 5
TOPIC = "faults"

Way = Callable[[], Iterator[None]]
"""Something that is done twice; it yields in between."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, running_node(f"{directory}/node") as node:
        rows = [row for size in SHAPES for row in _client(node, size)]
        report("faults", [*rows, *_node(node)])


def _client(node: Node, size: int) -> list[Row]:
    values = make_values(size, BATCHES)
    table = pa.table({"value": pa.array(values, pa.binary())})
    amount = len(values) * size / 1e6

    def write(writer: Writer) -> None:
        for value in values:
            writer.write(value)

    writes: dict[str, Callable[[Writer], object]] = {
        "Writer.write": write,
        "Writer.write_many": lambda writer: writer.write_many(values),
        "Writer.write_table": lambda writer: writer.write_table(table),
    }
    reads: dict[str, Callable[[Reader], Iterator[int]]] = {"Reader.lists": _lists, "Reader.tables": _tables}
    ways: dict[str, Way] = {
        **{name: partial(_write_twice, node, call) for name, call in writes.items()},
        **{name: partial(_read_twice, node, call, len(values)) for name, call in reads.items()},
    }
    return [_row(f"client, {name}, {size} B", amount, own_faults, way) for name, way in ways.items()]


def _node(node: Node) -> list[Row]:
    (batch,) = make_batches(1, 64 * 1024)
    amount, faults = BATCHES * len(batch) / 1e6, partial(faults_of, node.pid)
    count = BATCHES * Batch.parse(batch).header.record_count
    return [
        _row("node, takes batches of 64 KiB", amount, faults, partial(_feed_twice, node, batch)),
        _row("node, serves them", amount, faults, partial(_read_twice, node, _tables, count)),
    ]


def _row(name: str, amount: float, faults: Callable[[], int], way: Way) -> Row:
    """The second time of each round, by the megabyte."""
    found = []
    for _ in range(ROUNDS):
        rest = way()
        next(rest)
        before = faults()
        next(rest, None)
        found.append((faults() - before) / amount)
    low, middle, high = quantiles(found, n=4, method="inclusive")
    against, ratio = f"{GOAL:g} faults/MB", middle / GOAL
    return Row(name, middle, "faults/MB", (low, high), against, ratio, 1.0, "lower", ratio <= 1.0)


def own_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def faults_of(pid: int) -> int:
    """Of a process and all its threads."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def _write_twice(node: Node, call: Callable[[Writer], object]) -> Iterator[None]:
    node.recreate(TOPIC)
    with Writer(TOPIC, node.address, acks="leader") as writer:
        call(writer)
        writer.flush()
        yield
        call(writer)
        writer.flush()


def _feed_twice(node: Node, batch: bytes) -> Iterator[None]:
    node.recreate(TOPIC)
    one = Feed(node, TOPIC, batch, "leader")
    feed([one], BATCHES)
    yield
    feed([one], BATCHES)
    one.close()


def _read_twice(node: Node, call: Callable[[Reader], Iterator[int]], count: int) -> Iterator[None]:
    """What was written twice, by whatever came before."""
    seen = 0
    with Reader(TOPIC, node.address) as reader:
        for records in call(reader):
            if seen < count <= seen + records:
                yield
            seen += records
    assert seen == 2 * count


def _lists(reader: Reader) -> Iterator[int]:
    return (len(values) for (values,) in reader.lists())


def _tables(reader: Reader) -> Iterator[int]:
    return (len(table) for table in reader.tables())


if __name__ == "__main__":
    main()
