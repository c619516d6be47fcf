"""How fast is a topic archived, next to Spark that rewrites the same rows from Parquet to Parquet?

A node has a topic of two partitions whose records are a value of 100 or 1,024 bytes. `ArchiveWork` runs as the pipeline
runs it, with its lease and its result; it reads the files of the node, writes Parquet (zstd 3), synced, and reads all
of it back to compare. Spark reads what that has written and writes it again, with zstd 3, without a sync and without a
look at what it wrote. How the job grows is told by a tenth of the records. What is measured is millions of records
a second, and the bytes of values beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from harness import QUICK, Row, rate, report, time_prepared
from logboom.batch import build
from logboom.spark.jobs.archive import ArchiveWork
from logboom.spark.jobs.job_run import run_job
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings
from node import Node, running_node
from spark_data import START_US, TOPIC, Records, as_values, running_spark

COUNTS = ((100, 200_000), (1024, 50_000)) if QUICK else ((100, 1_000_000), (100, 10_000_000), (1024, 1_000_000))
"""Bytes of a value, and how many."""
SEGMENT_BYTES = (2 if QUICK else 32) * 1024 * 1024
PARTITIONS = 2
ROUNDS = 2 if QUICK else 5


class Archive:
    """A topic that is archived as if for the first time, again and again."""

    def __init__(self, spark: SparkSession, directory: str, wanted: Records) -> None:
        self._spark = spark
        self._directory = directory
        self._place = f"{directory}/place"
        self._stack = ExitStack()
        self._node: Node | None = None
        self.records = 0
        self._write_log(wanted)

    def _write_log(self, wanted: Records) -> None:
        with DataDirectory.open(f"{self._directory}/data") as data:
            data.create_topic(TOPIC, PARTITIONS, Settings(segment=SegmentSettings(bytes=SEGMENT_BYTES)))
            logs = data.open_topic(TOPIC)
            for number, (_, lines) in enumerate(wanted.pieces()):
                logs[number % PARTITIONS].append_one(build(as_values(lines)), START_US + number)
            for log in logs:
                log.commit(log.sync())

    def renew(self) -> None:
        """Without an archive, and without a memory of one."""
        self.close()
        shutil.rmtree(self._place, ignore_errors=True)
        for path in Path(self._directory, "data", "topics").glob("_pipeline~*"):
            shutil.rmtree(path)
        self._node = self._stack.enter_context(running_node(self._directory))
        os.sync()

    def run(self) -> None:
        assert self._node is not None
        report = run_job(ArchiveWork(topic=TOPIC), self._node.address, lambda: self._spark, self._place)
        self.records = report.summary["records"]

    def keep(self, path: str) -> None:
        """What was written, elsewhere."""
        (files,) = Path(self._place, "archive", TOPIC).glob("[0-9a-f]*")
        shutil.copytree(files, path)

    def close(self) -> None:
        self._stack.close()
        Path(self._directory, "ready.json").unlink(missing_ok=True)


def main() -> None:
    rows: list[Row] = []
    with running_spark() as spark:
        for size, count in COUNTS:
            with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
                rows += _compare(spark, directory, Records(size, count))
    report("archive", rows)


def _compare(spark: SparkSession, directory: str, wanted: Records) -> Iterator[Row]:
    archive, kept, target = Archive(spark, directory, wanted), f"{directory}/kept", f"{directory}/rewritten"

    def rewrite() -> None:
        spark.read.parquet(kept).write.mode("overwrite").option("compression", "zstd").parquet(target)

    try:
        archive.renew()
        archive.run()
        archive.keep(kept)
        rewrite()
        what = f"{archive.records:,} records of {wanted.size:,} B"
        ours, theirs = f"archive, synced and compared, {what}", f"Spark, Parquet to Parquet, {what}"
        remove = partial(shutil.rmtree, target, ignore_errors=True)
        timings = time_prepared({ours: (archive.renew, archive.run), theirs: (remove, rewrite)}, ROUNDS)
    finally:
        archive.close()
    yield rate(theirs, timings, archive.records, unit="million records/s")
    yield rate(ours, timings, archive.records, theirs, 0.5, unit="million records/s")
    yield rate(ours, timings, archive.records * wanted.size)


if __name__ == "__main__":
    main()
