"""What the Spark benches read, as a log, as a file of lines and as Parquet, and the session that reads it.

A record is a JSON object of exactly so many bytes, and no two are the same, so that no dictionary makes a file small.
Each form is made from the same numbers in the same order. The log has segments of 128 MiB and batches of 256 KiB;
Parquet is written by Spark from the lines, uncompressed.

The session has two cores and Python workers that are used again, and all that is compared in a run runs in its JVM.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from harness import QUICK
from logboom.batch import Batch, build
from logboom.spark import session
from logboom.storage import DataDirectory
from peers.kafka import Jars, Kafka, resolve_kafka
from peers.process import Missing

SIZES = (100, 1024)
"""Bytes of a value."""
LOG_BYTES = (64 if QUICK else 1024) * 1024 * 1024
BATCH_BYTES = 256 * 1024
GROUP = 16
ROUNDS = 3 if QUICK else 5
TOPIC = "bench"
KINDS = ("visit", "click", "order", "leave")
START_US = 1_700_000_000_000_000
FRONT = '{"kind":"%s","amount":000.00,"id":"0000000000","text":"'
DRIVER_MEMORY = "8g"

Matrix = Any
"""A NumPy array of bytes, one record in each row."""


@dataclass(frozen=True, slots=True)
class Records:
    """So many values of one size."""

    size: int
    count: int

    @property
    def amount(self) -> int:
        return self.size * self.count

    @property
    def per_batch(self) -> int:
        return (BATCH_BYTES - 256) // (self.size + 4)

    def pieces(self) -> Iterator[tuple[int, Matrix]]:
        """The number of the first record, and the lines: as many as go into one batch, each with its line feed."""
        noise = np.random.default_rng(self.size)
        for first in range(0, self.count, self.per_batch):
            yield first, make_lines(noise, first, min(self.per_batch, self.count - first), self.size)

    def write_log(self, path: str, interval_us: int = 0) -> None:
        """A data directory with one log; with an interval, records have timestamps, each so much after the last."""
        with DataDirectory.open(path) as data:
            data.create_topic(TOPIC)
            (log,) = data.open_topic(TOPIC)
            group: list[Batch] = []
            for first, lines in self.pieces():
                more: dict[str, Any] = {"timestamps": START_US + interval_us * np.arange(first, first + len(lines))}
                group.append(build(as_values(lines), **(more if interval_us else {})))
                if len(group) == GROUP:
                    log.append(group, START_US)
                    group = []
            if group:
                log.append(group, START_US)
            log.commit(log.sync())

    def write_lines(self, path: Path) -> None:
        with open(path, "wb") as file:
            file.writelines(lines for _, lines in self.pieces())


def records(size: int) -> Records:
    """As many as make a log of the size that is measured."""
    return Records(size, LOG_BYTES // size)


def make_lines(noise: np.random.Generator, first: int, count: int, size: int) -> Matrix:
    front = (FRONT % KINDS[0]).encode()
    lines = np.empty((count, size + 1), np.uint8)
    lines[:, : len(front)] = np.frombuffer(front, np.uint8)
    lines[:, len(front) : -3] = noise.integers(ord("a"), ord("z") + 1, (count, size - len(front) - 2), np.uint8)
    lines[:, -3:] = np.frombuffer(b'"}\n', np.uint8)
    kinds = np.frombuffer("".join(KINDS).encode(), np.uint8).reshape(len(KINDS), -1)
    start = front.index(KINDS[0].encode())
    lines[:, start : start + kinds.shape[1]] = kinds[noise.integers(0, len(KINDS), count)]
    whole = front.index(b"000.00")
    _put_digits(lines, whole, 3, noise.integers(100, 1000, count))
    _put_digits(lines, whole + 4, 2, noise.integers(0, 100, count))
    _put_digits(lines, front.index(b"0000000000"), 10, np.arange(first, first + count))
    return lines


def as_values(lines: Matrix) -> pa.Array:
    """The lines without their line feeds, as one Arrow array."""
    count, size = lines.shape[0], lines.shape[1] - 1
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(lines[:, :-1]))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def write_arrow(path: str, records: Records) -> int:
    """An Arrow file with a record batch for each batch of the log; returns how many."""
    layout = pa.schema([("value", pa.binary())])
    with pa.ipc.new_file(path, layout) as file:
        for _, lines in records.pieces():
            file.write_batch(pa.RecordBatch.from_arrays([as_values(lines)], schema=layout))
    return -(-records.count // records.per_batch)


def write_parquet(spark: SparkSession, lines: Path, path: str, kind: str) -> None:
    """One column, `value`, BINARY or STRING."""
    values = spark.read.text(str(lines)).selectExpr(f"CAST(value AS {kind}) AS value")
    values.write.option("compression", "none").parquet(path)


@contextmanager
def running_spark(jars: Jars | None = None) -> Iterator[SparkSession]:
    config = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if jars is not None:
        config["spark.jars"] = ",".join(map(str, jars.connector))
    spark = session("logboom-bench", "local[2]", config=config)
    try:
        yield spark
    finally:
        spark.stop()


def find_kafka() -> Jars | None:
    try:
        return resolve_kafka()
    except Missing as missing:
        print(f"left out: {missing}", file=sys.stderr)
        return None


@contextmanager
def running_kafka(directory: str, jars: Jars | None) -> Iterator[Kafka | None]:
    if jars is None:
        yield None
        return
    with Kafka.running(directory, jars) as kafka:
        yield kafka


def _put_digits(lines: Matrix, start: int, width: int, numbers: Matrix) -> None:
    for place in range(width):
        lines[:, start + width - 1 - place] = ord("0") + numbers // 10**place % 10
