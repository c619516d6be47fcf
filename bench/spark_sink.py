"""How fast does Spark write to a topic, in one go and in a stream, and how long does a micro-batch take?

Ten million rows of a value of 100 bytes, made in the JVM, are written from two tasks: to `noop`, which is what making
them costs; as uncompressed Parquet; with the sink to a topic of two partitions; and with Spark's Kafka sink (the
version in its row) to one of two partitions, its producer told to gather as much as ours does. What our sink has
written is there once and synced when the write returns. Kafka's is at least once, and answered from memory, as is its
default; in another row the topic has `flush.messages=1`, and an answer means synced there too. Parquet is not synced.
Then streams of Spark's `rate-micro-batch` source, a million rows a trigger and a
thousand, to the same sinks: times are those that Spark gives for the whole trigger, with its own two logs. The first
triggers of a query do not count; each round starts every query anew.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from harness import QUICK, Row, Timing, compare, rate, report, summarise, time_prepared
from node import DURABLE, Node, running_node
from peers.kafka import Kafka
from spark_data import find_kafka, running_kafka, running_spark
from spark_stream import IGNORED, TRIGGERS, wait_for_triggers

ROWS = 500_000 if QUICK else 10_000_000
COUNTS = (50_000, 1000) if QUICK else (1_000_000, 1000)
ROUNDS = 2 if QUICK else 5
TASKS = 2
VALUE = "CAST(lpad(CAST(id AS STRING), 100, 'abcdefghijklmnopqrstuvwxyz') AS BINARY) AS value"
GATHERING = {"kafka.batch.size": "1048576", "kafka.linger.ms": "5", "kafka.buffer.memory": "67108864"}

Save = Callable[[DataFrame], object]
Stream = Callable[[DataStreamWriter], DataStreamWriter]


class Places:
    """Where the sinks write to: each write has a new one, the one before goes."""

    def __init__(self, directory: str, node: Node, kafka: Kafka | None) -> None:
        self._directory = directory
        self._node = node
        self._kafka = kafka
        self._numbers = count()
        self.now = ""

    def renew(self) -> None:
        before, self.now = self.now, f"sink{next(self._numbers)}"
        self._node.create(self.now, DURABLE, TASKS)
        if self._kafka is not None:
            self._kafka.create(self.now, TASKS)
            self._kafka.create(f"{self.now}-synced", TASKS, flush_messages="1")
        if before:
            self._node.call(lambda broker: broker.delete_topic(before))
            shutil.rmtree(f"{self._directory}/{before}", ignore_errors=True)
            if self._kafka is not None:
                self._kafka.delete(before)
                self._kafka.delete(f"{before}-synced")
        os.sync()  # nobody's sync waits for what another has left to the operating system

    def batch(self, version: str) -> dict[str, Save]:
        saves: dict[str, Save] = {
            "noop": lambda rows: rows.write.format("noop").mode("overwrite").save(),
            "Parquet, uncompressed, not synced": lambda rows: rows.write.option("compression", "none").parquet(
                f"{self._directory}/{self.now}"
            ),
            "sink, synced, once": lambda rows: (
                rows.write.format("logboom").mode("append").option("topic", self.now).save(self._address)
            ),
        }
        if self._kafka is not None:
            where = {"kafka.bootstrap.servers": self._kafka.address, **GATHERING}
            saves[f"Kafka sink {version}, not synced, at least once"] = lambda rows: (
                rows.write.format("kafka").options(**where, topic=self.now).save()
            )
            saves[f"Kafka sink {version}, synced, at least once"] = lambda rows: (
                rows.write.format("kafka").options(**where, topic=f"{self.now}-synced").save()
            )
        return saves

    def stream(self, version: str) -> dict[str, Stream]:
        streams: dict[str, Stream] = {
            "noop": lambda writer: writer.format("noop"),
            "Parquet files, not synced": lambda writer: (
                writer.format("parquet").option("compression", "none").option("path", f"{self._directory}/{self.now}")
            ),
            "sink, synced, once": lambda writer: (
                writer.format("logboom").option("topic", self.now).option("path", self._address)
            ),
        }
        if self._kafka is not None:
            where = {"kafka.bootstrap.servers": self._kafka.address, **GATHERING}
            streams[f"Kafka sink {version}, not synced, at least once"] = lambda writer: writer.format("kafka").options(
                **where, topic=self.now
            )
            streams[f"Kafka sink {version}, synced, at least once"] = lambda writer: writer.format("kafka").options(
                **where, topic=f"{self.now}-synced"
            )
        return streams

    @property
    def _address(self) -> str:
        return f"logboom://{self._node.address}"


def main() -> None:
    jars = find_kafka()
    version = jars.connector_version if jars else ""
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_kafka(directory, jars) as kafka,
        running_node(f"{directory}/node") as node,
        running_spark(jars) as spark,
    ):
        spark.sparkContext.setLogLevel("FATAL")
        places = Places(directory, node, kafka)
        rows = list(_save(spark, places, version))
        for number in COUNTS:
            rows += _follow(spark, places, version, number, directory)
    report("spark_sink", rows)


def _save(spark: SparkSession, places: Places, version: str) -> Iterator[Row]:
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr(VALUE)
    saves = places.batch(version)
    for save in saves.values():  # the first of each pays for what the others find ready: code, heap, memory for files
        places.renew()
        save(frame)
    subjects = {name: (places.renew, lambda save=save: save(frame)) for name, save in saves.items()}
    timings = time_prepared({f"{name}, {ROWS:,} rows": subject for name, subject in subjects.items()}, ROUNDS)
    yield from _rates(timings, ROWS)


def _rates(timings: Mapping[str, Timing], amount: int) -> Iterator[Row]:
    noop, parquet, sink, *kafka = timings
    unit = "million rows/s"
    yield rate(noop, timings, amount, unit=unit)
    yield rate(parquet, timings, amount, unit=unit)
    yield rate(sink, timings, amount, parquet, 0.7, unit=unit)
    for name in kafka:
        yield rate(name, timings, amount, parquet, unit=unit)
        yield rate(sink, timings, amount, name, 2.0 if "not synced" in name else None, unit=unit)


def _follow(spark: SparkSession, places: Places, version: str, number: int, directory: str) -> list[Row]:
    streams = places.stream(version)
    times: dict[str, list[float]] = {f"{name}, {number:,} rows a trigger": [] for name in streams}
    for _ in range(ROUNDS):
        for name, make in zip(times, streams.values(), strict=True):
            places.renew()
            source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=number, numPartitions=TASKS)
            writer = source.load().selectExpr(VALUE.replace("id", "value")).writeStream
            with tempfile.TemporaryDirectory(dir=directory) as checkpoint:
                triggers = _run(make(writer), checkpoint)
            assert all(trigger["numInputRows"] == number for trigger in triggers), (name, triggers)
            times[name].append(1000 * median(trigger["durationMs"]["triggerExecution"] for trigger in triggers))
    timings: dict[str, Timing] = {name: summarise(samples) for name, samples in times.items()}
    if number == max(COUNTS):
        return list(_rates(timings, number))
    _, parquet, *_ = timings
    return [compare(name, timings, parquet if name != parquet else None, unit="ms") for name in timings]


def _run(writer: DataStreamWriter, checkpoint: str) -> list[dict[str, Any]]:
    query = writer.option("checkpointLocation", str(Path(checkpoint, "query"))).start()
    try:
        return wait_for_triggers(query)[IGNORED : IGNORED + TRIGGERS]
    finally:
        query.stop()


if __name__ == "__main__":
    main()
