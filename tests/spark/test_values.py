"""Values as columns, scans that stay in Arrow, and what tasks say they have read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logboom.batch import Record
from logboom.errors import ConfigError, InvalidColumn, TopicNotFound
from logboom.spark import arrow_scan, json_schema, json_values, scans
from logboom.storage import DataDirectory
from support.spark.content import append, make_topic, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("values") / "data"
    values = [
        json.dumps({"device": number % 3, "temperature": number / 2, "deep": {"x": [number]}}) for number in range(100)
    ]
    odd = [b"", None, b"no JSON", b"[1, 2]", b'{"device": "text", "temperature": 1}', b"\xff\xfe", b'{"device": 5}']
    with DataDirectory.open(str(root)) as data:
        for topic, contents in (
            ("json", [value.encode() for value in values]),
            ("odd", odd),
            ("none", [b"no JSON", b"", None]),
        ):
            data.create_topic(topic)
            append(data.open_topic(topic)[0], [[Record(content) for content in contents]])
        data.create_topic("empty")
        make_topic(data, "events", 4, 200, 2)
    return str(root)


def test_json_values_become_columns(spark: SparkSession, path: str) -> None:
    records = spark.read.format("logboom").option("topic", "json").load(path)
    narrow = json_values(records, "device INT, temperature DOUBLE")
    means = {
        row.device: row.mean
        for row in narrow.groupBy("value.device")
        .agg({"value.temperature": "avg"})
        .withColumnRenamed("avg(value.temperature AS temperature)", "mean")
        .toDF("device", "mean")
        .collect()
    }
    assert means == {
        device: sum(n / 2 for n in range(device, 100, 3)) / len(range(device, 100, 3)) for device in range(3)
    }
    inferred = json_values(records)
    assert inferred.columns == records.columns
    assert inferred.selectExpr("sum(value.deep.x[0])").first() == (4950,)


def test_what_is_no_json_or_does_not_fit_is_null(spark: SparkSession, path: str) -> None:
    records = spark.read.format("logboom").option("topic", "odd").load(path)
    found = json_values(records, "device INT, temperature DOUBLE").select("seqno", "value.device").collect()
    assert [row.device for row in sorted(found)] == [None, None, None, None, None, None, 5]
    inferred = json_values(records)
    assert {field.name for field in inferred.schema["value"].dataType} == {"device", "temperature"}  # type: ignore[attr-defined]
    assert inferred.count() == 7


def test_a_schema_is_inferred_from_a_sample(spark: SparkSession, path: str) -> None:
    assert json_schema(spark, path, topic="json").simpleString() == (
        "struct<deep:struct<x:array<bigint>>,device:bigint,temperature:double>"
    )
    assert json_schema(spark, path, topic="odd", sample=5).fieldNames() == ["device", "temperature"]
    for topic in ("none", "empty"):
        with pytest.raises(InvalidColumn, match="is JSON with fields"):
            json_schema(spark, path, topic=topic)
    stream = spark.readStream.format("logboom").option("topic", "json").load(path)
    with pytest.raises(InvalidColumn, match="a stream has no sample to infer from"):
        json_values(stream)


def test_a_scan_in_arrow_sees_every_record_once(spark: SparkSession, path: str) -> None:
    def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, size = 0, 0
        for batch in batches:
            rows, size = rows + batch.num_rows, size + (pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "bytes": [size]})

    rows = read_rows(path, "events", 2)
    scanned = arrow_scan(
        spark, count_rows, "rows BIGINT, bytes BIGINT", path, topic="events", columns=["value"], splitBytes="5k"
    )
    assert scanned.rdd.getNumPartitions() > 3
    assert scanned.groupBy().sum("rows", "bytes").first() == (len(rows), sum(len(row[5] or b"") for row in rows))
    everything = arrow_scan(
        spark, lambda batches: batches, "topic STRING, seqno BIGINT", path, topic="events", columns=["topic", "seqno"]
    )
    assert sorted(map(tuple, everything.collect())) == sorted((row[0], row[2]) for row in rows)


def test_a_scan_in_arrow_takes_the_options_of_the_source(spark: SparkSession, path: str) -> None:
    def seqnos(**options: object) -> list[int]:
        found = arrow_scan(spark, lambda batches: batches, "seqno BIGINT", path, columns=["seqno"], **options)
        return sorted(row.seqno for row in found.collect())

    assert seqnos(topic="json", startingSeqno=90, failOnDataLoss=False) == list(range(90, 100))
    assert seqnos(topic="json", startingSeqno={"json": {"0": 95}}, endingSeqno="97") == [95, 96]
    assert seqnos(topic="empty") == []
    red = [row[2] for row in read_rows(path, "events", 2) if "red" in row[7]]
    assert seqnos(topic="events", tag="red") == sorted(red)
    with pytest.raises(InvalidColumn, match="offset: unknown"):
        arrow_scan(spark, lambda batches: batches, "rows BIGINT", path, topic="json", columns=["offset"])
    with pytest.raises(InvalidColumn, match="seqno: is named twice"):
        arrow_scan(spark, lambda batches: batches, "rows BIGINT", path, topic="json", columns=["seqno", "seqno"])
    with pytest.raises(ConfigError, match="did you mean topic"):
        arrow_scan(spark, lambda batches: batches, "rows BIGINT", path, topik="json")
    with pytest.raises(TopicNotFound):
        arrow_scan(spark, lambda batches: batches, "rows BIGINT", path, topic="nobody")
    with pytest.raises(ConfigError, match="key: is b'k', allowed are texts"):
        arrow_scan(spark, lambda batches: batches, "rows BIGINT", path, topic="json", key=b"k")


def test_tasks_tell_what_they_have_read(spark: SparkSession, path: str, tmp_path: Path) -> None:
    before = scans()
    assert (
        spark.read.format("logboom").options(topic="json", pushdown="true").load(path).where("seqno >= 98").count() == 2
    )
    (noted,) = scans()[len(before) :]
    assert (noted.topic, noted.partition, noted.seqno_from, noted.seqno_until) == ("json", 0, 98, 100)
    assert (noted.source, noted.records, noted.damaged, noted.lost) == ("files", 2, 0, 0)
    assert noted.bytes_read > 0
    assert noted.seconds > 0
    assert scans(since=noted.at) == [noted]
    assert scans(directory=str(tmp_path)) == []
