"""How fast does Spark read a whole log, next to Parquet and to Kafka?

1 GiB of JSON objects of 100 bytes and of 1 KiB, all in memory as cached pages, read to `sum(length(value))` on two
cores of one JVM that has read all of it before. Parquet is uncompressed, one column of the same values, written by
Spark. Kafka has the same values, uncompressed, in batches as large as ours, in a topic of one partition, which Spark
is told to cut into as many tasks as ours has splits, and in one of two partitions; ours is compared with the better.
The version in its row is that of Spark's Kafka source: an older one than Spark's where Maven Central has no other.
`arrow_scan` adds the lengths up in Arrow, in the Python workers.

Below is where the time goes: the seconds that processors worked in one read, in the JVM, in the Python processes it
started, and in Kafka's node. `record batches from a mapped file` is a Python source that gives the same values as they
lie in an Arrow file, and neither reads nor verifies anything: no Python source can do less. What ours spends in Python
beyond that is for reading and verifying. `job` is one with as many splits that gives nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from harness import Row, Subject, compare, rate, report, time_prepared
from logboom.spark import arrow_scan
from logboom.spark.read.options import SPLIT_BYTES
from peers.kafka import Kafka
from spark_data import (
    LOG_BYTES,
    ROUNDS,
    SIZES,
    TOPIC,
    Records,
    find_kafka,
    records,
    running_kafka,
    running_spark,
    write_arrow,
    write_parquet,
)

SPLITS = -(-LOG_BYTES // SPLIT_BYTES)
CORES = 2
WARM = 2
TICKS = os.sysconf("SC_CLK_TCK")


class Mapped(DataSource):
    """The record batches of an Arrow file, or none of them, in so many splits."""

    @classmethod
    def name(cls) -> str:
        return "mapped"

    def schema(self) -> str:
        return "value BINARY"

    def reader(self, schema: StructType) -> DataSourceReader:
        return MappedReader(self.options["path"], int(self.options["batches"]), int(self.options["splits"]))


class MappedReader(DataSourceReader):
    def __init__(self, path: str, batches: int, splits: int) -> None:
        self._path = path
        self._batches = batches
        self._splits = splits

    def partitions(self) -> list[InputPartition]:
        edges = [self._batches * number // self._splits for number in range(self._splits + 1)]
        return [InputPartition(edge) for edge in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_file(pa.memory_map(self._path)) as file:
            for number in range(*partition.value):
                yield file.get_batch(number)


def main() -> None:
    jars = find_kafka()
    rows: list[Row] = []
    with running_spark(jars) as spark:
        spark.dataSource.register(Mapped)
        for size in SIZES:
            with (
                tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
                running_kafka(directory, jars) as kafka,
            ):
                version = jars.connector_version if jars else ""
                rows += _scan(spark, Path(directory), records(size), kafka, version)
    report("spark_scan", rows)


def _scan(spark: SparkSession, directory: Path, wanted: Records, kafka: Kafka | None, version: str) -> list[Row]:
    what = f"{wanted.size:,} B"
    parquet = f"Parquet, {what}"
    source, whole, scan = (f"{name}, {what}" for name in ("source, value alone", "source, all columns", "arrow_scan"))
    mapped, job = f"record batches from a mapped file, {what}", f"job, {what}"
    log, lines, arrow = f"{directory}/log", directory / "lines", f"{directory}/arrow"
    wanted.write_log(log)
    wanted.write_lines(lines)
    write_parquet(spark, lines, f"{directory}/parquet", "BINARY")
    batches = write_arrow(arrow, wanted)
    read = spark.read.format("logboom").option("topic", TOPIC)
    python = spark.read.format("mapped").option("splits", SPLITS)
    frames: dict[str, DataFrame] = {
        parquet: spark.read.parquet(f"{directory}/parquet"),
        source: read.schema("value BINARY").load(log),
        whole: spark.read.format("logboom").option("topic", TOPIC).load(log),
        mapped: python.option("batches", batches).load(arrow),
    }
    theirs = _fill_kafka(spark, kafka, version, lines, what)
    lines.unlink()
    subjects: dict[str, Subject] = {name: partial(_sum, frame) for name, frame in {**frames, **theirs}.items()}
    subjects[scan] = partial(_sum_lengths, spark, log)
    for _ in range(WARM):
        assert [name for name, call in subjects.items() if call() != wanted.amount] == []
    nothing = spark.read.format("mapped").option("splits", SPLITS).option("batches", 0).load(arrow)
    subjects[job] = partial(_sum, nothing)
    meter = Meter(_jvm_pid(spark), kafka.pid if kafka else None)
    spent: dict[str, list[Spent]] = {name: [] for name in subjects}
    timings = time_prepared(
        {name: (_nothing, partial(_metered, call, meter, spent[name])) for name, call in subjects.items()}, ROUNDS
    )
    best = min(theirs, key=lambda name: timings[name].median_us, default=None)
    row = partial(rate, timings=timings, amount=wanted.amount)
    return [
        row(parquet),
        *(row(name) for name in theirs),
        row(source, against=parquet, goal=0.4),
        *([row(source, against=best, goal=1.5)] if best else []),
        row(whole, against=parquet),
        *([row(whole, against=best)] if best else []),
        row(scan, against=parquet, goal=0.9),
        row(mapped, against=parquet),
        row(source, against=mapped),
        compare(job, timings, unit="ms"),
        *_spent_rows(spent, theirs),
    ]


def _fill_kafka(spark: SparkSession, kafka: Kafka | None, version: str, lines: Path, what: str) -> dict[str, DataFrame]:
    if kafka is None:
        return {}
    label = f"Kafka source {version}, {{}}, {what}"
    frames = {}
    for partitions, shape in ((1, f"1 partition in {SPLITS} tasks"), (CORES, f"{CORES} partitions")):
        topic = f"bench-{partitions}"
        kafka.fill(topic, partitions, lines)
        reader = spark.read.format("kafka").options(**kafka.options(topic))
        frames[label.format(shape)] = (reader.option("minPartitions", SPLITS) if partitions == 1 else reader).load()
    return frames


def _jvm_pid(spark: SparkSession) -> int:
    jvm = spark._jvm
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _sum(frame: DataFrame) -> int | None:
    total: int | None = frame.selectExpr("sum(length(value))").collect()[0][0]
    return total


def _sum_lengths(spark: SparkSession, log: str) -> int:
    sums = arrow_scan(spark, _add_lengths, "bytes BIGINT", log, columns=["value"], topic=TOPIC)
    total: int = sums.selectExpr("sum(bytes)").collect()[0][0]
    return total


def _add_lengths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    total = sum(pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0 for batch in batches)
    yield pa.RecordBatch.from_pydict({"bytes": pa.array([total], pa.int64())})


class Meter:
    """The processor seconds that were spent so far in the JVM, in Python below it, and in another process."""

    def __init__(self, jvm: int, other: int | None) -> None:
        self._jvm = jvm
        self._other = other

    def read(self) -> Spent:
        times = {pid: found for path in Path("/proc").glob("[0-9]*") if (found := _times(pid := int(path.name)))}
        python = times[self._jvm].reaped
        below = [self._jvm]
        for parent in below:
            for pid, found in times.items():
                if found.parent == parent:
                    below.append(pid)
                    python += found.own + found.reaped
        return Spent(times[self._jvm].own, python, times[self._other].own if self._other else 0.0)


class Spent(NamedTuple):
    jvm: float
    python: float
    other: float


class Times(NamedTuple):
    parent: int
    own: float
    reaped: float
    """Of children that have ended."""


def _times(pid: int) -> Times | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    own, system, reaped, reaped_system = (int(field) / TICKS for field in fields[11:15])
    return Times(int(fields[1]), own + system, reaped + reaped_system)


def _metered(call: Subject, meter: Meter, spent: list[Spent]) -> None:
    before = meter.read()
    call()
    spent.append(Spent(*(after - earlier for after, earlier in zip(meter.read(), before, strict=True))))


def _spent_rows(spent: Mapping[str, list[Spent]], theirs: Collection[str]) -> list[Row]:
    """The median of the rounds, of each side that has a part in it."""
    rows = []
    for name, rounds in spent.items():
        sides = {"jvm": "in the JVM", **({"other": "in Kafka's node"} if name in theirs else {"python": "in Python"})}
        for side, where in sides.items():
            seconds = sorted(getattr(one, side) for one in rounds)
            quarter = len(seconds) // 4
            if median(seconds) >= 1 / TICKS:
                spread = (seconds[quarter], seconds[-1 - quarter])
                rows.append(Row(f"{name}: {where}", median(seconds), "CPU s", spread))
    return rows


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
