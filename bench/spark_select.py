"""What does it cost Spark to read 1,000 records of 10 million?

Values of 100 bytes, one each 60 ms, so that a minute has 1,000 of them, in the middle of a log of about 1 GiB. They are
chosen by a filter on `seqno` or on `timestamp`, as in SQL, and by the options of the source, beside the whole log to
`sum(length(value))`. Bytes read are those of the files, as the tasks noted them (`logboom.spark.scans`), next to those
of the batches that hold the records: less than whole batches cannot be read and verified.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from harness import QUICK, Row, compare, report, time_prepared
from logboom.spark import Scan, scans
from spark_data import START_US, TOPIC, Records, running_spark

COUNT = 640_000 if QUICK else 10_000_000
CHOSEN = 1000
INTERVAL_US = 60_000
SCHEMA = "seqno BIGINT, timestamp TIMESTAMP, value BINARY"
ROUNDS = 3 if QUICK else 11
RECORDS = Records(100, COUNT)
FIRST = COUNT // 2 + CHOSEN // 3
GOAL = 1.1
"""Of the bytes of those batches: there are headers to be looked at, too."""

Read = Callable[[], DataFrame]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory, running_spark() as spark:
        RECORDS.write_log(directory, INTERVAL_US)
        rows = _select(spark, directory)
    report("spark_select", rows)


def _select(spark: SparkSession, log: str) -> list[Row]:
    def load(**options: str | int) -> DataFrame:
        return spark.read.format("logboom").schema(SCHEMA).options(topic=TOPIC, **options).load(log)

    start = datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(microseconds=FIRST * INTERVAL_US)
    end = start + timedelta(minutes=1)
    whole = f"all {COUNT:,} records"
    reads: dict[str, Read] = {
        whole: load,
        "a range of seqnos, by a filter": lambda: load(pushdown="true").where(
            f"seqno >= {FIRST} AND seqno < {FIRST + CHOSEN}"
        ),
        "a range of seqnos, by options": lambda: load(startingSeqno=FIRST, endingSeqno=FIRST + CHOSEN),
        "a minute, by a filter": lambda: load(pushdown="true").where(
            f"timestamp >= TIMESTAMP '{start.isoformat()}' AND timestamp < TIMESTAMP '{end.isoformat()}'"
        ),
        "a minute, by options": lambda: load(startingTimestamp=start.isoformat(), endingTimestamp=end.isoformat()),
    }
    noted = {name: _note(read) for name, read in reads.items()}
    timings = time_prepared({name: (_nothing, partial(_count, read)) for name, read in reads.items()}, ROUNDS)
    total = sum(scan.bytes_read for scan in noted[whole])
    rows = [compare(whole, timings, unit="ms"), Row(f"{whole}: read", total / 1024, "KiB")]
    batch_bytes = total / COUNT * RECORDS.per_batch
    batches = (FIRST + CHOSEN - 1) // RECORDS.per_batch - FIRST // RECORDS.per_batch + 1
    needed = f"the {batches} batches that have them"
    for name in list(reads)[1:]:
        found = sum(scan.bytes_read for scan in noted[name])
        ratio = found / (batches * batch_bytes)
        label = f"{name}: read, in splits: {len(noted[name])}"
        rows += [
            compare(name, timings, whole, unit="ms"),
            Row(label, found / 1024, "KiB", against=needed, ratio=ratio, goal=GOAL, met=ratio <= GOAL),
        ]
    return rows


def _note(read: Read) -> list[Scan]:
    """What the tasks read of the files, and that it was right."""
    since = time.time()
    count = _count(read)
    found = scans(since)
    assert count in (CHOSEN, COUNT), count
    assert sum(scan.records for scan in found) >= count, found
    return found


def _count(read: Read) -> int:
    count: int = read().selectExpr("count(value)", "sum(length(value))").collect()[0][0]
    return count


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
