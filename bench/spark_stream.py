"""How fast does a streaming query go through a log, and how long does one of its triggers take?

The query does nothing but read, to Spark's `noop` sink, one trigger after the other: of a million records of 100 bytes
each, which is what a query does that has to catch up, and of a thousand, which is what one does that keeps up. Next to
it, to the same sink, Spark's own `rate-micro-batch` source, which makes its numbers in the JVM and reads nothing, and
Spark's Kafka source (the version in its row) on the same records in a topic of two partitions. Times are those that
Spark gives for the whole trigger: looking for new records, planning, reading, its own two logs of offsets. The first
triggers of a query do not count; each round starts every query anew.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from harness import QUICK, Row, Timing, compare, rate, report, summarise
from peers.kafka import Kafka
from spark_data import TOPIC, Records, find_kafka, records, running_kafka, running_spark

COUNTS = (50_000, 1000) if QUICK else (1_000_000, 1000)
"""Records of a trigger."""
IGNORED = 2
TRIGGERS = 8
"""Of a query in a round, after those."""
ROUNDS = 2 if QUICK else 5
TASKS = 2
WAIT_S = 300.0

Load = Callable[[int], DataFrame]
"""A stream of so many records in each trigger."""


def main() -> None:
    jars = find_kafka()
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_kafka(directory, jars) as kafka,
        running_spark(jars) as spark,
    ):
        # A query that is stopped in a trigger says so at length; one that fails raises.
        spark.sparkContext.setLogLevel("FATAL")
        sources = _prepare(spark, Path(directory), records(100), kafka, jars.connector_version if jars else "")
        rows = [row for count in COUNTS for row in _follow(sources, count, directory)]
    report("spark_stream", rows)


def _prepare(
    spark: SparkSession, directory: Path, wanted: Records, kafka: Kafka | None, version: str
) -> dict[str, Load]:
    log, lines = f"{directory}/log", directory / "lines"
    wanted.write_log(log)
    stream = spark.readStream

    def load_rate(count: int) -> DataFrame:
        return stream.format("rate-micro-batch").options(rowsPerBatch=count, numPartitions=TASKS).load()

    def load_log(schema: str | None, count: int) -> DataFrame:
        reader = spark.readStream.format("logboom").options(
            topic=TOPIC, startingSeqno="earliest", maxRecordsPerTrigger=count
        )
        return (reader.schema(schema) if schema else reader).load(log)

    sources: dict[str, Load] = {
        "rate-micro-batch": load_rate,
        "source, value alone": lambda count: load_log("value BINARY", count),
        "source, all columns": lambda count: load_log(None, count),
    }
    if kafka is not None:
        wanted.write_lines(lines)
        kafka.fill(TOPIC, TASKS, lines)
        lines.unlink()
        options = kafka.options(TOPIC)
        sources[f"Kafka source {version}, {TASKS} partitions"] = lambda count: (
            spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=count).load()
        )
    return sources


def _follow(sources: Mapping[str, Load], count: int, directory: str) -> list[Row]:
    times: dict[str, list[float]] = {f"{name}, {count:,} records a trigger": [] for name in sources}
    for _ in range(ROUNDS):
        for name, load in zip(times, sources.values(), strict=True):
            with tempfile.TemporaryDirectory(dir=directory) as checkpoint:
                triggers = _run(load(count), checkpoint)
            # Kafka's source shares the records out among partitions and rounds down.
            assert all(0.99 * count <= trigger["numInputRows"] <= count for trigger in triggers), (name, triggers)
            times[name].append(1000 * median(trigger["durationMs"]["triggerExecution"] for trigger in triggers))
    timings: dict[str, Timing] = {name: summarise(samples) for name, samples in times.items()}
    against = next(iter(timings))
    rows = [compare(name, timings, against if name != against else None, unit="ms") for name in timings]
    if count == max(COUNTS):
        unit = "million records/s"
        rows += [rate(name, timings, count, against if name != against else None, unit=unit) for name in timings]
    return rows


def _run(frame: DataFrame, checkpoint: str) -> list[dict[str, Any]]:
    """What Spark says of the triggers of a query, but for the first ones."""
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        return wait_for_triggers(query)[IGNORED : IGNORED + TRIGGERS]
    finally:
        query.stop()


def wait_for_triggers(query: StreamingQuery) -> list[dict[str, Any]]:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if (failure := query.exception()) is not None:
            raise failure
        triggers: list[Any] = [trigger for trigger in query.recentProgress if trigger["numInputRows"]]
        if len(triggers) >= IGNORED + TRIGGERS:
            return triggers
        time.sleep(0.1)
    raise TimeoutError(f"{len(triggers)} triggers in {WAIT_S:.0f} seconds")


if __name__ == "__main__":
    main()
