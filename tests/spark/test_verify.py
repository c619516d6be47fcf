"""Verifying on Spark: a running node, replicas and the archive; what is found is published, and named."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from logboom import Writer
from logboom.client import FileReader
from logboom.errors import ConfigError, DirectoryUnusable, TopicNotFound
from logboom.results.archive import ArchivedFile, decode_manifest
from logboom.results.places import ResultPlace
from logboom.spark.jobs.archive import ArchiveWork
from logboom.spark.jobs.job_run import RunReport, run_job
from logboom.spark.jobs.kinds import make_work
from logboom.spark.jobs.verify import PROBLEMS, Problems, VerifyWork
from logboom.storage import DataDirectory
from logboom.verify.archive_likeness import Shelved, check_file, compare_file
from logboom.verify.plan import VerifyProblem
from support.nodes.process import NodeProcess
from support.spark.content import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "events"


class World:
    """A running node with a topic that has been archived."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.spark = spark
        self.place = root / "place"
        self.node = NodeProcess(root)
        with DataDirectory.open(str(self.node.directory)) as data:
            make_topic(data, TOPIC, 3, 300, 3)

    def run(self, work: Any) -> RunReport:
        return run_job(work, self.node.address, lambda: self.spark, str(self.place))

    def verify(self, **options: Any) -> tuple[RunReport, list[VerifyProblem]]:
        report = self.run(make_work("verify", options))
        assert report.result is not None
        assert report.result.manifest is not None
        content = ResultPlace(report.result.place).read(report.result.manifest)
        found = msgspec.json.decode(content, type=Problems)
        assert report.result.manifest.path == PROBLEMS
        assert (found.problems, report.result.facts["problems"]) == (report.summary["problems"],) * 2
        return report, list(found.listed)

    @property
    def copy(self) -> Path:
        """Of its data directory."""
        return Path(shutil.copytree(self.node.directory, self.place / "copy", ignore=shutil.ignore_patterns("*.sock")))


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    made = World(tmp_path, spark)
    with made.node:
        yield made


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0x41
    file.write_bytes(content)


def test_a_node_its_copy_and_its_archive_are_sound_also_while_it_is_written_to(world: World) -> None:
    archived = world.run(ArchiveWork(topic=TOPIC)).summary["files"]
    ended = threading.Event()

    def write() -> None:
        with Writer(TOPIC, world.node.address) as writer:
            while not ended.wait(0.001):
                writer.write(b"while it is verified" * 20)

    copy = world.copy
    thread = threading.Thread(target=write)
    thread.start()
    try:
        for directories in ((), (str(world.node.directory), str(copy))):
            report, problems = world.verify(name="live", directories=directories)
            assert problems == []
            assert report.summary["archived_files"] == archived
    finally:
        ended.set()
        thread.join()
    result = report.result
    assert result is not None
    assert result.records == report.summary["records"] > 500
    assert report.summary["compared_batches"] > 30
    with FileReader(world.node.directory, TOPIC, 0) as reader:
        first, until = result.covers[TOPIC].spans[0]
        assert first <= until <= reader.committed
    assert result.covers[TOPIC].topic_id == reader.topic.id


def test_what_is_wrong_with_a_directory_is_a_result_and_names_the_place(world: World) -> None:
    copy = world.copy
    file = sorted(copy.glob(f"topics/{TOPIC}~*/0/*.log"))[1]
    flip(file, 100)
    report, problems = world.verify(directories=(str(copy),))
    (problem,) = problems
    assert (problem.file, problem.position, problem.partition) == (str(file), 0, 0)
    assert report.summary["first_problem"] == str(problem)
    assert str(file) in str(problem)
    report, problems = world.verify(directories=(str(copy),), pattern="other.*")
    assert (report.summary["logs"], problems) == (0, [])


