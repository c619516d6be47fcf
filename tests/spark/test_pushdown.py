"""Filters that the source takes over: what comes is what Spark makes of the same filter, and less is read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import PySparkException

from logboom.batch import Record
from logboom.spark import scans
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings
from support.spark.content import NOW, append, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENABLED = "spark.sql.python.filterPushdown.enabled"


class Pair(NamedTuple):
    path: str
    copy: DataFrame
    """The rows, in Spark's memory."""

    def source(self, **options: str) -> DataFrame:
        """A new one each time."""
        reader = self.copy.sparkSession.read.format("logboom").options(topic="events,orders", **options)
        return reader.load(self.path)


@pytest.fixture(scope="module")
def pair(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = str(tmp_path_factory.mktemp("pushdown") / "data")
    with DataDirectory.open(path) as data:
        make_topic(data, "events", 1, 300, 3)
        make_topic(data, "orders", 2, 60)
    copy = spark.read.format("logboom").option("topic", "events,orders").load(path).cache()
    assert copy.count() > 900
    yield Pair(path, copy)
    copy.unpersist()


FILTERS = [
    "seqno = 17",
    "seqno <=> 17 OR seqno IS NULL",
    "seqno < 3 AND seqno >= 0 AND seqno > -5",
    "seqno BETWEEN 200 AND 205 AND partition IN (0, 2)",
    "seqno IN (1, 299, 1000000) OR partition = 1",
    "NOT seqno < 290 AND NOT partition = 2",
    "topic = 'orders' AND seqno <= 9223372036854775807",
    "topic LIKE 'ord%' AND partition <=> 0",
    "topic IN ('events', 'nobody', NULL) AND partition > 0 AND partition <= 1",
    "topic > 'f'",
    "channel = 'a/b'",
    "channel LIKE 'a/%'",
    "channel LIKE 'a%' AND channel LIKE 'a/b%'",
    "channel = 'a+b' OR channel = 'a/#'",
    "channel = 'a/#'",
    "channel = 'x*'",
    "channel LIKE 'x*%'",
    "channel = ''",
    "channel <=> NULL AND seqno < 100",
    "channel IS NULL AND topic = 'orders'",
    "channel IS NOT NULL AND NOT channel = 'a'",
    "channel IN ('a', 'größe/7')",
    "channel LIKE 'größe%' AND key IS NOT NULL",
    "key = X'6B31'",
    "key = X''",
    "key = X'FFFE' AND key IS NOT NULL AND channel = 'a'",
    "key IS NULL AND value = X'74657874'",
    f"timestamp = timestamp_micros({NOW})",
    f"timestamp >= timestamp_micros({NOW}) AND timestamp < timestamp_micros({NOW + 1})",
    f"timestamp > timestamp_micros({NOW - 1}) AND timestamp <= timestamp_micros({NOW + 7})",
    f"timestamp BETWEEN timestamp_micros({NOW - 5 * 10**8}) AND timestamp_micros({NOW}) AND seqno > 50",
    "timestamp < TIMESTAMP'1970-01-01 00:00:00Z'",
    "timestamp >= timestamp_micros(-500000) AND timestamp < timestamp_micros(1)",
    "timestamp <=> timestamp_micros(0) OR timestamp > TIMESTAMP'2026-09-21 13:00:00Z'",
    "NOT timestamp < timestamp_micros(1000000)",
    "timestamp > TIMESTAMP'9999-12-31 00:00:00Z'",
    "array_contains(tags, 'red') AND seqno < 50",
    "size(headers) > 1 AND headers[0].key = 'h'",
]


def rows(records: DataFrame, wanted: str) -> list[tuple[str, int, int]]:
    found = records.where(wanted).select("topic", "partition", "seqno").collect()
    return sorted((row.topic, row.partition, row.seqno) for row in found)


@pytest.mark.parametrize("wanted", FILTERS)
def test_a_filter_gives_what_spark_makes_of_it(pair: Pair, wanted: str) -> None:
    assert rows(pair.source(pushdown="true", splitBytes="64k"), wanted) == rows(pair.copy, wanted)


def test_a_dataframe_may_be_read_with_many_filters(pair: Pair) -> None:
    """What one scan has left out is not missing from another, before, after or in the same query."""
    source, everything = pair.source(), pair.copy.count()
    few, some = pair.copy.where("seqno = 3").count(), pair.copy.where("seqno < 100").count()
    assert source.where("seqno = 3").count() == few
    assert source.count() == everything
    assert source.where("seqno = 1 OR partition = 1").count() == pair.copy.where("seqno = 1 OR partition = 1").count()
    assert source.where("seqno < 100").union(source.where("seqno = 3")).union(source).count() == some + few + everything
    assert source.where("seqno = 3").join(source, "seqno").count() == few * few


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_the_time_zone_of_a_session_does_not_matter(spark: SparkSession, pair: Pair, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        wanted = "timestamp >= TIMESTAMP'2026-09-21 09:53:20' AND timestamp < TIMESTAMP'2026-09-21 20:00:00'"
        assert rows(pair.source(pushdown="true"), wanted) == rows(pair.copy, wanted)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_filters_are_taken_from_who_asks_for_it_in_a_session_that_pushes_them(spark: SparkSession, pair: Pair) -> None:
    wanted = "seqno BETWEEN 5 AND 9 AND channel LIKE 'a%'"
    expected = rows(pair.copy, wanted)

    def read(**options: str) -> int:
        before = len(scans())
        assert rows(pair.source(**options), wanted) == expected
        return sum(scan.records for scan in scans()[before:])

    everything = pair.copy.count()
    try:
        assert read() == everything
        assert read(pushdown="true") == len(expected)
        assert read(pushdown="false") == everything
        spark.conf.set(ENABLED, "false")
        assert read() == everything
        assert read(pushdown="false") == everything
        with pytest.raises(PySparkException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
            read(pushdown="true")
    finally:
        spark.conf.set(ENABLED, "true")


def test_options_and_filters_hold_together(pair: Pair) -> None:
    taken = "(channel = 'a' OR channel LIKE 'a/%') AND key = X'6B31'"
    for wanted in ("channel = 'a/b'", "key = X''", "seqno > 20 AND channel LIKE 'a/b%'"):
        source = pair.source(channel="a/#", key="k1", pushdown="true")
        assert rows(source, wanted) == rows(pair.copy, f"{taken} AND {wanted}")


def test_what_is_not_wanted_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(7)
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.create_topic("events", 2, Settings(segment=SegmentSettings(bytes=64 * 1024)))
        for log in data.open_topic("events"):
            append(
                log,
                [
                    [Record(rng.randbytes(100), timestamp=NOW + 1000 * (start + n)) for n in range(20)]
                    for start in range(0, 5000, 20)
                ],
            )
    reader = spark.read.format("logboom").options(topic="events", pushdown="true")

    def read(wanted: str) -> tuple[int, int, int]:
        before = len(scans())
        count = reader.load(str(tmp_path / "data")).where(wanted).count()
        noted = scans()[before:]
        return count, sum(scan.records for scan in noted), sum(scan.bytes_read for scan in noted)

    _, _, everything = read("true")
    assert everything > 1_000_000
    minute = f"timestamp >= timestamp_micros({NOW + 2_000_000}) AND timestamp < timestamp_micros({NOW + 2_100_000})"
    for wanted, count in (("seqno BETWEEN 100 AND 199", 200), ("seqno = 4999 AND partition = 1", 1), (minute, 200)):
        found, given, size = read(wanted)
        assert (found, given) == (count, count)
        assert size < everything / 20
    assert read("topic = 'nobody'") == (0, 0, 0)
    assert read("seqno > 1000000") == (0, 0, 0)
    assert read("key = X'00'") == (0, 0, 0)
    noted = scans()[-1]
    assert noted.bytes_skipped == noted.size_bytes - noted.bytes_read
