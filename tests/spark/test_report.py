"""The report on Spark against a loop over records; made of the last one or from the beginning; killed and run again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from logboom.broker.api import Settings
from logboom.client import Writer
from logboom.client.node_catalog import NodeCatalog
from logboom.errors import PipelineError, TopicNotFound
from logboom.results.pipeline_state import Result, ResultFile
from logboom.results.places import ResultPlace
from logboom.results.report.account import Report
from logboom.results.report.report import decode_report
from logboom.results.report.sums import Cells, ReportSums, add
from logboom.spark.jobs import report as job
from logboom.spark.jobs.job_run import run_job
from logboom.spark.jobs.report import CellSpan, ReportWork, count_span
from logboom.storage import DataDirectory
from logboom.storage.data.topic import RetentionSettings, SegmentSettings
from support.brokers.any_broker import AnyBroker
from support.nodes.process import NodeProcess
from support.results.archived import archive
from support.spark.content import make_topic
from support.spark.queries import Topics
from support.spark.report_model import LATE_US, check, model, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
CELL = 256
LATE_MS = LATE_US // 1000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    root = tmp_path_factory.mktemp("node")
    process = NodeProcess(root)
    with DataDirectory.open(str(process.directory)) as data:
        make_topic(data, "mixed", 11, 900, PARTITIONS)
        make_topic(data, "broken", 12, 300)
    _damage(min(process.directory.glob("topics/broken~*/0/*.log")))
    with process:
        yield process


def _damage(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


@pytest.fixture(autouse=True)
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "CELL", CELL)


Make = Callable[[ReportWork], tuple[Result | None, dict[str, int]]]


@pytest.fixture
def make(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> Make:
    def run(work: ReportWork) -> tuple[Result | None, dict[str, int]]:
        ended = run_job(work, node.address, lambda: spark, str(tmp_path))
        return ended.result, ended.summary

    return run


def work_of(name: str, topic: str, top: int = 20) -> ReportWork:
    return ReportWork(name=name, topics=(topic,), late_ms=LATE_MS, top=top)


def cells_of(result: Result | None) -> dict[tuple[int, int, int], ReportSums]:
    assert result is not None
    stored = ResultPlace(result.place).read(msgspec.convert(result.facts["cells"], ResultFile))
    kept = pa.decompress(stored, result.facts["cells_bytes"], codec="zstd", asbytes=True)
    cells = msgspec.msgpack.decode(kept, type=Cells).cells
    return {(cell.partition, cell.seqno_from, cell.seqno_until): cell.sums for cell in cells}


def numbers_of(result: Result | None) -> Report:
    assert result is not None
    assert result.manifest is not None
    return decode_report(ResultPlace(result.place).read(result.manifest))


def test_a_report_counts_what_a_loop_over_records_counts(make: Make, node: NodeProcess) -> None:
    result, summary = make(work_of("loop", "mixed"))
    cells, report = cells_of(result), numbers_of(result)
    (topic,) = report.topics
    total = 0
    for partition in range(PARTITIONS):
        batches, first, committed = read(node.directory, "mixed", partition)
        expected = model(batches, first, committed, CELL)
        check(add([sums for (number, *_), sums in cells.items() if number == partition]), expected)
        account = topic.logs[partition].account
        assert (topic.logs[partition].first, topic.logs[partition].until) == (first, committed)
        assert (account.records, account.tombstones) == (committed - first, expected.sums.tombstones)
        assert (account.without_timestamp, account.late.records) == (expected.sums.untimed, expected.sums.late.count)
        total += committed - first
    assert summary["records"] == summary["records_read"] == topic.account.records == report.whole.records == total
    assert result is not None
    page = ResultPlace(result.place).read(msgspec.convert(result.facts["page"], ResultFile))
    assert page.startswith(b"<!DOCTYPE html>")
    assert report.forecast is not None


def test_a_report_made_of_the_last_one_is_the_one_made_from_the_beginning(make: Make, node: NodeProcess) -> None:
    topics = Topics(node)
    topics.create("grows", 2)
    _write(topics, 500)
    make(work_of("step", "grows"))
    _write(topics, 350)
    topics.ask(lambda broker: broker.trim("grows", 0, 300))
    step, summary = make(work_of("step", "grows"))
    whole, every = make(work_of("whole", "grows"))
    assert cells_of(step) == cells_of(whole)
    assert 0 < summary["records_read"] < every["records_read"] == summary["records"] == 1400
    mine, other = numbers_of(step), numbers_of(whole)
    assert mine.whole.keys == other.whole.keys
    assert mine.whole.duplicates == other.whole.duplicates
    assert mine.topics[0].logs[0].account.silences == other.topics[0].logs[0].account.silences
    again, nothing = make(work_of("step", "grows"))
    assert again is None
    assert nothing["records_read"] == 0


def _write(topics: Topics, count: int) -> None:
    for partition in range(2):
        with Writer("grows", topics.address, partition=partition) as writer:
            for number in range(count):
                writer.write(b"%d" % (number % 50), key=b"k%d" % (number % 7), timestamp=number % 100)


def test_where_the_files_are_not_the_server_gives_the_same(node: NodeProcess) -> None:
    catalog = NodeCatalog(node.address)
    try:
        (topic,) = catalog.find(["mixed"])
        for partition, ends in enumerate(topic.ends):
            span = CellSpan("mixed", topic.id, partition, ends.first + 10, ends.committed - 10)
            servers = (node.address,)
            files = count_span(span, catalog.node_id, str(node.directory), servers, LATE_US)
            assert files is not None
            assert count_span(span, catalog.node_id, None, servers, LATE_US) == files
            assert count_span(span, "another", str(node.directory), servers, LATE_US) == files
    finally:
        catalog.close()


def test_what_was_dropped_since_the_plan_was_made_is_not_counted(node: NodeProcess) -> None:
    catalog = NodeCatalog(node.address)
    try:
        (topic,) = catalog.find(["mixed"])
        first, committed = topic.ends[2].first, topic.ends[2].committed
        assert first > 0
        cell = count_span(CellSpan("mixed", topic.id, 2, 0, committed), catalog.node_id, None, (node.address,), LATE_US)
        assert cell is not None
        assert (cell.seqno_from, cell.sums.records) == (first, committed - first)
        assert count_span(CellSpan("mixed", topic.id, 2, 0, first), catalog.node_id, None, (node.address,), 0) is None
    finally:
        catalog.close()


def retention(size: int | None) -> Settings:
    return Settings(segment=SegmentSettings(bytes=8192), retention=RetentionSettings(bytes=size, after="archive"))


@pytest.mark.parametrize("drops", [(80_000,), (80_000, 30_000), (120_000, 80_000, 1)])
def test_what_goes_while_it_is_counted_is_in_no_number_archived_or_not(
    spark: SparkSession, tmp_path: Path, drops: tuple[int, ...]
) -> None:
    """Each time that Spark is asked to count, retention is quicker."""
    left = list(drops)
    firsts: list[int] = []

    async def fill(broker: AnyBroker) -> None:
        await archive(broker, "goes", tmp_path / "archive")

    async def own_first(broker: AnyBroker) -> int:
        return (await broker.describe_topic("goes")).partitions[0].first_stored or 0

    async def drop(broker: AnyBroker) -> None:
        before = await own_first(broker)
        await broker.configure_topic("goes", retention(left.pop(0)))
        async with asyncio.timeout(30):
            while (first := await own_first(broker)) == before:
                await asyncio.sleep(0.01)
        firsts.append(first)

    with NodeProcess(tmp_path, "--set", "upkeep.retention_every_ms=10") as node:
        topics = Topics(node)
        topics.ask(lambda broker: broker.create_topic("goes", 1, retention(None)))
        for number in range(20):
            topics.write("goes", [b"%d" % number * 100] * 80, timestamp=number)
        topics.ask(fill)
        batches, first, committed = read(node.directory, "goes", 0)
        assert (first, committed) == (0, 1600)

        def start() -> SparkSession:
            if left:
                topics.ask(drop)
            return spark

        work = work_of("goes", "goes")
        result = run_job(work, node.address, start, str(tmp_path / "place")).result
        cells, report = cells_of(result), numbers_of(result)
        assert len(firsts) == len(drops)
        check(add(list(cells.values())), model(batches, firsts[-1], committed, CELL))
        (log,) = report.topics[0].logs
        assert (log.first, log.until, log.account.records) == (firsts[-1], committed, committed - firsts[-1])
        assert result is not None
        assert result.covers["goes"].spans == {0: (firsts[-1], committed)}
        again = run_job(work, node.address, lambda: spark, str(tmp_path / "place"))
        assert (again.result, again.summary["records_read"]) == (None, 0)


DYING = """
import json, os, signal, sys
from logboom.results.places import ResultPlace
from logboom.spark.jobs import report
from logboom.spark.jobs.job_run import run_job

