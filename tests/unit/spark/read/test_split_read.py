"""What an executor makes of a split: the records the driver was told of, or an error, and never anybody else's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.batch import Selection, build, read_header
from logboom.client.file_catalog import FileCatalog
from logboom.errors import Damage, DirectoryUnusable, LogboomError, RecordsLost, TopicNotFound, TopicRecreated
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.planner import Split
from logboom.spark.read.pushdown import Pushed
from logboom.spark.read.scan import VARIABLE, Scan, scans
from logboom.spark.read.split_read import ScanSpec, arrow_schema, read_split
from logboom.spark.read.table import plan_splits
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import SegmentSettings, Settings
from support.nodes.process import NodeProcess

COLUMNS = ("seqno", "value")


@pytest.fixture(autouse=True)
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scans").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "scans"))


def write(log: Log, text: str, count: int = 100, batch: int = 5) -> None:
    for start in range(0, count, batch):
        values = [f"{text} {start + offset}".encode() + b"." * 50 for offset in range(batch)]
        log.append_one(build(values), start)
    log.commit(log.sync())


def make(path: Path, text: str, count: int = 100, batch: int = 5) -> None:
    with DataDirectory.open(str(path)) as data:
        data.create_topic("events", 1, Settings(segment=SegmentSettings(bytes=4096)))
        write(data.open_topic("events")[0], text, count, batch)


def plan(path: Path, **given: str) -> list[Split]:
    options = ReadOptions.parse({"path": str(path), "topic": "events", **given})
    catalog = FileCatalog(path)
    try:
        return plan_splits(catalog, options, Pushed())
    finally:
        catalog.close()


def read(splits: list[Split], job: ScanSpec) -> list[tuple[int, str]]:
    found = []
    for split in splits:
        for batch in read_split(split, job):
            found += [
                (seqno, value.rstrip(b".").decode()) for seqno, value in zip(*batch.to_pydict().values(), strict=True)
            ]
    return found


def expected(text: str, start: int, until: int) -> list[tuple[int, str]]:
    return [(seqno, f"{text} {seqno}") for seqno in range(start, until)]


def last_scan() -> Scan:
    return scans()[-1]


FILES = ScanSpec(COLUMNS)


def test_a_split_is_read_from_the_files(tmp_path: Path) -> None:
    make(tmp_path / "data", "A")
    assert read(plan(tmp_path / "data", splitBytes="1k"), FILES) == expected("A", 0, 100)
    (split,) = plan(tmp_path / "data", startingSeqno="7", endingSeqno="23")
    assert read([split], FILES) == expected("A", 7, 23)
    found = last_scan()
    assert (found.topic, found.partition, found.seqno_from, found.seqno_until) == ("events", 0, 7, 23)
    assert (found.source, found.records, found.damaged, found.lost) == ("files", 16, 0, 0)


def test_many_small_batches_become_few_record_batches(tmp_path: Path) -> None:
    make(tmp_path / "data", "A", 5000, 1)
    (split,) = plan(tmp_path / "data")
    batches = list(read_split(split, ScanSpec()))
    assert sum(batch.num_rows for batch in batches) == 5000
    segments = len(list((tmp_path / "data" / "topics").glob("events~*/0/*.log")))
    assert len(batches) <= segments + 1
    assert all(batch.schema == arrow_schema(ScanSpec().columns) for batch in batches)


def test_what_a_filter_leaves_of_many_batches_becomes_few_record_batches(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("events")
        (log,) = data.open_topic("events")
        for number in range(200):
            log.append_one(build([b"A %d" % number], tags=[["odd"]] if number % 2 else None), number)
        log.commit(log.sync())
    (split,) = plan(tmp_path)
    job = replace(FILES, wanted=Selection(tags_any=("odd",)))
    assert read([split], job) == [(number, f"A {number}") for number in range(1, 200, 2)]
    assert len(list(read_split(split, job))) == 1


def other_node(path: Path, of: Path) -> None:
    """A copy of a directory, down to the ids of topics, that says it is another node."""
    shutil.copytree(of, path)
    node = msgspec.json.decode((path / "node.json").read_bytes(), type=dict[str, Any])
    (path / "node.json").write_bytes(msgspec.json.encode({**node, "node_id": "f" * len(node["node_id"])}))


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("kind", ["another topic of that name", "the same topic id", "a shorter copy", "no such topic"])
def test_at_the_same_path_on_another_host_nothing_of_another_node_is_read(
    tmp_path: Path, kind: str, warm: bool
) -> None:
    here, there = tmp_path / "data", tmp_path / "there"
    if kind == "a shorter copy":
        make(here, "A", 50)
        shutil.copytree(here, there)
        with DataDirectory.open(str(here)) as data:
            write(data.open_topic("events")[0], "more")
    else:
        make(here, "A")
        if kind == "the same topic id":
            other_node(there, here)
        elif kind == "another topic of that name":
            make(there, "B")
        else:
            DataDirectory.open(str(there)).close()
    splits = plan(here)
    if warm:
        assert read(splits, FILES), "a reader of the first directory stays open"
    swap(here, there)
    with pytest.raises((DirectoryUnusable, LogboomError)) as caught:
        read(splits, FILES)
    assert str(here) in str(caught.value)
    if kind == "a shorter copy":
        assert "has events/0 up to seqno 50, to be read is up to 150" in str(caught.value)
    elif kind != "no such topic":
        assert f"to be read is node {splits[0].node_id}" in str(caught.value)
    swap(here, there)
    assert len(read(splits, FILES)) in (100, 150)


def test_a_topic_that_was_made_again_is_not_misread(tmp_path: Path) -> None:
    make(tmp_path / "data", "A")
    splits = plan(tmp_path / "data")
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.delete_topic("events")
        data.create_topic("events")
        write(data.open_topic("events")[0], "B")
    with pytest.raises(TopicRecreated):
        read(splits, FILES)


def test_without_a_directory_or_with_a_wrong_one_there_is_an_error(tmp_path: Path) -> None:
    make(tmp_path / "data", "A")
    (split,) = plan(tmp_path / "data")
    with pytest.raises(DirectoryUnusable, match="does not say where its files are"):
        read([replace(split, directory=None)], FILES)
    with pytest.raises(DirectoryUnusable, match="is not there"):
        read([replace(split, directory=str(tmp_path / "nothing"))], FILES)


def test_records_dropped_after_planning_are_an_error_or_counted(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path / "data")) as data:
        data.create_topic("events", 1, Settings(segment=SegmentSettings(bytes=4096)))
        (log,) = data.open_topic("events")
        write(log, "A", 500)
        splits = plan(tmp_path / "data", splitBytes="5k")
        assert len(splits) > 4
        log.trim(333, 0)
        log.commit(log.sync())
        log.drop(333)
        with pytest.raises(RecordsLost, match=r"events/0: seqnos 0 to .* are not there: the log begins with 333"):
            read(splits, FILES)
        assert read(splits, replace(FILES, fail_on_loss=False)) == expected("A", 333, 500)
        assert sum(scan.lost for scan in scans()[1:]) == 333
        assert sum(scan.records for scan in scans()[1:]) == 167


def damage(path: Path, number: int, near: int, inside: int) -> tuple[int, int, int]:
    """Flip a bit of the batch that holds this byte of a segment; where it begins, and its seqnos."""
    file = sorted((path / "topics").glob("events~*/0/*.log"))[number]
    content, at = bytearray(file.read_bytes()), 0
    while at + read_header(content, at).size <= near:
        at += read_header(content, at).size
    header = read_header(content, at)
    content[at + inside] ^= 1
    file.write_bytes(content)
    return at, header.base_seqno, header.next_seqno


@pytest.mark.parametrize("segment", [1, -1], ids=["sealed", "active"])
@pytest.mark.parametrize("inside", [9, 100], ids=["header", "body"])
@pytest.mark.parametrize("near", [0, 600])
def test_a_damaged_batch_is_named_or_skipped_and_counted(tmp_path: Path, segment: int, inside: int, near: int) -> None:
    path = tmp_path / "data"
    make(path, "A", 515)
    splits = plan(path, splitBytes="5k")
    everything = read(splits, FILES)
    assert everything == expected("A", 0, 515)
    position, low, high = damage(path, segment, near, inside)
    with pytest.raises(Damage) as caught:
        read(splits, FILES)
    assert "topic events, partition 0" in str(caught.value)
    assert f"is damaged at byte {position} (seqnos {low} to {high - 1})" in str(caught.value)
    before = len(scans())
    rest = [record for record in everything if not low <= record[0] < high]
    assert read(splits, replace(FILES, skip_damage=True)) == rest
    assert sum(scan.damaged for scan in scans()[before:]) == high - low
    assert read(splits, ScanSpec(COLUMNS, Selection(time_from=0), skip_damage=True)) == rest


def test_a_damaged_end_is_named_or_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "data"
    make(path, "A", 515)
    splits = plan(path, maxRecordsPerPartition="3")
    position, low, high = damage(path, -1, max((path / "topics").glob("events~*/0/*.log")).stat().st_size - 1, 9)
    assert (low, high) == (510, 515)
    for some in (splits, splits[-1:]):
        with pytest.raises(Damage, match=f"topic events, partition 0.*damaged at byte {position} .seqnos {low} to"):
            read(some, FILES)
    before = len(scans())
    assert read(splits, replace(FILES, skip_damage=True)) == expected("A", 0, low)
    assert sum(scan.damaged for scan in scans()[before:]) == high - low


def test_a_stranger_without_the_topic_does_not_say_that_it_is_gone(tmp_path: Path) -> None:
    here, there = tmp_path / "data", tmp_path / "there"
    make(here, "A")
    DataDirectory.open(str(there)).close()
    splits = plan(here)
    swap(here, there)
    with pytest.raises(TopicNotFound):
        read(splits, replace(FILES, fail_on_loss=False))
    swap(here, there)
    with DataDirectory.open(str(here)) as data:
        data.delete_topic("events")
    assert read(splits, replace(FILES, fail_on_loss=False)) == []
    assert last_scan().lost == 100


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("node"))
    make(node.directory, "A", 500)
    with node:
        yield node


def test_where_the_files_are_not_that_nodes_the_server_is_read(node: NodeProcess, tmp_path: Path) -> None:
    make(tmp_path / "data", "B", 500)
    splits = [replace(split, directory=str(tmp_path / "data")) for split in plan(node.directory, splitBytes="5k")]
    job = replace(FILES, servers=(node.address,))
    assert read(splits, job) == expected("A", 0, 500)
    assert {scan.source for scan in scans()} == {"server"}
    with pytest.raises(DirectoryUnusable, match="belongs to node"):
        read(splits, replace(job, access="files"))


def test_the_server_gives_the_same_as_the_files(node: NodeProcess) -> None:
    for given in ({}, {"splitBytes": "3k"}, {"startingSeqno": "7", "endingSeqno": "11"}):
        splits = plan(node.directory, **given)
        files = read(splits, FILES)
        assert read(splits, replace(FILES, servers=(node.address,), access="server")) == files
    for wanted in (Selection(time_from=2, time_until=200), Selection(time_from=3), Selection(key=b"k")):
        job = ScanSpec(COLUMNS, wanted, (node.address,))
        assert read(splits, replace(job, access="server")) == read(splits, replace(job, access="files"))


def test_where_files_give_out_the_server_goes_on(node: NodeProcess, tmp_path: Path) -> None:
    """A copy of the directory has lost a segment."""
    shutil.copytree(node.directory, tmp_path / "copy")
    files = sorted((tmp_path / "copy" / "topics").glob("events~*/0/*.log"))
    os.unlink(files[2])
    (split,) = [replace(split, directory=str(tmp_path / "copy")) for split in plan(node.directory)]
    assert read([split], replace(FILES, servers=(node.address,))) == expected("A", 0, 500)
    assert last_scan().source == "files, server"
    with pytest.raises(Damage):
        read([split], FILES)


def test_a_server_that_has_less_than_the_driver_was_told_is_not_believed(node: NodeProcess) -> None:
    (split,) = plan(node.directory)
    job = replace(FILES, servers=(node.address,), access="server", fail_on_loss=False)
    with pytest.raises(RecordsLost, match="seqnos 500 to 599 are not there: the log ends before 500"):
        read([replace(split, seqno_until=600)], job)
    with pytest.raises(TopicRecreated):
        read([replace(split, topic_id="00" * 16)], replace(job, fail_on_loss=True))


@pytest.mark.parametrize("inside", [9, 100], ids=["header", "body"])
def test_from_a_server_too_a_damaged_batch_hides_and_counts_only_its_own_records(tmp_path: Path, inside: int) -> None:
    node = NodeProcess(tmp_path)
    with DataDirectory.open(str(node.directory)) as data:
        data.create_topic("events")
        write(data.open_topic("events")[0], "A", 500)
    with node:
        (split,) = plan(node.directory)
        _, low, high = damage(node.directory, 0, 20_000, inside)
        job = replace(FILES, servers=(node.address,), access="server", skip_damage=True)
        with pytest.raises(Damage, match=f"seqnos {low} to {high - 1}"):
            read([split], replace(job, skip_damage=False))
        assert read([split], job) == [*expected("A", 0, low), *expected("A", high, 500)]
        assert last_scan().damaged == high - low
        assert read([split], replace(job, wanted=Selection(channel="none"))) == []
        assert last_scan().damaged in (0, high - low)


def test_another_node_without_the_topic_does_not_say_that_it_is_gone(node: NodeProcess, tmp_path: Path) -> None:
    (split,) = plan(node.directory)
    with NodeProcess(tmp_path) as other:
        job = replace(FILES, servers=(other.address,), fail_on_loss=False)
        with pytest.raises(TopicNotFound):
            read([replace(split, directory=None)], job)
