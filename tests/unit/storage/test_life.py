"""What happens to segments and topics when something else happens at the same time, or has happened before."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.batch.codec import ZSTD
from logboom.errors import Damage, StorageError
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import HookSettings, RetentionSettings, SegmentSettings, Settings
from logboom.storage.health.check import check
from logboom.storage.upkeep.recompression import recompress
from logboom.storage.upkeep.retention import expired
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.broken import copy_of, overwrite, rows
from support.simulation.model import make_batch, open_log, open_view

NOW = 1_700_000_000_000_000


def fill(log: Log, segments: int, records: int = 10) -> None:
    for number in range(segments):
        log.append_one(build([b"%d" % n * 5 for n in range(records)]), NOW + number)
        log.commit(log.sync())
        log.roll()


def small_log(disk: SimulatedDisk, segments: int = 4) -> Log:
    log = open_log(disk)
    fill(log, segments)
    return log


def test_emptying_the_trash_leaves_what_a_link_points_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    with DataDirectory.open(str(tmp_path / "data")) as data:
        topic = data.create_topic("t")
        fill(data.open_topic("t")[0], 1)
        os.symlink(precious, tmp_path / "data" / topic.directory / "archive")
        data.delete_topic("t")
        assert data.empty_trash() == 1
        assert os.listdir(tmp_path / "data" / "trash") == []
    assert (precious / "file").read_text() == "x"


def test_a_topic_whose_sync_is_under_way_is_not_deleted_and_stays_the_same_log(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t", 2)
        logs = data.open_topic("t")
        logs[1].append_one(build([b"x"]), NOW)
        pending = logs[1].begin_sync()
        assert pending is not None
        with pytest.raises(RuntimeError, match="sync is under way"):
            data.delete_topic("t")
        assert data.open_topic("t") == logs
        assert not any(log.closed for log in logs)
        pending.file.sync()
        logs[1].end_sync(pending)
        data.delete_topic("t")


def test_opening_a_topic_again_commits_nothing_of_what_is_open(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t")
        (log,) = data.open_topic("t")
        log.append_one(build([b"x"]), NOW)
        log.sync()
        assert data.open_topic("t") == [log]
        assert data.open_partition("t", 0) is log
        assert log.committed == 0


def test_a_drop_that_fails_on_what_a_crash_left_keeps_the_segment_that_takes_appends() -> None:
    disk = SimulatedDisk()
    log = small_log(disk, 1)

    def crash(call: Call) -> None:
        if call.name == "unlink" and call.path.endswith(".log"):
            raise PowerLoss

    disk.fault = crash
    with pytest.raises(PowerLoss):
        log.drop(10)
    disk.kill()
    disk = copy_of(disk)
    log = open_log(disk)
    log.commit(log.last_index)

    def fail(call: Call) -> None:
        if call.name == "unlink" and call.path.endswith(".log"):
            raise OSError(errno.EIO, "io")

    disk.fault = fail
    with pytest.raises(StorageError):
        log.drop(10)
    disk.fault = None
    assert len(log.segments) == 1
    log.append_one(make_batch(1, 1, 1), NOW)
    log.drop(10)
    assert [name for name in disk.list(log.directory) if name.startswith("0" * 20) and name.endswith(".log")] == []


def test_a_segment_without_records_is_not_taken_for_dropped() -> None:
    disk = SimulatedDisk()
    log = small_log(disk, 2)
    log.trim(15, NOW + 9)
    log.commit(log.sync())
    log.drop(20)
    log.roll()
    places = [(segment.first_seqno, segment.first_index) for segment in log.segments]
    assert places == [(20, 3), (20, 4)]
    log = open_log(disk)
    log.commit(log.last_index)
    assert log.drop(0) == 0
    assert [(segment.first_seqno, segment.first_index) for segment in log.segments] == places


def test_a_lost_segment_before_an_empty_one_costs_only_its_records(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t", 2)
        for log in data.open_topic("t"):
            fill(log, 4)
        lost = data.open_topic("t")[0].segments[-2].log_path
    os.unlink(lost)
    with DataDirectory.open(str(tmp_path)) as data:
        one, other = data.open_topic("t")
        assert [record.seqno for batch in other.batches() for record in batch.records()] == list(range(40))
        with pytest.raises(Damage) as caught:
            list(one.batches(30))
        assert (caught.value.seqno_from, caught.value.seqno_until) == (30, 40)
        assert len(list(one.batches(skip_damage=True))) == 3
        assert one.append_one(build([b"x"]), NOW).base_seqno == 40


def test_segments_that_are_missing_are_missed_again_after_the_log_was_used(tmp_path: Path) -> None:
    path = str(tmp_path)
    with DataDirectory.open(path) as data:
        data.create_topic("t")
        (log,) = data.open_topic("t")
        fill(log, 4)
        first = log.segments[0]
    for name in (first.log_path, first.index_path, first.snap_path):
        os.unlink(name)
    for _ in range(2):
        with DataDirectory.open(path) as data:
            (log,) = data.open_topic("t")
            assert log.recovered.missing is not None
            log.append_one(build([b"x"]), NOW + 100)
            log.commit(log.sync())
            assert log.first == 10
        assert check(data.files.disk, path).damaged
    with DataDirectory.open(path) as data:
        (log,) = data.open_topic("t")
        log.drop(20)
    with DataDirectory.open(path) as data:
        assert data.open_topic("t")[0].recovered.missing is None


def test_age_goes_on_behind_a_damaged_snapshot() -> None:
    disk = SimulatedDisk()
    log = small_log(disk, 5)
    log.append_one(build([b"x"]), NOW + 10)
    log.commit(log.sync())
    overwrite(disk, log.segments[1].snap_path, 0, b"damaged!")
    log = open_log(disk)
    log.commit(log.last_index)
    settings = RetentionSettings(age_ms=1000)
    assert expired(log, settings, NOW + 999_999) == []
    assert len(expired(log, settings, NOW + 10_000_000)) == 5


def test_a_swap_whose_rename_fails_leaves_the_log_as_it_was() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(40):
        log.append_one(make_batch(number, 3, number, size=80), NOW + number)
    log.commit(log.sync())
    before = rows(log)
    pending = log.begin_swap(log.cold_segments()[0])
    done = recompress(disk, *pending, ZSTD, 1, 0.0, lambda size: None)
    assert done is not None

    def fail(call: Call) -> None:
        if call.name == "rename" and call.path.endswith(".log"):
            raise OSError(errno.ENOSPC, "full")

    disk.fault = fail
    with pytest.raises(StorageError):
        log.end_swap(pending, done.summary, done.index)
    disk.fault = None
    assert not disk.exists(pending.new.temporary_path)
    log.append_one(make_batch(99, 1, 1), NOW + 99)
    assert {seqno: value for seqno, value in rows(log).items() if seqno in before} == before


def test_a_swap_shows_in_the_state_file_when_it_is_done_and_not_before() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(40):
        log.append_one(make_batch(number, 3, number, size=80), NOW + number)
    log.commit(log.sync())
    first, second = log.cold_segments()[:2]
    one, other = log.begin_swap(first), log.begin_swap(second)
    log.append_one(make_batch(99, 1, 1), NOW + 99)
    log.commit(log.sync())
    view = open_view(disk)
    for pending in (other, one):
        before = view.standing.generation
        done = recompress(disk, *pending, ZSTD, 1, 0.0, lambda size: None)
        assert done is not None
        log.end_swap(pending, done.summary, done.index)
        assert view.term_before(first.first_seqno + 1) == 0
        assert view.term_before(second.first_seqno + 1) == 0
        view.refresh()
        assert view.standing.generation != before


def test_a_file_with_a_number_that_no_segment_has_is_passed_over(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t")
        (log,) = data.open_topic("t")
        fill(log, 2)
        segment = log.segments[0]
        Path(segment.log_path[:-14] + "9999999999.log").write_bytes(b"")
        Path(log.directory, f"{'9' * 20}-{'9' * 20}.snap").write_bytes(b"")
    with DataDirectory.open(str(tmp_path)) as data:
        (log,) = data.open_topic("t")
        assert log.next == 20
        log.append_one(build([b"x"]), NOW)


def test_a_hook_that_is_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hook\.delete"):
        Settings(hook=HookSettings(delete=" ")).check()


@pytest.mark.parametrize("content", [b'{"id": "\xff"}', b"[" * 200_000, b"\xff\xfe"])
def test_files_that_hold_no_text_are_passed_over_or_refused_by_name(tmp_path: Path, content: bytes) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        topic = data.create_topic("t", settings=Settings(segment=SegmentSettings(bytes=4096)))
    (tmp_path / topic.directory / "topic.json").write_bytes(content)
    with DataDirectory.open(str(tmp_path)) as data:
        assert data.topics() == []
    (tmp_path / "node.json").write_bytes(content)
    with pytest.raises(StorageError, match=r"node\.json"):
        DataDirectory.open(str(tmp_path))


def test_a_log_without_files_can_begin_again_when_its_slot_is_forgotten(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        topic = data.create_topic("t")
        fill(data.open_topic("t")[0], 2)
    for path in (tmp_path / topic.directory / "0").iterdir():
        path.unlink()
    with DataDirectory.open(str(tmp_path)) as data:
        data.forget_log(topic.log_name(0))
        (log,) = data.open_topic("t")
        assert log.refusal is None
        assert log.next == 0
