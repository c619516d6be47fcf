"""How long does a checkpoint take: of a whole topic, after one record in a hundred has changed, and to be read?

Records have a key of 12 bytes and a value of 100, which no two share; each key is written ten times, at random, to the
log of its own, one of two. A round makes a topic anew and writes it; then the first checkpoint of it is made, one in a
hundred of its records is written again, and the second is made. Both are what `logboom pipeline run` does, with lease,
manifest and all, in a session that is there already. Then a reader takes the state, record by record and as tables.
"""

from __future__ import annotations

import tempfile
from asyncio import Future
from collections.abc import Iterator
from itertools import count

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from harness import QUICK, Row, Timing, compare, report, time_prepared
from logboom import Reader
from logboom.batch import Batch, build
from logboom.broker.api import Answer, Part
from logboom.client.remote import RemoteBroker
from logboom.errors import LogboomError
from logboom.spark.jobs.checkpoint import CheckpointWork
from logboom.spark.jobs.job_run import run_job
from node import DURABLE, Node, running_node
from spark_data import running_spark

SIZES = (100_000, 1_000_000) if QUICK else (1_000_000, 10_000_000)
ROUNDS = 2 if QUICK else 3
PER_KEY = 10
CHANGED = 0.01
PARTITIONS = 2
PER_BATCH = 2000
IN_FLIGHT = 16
VALUE_BYTES = 100
GOAL = 0.2


class Rounds:
    """Topics, each written and used once."""

    def __init__(self, node: Node, spark: SparkSession, directory: str) -> None:
        self._node = node
        self._spark = spark
        self._directory = directory
        self._numbers = count()
        self._noise = np.random.default_rng(7)
        self._topic = ""

    def begin(self, records: int) -> None:
        before, self._topic = self._topic, f"bench{next(self._numbers)}"
        if before:
            self._node.call(lambda broker: broker.delete_topic(before))
        self._node.create(self._topic, DURABLE, PARTITIONS)
        self.write(records, records // PER_KEY)

    def write(self, records: int, keys: int) -> None:
        """So many records, of keys that have all the same chance."""
        self._node.call(lambda broker: self._append(broker, records, keys))

    async def _append(self, broker: RemoteBroker, records: int, keys: int) -> None:
        waiting: list[Future[list[Answer]]] = []
        for first in range(0, records, PER_BATCH):
            partition = first // PER_BATCH % PARTITIONS
            batch = self._batch(min(PER_BATCH, records - first), keys, partition)
            waiting.append(broker.append([Part(self._topic, [batch], partition)], "leader"))
            if len(waiting) == IN_FLIGHT:
                await _check(waiting)
        await _check(waiting)

    def _batch(self, records: int, keys: int, partition: int) -> Batch:
        numbers = self._noise.integers(0, keys // PARTITIONS, records) * PARTITIONS + partition
        values = pa.Array.from_buffers(
            pa.binary(),
            records,
            [
                None,
                pa.py_buffer(np.arange(0, (records + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)),
                pa.py_buffer(self._noise.bytes(records * VALUE_BYTES)),
            ],
        )
        return build(values, keys=[b"key%09d" % number for number in numbers.tolist()])

    def run(self) -> None:
        work = CheckpointWork(topic=self._topic)
        assert run_job(work, self._node.address, lambda: self._spark, self._directory).result is not None

    def read(self, tables: bool) -> int:
        found = 0
        for partition in range(PARTITIONS):
            with Reader(self._topic, self._node.address, partition, from_checkpoint=True) as reader:
                found += sum(map(len, reader.tables(["key", "value"]))) if tables else sum(1 for _ in reader)
        return found


async def _check(waiting: list[Future[list[Answer]]]) -> None:
    for future in waiting:
        for answer in await future:
            if isinstance(answer, LogboomError):
                raise answer
    waiting.clear()


def measure(rounds: Rounds, records: int) -> Iterator[Row]:
    keys, changed = records // PER_KEY, int(records * CHANGED)
    of = f"{records:,} records, {keys:,} keys"
    whole, later = f"the first, {of}", f"after {changed:,} more, {of}"
    timings: dict[str, Timing] = time_prepared(
        {
            whole: (lambda: rounds.begin(records), rounds.run),
            later: (lambda: rounds.write(changed, keys), rounds.run),
            f"read as tables, {of}": (lambda: None, lambda: rounds.read(True)),
            f"read record by record, {of}": (lambda: None, lambda: rounds.read(False)),
        },
        ROUNDS,
    )
    for name in timings:
        goal = GOAL if name == later and records == max(SIZES) and not QUICK else None
        yield compare(name, timings, whole if name == later else None, goal, "s")


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_node(f"{directory}/node") as node,
        running_spark() as spark,
    ):
        rounds = Rounds(node, spark, f"{directory}/results")
        rounds.begin(SIZES[0] // 10)
        rounds.run()  # the first of all pays for what the others find ready
        rows = [row for records in SIZES for row in measure(rounds, records)]
    report("checkpoint", rows)


if __name__ == "__main__":
    main()
