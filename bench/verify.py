"""How fast are data directories verified on Spark, next to reading their files with `cat`?

Records of 256 bytes, with keys and timestamps, 10 million of them, in segments of 128 MiB: every batch is checked,
checksums and structure. `cat FILES > /dev/null` copies the same bytes once and looks at none. Warm: all of it is in
memory as cached pages. Cold: the cached pages are dropped before each, and the disk gives what it can. Spark has two
cores of one JVM, which has done it all before; what is timed is the whole of a verification, plan and verdict included,
but not the lease of the job.

Below: the same in batches of 8 records; compressed with zstd, where bodies are inflated to be checked; two replicas of
which every batch is compared, with `cat` of both; and how the time grows from 1 to 10 million records.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from harness import QUICK, Row, Subject, compare, rate, report, time_prepared
from logboom.batch import Batch, build
from logboom.spark.jobs.tasks import run_tasks
from logboom.storage import DataDirectory
from logboom.verify.plan import VerifyChoice
from logboom.verify.verifier import Verification
from spark_data import running_spark
from unsynced import UnsyncedDisk

MILLION = 100_000 if QUICK else 1_000_000
VALUE_BYTES = 256
START_US = 1_700_000_000_000_000
ROUNDS = 3 if QUICK else 7
GOAL = 0.5
WARM = 3
FEW = 8


class Directory:
    """A data directory, and the files of its logs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files = sorted(str(file) for file in Path(path).glob("topics/*/*/*.log"))
        os.sync()  # else no page of it can be dropped

    @classmethod
    def make(cls, path: str, records: int, batch_bytes: int, codec: str = "none") -> Directory:
        """With one log, of which the values are noise, or shrink to less than half."""
        os.makedirs(path)
        per_batch = max(FEW, batch_bytes // (VALUE_BYTES + 28))
        noise = np.random.default_rng(7)
        with DataDirectory.open(path, UnsyncedDisk(path)) as data:
            data.create_topic("bench")
            (log,) = data.open_topic("bench")
            batches = [_batch(noise, per_batch, codec) for _ in range(16)]
            while log.committed < records:
                log.append(batches, START_US)
                log.commit(log.sync())
        return cls(path)

    def copied(self, path: str) -> Directory:
        """A copy of all files is a replica."""
        shutil.copytree(self.path, path)
        return Directory(path)

    @property
    def size(self) -> int:
        return sum(os.path.getsize(file) for file in self.files)


def _batch(noise: np.random.Generator, count: int, codec: str) -> Batch:
    high = 256 if codec == "none" else 8
    content = noise.integers(0, high, count * VALUE_BYTES, np.uint8)
    offsets = np.arange(0, (count + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    keys = [b"key-%08d" % number for number in noise.integers(0, 10**8, count)]
    return build(values, keys=keys, timestamps=START_US + np.arange(count), codec=codec)


def read(directories: Sequence[Directory]) -> None:
    files = [file for directory in directories for file in directory.files]
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)


def verify(spark: SparkSession, directories: Sequence[Directory]) -> None:
    def execute(
        function: Callable[[bytes], bytes], pieces: Sequence[bytes], on_progress: Callable[[int], None]
    ) -> list[bytes]:
        return run_tasks(spark, function, pieces, on_progress)

    found = Verification([directory.path for directory in directories], VerifyChoice(), execute).run()
    assert not found.problems, found.problems
    assert found.bytes == sum(directory.size for directory in directories)


def forget(directories: Sequence[Directory]) -> None:
    for directory in directories:
        for file in directory.files:
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def nothing() -> None:
    pass


def measure(spark: SparkSession, label: str, directories: list[Directory], goal: float | None) -> Iterator[Row]:
    """Both, warm and cold."""
    size = sum(directory.size for directory in directories)
    for _ in range(WARM):
        verify(spark, directories)
    for warmth, prepare in (("warm", nothing), ("cold", partial(forget, directories))):
        plain, ours = f"cat, {label}, {warmth}", f"verify, {label}, {warmth}"
        subjects: dict[str, tuple[Subject, Subject]] = {
            plain: (prepare, partial(read, directories)),
            ours: (prepare, partial(verify, spark, directories)),
        }
        timings = time_prepared(subjects, ROUNDS)
        yield rate(plain, timings, size)
        yield rate(ours, timings, size, plain, goal)


def measure_growth(spark: SparkSession, small: Directory, large: Directory) -> Iterator[Row]:
    names = "verify, 1 million records", "verify, 10 million records"
    subjects: dict[str, tuple[Subject, Subject]] = {
        name: (nothing, partial(verify, spark, [directory]))
        for name, directory in zip(names, (small, large), strict=True)
    }
    timings = time_prepared(subjects, ROUNDS)
    yield compare(names[0], timings, unit="s")
    yield compare(names[1], timings, names[0], 10.0, unit="s")


@contextmanager
def scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        yield directory


def main() -> None:
    rows: list[Row] = []
    with running_spark() as spark:
        with scratch() as root:
            large = Directory.make(f"{root}/large", 10 * MILLION, 64 * 1024)
            rows += measure(spark, "64 KiB batches", [large], GOAL)
            small = Directory.make(f"{root}/small", MILLION, 64 * 1024)
            rows += measure_growth(spark, small, large)
            rows += measure(spark, "64 KiB batches, two replicas", [large, large.copied(f"{root}/copy")], None)
        for label, batch_bytes, codec, records in (
            ("256 KiB batches", 256 * 1024, "none", 10 * MILLION),
            ("64 KiB batches, zstd", 64 * 1024, "zstd", 10 * MILLION),
            (f"batches of {FEW} records", 0, "none", MILLION),
        ):
            with scratch() as root:
                directory = Directory.make(f"{root}/data", records, batch_bytes, codec)
                rows += measure(spark, label, [directory], GOAL if batch_bytes > 64 * 1024 else None)
    report("verify", rows)


if __name__ == "__main__":
    main()