address, place, cell, top, writes = sys.argv[1:]
report.CELL, left, write = int(cell), [int(writes)], ResultPlace.write

def count(self, path, data):
    stored = write(self, path, data)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return stored

ResultPlace.write = count
work = report.ReportWork(name="dies", topics=("mixed",), late_ms=1, top=int(top))
run_job(work, address, lambda: sys.exit("there is nothing to count"), place, lease_s=0.5)
"""


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_run_that_was_killed_is_followed_by_one_that_leaves_one_result(
    spark: SparkSession, node: NodeProcess, tmp_path: Path, writes: int
) -> None:
    """Whatever it had written. Nothing is to be counted, so it dies without Spark."""
    work = msgspec.structs.replace(work_of("dies", "mixed"), top=10 * writes)
    run_job(work, node.address, lambda: spark, str(tmp_path))
    command = [sys.executable, "-c", DYING, node.address, str(tmp_path), str(CELL), str(10 * writes + 1), str(writes)]
    assert subprocess.run(command, timeout=300).returncode == -9
    runs = tmp_path / "report" / "dies" / "runs"
    assert len(list(runs.iterdir())) == 2
    after = msgspec.structs.replace(work, top=10 * writes + 2)
    ended = run_job(after, node.address, lambda: spark, str(tmp_path))
    assert ended.summary["records_read"] == 0
    assert ended.result is not None
    assert len(list(runs.iterdir())) == 2  # the one that counts, and the one before it
    assert json.loads(Path(ended.result.place, "report.json").read_bytes())["whole"]["records"] == ended.result.records


def test_damaged_records_are_an_error_and_nothing_is_published(make: Make, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="Damage"):
        make(work_of("broken", "broken"))
    assert not list(tmp_path.glob("report/broken/runs/*"))


def test_a_place_that_cannot_be_written_to_is_an_error(make: Make, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "spoilt").write_bytes(b"a file")
    with pytest.raises(NotADirectoryError):
        make(work_of("spoilt", "mixed"))


def test_a_topic_that_is_not_there_is_an_error_and_nothing_is_published(make: Make, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound):
        make(work_of("missing", "nowhere"))
    assert not list(tmp_path.glob("report/missing/runs/*"))
