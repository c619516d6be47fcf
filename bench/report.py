"""How long does a report take: on a whole topic, and after one record in a hundred was added?

Topics are those of the checkpoint's bench: two logs, keys of 12 bytes and values of 100. A round makes one anew, then
the first report on it, writes one in a hundred records more, and makes the second. Both are what `logboom pipeline run`
does, with lease, page and all, in a session that is there already. Beside them stands the same session counting records
and bytes by key with Spark's own means: one table of the report.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from pyspark.sql import functions

from checkpoint import CHANGED, PER_KEY, SIZES, Rounds
from harness import QUICK, Row, compare, rate, report, time_prepared
from logboom.spark.jobs.job_run import run_job
from logboom.spark.jobs.report import ReportWork
from node import running_node
from spark_data import running_spark

ROUNDS = 2 if QUICK else 3


class Reports(Rounds):
    def run(self) -> None:
        work = ReportWork(name="bench", topics=(self._topic,))
        assert run_job(work, self._node.address, lambda: self._spark, self._directory).result is not None

    def count_keys(self) -> None:
        records = (
            self._spark.read.format("logboom").option("topic", self._topic).load(f"logboom://{self._node.address}")
        )
        counted = records.groupBy("key").agg(
            functions.count("*").alias("records"), functions.sum(functions.length("value"))
        )
        assert counted.orderBy("records", ascending=False).limit(20).collect()


def measure(rounds: Reports, records: int) -> Iterator[Row]:
    added = int(records * CHANGED)
    whole, later = f"the first, {records:,} records", f"after {added:,} more, {records:,} records"
    by_key = f"records by key alone, in Spark SQL, {records:,} records"
    timings = time_prepared(
        {
            whole: (lambda: rounds.begin(records), rounds.run),
            later: (lambda: rounds.write(added, records // PER_KEY), rounds.run),
            by_key: (lambda: None, rounds.count_keys),
        },
        ROUNDS,
    )
    yield compare(whole, timings, by_key, unit="s")
    yield rate(f"{whole}: pace", {f"{whole}: pace": timings[whole]}, records, unit="million records/s")
    yield compare(later, timings, whole, unit="s")
    yield compare(by_key, timings, unit="s")


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_node(f"{directory}/node") as node,
        running_spark() as spark,
    ):
        rounds = Reports(node, spark, f"{directory}/results")
        rounds.begin(SIZES[0] // 10)
        rounds.run()  # the first of all pays for what the others find ready
        rows = [row for records in SIZES for row in measure(rounds, records)]
    report("report", rows)


if __name__ == "__main__":
    main()
