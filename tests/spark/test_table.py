"""Topics as tables: row for row what the log holds, whatever the options, and an error where that cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import PySparkException

from logboom.batch import Record, build, read_header
from logboom.client import FileReader, Writer
from logboom.client.remote import connect
from logboom.spark import scans
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings
from support.nodes.process import NodeProcess, free_port
from support.spark.content import NOW, Row, append, collect_rows, make_topic, read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIB = 1 << 20
ONLY_SEQNO = ["seqno"]


class Place(NamedTuple):
    """A running node, and what its directory holds, by topic."""

    node: NodeProcess
    directory: str
    address: str
    rows: dict[str, list[Row]]

    def all_rows(self, *topics: str) -> list[Row]:
        return sorted(row for topic in topics for row in self.rows[topic])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    node = NodeProcess(tmp_path_factory.mktemp("place"))
    partitions = {"events": 3, "orders.eu": 1, "orders.us": 2, "empty": 2, "emptied": 1, "timed": 2, "wide": 300}
    with DataDirectory.open(str(node.directory)) as data:
        for seed, (topic, count) in enumerate([("events", 400), ("orders.eu", 60), ("orders.us", 60)]):
            make_topic(data, topic, seed, count, partitions[topic])
        data.create_topic("empty", 2)
        (emptied,) = make_topic(data, "emptied", 9, 20)
        emptied.trim(emptied.committed, NOW)
        emptied.commit(emptied.sync())
        data.create_topic("timed", 2, Settings(segment=SegmentSettings(bytes=4096)))
        for log in data.open_topic("timed"):
            records = [Record(b"%d" % number, timestamp=number * 1_000_000) for number in range(300)]
            append(log, [records[start : start + 5] for start in range(0, 300, 5)])
        data.create_topic("wide", 300)
        for number, log in enumerate(data.open_topic("wide")):
            append(log, [[Record(b"%d" % number)] * (number % 3)] if number % 3 else [])
    with node:
        rows = {topic: read_rows(node.directory, topic, count) for topic, count in partitions.items()}
        yield Place(node, str(node.directory), f"logboom://{node.address}", rows)


def load(spark: SparkSession, path: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("logboom").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(path)


def seqnos(records: DataFrame, *columns: str) -> list[Any]:
    found = [tuple(row) for row in records.select("seqno", *columns).collect()]
    return sorted(row[0] if not columns else row for row in found)


def error_of(action: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


WAYS = {
    "directory": ("directory", {}),
    "directory, many splits": ("directory", {"splitBytes": "3k"}),
    "node": ("address", {"splitBytes": "10k"}),
    "files of the node": ("address", {"access": "files"}),
    "server": ("address", {"access": "server"}),
    "server, many splits": ("address", {"access": "server", "splitBytes": "10k", "maxRecordsPerPartition": "100"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_row_for_row_it_is_what_the_log_holds(spark: SparkSession, place: Place, way: str) -> None:
    where, options = WAYS[way]
    path = place.directory if where == "directory" else place.address
    assert collect_rows(load(spark, path, topic="events", **options)) == place.all_rows("events")
    if "many" not in way:
        several = load(spark, path, topicPattern="orders[.].*|empt.*", topic="timed", **options)
        assert collect_rows(several) == place.all_rows("orders.eu", "orders.us", "timed")
    sources = {scan.source for scan in scans()[-2:]}
    assert sources == {"server" if "server" in way else "files"}


def test_narrower_schemas_read_those_columns_in_any_order(spark: SparkSession, place: Place) -> None:
    rows = place.all_rows("events")
    for names in (["value", "seqno"], ["topic"], ["partition", "topic"], ["headers", "tags"], ["channel"], ["key"]):
        given = load(spark, place.directory, topic="events").select(*names).schema
        found = collect_rows(load(spark, place.directory, given, topic="events"), names)  # type: ignore[arg-type]
        at = [
            ["topic", "partition", "seqno", "timestamp", "key", "value", "channel", "tags"].index(n)
            if n != "headers"
            else 8
            for n in names
        ]
        assert sorted(found, key=repr) == sorted((tuple(row[number] for number in at) for row in rows), key=repr)
    for schema in ("seqno BIGINT NOT NULL", "topic STRING", "partition INT NOT NULL, topic STRING NOT NULL"):
        assert load(spark, place.directory, schema, topic="events").count() == len(rows)
        assert load(spark, place.address, schema, topic="events", access="server").count() == len(rows)


def test_counts_and_limits(spark: SparkSession, place: Place) -> None:
    events = load(spark, place.directory, topic="events", splitBytes="10k")
    assert events.count() == len(place.rows["events"])
    assert len(events.limit(7).collect()) == 7
    assert len(events.take(3)) == 3
    assert events.select("partition").distinct().count() == 3
    assert load(spark, place.directory, topic="empty,emptied").count() == 0
    assert load(spark, place.address, topic="empty", access="server").collect() == []
    assert load(spark, place.directory, topicPattern="nothing.*").count() == 0
    assert load(spark, place.directory, topic="timed", startingSeqno="7", endingSeqno="7").count() == 0


def test_a_topic_with_many_partitions_is_read_whole(spark: SparkSession, place: Place) -> None:
    wide = load(spark, place.directory, "partition INT, seqno BIGINT, value BINARY", topic="wide")
    found = sorted((row.partition, row.seqno, bytes(row.value)) for row in wide.collect())
    assert found == [(row[1], row[2], row[5]) for row in place.rows["wide"]]
    assert load(spark, place.address, topic="wide").rdd.getNumPartitions() == 200


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingSeqno": "250", "endingSeqno": "260"}, [(250, 260), (250, 260)]),
        ({"startingSeqno": '{"timed": {"1": 290}}', "endingSeqno": '{"timed": {"0": 5}}'}, [(0, 5), (290, 300)]),
        ({"startingOffsets": '{"timed": {"0": -1, "1": -2}}', "endingOffsets": "latest"}, [(300, 300), (0, 300)]),
        ({"startingTimestamp": "1970-01-01T00:04:50Z"}, [(290, 300), (290, 300)]),
        ({"startingTimestamp": "100000", "endingTimestamp": "110500"}, [(100, 111), (100, 111)]),
        (
            {"startingTimestamp": '{"timed": {"0": 299001}}', "endingTimestamp": '{"timed": {"1": 0}}'},
            [(300, 300), (0, 0)],
        ),
        ({"minPartitions": "13"}, [(0, 300), (0, 300)]),
        ({"maxRecordsPerPartition": "37", "partitions": '{"timed": [1]}'}, [(0, 0), (0, 300)]),
        ({"splitBytes": "1"}, [(0, 300), (0, 300)]),
    ],
)
def test_each_record_of_a_range_comes_once(
    spark: SparkSession, place: Place, options: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    every = sorted((seqno, number) for number, ends in enumerate(expected) for seqno in range(*ends))
    path = place.address if len(options) > 1 else place.directory
    timed = load(spark, path, "seqno BIGINT, partition INT", topic="timed", **options)
    assert seqnos(timed, "partition") == every
    if "minPartitions" in options:
        assert timed.rdd.getNumPartitions() >= 13


@pytest.mark.parametrize(
    "options",
    [
        {"tag": "red"},
        {"tag": "red,größe", "channel": "a/#"},
        {"tagsAll": "red,blue"},
        {"channel": "a*"},
        {"channel": "a/+"},
        {"key": "k1"},
        {"keyBase64": "//4=", "tag": "blue"},
        {"key": "nobody"},
    ],
)
def test_tags_channels_and_keys_are_chosen_by_options(
    spark: SparkSession, place: Place, options: dict[str, str]
) -> None:
    def wanted(row: Row) -> bool:
        key, channel, tags = row[4], row[6], row[7]
        said = [
            "tag" not in options or any(tag in options["tag"].split(",") for tag in tags),
            "tagsAll" not in options or all(tag in tags for tag in options["tagsAll"].split(",")),
            "key" not in options or key == options["key"].encode(),
            "keyBase64" not in options or key == b"\xff\xfe",
        ]
        levels = (channel or "").split("/")
        chosen = options.get("channel")
        said.append(
            chosen is None
            or (chosen == "a/#" and levels[0] == "a")
            or (chosen == "a*" and (channel or "").startswith("a"))
            or (chosen == "a/+" and levels[0] == "a" and len(levels) == 2)
        )
        return all(said)

    expected = [row for row in place.all_rows("events") if wanted(row)]
    assert bool(expected) == (options != {"key": "nobody"})
    assert collect_rows(load(spark, place.directory, topic="events", **options)) == expected
    assert (
        collect_rows(load(spark, place.address, topic="events", access="server", splitBytes="20k", **options))
        == expected
    )


def test_tables_and_views_are_made_by_sql(spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(place.rows["orders.eu"])
    relative = os.path.relpath(place.directory)
    for path in (place.directory, place.address, relative):
        spark.sql(f"CREATE TABLE eu USING logboom OPTIONS (path '{path}', topic 'orders.eu')")
        assert spark.sql("SELECT count(*) FROM eu WHERE topic = 'orders.eu' AND seqno >= 0").first() == (count,)
        assert collect_rows(spark.table("eu")) == place.all_rows("orders.eu")
        spark.sql("DROP TABLE eu")
    spark.sql(f"CREATE TABLE us USING logboom OPTIONS (servers '{place.node.address}', subscribe 'orders.us')")
    assert collect_rows(spark.table("us")) == place.all_rows("orders.us")
    spark.sql("DROP TABLE us")
    spark.sql(f"CREATE TEMPORARY VIEW v USING logboom OPTIONS (path '{place.directory}', topic 'orders.eu', tag 'red')")
    assert {"red" in row.tags for row in spark.sql("SELECT tags FROM v").collect()} == {True}
    spark.catalog.dropTempView("v")


def test_a_query_may_add_options_to_those_of_its_table(spark: SparkSession, place: Place) -> None:
    spark.sql(f"CREATE TABLE timed USING logboom OPTIONS (path '{place.directory}', topic 'timed')")
    assert spark.sql("SELECT count(*) FROM timed WITH (startingSeqno = '295')").first() == (10,)
    assert spark.sql("SELECT count(*) FROM timed WITH (SUBSCRIBE = 'orders.eu')").first() == (
        len(place.rows["orders.eu"]),
    )
    elsewhere = load(spark, place.directory, spark.table("timed").schema, topic="orders.eu")  # type: ignore[arg-type]
    assert elsewhere.count() == len(place.rows["orders.eu"]), "a table's schema brings no options along"
    spark.sql("DROP TABLE timed")


def files_of(directory: str | Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_size
        for path in Path(directory).rglob("*")
        if path.is_file() and path.suffix != ".tmp"
    }


def test_whatever_becomes_of_a_table_the_log_stays(spark: SparkSession, tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path / "data")) as data:
        make_topic(data, "events", 5, 50)
    data_path, before = tmp_path / "data", files_of(tmp_path / "data")
    made = f"USING logboom OPTIONS (path '{data_path}', topic 'events')"
    spark.sql(f"CREATE TABLE doomed {made}")
    for refused in (
        "INSERT INTO doomed SELECT * FROM doomed",
        "INSERT OVERWRITE doomed SELECT * FROM doomed",
        "TRUNCATE TABLE doomed",
        "DELETE FROM doomed",
        f"CREATE TABLE more {made} AS SELECT * FROM doomed",
    ):
        assert error_of(lambda refused=refused: spark.sql(refused))
    events = load(spark, str(data_path), topic="events")
    for mode in ("append", "overwrite"):
        writer = events.limit(1).write.format("logboom").mode(mode).option("topic", "events")
        assert error_of(lambda writer=writer: writer.save(str(data_path)))
    assert events.count() == len(read_rows(data_path, "events"))
    spark.sql("DROP TABLE doomed")
    spark.sql(f"CREATE TABLE doomed {made}")
    spark.sql("DROP TABLE doomed PURGE")
    spark.sql("CREATE DATABASE doomed")
    spark.sql(f"CREATE TABLE doomed.one {made}")
    spark.sql(f"CREATE TABLE doomed.other USING logboom OPTIONS (topic 'events') LOCATION '{data_path}'")
    spark.sql("DROP DATABASE doomed CASCADE")
    assert files_of(data_path) == before


def test_a_table_with_a_list_of_columns_is_an_error_that_explains(spark: SparkSession, place: Place) -> None:
    spark.sql(f"CREATE TABLE listed (seqno BIGINT) USING logboom OPTIONS (path '{place.directory}', topic 'events')")
    assert "make it without a list of columns" in error_of(lambda: spark.table("listed").count())
    spark.sql("DROP TABLE listed")


def test_mistakes_are_told_in_the_exception(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    def said(path: str, schema: str | None = None, **options: str) -> str:
        return error_of(lambda: load(spark, path, schema, **options).collect())

    here = place.directory
    assert "did you mean startingSeqno?" in said(here, topic="events", startingSeqn="5")
    assert "startingSeqno: is 'soon', allowed are earliest, latest, a seqno" in said(
        here, topic="events", startingSeqno="soon"
    )
    assert "topic: name one" in said(here)
    assert "path: say what to read" in error_of(lambda: spark.read.format("logboom").option("topic", "events").load())
    assert "nothing is not there: name a data directory" in said(str(tmp_path / "nothing"), topic="events")
    assert "is no data directory: it has no node.json" in said(str(tmp_path), topic="events")
    assert "nobody" in said(here, topic="nobody")
    assert "nobody" in said(place.address, topic="nobody")
    assert "is a node running there?" in said(f"logboom://127.0.0.1:{free_port()}", topic="events", timeout="1s")
    assert "offset: unknown; a record has topic, partition, seqno" in said(here, "offset BIGINT", topic="events")
    assert "seqno: is bigint and not int: read it so, and cast it" in said(here, "seqno INT", topic="events")
    lost = said(here, topic="emptied", startingSeqno="0")
    assert "emptied/0: seqnos 0 to 24 are not there: the log begins with 25; failOnDataLoss=false" in lost
    assert load(spark, here, topic="emptied", startingSeqno="0", failOnDataLoss="false").count() == 0
    assert "timed/1: seqnos 300 to 398 are not there: the log ends before 300" in said(
        here, topic="timed", endingSeqno='{"timed": {"1": 399}}'
    )


@pytest.mark.parametrize("segment", [1, -1], ids=["sealed", "active"])
def test_damage_fails_the_job_with_its_place_or_is_skipped_and_counted(
    spark: SparkSession, tmp_path: Path, segment: int
) -> None:
    node = NodeProcess(tmp_path)
    with DataDirectory.open(str(node.directory)) as data:
        data.create_topic("events", 1, Settings(segment=SegmentSettings(bytes=4096)))
        (log,) = data.open_topic("events")
        append(log, [[Record(b"x" * 50)] * 5] * 103)
    with node:
        file = sorted((node.directory / "topics").glob("events~*/0/*.log"))[segment]
        content = bytearray(file.read_bytes())
        position = read_header(content).size
        header = read_header(content, position)
        content[position + 100] ^= 1
        file.write_bytes(content)
        low, high = header.base_seqno, header.next_seqno
        for options in ({"access": "files"}, {"access": "auto"}, {"access": "server"}):
            path = f"logboom://{node.address}"
            text = error_of(lambda options=options, path=path: load(spark, path, topic="events", **options).count())
            assert "topic events, partition 0" in text
            assert f"seqnos {low} to {high - 1}" in text
            if options["access"] == "files":
                assert f"{file} is damaged at byte {position}" in text
            before = len(scans())
            rest = load(spark, path, "seqno BIGINT", topic="events", onDamage="skip", splitBytes="10k", **options)
            assert seqnos(rest) == [seqno for seqno in range(515) if not low <= seqno < high]
            assert sum(scan.damaged for scan in scans()[before:]) == 5


def test_records_dropped_between_planning_and_reading_are_an_error_or_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    node = NodeProcess(tmp_path)
    with DataDirectory.open(str(node.directory)) as data:
        data.create_topic("events", 1, Settings(segment=SegmentSettings(bytes=4096)))
        append(data.open_topic("events")[0], [[Record(b"x" * 50)] * 5] * 100)

    async def trim(seqno: int) -> None:
        async with connect(node.address) as broker:
            await broker.trim("events", 0, seqno)

    with node:
        path = f"logboom://{node.address}"
        strict = [load(spark, path, topic="events", access=access) for access in ("files", "server")]
        tolerant = [
            load(spark, path, "seqno BIGINT", topic="events", access=access, failOnDataLoss="false")
            for access in ("files", "server")
        ]
        for records in (*strict, *tolerant):
            assert records.rdd.getNumPartitions() == 1, "planned now"
        plans = [records.rdd for records in (*strict, *tolerant)]
        for plan in plans:
            plan.getNumPartitions()
        asyncio.run(trim(123))
        for plan in plans[:2]:
            text = error_of_job(plan)
            assert "events/0: seqnos 0 to 122 are not there: the log begins with 123" in text
        for plan in plans[2:]:
            before = len(scans())
            assert sorted(row.seqno for row in plan.collect()) == list(range(123, 500))
            assert [scan.lost for scan in scans()[before:]] == [123]


def error_of_job(plan: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        plan.collect()
    return str(caught.value)


def test_at_the_same_path_on_another_host_nothing_of_another_node_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Planned against node A; when tasks run, B's directory is where A's was."""
    node, other = NodeProcess(tmp_path), tmp_path / "other"
    for path, value in ((node.directory, b"A"), (other, b"B")):
        with DataDirectory.open(str(path)) as data:
            data.create_topic("events")
            append(data.open_topic("events")[0], [[Record(value)] * 100])
    with node:
        by_node = load(spark, f"logboom://{node.address}", topic="events").rdd
        by_path = load(spark, str(node.directory), topic="events").rdd
        assert (by_node.getNumPartitions(), by_path.getNumPartitions()) == (1, 1)
        away = tmp_path / "away"
        node.directory.rename(away)
        other.rename(node.directory)
        assert {bytes(row.value) for row in by_node.collect()} == {b"A"}
        assert scans()[-1].source == "server"
        text = error_of_job(by_path)
        assert "belongs to node" in text
        assert "give logboom://host:port, and executors read from the node" in text
        node.directory.rename(other)
        away.rename(node.directory)