def test_what_cannot_be_verified_fails_the_run_and_publishes_nothing(world: World) -> None:
    world.place.mkdir()
    refusals: list[tuple[type[Exception], str, dict[str, tuple[str, ...]]]] = [
        (DirectoryUnusable, "is not a directory", {"directories": ("/nowhere",)}),
        (DirectoryUnusable, "is no data directory", {"directories": (str(world.place),)}),
        (TopicNotFound, "'nothing'", {"topics": (TOPIC, "nothing")}),
    ]
    for error, said, wanted in refusals:
        with pytest.raises(error, match=said):
            world.run(make_work("verify", {"name": "nowhere", **wanted}))
        assert not list(world.place.glob("verify/nowhere/runs/*"))
    (world.place / "verify/spoilt").parent.mkdir(parents=True, exist_ok=True)
    (world.place / "verify/spoilt").write_bytes(b"a file")
    with pytest.raises(NotADirectoryError):
        world.run(VerifyWork(name="spoilt"))
    for options in ({"name": "a/b"}, {"pattern": "("}, {"directories": 3}):
        with pytest.raises(ConfigError):
            make_work("verify", options)


def test_archived_files_are_held_to_what_was_published_and_to_the_log(world: World) -> None:
    report = world.run(ArchiveWork(topic=TOPIC))
    assert report.result is not None
    assert report.result.manifest is not None
    home = Path(report.result.place).parents[1]
    manifest = decode_manifest(ResultPlace(report.result.place).read(report.result.manifest))
    spoilt = manifest.files[1]
    flip(home / spoilt.path, spoilt.size // 2)
    gone = next(file for file in manifest.files if file.partition == 1)
    (home / gone.path).unlink()
    found, problems = world.verify()
    assert found.summary["problems"] == 2
    assert {problem.file: problem.kind for problem in problems} == {
        str(home / file.path): "archive" for file in (spoilt, gone)
    }
    flip(home / spoilt.path, spoilt.size // 2)
    table = pq.read_table(home / spoilt.path)
    for wrong, seqno, reason in changed(table, spoilt):
        problem = examine(world, home, manifest.topic_id, spoilt, wrong)
        assert problem is not None
        assert (problem.seqno, problem.partition) == (seqno, spoilt.partition)
        assert reason in problem.reason
    assert examine(world, home, manifest.topic_id, spoilt, table) is None


def changed(table: pa.Table, file: ArchivedFile) -> Iterator[tuple[pa.Table, int, str]]:
    """The rows of a file, each time with one thing wrong: where, and in what."""
    row, first = len(table) // 2, file.seqno_from
    for name, value in (("value", b"another"), ("key", b"another"), ("channel", "another"), ("tags", ["another"])):
        column = table.column(name).to_pylist()
        column[row] = value
        number = table.schema.get_field_index(name)
        wrong = table.set_column(number, table.schema.field(name), pa.array(column, table.schema.field(name).type))
        yield wrong, first + row, f"{name} is "
    yield pa.concat_tables([table.slice(0, row), table.slice(row + 1)]), first + row, "the file has not"
    yield pa.concat_tables([table.slice(0, row), table.slice(row - 1)]), first + row - 1, "stands behind"
    number = table.schema.get_field_index("partition")
    other = pc.add(table.column("partition"), pa.scalar(1, pa.int32()))
    yield table.set_column(number, table.schema.field(number), other), first, "partition is "


def examine(world: World, home: Path, topic_id: str, file: ArchivedFile, table: pa.Table) -> VerifyProblem | None:
    """A file with these rows, as if it had been published so."""
    path = home / "another.parquet"
    pq.write_table(table, path)
    content = path.read_bytes()
    shelved = Shelved(
        home=str(home),
        file=msgspec.structs.replace(file, path=path.name, size=len(content), crc=crc32c.crc32c(content)),
        directory=str(world.node.directory),
        topic=TOPIC,
        topic_id=topic_id,
        seqno_from=file.seqno_from,
        seqno_until=file.seqno_until,
    )
    assert check_file(shelved) is None
    with FileReader(world.node.directory, TOPIC, file.partition, seqno=file.seqno_from) as reader:
        return compare_file(shelved, list(reader.tables(until=file.seqno_until, max_bytes=4096)))
