"""The archive of a topic against the records themselves, as rows of plain Python values."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logboom.batch import build_records
from logboom.client import FileReader
from logboom.client.remote import RemoteBroker
from logboom.errors import ConfigError, Damage, PipelineError, ResultsUnreadable, TopicRecreated, Unavailable
from logboom.protocols.binary.messages import Welcome
from logboom.results import archive_file
from logboom.results.archive import path_of, schema
from logboom.results.archive_file import ArchivePiece, write_file
from logboom.results.places import UNFINISHED, ResultPlace
from logboom.spark.jobs.archive import ArchiveWork
from logboom.spark.jobs.job_run import run_job
from logboom.spark.read.options import Access
from logboom.spark.read.planner import Split
from logboom.spark.read.split_read import ScanSpec, read_split
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import RetentionSettings
from logboom.storage.upkeep.retention import expired
from spark.archives import COLUMNS, TOPIC, World, rows_of
from support.effort import some_of
from support.spark.content import NOW, append, collect_rows, make_batches, make_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    made = World(tmp_path, spark)
    with made.node.ended():
        yield made


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))])
def test_every_sealed_record_above_the_floor_is_archived_once_as_the_log_had_it(world: World, seed: int) -> None:
    """Through rolls, recompression, trims to any seqno, and drops of what was archived."""
    rng = random.Random(seed)
    world.make(seed, 600, PARTITIONS)
    world.run()
    world.check()
    for step in range(2):
        archived = [world.sealed(partition) for partition in range(PARTITIONS)]

        def change(logs: list[Log], step: int = step, archived: list[int] = archived) -> None:
            for log, end in zip(logs, archived, strict=True):
                if rng.random() < 0.5:
                    log.drop(rng.randint(0, end))
                if rng.random() < 0.5:
                    log.trim(rng.randint(log.floor, max(log.floor, min(log.committed, end + 50))), NOW + 10**7, first=0)
                    log.commit(log.sync())
                append(log, make_batches(rng, rng.choice([0, 30, 300])), NOW + 10**7 * (step + 2))

        world.change(change)
        assert world.run().summary["missing"] == 0
        world.check()
    assert world.run().result is None, "there is nothing new"


def test_others_read_the_directory_as_it_is_and_its_files_say_what_they_hold(world: World) -> None:
    world.make(2, 400, PARTITIONS)
    report = world.run()
    world.check()
    expected, root = world.expect(), world.home / world.describe().id
    assert report.summary["records"] == report.summary["records_total"] == len(expected) > 500
    assert report.summary["bytes"] == sum(path.stat().st_size for path in root.rglob("*.parquet"))
    (root / f"{UNFINISHED}left-by-one-who-was-killed").write_bytes(b"half of a f")
    assert collect_rows(world.spark.read.parquet(str(root))) == expected
    found = duckdb.read_parquet(f"{root}/*/*.parquet", hive_partitioning=True)
    assert rows_of(found.order("partition, seqno").to_arrow_table()) == expected
    days = found.project("date").distinct().fetchall()
    assert {str(day) for (day,) in days} == {path.name.removeprefix("date=") for path in root.glob("date=*")}
    frame = pandas.read_parquet(root).sort_values(["partition", "seqno"])
    assert frame["value"].tolist() == [row[5] for row in expected]
    if find_spec("polars"):
        polars: Any = import_module("polars")
        assert polars.read_parquet(f"{root}/*/*.parquet").sort("partition", "seqno")["key"].to_list() == [
            row[4] for row in expected
        ]
    for file in world.manifest.files:
        stored = pq.ParquetFile(world.home / file.path)
        groups = [stored.metadata.row_group(number) for number in range(stored.num_row_groups)]
        assert all(group.column(0).compression == "ZSTD" for group in groups)
        assert [column.column_index for group in groups for column in group.sorting_columns] == [2] * len(groups)
        assert groups[0].column(2).statistics.min == file.seqno_from
        assert groups[-1].column(2).statistics.max == file.seqno_until - 1
        moments = stored.read().column("timestamp").cast(pa.int64()).to_pylist()
        assert (min(moments), max(moments)) == (file.time_from, file.time_until)
        assert file.path == path_of(
            world.manifest.topic_id, file.partition, file.seqno_from, file.seqno_until, moments[0]
        )


def test_the_terms_of_records_are_kept_and_their_last_append_time(world: World) -> None:
    rng, terms = random.Random(4), [0, 0, 1, 1, 4, 5, 5, 9]

    def grow(logs: list[Log]) -> None:
        for number, term in enumerate(terms):
            for records in make_batches(rng, 130):
                logs[0].append_one(build_records(records), NOW + number, term)
        logs[0].commit(logs[0].sync())

    world.make(4, 0, 1)
    world.change(grow)
    world.run()
    world.check()
    with FileReader(world.node.directory, TOPIC) as reader:
        headers = [batch.header for batch in reader.batches()]
    for file in world.manifest.files:
        its = [header for header in headers if file.seqno_from <= header.base_seqno < file.seqno_until]
        starts = [its[0], *(after for before, after in pairwise(its) if before.term != after.term)]
        assert list(file.terms) == [(header.base_seqno, header.term) for header in starts]
        assert file.append_time == its[-1].append_time
    assert sum(len(file.terms) > 1 for file in world.manifest.files) > 1


def test_what_retention_dropped_first_is_said_to_be_missing_and_older_files_are_kept_apart(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.make(5, 300, 1)
    world.run()
    before = world.manifest.files

    def drop(logs: list[Log]) -> None:
        append(logs[0], make_batches(random.Random(5), 600), NOW + 10**8)
        logs[0].drop(before[-1].seqno_until + 300)

    world.change(drop)
    first = world.describe().partitions[0].first
    report = world.run()
    manifest = world.manifest
    assert (manifest.cut_off, report.summary["missing"]) == (before, first - before[-1].seqno_until)
    assert f"{report.summary['missing']} records were dropped or lost before they were archived" in caplog.text
    assert world.read(manifest.files) == [world.known[0, seqno] for seqno in range(first, world.sealed(0))]
    assert world.read(manifest.cut_off) == [
        world.known[0, seqno] for seqno in range(before[0].seqno_from, before[-1].seqno_until)
    ]
    assert world.run().result is None, "nothing is new"
    world.topics.ask(lambda broker: broker.trim(TOPIC, 0, first))
    world.run()
    world.check()
    assert world.manifest.cut_off == ()


def test_what_is_trimmed_while_it_is_read_is_not_archived_and_not_missing(world: World) -> None:
    world.make(6, 300, 2)
    world.run()
    world.change(lambda logs: append(logs[0], make_batches(random.Random(6), 300), NOW + 10**8))
    floor = world.sealed(0) - 20

    def trim() -> SparkSession:
        """Spark is asked for when all is planned."""
        world.topics.ask(lambda broker: broker.trim(TOPIC, 0, floor))
        return world.spark

    assert world.run(trim).summary["missing"] == 0
    world.check()


def test_a_run_that_fails_says_why_and_publishes_nothing(world: World, tmp_path: Path) -> None:
    world.make(7, 600, 1)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PipelineError, match=r"nothing is published: .*Not a directory: .*/file"):
        run_job(ArchiveWork(topic=TOPIC), world.topics.address, lambda: world.spark, str(tmp_path / "file"))
    world.run()
    files = world.manifest.files
    world.change(lambda logs: append(logs[0], make_batches(random.Random(7), 300), NOW + 10**8))
    segments = world.topics.ask(lambda broker: broker.segments(TOPIC, 0, 10_000))
    new = next(segment for segment in segments if segment.first_seqno > files[-1].seqno_until)
    (path,) = world.node.directory.glob(f"topics/*/0/{new.first_seqno:020d}-*.log")
    whole = path.read_bytes()
    with open(path, "r+b") as file:
        file.seek(len(whole) // 2)
        file.write(bytes(byte ^ 0xFF for byte in whole[len(whole) // 2 :][:64]))
    with pytest.raises(PipelineError, match=rf"{TOPIC}/0 from seqno {new.first_seqno} .*damaged"):
        world.run()
    assert not list(world.home.glob(f"*/*/0-{new.first_seqno:020d}-*")), "no file of records that cannot be relied on"
    with open(path, "r+b") as file:
        file.write(whole)

    def renew(again: bool) -> SparkSession:
        world.topics.delete(TOPIC)
        if again:
            world.topics.create(TOPIC)
        return world.spark

    published = world.result
    topic = world.describe()
    with pytest.raises((PipelineError, TopicRecreated), match=topic.id):
        world.run(lambda: renew(True))
    runs = sorted(path.name for path in (world.home / "runs").iterdir())
    assert published is not None
    assert runs == [Path(published.place).name], "a run that failed leaves no directory"
    report = world.run()
    assert (report.result, report.summary["files_total"]) == (None, 0), "of the new topic nothing is sealed"


def drop(log: Log, until: int) -> None:
    log.drop(until)


def test_a_file_that_is_missing_is_written_again_as_long_as_the_log_has_its_records(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.make(8, 600, 1)
    world.run()
    files = world.manifest.files
    (world.home / files[1].path).unlink()
    assert world.run().result is None, "it is the same file"
    assert f"{world.home}/{files[1].path} is not there, and is written again" in caplog.text
    world.check()
    world.change(lambda logs: drop(logs[0], files[2].seqno_until))
    for file in files[1:3]:
        (world.home / file.path).rename(tmp_path / Path(file.path).name)
    said = rf"{world.home}/{files[1].path} is not there, nor are 1 more, .* put it back, or trim {TOPIC}/0 to seqno "
    with pytest.raises(ResultsUnreadable, match=f"{said}{files[2].seqno_until} "):
        world.run()
    world.topics.ask(lambda broker: broker.trim(TOPIC, 0, files[2].seqno_until))
    world.run()
    world.check()


def test_what_was_left_unfinished_goes_before_anything_is_done_even_if_that_fails(world: World) -> None:
    world.make(9, 300, 1)
    world.run()
    left = [world.home / world.describe().id, world.home / "of-another-topic" / "date=2026-11-16"]
    for directory in left:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{UNFINISHED}left-by-one-who-was-killed").write_bytes(b"half of a f")

    def fail() -> SparkSession:
        raise PipelineError("it always fails here")

    world.change(lambda logs: append(logs[0], make_batches(random.Random(9), 300), NOW + 10**8))
    with pytest.raises(PipelineError, match="it always fails here"):
        world.run(fail)
    assert not list(world.home.rglob(f"{UNFINISHED}*"))


def test_an_archive_that_was_copied_to_another_directory_goes_on_there(world: World, tmp_path: Path) -> None:
    world.make(12, 600, 1)
    world.run()
    old, files = world.home, world.manifest.files
    world.change(lambda logs: drop(logs[0], files[1].seqno_until))
    world.place = tmp_path / "elsewhere"
    world.home = world.place / "archive" / TOPIC
    said = f"the archive of {TOPIC} is in {old}, and .*/manifest.json is not there: copy all of it to {world.home}"
    with pytest.raises(ResultsUnreadable, match=rf"{said}, .* trim {TOPIC}/0 to seqno {files[1].seqno_until}"):
        world.run()
    shutil.copytree(old, world.home)
    assert world.run().result is not None, "where it is now is news"
    shutil.rmtree(old)
    world.check()
    with FileReader(world.node.directory, TOPIC) as reader:
        assert [record.seqno for record in reader.records()] == list(range(world.describe().partitions[0].committed))
    assert world.run().result is None


def test_another_directory_with_nothing_in_it_is_fine_as_long_as_the_log_has_everything(
    world: World, tmp_path: Path
) -> None:
    world.make(13, 300, 2)
    world.run()
    (world.place / "archive").rename(tmp_path / "taken away")
    with pytest.raises(ResultsUnreadable, match=r"/manifest.json cannot be read.*name another directory"):
        world.run()
    world.place = tmp_path / "elsewhere"
    world.home = world.place / "archive" / TOPIC
    assert world.run().result is not None
    world.check()


@pytest.mark.parametrize(("number", "part"), some_of([(1, 0.5), (-1, 0.999), (0, 0.01)], (1, 0.5)))
def test_what_repair_could_not_save_is_lost_in_the_archive_too_and_the_rest_is_archived(
    world: World, number: int, part: float
) -> None:
    world.make(10, 600, 1)
    segments = world.topics.ask(lambda broker: broker.segments(TOPIC, 0, 10_000))
    segment = [segment for segment in segments if segment.sealed][number]
    world.node.stop()
    (path,) = world.node.directory.glob(f"topics/*/0/{segment.first_seqno:020d}-*.log")
    with open(path, "r+b") as file:
        file.seek(int(part * path.stat().st_size))
        file.write(b"no batch looks like this"[: path.stat().st_size - file.tell()])
    command = [sys.executable, "-m", "logboom", "repair", "--yes", str(world.node.directory)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    world.node.start()
    first, sealed = world.describe().partitions[0].first, world.sealed(0)
    report = world.run()
    with FileReader(world.node.directory, TOPIC, gaps="skip") as reader:
        everything = list(reader.records())
    seqnos = [record.seqno for record in everything if record.seqno is not None and record.seqno < sealed]
    manifest = world.manifest
    assert manifest.cut_off == ()
    assert world.read(manifest.files) == [world.known[0, seqno] for seqno in seqnos]
    missing = sorted(set(range(first, sealed)) - set(seqnos))
    assert missing
    assert report.summary["missing"] == len(missing)
    assert report.summary["lost"] == f"0/{missing[0]}-{missing[-1]}"
    assert world.run().result is None
    assert world.result is not None
    span = world.result.covers[TOPIC].spans[0]
    assert span == (first, sealed)

    world.node.stop()
    with DataDirectory.open(str(world.node.directory)) as data:
        (log,) = data.open_topic(TOPIC)
        gone = expired(log, RetentionSettings(bytes=1, after="archive"), NOW, span)
        assert gone[-1].next_seqno == sealed, "retention waits for nothing of it"
        log.drop(sealed)
    world.node.start()
    with FileReader(world.node.directory, TOPIC, gaps="skip") as reader:
        assert list(reader.records()) == everything
    with FileReader(world.node.directory, TOPIC, seqno=missing[0]) as reader, pytest.raises(Damage) as raised:
        next(reader.records())
    assert (raised.value.seqno_from, raised.value.seqno_until) == (missing[0], missing[-1] + 1)
    assert world.run().result is None


def test_a_node_that_is_killed_and_started_meanwhile_is_waited_for(world: World) -> None:
    world.make(11, 300, 2)

    def restart() -> SparkSession:
        world.node.kill()
        world.node.start()
        return world.spark

    world.run(restart)
    world.check()


@pytest.mark.soak
def test_a_node_that_goes_away_is_an_error_and_the_next_run_goes_on(world: World) -> None:
    world.make(12, 300, 2)

    def end() -> SparkSession:
        world.node.kill()
        return world.spark

    with pytest.raises(Unavailable):
        world.run(end)
    world.node.start()
    world.run()
    world.check()


def test_the_same_records_become_the_same_bytes_however_they_come(world: World, tmp_path: Path) -> None:
    world.make(8, 500, 2)
    topic, welcome = world.describe(), world.topics.ask(_welcome)
    segments = world.topics.ask(lambda broker: broker.segments(TOPIC, 1, 10_000))
    span = 1, segments[0].first_seqno, segments[1].next_seqno
    piece = ArchivePiece(*span, 0, ((span[1], 0),))
    servers = (world.topics.address,)
    split = Split(TOPIC, topic.id, *span, 0, welcome.node_id, welcome.directory)

    def read(access: Access) -> Iterator[pa.RecordBatch]:
        return read_split(split, ScanSpec(servers=servers, access=access, schema=schema()))

    def one_by_one() -> Iterator[pa.RecordBatch]:
        for batch in read("files"):
            yield from (batch.slice(number, 1) for number in range(batch.num_rows))

    ways: list[Callable[[], Iterator[pa.RecordBatch]]] = [lambda: read("files"), lambda: read("server"), one_by_one]
    written = [
        write_file(ResultPlace(str(tmp_path / str(number))), topic.id, piece, way) for number, way in enumerate(ways)
    ]
    assert written[0] == written[1] == written[2]
    (path,) = tmp_path.glob("0/**/*.parquet")
    path.write_bytes(path.read_bytes()[:-5])
    assert write_file(ResultPlace(str(tmp_path / "0")), topic.id, piece, ways[1]) == written[0], (
        "half a file is replaced"
    )


async def _welcome(broker: RemoteBroker) -> Welcome:
    return broker.welcome


def test_row_groups_are_bounded_by_what_records_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_file, "GROUP_BYTES", 1000)
    monkeypatch.setattr(archive_file, "GROUP_ROWS", 7)
    rng = random.Random(9)
    records = [make_record(rng) for _ in range(300)]
    columns = build_records(records).to_arrow(list(COLUMNS[2:]))
    labels = [pa.repeat(pa.scalar("t"), 300), pa.repeat(pa.scalar(0, pa.int32()), 300)]
    batch = pa.RecordBatch.from_arrays([*labels, *columns.columns], schema=schema())
    file = write_file(ResultPlace(str(tmp_path)), "id", ArchivePiece(0, 0, 300, 0, ((0, 0),)), lambda: iter([batch]))
    stored = pq.ParquetFile(tmp_path / file.path)
    sizes = [
        len(record.value or b"")
        + len(record.key or b"")
        + len((record.channel or "").encode())
        + sum(len(tag.encode()) for tag in record.tags)
        + sum(len(key.encode()) + len(value) for key, value in record.headers)
        for record in records
    ]
    expected, rows, size = [], 0, 0
    for each in sizes:
        rows, size = rows + 1, size + each
        if rows == 7 or size >= 1000:
            expected.append(rows)
            rows = size = 0
    assert [stored.metadata.row_group(number).num_rows for number in range(stored.num_row_groups)] == [
        *expected,
        *([rows] * bool(rows)),
    ]


@pytest.mark.parametrize(
    ("time", "day"),
    [(0, "1970-01-01"), (-1, "1969-12-31"), (2**63 - 1, "9999-12-31"), (-(2**63), "0001-01-01"), (NOW, "2026-09-21")],
)
def test_a_file_lies_under_the_day_of_its_first_record(time: int, day: str) -> None:
    assert path_of("id", 3, 10, 200, time) == f"id/date={day}/3-{10:020d}-{200:020d}.parquet"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": ".."}, "topic: is '..'"),
        ({"topic": "events", "codec": "zip"}, "codec: is 'zip', allowed are zstd, gzip"),
        ({"topic": "events", "level": 23}, "level: is 23, allowed for zstd are 1 to 22"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ArchiveWork(**options).check()
    assert said in str(refused.value)
