"""A topic whose first records only the archive has, as a table and a stream: every record once, from either side."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logboom.batch import build_records
from logboom.broker.api import Part, PartitionInfo, Settings
from logboom.client.remote import connect
from logboom.spark import arrow_scan, scans
from logboom.storage.data.topic import RetentionSettings, SegmentSettings
from support.nodes.process import NodeProcess
from support.results.archived import archive
from support.spark.content import Row, collect_rows, make_batches, read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "events"


def settings(size: int | None) -> Settings:
    return Settings(segment=SegmentSettings(bytes=8192), retention=RetentionSettings(bytes=size, after="archive"))


class Place:
    def __init__(self, node: NodeProcess, archive: Path, rows: list[Row], partitions: list[PartitionInfo]) -> None:
        self.node = node
        self.archive = archive
        self.rows = rows
        """As they were before anything was dropped."""
        self.partitions = partitions

    def load(self, spark: SparkSession, files: bool = False, **options: Any) -> DataFrame:
        path = str(self.node.directory) if files else f"logboom://{self.node.address}"
        return spark.read.format("logboom").options(topic=TOPIC, **options).load(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with filled(tmp_path_factory.mktemp("archived")) as made:
        yield made


@contextmanager
def filled(root: Path) -> Iterator[Place]:
    with NodeProcess(root, "--set", "upkeep.retention_every_ms=10") as node:
        rows, partitions = asyncio.run(_fill(node, root / "archive"))
        yield Place(node, root / "archive", rows, partitions)


async def _fill(node: NodeProcess, place: Path) -> tuple[list[Row], list[PartitionInfo]]:
    rng = random.Random(11)
    async with connect(node.address) as broker:
        await broker.create_topic(TOPIC, 2, settings(None))
        for partition in range(2):
            for records in make_batches(rng, 600):
                await broker.append([Part(TOPIC, [build_records(records)], partition)])
        rows = read_rows(node.directory, TOPIC, 2)
        await archive(broker, TOPIC, place)
        await broker.configure_topic(TOPIC, settings(8192))
        async with asyncio.timeout(30):
            while True:
                partitions = (await broker.describe_topic(TOPIC)).partitions
                if all(part.first_stored for part in partitions):
                    return rows, partitions
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("files", [False, True])
def test_a_table_has_every_record_once_archived_or_not(spark: SparkSession, place: Place, files: bool) -> None:
    began = time.time()
    assert collect_rows(place.load(spark, files, splitBytes=32768)) == place.rows
    assert {scan.source for scan in scans(began)} == {"archive", "files"}


def test_the_server_alone_gives_the_same(spark: SparkSession, place: Place) -> None:
    assert collect_rows(place.load(spark, access="server", minPartitions=7)) == place.rows


def test_places_before_the_log_s_own_first_record_are_found(spark: SparkSession, place: Place) -> None:
    first = place.partitions[0].first_stored
    assert first is not None
    wanted = [row for row in place.rows if row[1] or row[2] >= 5]
    assert collect_rows(place.load(spark, startingSeqno=f'{{"{TOPIC}": {{"0": 5}}}}')) == wanted
    found = place.load(spark, True).where(f"partition = 0 AND seqno BETWEEN {first - 3} AND {first + 2}")
    assert [row[2] for row in collect_rows(found)] == list(range(first - 3, first + 3))
    tagged = place.load(spark).where("array_contains(tags, 'red')")
    assert collect_rows(tagged) == [row for row in place.rows if "red" in row[7]]


def test_an_arrow_scan_reads_only_the_columns_it_wants_of_the_archive(spark: SparkSession, place: Place) -> None:
    def count(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    scan = arrow_scan(spark, count, "rows BIGINT", f"logboom://{place.node.address}", topic=TOPIC, columns=["value"])
    assert scan.groupBy().sum("rows").collect()[0][0] == len(place.rows)


def test_a_stream_begins_in_the_archive_and_goes_on_in_the_log(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    stream = (
        spark.readStream.format("logboom")
        .options(topic=TOPIC, startingSeqno="earliest", maxRecordsPerTrigger=250)
        .load(f"logboom://{place.node.address}")
    )
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(60)
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == place.rows


def test_a_file_that_is_missing_is_named_or_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    with filled(tmp_path) as place:  # one that no worker has open
        victim = min(place.archive.rglob("0-*.parquet"))
        low, high = (int(number) for number in victim.stem.split("-")[1:])
        victim.unlink()
        with pytest.raises(Exception, match=victim.name):
            collect_rows(place.load(spark, True))
        rest = [row for row in place.rows if row[1] or not low <= row[2] < high]
        assert collect_rows(place.load(spark, True, onDamage="skip")) == rest
