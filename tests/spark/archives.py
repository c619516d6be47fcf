"""A node, an archive of one of its topics, and what must be in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from logboom.broker.api import TopicInfo
from logboom.broker.caller import EVERYBODY
from logboom.results.archive import ArchivedFile, ArchiveManifest, decode_manifest
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import PipelineJob as CatalogueJob
from logboom.results.pipeline_state import PipelineState, Result
from logboom.results.places import UNFINISHED, ResultPlace
from logboom.spark.jobs.archive import ArchiveWork
from logboom.spark.jobs.job_run import RunReport, run_job
from logboom.storage import DataDirectory, Log
from support.brokers.any_broker import AnyBroker
from support.nodes.process import NodeProcess
from support.spark.content import Row, make_topic, read_rows
from support.spark.queries import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "events"
COLUMNS = ("topic", "partition", "seqno", "timestamp", "key", "value", "channel", "tags", "headers")


class World:
    """A node that is stopped when its logs are changed, all that was ever readable in them, and an archive."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.node = NodeProcess(root)
        self.topics = Topics(self.node)
        self.place = root / "place"
        self.home = self.place / "archive" / TOPIC
        self.spark = spark
        self.known: dict[tuple[int, int], Row] = {}
        self.firsts: dict[int, int] = {}
        """Where each partition began when it was looked at first."""
        self.result: Result | None = None
        """The last one that was published."""

    def make(self, seed: int, records: int, partitions: int) -> None:
        with DataDirectory.open(str(self.node.directory)) as data:
            make_topic(data, TOPIC, seed, records, partitions)
        self.node.start()
        self.firsts = {part.partition: part.first for part in self.describe().partitions}
        self._learn()

    def change(self, how: Callable[[list[Log]], None]) -> None:
        self.node.stop()
        with DataDirectory.open(str(self.node.directory)) as data:
            how(data.open_topic(TOPIC))
        self.node.start()
        self._learn()

    def _learn(self) -> None:
        rows = read_rows(self.node.directory, TOPIC, len(self.describe().partitions))
        self.known = {(row[1], row[2]): row for row in rows} | self.known

    def describe(self) -> TopicInfo:
        return self.topics.ask(lambda broker: broker.describe_topic(TOPIC))

    def run(self, spark: Callable[[], SparkSession] | None = None) -> RunReport:
        work = ArchiveWork(topic=TOPIC)
        report = run_job(work, self.topics.address, spark or (lambda: self.spark), str(self.place), lease_s=10)
        self.result = report.result or self.result
        return report

    def jobs(self) -> dict[str, CatalogueJob]:
        """As `_pipeline` tells it."""

        async def fold(broker: AnyBroker) -> PipelineState:
            async def connected() -> AnyBroker:
                return broker

            return await PipelineLedger(connected, EVERYBODY).refresh()

        return self.topics.ask(fold).jobs

    def sealed(self, partition: int) -> int:
        """Behind the last segment that is closed."""
        segments = self.topics.ask(lambda broker: broker.segments(TOPIC, partition, 10_000))
        return max((segment.next_seqno for segment in segments if segment.sealed), default=0)

    def expect(self) -> list[Row]:
        """What is sealed, and above the floor."""
        found: list[Row] = []
        for part in self.describe().partitions:
            number = part.partition
            span = range(max(part.floor, self.firsts[number]), self.sealed(number))
            found += [self.known[number, seqno] for seqno in span]
        return found

    @property
    def manifest(self) -> ArchiveManifest:
        assert self.result is not None
        assert self.result.manifest is not None
        return decode_manifest(ResultPlace(self.result.place).read(self.result.manifest))

    def check(self) -> None:
        """The manifest, and the directory as it is, have what they must."""
        expected, files = self.expect(), self.manifest.files
        assert self.read(files) == expected
        directory = ds.dataset(self.home / self.describe().id, format="parquet").to_table()
        assert sorted(rows_of(directory), key=lambda row: row[:3]) == expected
        assert not [path for path in self.home.rglob("*") if path.name.startswith(UNFINISHED)]
        assert self.result is not None
        for partition, span in self.result.covers[TOPIC].spans.items():
            its = [file for file in files if file.partition == partition]
            assert (its[0].seqno_from, its[-1].seqno_until) == span
            assert all(one.seqno_until == other.seqno_from for one, other in pairwise(its))

    def read(self, files: Sequence[ArchivedFile]) -> list[Row]:
        return [row for file in files for row in rows_of(pq.ParquetFile(self.home / file.path).read())]


def rows_of(table: pa.Table) -> list[Row]:
    at = table.schema.get_field_index("timestamp")
    plain = table.set_column(at, "timestamp", table.column(at).cast(pa.int64())).select(COLUMNS)
    return [
        (*row[:7], tuple(row[7]), tuple((pair["key"], pair["value"]) for pair in row[8]))
        for row in zip(*(column.to_pylist() for column in plain.columns), strict=True)
    ]
