"""A failing call in the wrong place, then going on, then a power loss: what was promised is there, nothing else is."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from logboom.errors import LogboomError, LogReadOnly, LowSpace, StorageError, SyncFailed, WriteFailed
from logboom.storage import Appended, Log
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.model import make_batch, open_log

NOW = 1_000_000


def fail_once(name: str, ending: str, error: int = errno.EIO) -> Callable[[Call], int | None]:
    left = [1]

    def fault(call: Call) -> int | None:
        if call.name == name and call.path.endswith(ending) and left:
            left.pop()
            raise OSError(error, "injected")
        return None

    return fault


def shorten_once(size: int) -> Callable[[Call], int | None]:
    left = [1]

    def fault(call: Call) -> int | None:
        if call.name == "write" and call.path.endswith(".log") and left:
            left.pop()
            return size
        return None

    return fault


def fill(log: Log, start: int, stop: int) -> None:
    for number in range(start, stop):
        log.append_one(make_batch(number, 2, None), NOW, 1)


def four_segments() -> tuple[SimulatedDisk, Log]:
    """One committed batch in each, and a fifth segment that is empty."""
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(4):
        fill(log, number, number + 1)
        log.roll()
    log.commit(log.sync())
    return disk, log


def values(log: Log) -> list[bytes | None]:
    log.commit(log.last_index)
    return [value for batch in log.batches() for value in batch.values()]


def expected(*numbers: int) -> list[bytes | None]:
    return [value for number in numbers for value in make_batch(number, 2, None).values()]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_snapshot_that_may_have_its_name_already_stops_the_old_segment_from_growing(error: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 3)
    log.commit(log.sync())
    directory = log.directory
    disk.fault = fail_once("sync_directory", directory, error)
    with pytest.raises(SyncFailed):
        log.roll()
    disk.fault = None
    with pytest.raises(LogReadOnly):
        fill(log, 3, 4)
    for left in (disk, *disk.power_losses()):
        left.kill()
        log = open_log(left)
        assert log.refusal is None
        assert values(log) == expected(0, 1, 2)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_where_there_is_no_room_for_a_new_segment_the_old_one_grows(error: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 3)
    disk.fault = fail_once("create", ".snap.tmp", error)
    with pytest.raises(WriteFailed):
        log.roll()
    fill(log, 3, 6)
    log.roll()
    assert len(log.segments) == 2
    assert values(log) == expected(*range(6))


def test_a_snapshot_that_cannot_be_synced_stops_the_log() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 3)
    disk.fault = fail_once("sync", ".snap.tmp")
    with pytest.raises(SyncFailed):
        log.roll()
    with pytest.raises(LogReadOnly):
        fill(log, 3, 4)
    disk.kill()
    assert values(open_log(disk)) == expected(0, 1, 2)


def test_an_index_that_cannot_be_written_does_not_keep_a_segment_from_being_sealed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 3)
    disk.fault = fail_once("create", ".idx.tmp")
    log.roll()
    fill(log, 3, 6)
    log.commit(log.sync())
    disk.kill()
    assert values(open_log(disk)) == expected(*range(6))


def test_what_a_short_write_left_never_comes_back() -> None:
    size = make_batch(9, 2, None).header.size
    for short in (size, size + 8, 2 * size - 1):
        for roll in (False, True):
            disk = SimulatedDisk()
            log = open_log(disk)
            fill(log, 0, 2)
            log.commit(log.sync())
            disk.fault = shorten_once(short)
            answers = log.append([make_batch(8, 2, None), make_batch(9, 2, None)], NOW, 1)
            disk.fault = None
            assert not any(isinstance(answer, Appended) for answer in answers)
            if roll:
                log.roll()
            fill(log, 2, 3)
            log.commit(log.sync())
            for left in disk.power_losses():
                log = open_log(left)
                assert log.refusal is None
                assert values(log) == expected(0, 1, 2)


def test_a_short_write_on_a_full_volume_is_told_as_low_space() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 1)

    def fault(call: Call) -> int | None:
        if call.name != "write" or not call.path.endswith(".log"):
            return None
        disk.free = 0
        return 100

    disk.fault = fault
    with pytest.raises(LowSpace):
        fill(log, 1, 2)
    disk.fault, disk.free = None, 1 << 40
    fill(log, 1, 2)
    log.sync()
    assert values(log) == expected(0, 1)


def test_a_write_whose_remains_cannot_be_cut_off_durably_is_neither_promised_nor_refused() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 1)
    log.sync()

    def fault(call: Call) -> int | None:
        if call.name == "sync" and call.path.endswith(".log"):
            raise OSError(errno.EIO, "injected")
        return 100 if call.name == "write" and call.path.endswith(".log") else None

    disk.fault = fault
    (answer,) = log.append([make_batch(1, 2, None)], NOW, 1)
    assert isinstance(answer, SyncFailed)
    disk.fault = None
    assert isinstance(log.append([make_batch(2, 2, None)], NOW, 1)[0], LogReadOnly)


def test_a_second_sync_never_hides_that_the_first_one_failed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 2)
    pending = log.begin_sync()
    assert pending is not None
    with pytest.raises(RuntimeError):
        log.begin_sync()
    segments = len(log.segments)
    log.roll()
    fill(log, 2, 60)
    assert len(log.segments) == segments, "a roll would sync, and believe it"
    log.fail_sync(OSError(errno.EIO, "injected"))
    log.end_sync(pending)
    assert log.synced_index == 0
    with pytest.raises(SyncFailed):
        log.sync()


def test_a_segment_that_grew_during_a_sync_is_rolled_when_it_ends() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 2)
    pending = log.begin_sync()
    assert pending is not None
    batches = [make_batch(number, 2, None) for number in range(2, 60)]
    assert all(isinstance(answer, Appended) for answer in log.append(batches, NOW, 1))
    assert len(log.segments) == 1
    disk.sync([pending.file])
    log.end_sync(pending)
    assert len(log.segments) == 2
    assert values(log) == expected(*range(60))


def test_nothing_overtakes_batches_of_an_earlier_group_of_the_same_call() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 1)
    disk.fault = fail_once("write", ".log")
    batches = [make_batch(number, 1, None, size=3000) for number in (1, 2, 3)]
    answers = log.append(batches, NOW, 1)
    assert not any(isinstance(answer, Appended) for answer in answers)
    assert log.next == 2


def test_a_truncation_whose_state_could_not_be_synced_is_no_damage_later() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 10)
    log.sync()
    disk.fault = fail_once("sync", "/state")
    with pytest.raises(SyncFailed):
        log.truncate(4)
    disk.kill()
    log = open_log(disk)
    log.truncate(4)
    fill(log, 4, 5)
    log.sync()
    for left in disk.power_losses():
        log = open_log(left)
        assert log.refusal is None
        assert log.last_index == 5


def test_a_segment_that_cannot_be_dropped_is_dropped_later() -> None:
    disk, log = four_segments()
    disk.fault = fail_once("unlink", ".log")
    with pytest.raises(StorageError):
        log.drop(2)
    assert log.drop(4) == 2
    disk.kill()
    log = open_log(disk)
    assert log.first == 4
    assert values(log) == expected(2, 3)


def test_a_drop_that_a_power_loss_undid_in_part_shows_no_hole() -> None:
    disk, log = four_segments()
    disk.fault = fail_once("unlink", ".idx")
    with pytest.raises(StorageError):
        log.drop(2)
    disk.fault = fail_once("sync_directory", log.directory)
    with pytest.raises(StorageError):
        log.drop(4)
    for left in disk.power_losses():
        log = open_log(left)
        assert log.refusal is None
        assert values(log) == expected(2, 3)
        run = log.read_index(log.first_index)
        assert run is not None
        assert run.base_seqno == 4
        log.drop(4)
        assert len([name for name in left.list(log.directory) if name.endswith(".log")]) == 2


def test_a_floor_counts_when_it_is_committed_and_not_before() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 4)
    log.commit(log.sync())
    log.trim(6, NOW, 1)
    assert log.first == 0
    log.truncate(4)
    log.trim(2, NOW, 1)
    log.commit(log.sync())
    assert log.first == 2


def test_truncating_to_a_batch_that_is_gone_is_damage() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 6)
    log.sync()
    inode = disk.names[log.segments[-1].log_path]
    del inode.cached[2 * make_batch(0, 2, None).header.size :]
    with pytest.raises(LogboomError):
        log.truncate(4)
    with pytest.raises(LogReadOnly):
        fill(log, 6, 7)


def test_what_other_processes_see_as_committed_does_not_go_back_when_the_log_is_opened() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, 0, 4)
    log.commit(log.sync())
    disk.kill()
    log = open_log(disk)
    fill(log, 4, 5)
    log.sync()
    assert log._slot is not None
    assert log._slot.standing is not None
    assert log._slot.standing.committed == 8
