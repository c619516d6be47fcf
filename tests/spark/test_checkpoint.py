"""Checkpoints against a dictionary: whatever was written, trimmed, dropped or made again, state and tail are the log.

How they are read without Spark is in unit/client/test_from_checkpoint.py.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from logboom import Reader, Writer
from logboom.batch import Record
from logboom.batch.partitioner import murmur2
from logboom.broker.api import PartitionInfo
from logboom.client.remote import RemoteBroker
from logboom.errors import CheckpointNotFound, ResultsUnreadable, SeqnoOutOfRange
from logboom.results import checkpoint
from logboom.results.checkpoint import By
from logboom.spark.jobs.checkpoint import CheckpointWork
from logboom.spark.jobs.job_run import RunReport, run_job
from logboom.storage import DataDirectory
from logboom.storage.data.topic import SegmentSettings, Settings
from support.nodes.process import NodeProcess
from support.spark.queries import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
SMALL = Settings(segment=SegmentSettings(bytes=8192))
WORKS = (
    CheckpointWork(topic="state"),
    CheckpointWork(topic="state", by="channel"),
    CheckpointWork(topic="state", tag="red"),
)


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield Topics(node)


@dataclass
class Fold:
    """The latest of each key, as who reads record by record would keep it."""

    by: By
    tag: str | None = None
    latest: dict[Any, Record] = field(default_factory=dict)
    until: int = 0
    nameless: int = 0

    def take(self, records: list[Record], first: int = 0) -> None:
        """What comes next, as far as there is a first to begin with."""
        for record in records:
            assert record.seqno is not None
            if record.seqno < max(first, self.until) or (self.tag is not None and self.tag not in record.tags):
                continue
            name = getattr(record, self.by)
            if name is None:
                self.nameless += 1
            elif record.value is None:
                self.latest.pop(name, None)
            else:
                self.latest[name] = record
        self.until = max(self.until, records[-1].seqno + 1 if records and records[-1].seqno is not None else 0)

    def above(self, floor: int) -> dict[Any, Record]:
        return {name: record for name, record in self.latest.items() if (record.seqno or 0) >= floor}


class World:
    """A topic that things happen to, all of its records as they were read once, and what they come to."""

    def __init__(self, topics: Topics, place: Path, spark: SparkSession, seed: int) -> None:
        self.chance = random.Random(seed)
        self._topics = topics
        self._place = place
        self._spark = spark
        self.begin()

    def begin(self) -> None:
        self._topics.ask(lambda broker: broker.create_topic("state", PARTITIONS, SMALL))
        self.records: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self.floors = [0] * PARTITIONS
        self.firsts = [0] * PARTITIONS
        self.kept = {work.id: [Fold(work.by, work.tag) for _ in range(PARTITIONS)] for work in WORKS}
        """As the checkpoints have it."""
        self._made: set[str] = set()
        self._manifests: dict[str, Path] = {}

    def write(self, count: int, keys: int) -> None:
        chance = self.chance
        for partition in chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS)):
            with Writer("state", self._topics.address, partition=partition, batch_bytes=2000) as writer:
                for _ in range(count):
                    writer.write(
                        chance.choice([None, chance.randbytes(30), chance.randbytes(9), b""]),
                        key=chance.choice([None, *[b"%d" % chance.randrange(keys)] * 9]),
                        channel=chance.choice([None, *[f"c/{chance.randrange(keys)}"] * 5]),
                        tags=chance.choice([(), ("red",), ("blue", "red")]),
                        headers=chance.choice([(), (("h", b"\x00"),)]),
                    )
            seen = self.records[partition]
            with Reader("state", self._topics.address, partition, seqno=len(seen)) as reader:
                seen += reader

    def trim(self) -> None:
        for partition in range(PARTITIONS):
            self.floors[partition] = seqno = self.chance.randint(self.floors[partition], len(self.records[partition]))
            self.firsts[partition] = self._topics.ask(partial(_trim, partition=partition, seqno=seqno)).first

    def drop(self) -> None:
        """As retention does, at some seqno."""
        self._topics.node.stop()
        data = DataDirectory.open(str(self._topics.node.directory))
        for partition, log in enumerate(data.open_topic("state")):
            log.drop(self.chance.randint(0, len(self.records[partition])))
            self.firsts[partition] = log.first
        data.close()
        self._topics.node.start()

    def make_again(self) -> None:
        self._topics.delete("state")
        self.begin()

    def run(self, work: CheckpointWork) -> RunReport:
        report = run_job(work, self._topics.address, lambda: self._spark, str(self._place), lease_s=10)
        self._made.add(work.id)
        for fold, records, first in zip(self.kept[work.id], self.records, self.firsts, strict=True):
            fold.take(records, first)
        if report.result is not None:
            self._manifests[work.id] = Path(report.result.place, checkpoint.MANIFEST)
            assert report.result.facts["nameless"] == sum(fold.nameless for fold in self.kept[work.id])
        return report

    def check(self, work: CheckpointWork) -> None:
        """The state of each log, and the state with the tail."""
        for partition, fold in enumerate(self.kept[work.id]):
            floor, first = self.floors[partition], self.firsts[partition]
            if work.id not in self._made or floor < fold.until < first or fold.until <= floor < first:
                # There is none of this topic; or records behind it were dropped.
                with pytest.raises((CheckpointNotFound, SeqnoOutOfRange)):
                    read_all(self._topics, "state", partition, work)
                continue
            state, tail = read_all(self._topics, "state", partition, work)
            expected = fold.above(floor)
            assert {getattr(record, work.by): record for record in state} == expected
            assert len(state) == len(expected)
            assert read_files(self._manifests[work.id], partition, floor) == {record.seqno for record in state}
            whole = Fold(work.by, work.tag, dict(expected), fold.until)
            whole.take(tail)
            follows = self.records[partition][max(floor, fold.until) :]
            assert tail == [record for record in follows if work.tag is None or work.tag in record.tags]
            model = Fold(work.by, work.tag, dict(expected), fold.until)
            model.take(self.records[partition], floor)
            assert whole.latest == model.latest


async def _trim(broker: RemoteBroker, partition: int, seqno: int) -> PartitionInfo:
    return await broker.trim("state", partition, seqno)


def read_all(topics: Topics, topic: str, partition: int, work: CheckpointWork) -> tuple[list[Record], list[Record]]:
    tags = () if work.tag is None else (work.tag,)
    state: list[Record] = []
    tail: list[Record] = []
    with Reader(topic, topics.address, partition, checkpoint=work.by, tags_all=tags) as reader:
        behind = reader.seqno is not None
        for record in reader:
            (tail if behind else state).append(record)
            behind = reader.seqno is not None
    return state, tail


def read_files(path: Path, partition: int, floor: int) -> set[int]:
    """The seqnos of a state, found as docs/formats/checkpoint.md says."""
    manifest = json.loads(path.read_text())
    found: dict[Any, int] = {}
    for layer in manifest["layers"]:
        for file in layer["files"]:
            if file["partition"] != partition:
                continue
            rows = pq.read_table(path.parents[2] / file["path"]).to_pylist()
            assert len(rows) == file["records"]
            for row in rows:
                name = row[manifest["by"]]
                data = name if isinstance(name, bytes) else name.encode()
                assert (murmur2(data) & 0xFFFF_FFFF) >> 16 & layer["buckets"] - 1 == file["bucket"]
                found.pop(name, None)
                if row["value"] is not None:
                    found[name] = row["seqno"]
    return {seqno for seqno in found.values() if seqno >= floor}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
def test_state_and_tail_are_what_a_dictionary_says_whatever_happens_to_the_topic(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(checkpoint, "BUCKET_BYTES", 50_000)
    world = World(topics, tmp_path, spark, seed)
    layers = set()
    for step in range(12 if seed == 1 else 40):
        if step == 5 or (seed > 1 and world.chance.random() < 0.05):
            world.make_again()
        large = step in (0, 6)
        world.write(1500 if large else world.chance.choice([0, 5, 60]), 200)
        if step in (2, 8) or (seed > 1 and world.chance.random() < 0.1):
            world.trim()
        if step in (3, 9) or (seed > 1 and world.chance.random() < 0.1):
            world.drop()
        for work in WORKS if large or seed > 1 else world.chance.sample(WORKS, 1):
            report = world.run(work)
            layers.add(report.summary["layers"])
        if step % 3 == 1:
            world.write(30, 200)
        for work in WORKS:
            world.check(work)
    assert {1, 2} <= layers, "some had only what was new"
    topics.delete("state")


def test_a_checkpoint_goes_on_in_another_directory_without_the_old_one(
    topics: Topics, tmp_path: Path, spark: SparkSession
) -> None:
    topics.create("moved")
    work, before = CheckpointWork(topic="moved"), tmp_path / "before"
    for place, keys in ((before, range(6)), (before, range(2)), (tmp_path / "after", range(5, 7))):
        with Writer("moved", topics.address, partition=0) as writer:
            for key in keys:
                writer.write(place.name.encode(), key=b"%d" % key)
        run_job(work, topics.address, lambda: spark, str(place))
    run_job(work, topics.address, lambda: spark, str(tmp_path / "last"))
    shutil.rmtree(before)
    shutil.rmtree(tmp_path / "after")
    with Reader("moved", topics.address, 0, from_checkpoint=True) as reader:
        found = {record.key: record.value for record in reader}
    assert found == {b"%d" % key: b"before" if key < 5 else b"after" for key in range(7)}


class Kept:
    """A topic with few keys on a node of its own, and its checkpoint."""

    def __init__(self, root: Path, node: NodeProcess, spark: SparkSession) -> None:
        self.node = node
        self.topics = Topics(node)
        self.topics.ask(lambda broker: broker.create_topic("kept", 1, SMALL))
        self.place = root / "results"
        self.runs = self.place / "checkpoint" / "kept" / "key" / "runs"
        self.expected: dict[bytes | None, bytes | None] = {}
        self._spark = spark

    def write(self, keys: range, value: bytes) -> None:
        with Writer("kept", self.topics.address, batch_bytes=2000) as writer:
            for number in keys:
                key = b"%d" % number
                writer.write(value, key=key)
                self.expected[key] = value

    def run(self, place: Path | None = None) -> RunReport:
        where = str(place or self.place)
        return run_job(CheckpointWork(topic="kept"), self.topics.address, lambda: self._spark, where)

    def read(self) -> dict[bytes | None, bytes | None]:
        with Reader("kept", self.topics.address, from_checkpoint=True) as reader:
            return {record.key: record.value for record in reader}


@pytest.fixture
def kept(tmp_path: Path, spark: SparkSession) -> Iterator[Kept]:
    with NodeProcess(tmp_path) as node:
        yield Kept(tmp_path, node, spark)


def test_a_checkpoint_is_made_anew_where_a_node_restored_from_a_copy_knows_one_whose_files_are_gone(
    kept: Kept, tmp_path: Path
) -> None:
    kept.write(range(10), b"old")
    first = kept.run().result
    kept.node.stop()
    shutil.copytree(kept.node.directory, tmp_path / "copy")
    kept.node.start()
    for count in (20, 40):
        kept.write(range(100, 100 + count), b"forgotten")
        kept.run()
    assert first is not None
    assert not Path(first.place).exists(), "what came later has swept it"
    kept.node.stop()
    shutil.rmtree(kept.node.directory)
    shutil.move(tmp_path / "copy", kept.node.directory)
    kept.node.start()
    kept.expected = {}
    kept.write(range(10), b"old")
    with pytest.raises(ResultsUnreadable, match="run the checkpoint job"):
        kept.read()
    report = kept.run()
    assert (report.summary["anew"], report.summary["missed"]) == ("files of the last one are gone", 0)
    assert kept.read() == kept.expected
    (file,) = Path(report.result.place if report.result else "").glob("*.parquet")
    file.unlink()
    assert kept.run().summary["anew"] == "files of the last one are gone", "though nothing is new"
    assert kept.read() == kept.expected


def test_a_state_that_the_log_has_no_more_is_not_given_up_because_its_directory_is_away(kept: Kept) -> None:
    kept.write(range(500), b"x" * 100)
    kept.run()
    kept.node.stop()
    with DataDirectory.open(str(kept.node.directory)) as data:
        (log,) = data.open_topic("kept")
        log.drop(400)
        dropped = log.first
    assert dropped
    kept.node.start()
    away = kept.place.with_name("away")
    shutil.move(kept.place, away)
    for _ in range(2):
        with pytest.raises(ResultsUnreadable, match=f"{kept.runs}"):
            kept.run()
    shutil.copytree(away, kept.place)
    assert (kept.run().result, kept.read()) == (None, kept.expected), "it was only away"
    shutil.rmtree(kept.place)
    report = kept.run(away.with_name("elsewhere"))
    assert (report.summary["anew"], report.summary["missed"]) == ("files of the last one are gone", dropped)
    assert kept.read() == {b"%d" % number: b"x" * 100 for number in range(dropped, 500)}
