"""DataFrames written to topics: what is in the log then, row for row, and nothing at all where anything is wrong.

Streams are in test_sink_stream.py, and how rows become columns of records in unit/spark/test_rows.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, expr, lit, struct

from logboom import Writer
from logboom.batch.partitioner import partition_of
from logboom.spark import session
from support.nodes.process import NodeProcess
from support.spark.content import Row, collect_rows, make_record, read_rows
from support.spark.queries import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

COUNT = 1000


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield Topics(node)


def writer_of(frame: DataFrame, topic: str | None = None, mode: str = "append", **options: Any) -> DataFrameWriter:
    given = options if topic is None else {"topic": topic, **options}
    return frame.write.format("logboom").mode(mode).options(**given)


def rows_in(topics: Topics, topic: str, partitions: int = 1) -> list[Row]:
    return read_rows(topics.node.directory, topic, partitions)


def values_in(topics: Topics, topic: str, partition: int = 0) -> list[bytes | None]:
    return [row[5] for row in rows_in(topics, topic, partition + 1) if row[1] == partition]


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def discard_strays(topics: Topics) -> None:
    """A task that Spark cancels because of another may leave its stage, which would expire."""
    left = open_stages(topics)
    topics.ask(lambda broker: broker.discard(left))


def open_stages(topics: Topics) -> list[str]:
    return [stage.id for stage in topics.ask(lambda broker: broker.list_stages())]


def numbers(spark: SparkSession, count: int = COUNT, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks)


def test_every_column_arrives_and_what_was_read_may_be_written(spark: SparkSession, topics: Topics) -> None:
    topics.create("whole", 3)
    rng = random.Random(7)
    records = [make_record(rng) for _ in range(300)]
    writers = [Writer("whole", topics.address, partition=partition) for partition in range(3)]
    for record in records:
        more: dict[str, Any] = {"key": record.key, "timestamp": record.timestamp, "channel": record.channel}
        rng.choice(writers).write(record.value, tags=record.tags, headers=record.headers, **more)
    for writer in writers:
        writer.close()
    whole = spark.read.format("logboom").option("topic", "whole").load(topics.path)
    for copy, options in {
        "copy": {},
        "copy-lz4": {"codec": "lz4", "batchBytes": "1k"},
        "copy-zstd": {"codec": "zstd"},
    }.items():
        topics.create(copy, 3)
        writer_of(whole, copy, **options).save(topics.path)
        written = rows_in(topics, copy, 3)
        assert sorted(map(repr, _without_seqno(written))) == sorted(
            map(repr, _without_seqno(rows_in(topics, "whole", 3)))
        )
        read = spark.read.format("logboom").option("topic", copy).load(topics.path)
        assert collect_rows(read) == sorted(written)
    assert open_stages(topics) == []


def _without_seqno(rows: list[Row]) -> list[Row]:
    return [(row[1], *row[3:]) for row in rows]


def test_the_order_within_a_task_is_kept(spark: SparkSession, topics: Topics) -> None:
    writer_of(numbers(spark, 30_000).select(col("id").cast("string").alias("value")), "ordered").save(topics.path)
    found = [int(value or b"") for value in values_in(topics, "ordered")]
    assert found == list(range(30_000)), "tasks in their order too"


def test_rows_go_where_the_common_partitioner_says_or_the_column(spark: SparkSession, topics: Topics) -> None:
    topics.create("keyed", 4)
    frame = numbers(spark).selectExpr("cast(id as string) key", "cast(cast(id as string) as binary) value")
    writer_of(frame, "keyed").save(topics.path)
    found = rows_in(topics, "keyed", 4)
    assert len(found) == COUNT
    assert all(row[1] == partition_of(row[4], 4) for row in found)
    topics.create("channelled", 4)
    writer_of(numbers(spark).selectExpr("concat('c/', id % 9) channel", "'x' value"), "channelled").save(topics.path)
    assert all(row[1] == partition_of(row[6].encode(), 4) for row in rows_in(topics, "channelled", 4))
    topics.create("placed", 4)
    placed = frame.withColumn("partition", expr("if(key % 2 = 0, cast(key % 4 as int), null)"))
    writer_of(placed, "placed").save(topics.path)
    for row in rows_in(topics, "placed", 4):
        number = int(row[4])
        assert row[1] == (number % 4 if number % 2 == 0 else partition_of(row[4], 4))


def test_a_column_names_the_topic_and_the_option_goes_before_it(spark: SparkSession, topics: Topics) -> None:
    frame = numbers(spark).selectExpr("concat('fan-', id % 3) topic", "cast(id as string) value")
    writer_of(frame).save(topics.path)
    for number in range(3):
        found = [int(value or b"") for value in values_in(topics, f"fan-{number}")]
        assert found == list(range(number, COUNT, 3))
    writer_of(frame, "fan-all").save(topics.path)
    assert len(values_in(topics, "fan-all")) == COUNT


def test_structs_become_json(spark: SparkSession, topics: Topics) -> None:
    value = struct(col("id").alias("n"), expr("if(id = 1, null, 'x')").alias("text"), expr("map('k', id)").alias("m"))
    writer_of(numbers(spark, 3, 1).select(value.alias("value")), "structs").save(topics.path)
    assert [json.loads(text or b"") for text in values_in(topics, "structs")] == [
        {"n": 0, "text": "x", "m": {"k": 0}},
        {"n": 1, "m": {"k": 1}},
        {"n": 2, "text": "x", "m": {"k": 2}},
    ]


def test_rows_are_sorted_by_columns_that_need_not_be_written(spark: SparkSession, topics: Topics) -> None:
    frame = numbers(spark, 500, 2).selectExpr("cast(id as string) value", "id % 10 as room", "id as at")
    writer_of(frame, "sorted", orderBy="room, at desc").save(topics.path)
    halves = [range(250), range(250, 500)]
    expected = [number for half in halves for number in sorted(half, key=lambda number: (number % 10, -number))]
    assert [int(value or b"") for value in values_in(topics, "sorted")] == expected
    assert "room: no part of a record; there are value, key" in error_of(
        lambda: writer_of(frame, "sorted", orderBy="at").save(topics.path)
    )


def test_a_write_of_nothing_writes_nothing(spark: SparkSession, topics: Topics) -> None:
    topics.create("nothing")
    writer_of(numbers(spark, 0).selectExpr("cast(id as string) value"), "nothing").save(topics.path)
    few = numbers(spark, 8, 8).selectExpr("cast(id as string) value").where("value = '3'")
    writer_of(few, "nothing").save(topics.path)
    assert values_in(topics, "nothing") == [b"3"]


def test_a_write_again_appends_again_unless_it_is_a_version_that_was_written(
    spark: SparkSession, topics: Topics
) -> None:
    frame = numbers(spark, 10).selectExpr("cast(id as string) value")
    empty = frame.where("false")
    for _ in range(2):
        writer_of(frame, "again").save(topics.path)
    assert len(values_in(topics, "again")) == 20
    for version, written in [(5, frame), (5, frame), (4, frame), (6, empty), (6, frame), (7, frame), (7, frame)]:
        writer_of(written, "versions", txnAppId="nightly", txnVersion=version).save(topics.path)
    assert len(values_in(topics, "versions")) == 20, "versions 5 and 7; 6 was empty"
    writer_of(frame, "versions", txnAppId="other", txnVersion=5).save(topics.path)
    assert len(values_in(topics, "versions")) == 30
    assert open_stages(topics) == []
    keys = {key.name: (key.number, key.expires is None) for key in topics.ask(lambda broker: broker.list_keys())}
    assert keys["nightly"] == (7, True)
    assert keys["other"] == (5, True)
    assert {name.partition("/")[0] for name, (_, lasting) in keys.items() if not lasting} == {"spark-write"}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            ["if(id = 700, null, 'poison') topic", "'k' key", "concat('v', id) value"],
            "topic: is null, and no option says where to write; in row 200 of task 1 (key b'k', value b'v700')",
        ),
        (
            ["if(id = 700, 'no such name', 'poison') topic", "concat('v', id) value"],
            "is no topic name: use 1 to 249 letters, digits, dots, dashes, underscores; in row 200 of task 1 (topic",
        ),
        (
            ["'poison' topic", "if(id = 700, repeat('x', 20000000), 'y') value"],
            "allowed are 16,777,216; in row 200 of task 1 (topic 'poison', value b'xxxxxxx",
        ),
        (
            ["'poison' topic", "cast(if(id = 700, 7, 0) as int) partition", "concat('v', id) value"],
            "partition: topic 'poison' has partitions 0 to 0: 7 is not one of them; in row 200 of task 1 (topic",
        ),
        (
            ["'poison' topic", "if(id = 700, cast(x'ff' as string), 'c') channel", "concat('v', id) value"],
            "; in row 200 of task 1 (topic 'poison', value b'v700')",
        ),
        (
            ["'poison' topic", "if(id = 700, array('a', null), array('a')) tags", "concat('v', id) value"],
            "tags: an item of a list is None; in row 200 of task 1",
        ),
    ],
)
def test_a_row_that_cannot_be_a_record_is_named_and_nothing_is_written(
    spark: SparkSession, topics: Topics, columns: list[str], said: str
) -> None:
    topics.create("poison")
    try:
        writer = writer_of(numbers(spark).selectExpr(*columns))
        found = error_of(lambda: writer.save(topics.path))
        assert said in found
        assert found.index(said.split(";")[-1]) < 1500, "before anything else that Spark has to say"
        assert rows_in(topics, "poison") == []
        discard_strays(topics)
    finally:
        topics.delete("poison")


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, topics: Topics) -> None:
    topics.create("failed")

    failing = expr("if(id = 990, raise_error('the 990th fails'), cast(id as string))")
    before = set(open_stages(topics))
    writer = writer_of(numbers(spark, tasks=1).select(failing.alias("value")), "failed")
    assert "the 990th fails" in error_of(lambda: writer.save(topics.path))
    assert rows_in(topics, "failed") == []
    assert set(open_stages(topics)) <= before


def test_mistakes_are_told_in_the_exception(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    frame = numbers(spark, 3).selectExpr("cast(id as string) value")

    def said(frame: DataFrame, path: str = topics.path, mode: str = "append", **options: str) -> str:
        return error_of(lambda: writer_of(frame, mode=mode, **options).save(path))

    assert "mode: overwrite is refused, for a log only grows: use append" in said(frame, mode="overwrite", topic="t")
    assert "is a directory, and writing goes through its server" in said(frame, str(tmp_path), topic="t")
    assert "ErrorIfExists" in said(frame, mode="error", topic="t")
    assert "Ignore" in said(frame, mode="ignore", topic="t")
    assert "topic: where to write is not said" in said(frame)
    assert "did you mean orderBy?" in said(frame, topic="t", orderBye="value")
    assert "value: is bigint, allowed is binary, string" in said(frame.select(lit(1).cast("bigint").alias("value")))
    assert "rom: no part of a record" in said(frame.withColumn("rom", lit("x")), topic="t")
    assert "txnVersion: belongs to txnAppId" in said(frame, topic="t", txnAppId="x")
    assert "127.0.0.1:1" in said(frame, "logboom://127.0.0.1:1", topic="t", timeout="1s")


def test_a_thread_of_its_own_writes_with_the_session_that_it_asks_for(spark: SparkSession, topics: Topics) -> None:
    frame = spark.createDataFrame([("a",)], "value string")

    def write() -> None:
        assert session().version == spark.version
        frame.write.format("logboom").mode("append").option("topic", "threads").save(topics.path)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(write).result()
    assert [row[5] for row in rows_in(topics, "threads")] == [b"a"]


def test_sql_inserts_strings_into_a_table_of_text(spark: SparkSession, topics: Topics) -> None:
    topics.create("texts")
    spark.sql(f"CREATE TABLE texts USING logboom OPTIONS (path '{topics.path}', topic 'texts', text 'true')")
    try:
        spark.sql("INSERT INTO texts (value, key) VALUES ('ü', 'k'), ('b', NULL)")
        assert [(row[4], row[5]) for row in rows_in(topics, "texts")] == [(b"k", "ü".encode()), (None, b"b")]
        assert [tuple(row) for row in spark.sql("SELECT key, value FROM texts").collect()] == [("k", "ü"), (None, "b")]
    finally:
        spark.sql("DROP TABLE texts")


def test_sql_inserts_into_tables_and_views_of_a_node(spark: SparkSession, topics: Topics) -> None:
    topics.create("table")
    made = f"USING logboom OPTIONS (path '{topics.path}', topic 'table')"
    spark.sql(f"CREATE TABLE logged {made}")
    spark.sql(f"CREATE TEMPORARY VIEW seen {made}")
    try:
        spark.sql("INSERT INTO logged (value, key) VALUES (cast('one' as binary), cast('k' as binary))")
        spark.sql("INSERT INTO logged SELECT * FROM logged")
        spark.table("logged").limit(1).write.insertInto("logged")
        spark.sql("INSERT INTO seen SELECT * FROM seen LIMIT 1")
        assert [(row[4], row[5]) for row in rows_in(topics, "table")] == [(b"k", b"one")] * 4
        assert "overwrite is refused" in error_of(lambda: spark.sql("INSERT OVERWRITE logged SELECT * FROM seen"))
        assert "overwrite is refused" in error_of(lambda: spark.sql("INSERT OVERWRITE seen SELECT * FROM logged"))
        assert len(rows_in(topics, "table")) == 4
    finally:
        spark.sql("DROP TABLE logged")
        spark.catalog.dropTempView("seen")
