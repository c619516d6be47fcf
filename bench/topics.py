"""Is a topic read as fast as a whole as partition by partition?

Four partitions with values of 100 bytes, all there before. Partition by partition is four readers one after the other;
as a whole is one reader of the topic, which says of each record, or in a column, where it is from.
"""

from __future__ import annotations

import tempfile
from functools import partial

from harness import QUICK, Row, Subject, rate, report, time_prepared
from logboom import Reader, Writer
from node import Node, running_node
from produce import make_values

BATCHES = 100
"""Of 64 KiB, times as many as there are partitions."""
SIZE = 100
PARTITIONS = 4
TOPIC = "topics"
ROUNDS = 3 if QUICK else 9
GOAL = 0.9
FORMS = ("tables", "lists", "records")


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_node(f"{directory}/node") as node,
    ):
        report("topics", _measure(node))


def _measure(node: Node) -> list[Row]:
    node.create(TOPIC, partitions=PARTITIONS)
    values = make_values(SIZE, BATCHES)
    with Writer(TOPIC, node.address, acks="leader") as writer:
        for _ in range(PARTITIONS):
            writer.write_many(values)
    count = PARTITIONS * len(values)
    rows: list[Row] = []
    for form in FORMS:
        apart, whole = f"{form}, partition by partition", f"{form}, the whole topic"
        subjects: dict[str, Subject] = {
            apart: partial(_read, node, form, range(PARTITIONS), count),
            whole: partial(_read, node, form, [None], count),
        }
        timings = time_prepared({name: (_nothing, call) for name, call in subjects.items()}, ROUNDS)
        rows.append(rate(apart, timings, count, None, None, unit="million/s"))
        rows.append(rate(whole, timings, count, apart, GOAL, unit="million/s"))
    return rows


def _read(node: Node, form: str, partitions: range | list[None], count: int) -> None:
    found = 0
    for partition in partitions:
        with Reader(TOPIC, node.address, partition) as reader:
            if form == "records":
                found += sum(1 for _ in reader)
            elif form == "lists":
                found += sum(len(values) for (values,) in reader.lists())
            else:
                found += sum(map(len, reader.tables()))
    assert found == count


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