def test_while_others_write_a_read_sees_what_was_committed_when_it_was_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    with NodeProcess(tmp_path) as node:
        stop, begun = threading.Event(), threading.Event()

        def write() -> None:
            number = 0
            with Writer("events", node.address) as writer:
                while not stop.is_set():
                    for _ in range(200):
                        writer.write(b"%d" % number)
                        number += 1
                    writer.flush()
                    begun.set()
                    stop.wait(0.05)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert begun.wait(60)
            seen = 0
            for path in (str(node.directory), f"logboom://{node.address}", str(node.directory)):
                for _ in range(2):
                    found = load(spark, path, "seqno BIGINT, value BINARY", topic="events", splitBytes="64k").collect()
                    rows = sorted((row.seqno, int(bytes(row.value))) for row in found)
                    assert rows == [(number, number) for number in range(len(rows))], "a dense beginning"
                    assert len(rows) >= seen
                    seen = len(rows)
            assert seen > 0
        finally:
            stop.set()
            thread.join()


def test_a_record_of_sixteen_mebibytes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    large = random.Random(3).randbytes(16 * MIB - 1000)
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.create_topic("large")
        (log,) = data.open_topic("large")
        for value in (b"small", large, b"last"):
            log.append_one(build([value]), NOW)
        log.commit(log.sync())
    found = load(spark, str(tmp_path / "data"), topic="large").selectExpr("length(value)", "md5(value)", "seqno")
    import hashlib

    assert sorted(map(tuple, found.collect()), key=lambda row: int(row[2])) == [
        (len(value), hashlib.md5(value).hexdigest(), number) for number, value in enumerate((b"small", large, b"last"))
    ]


def test_a_copy_of_the_directory_is_read_with_no_writer_about(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    shutil.copytree(place.directory, tmp_path / "copy")
    assert collect_rows(load(spark, str(tmp_path / "copy"), topic="events")) == place.all_rows("events")
    assert json.loads((tmp_path / "copy" / "node.json").read_text())
    with FileReader(tmp_path / "copy", "events", 0) as reader:
        assert reader.committed > 0
