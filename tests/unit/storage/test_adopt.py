"""A file of batches that becomes a segment of a log without being written again."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from logboom.batch import Batch, Producer
from logboom.batch.header import HEADER_SIZE, STAGED_IDS
from logboom.errors import LogReadOnly, SyncFailed, WriteFailed
from logboom.storage import Log
from logboom.storage.files.disk import File, write_all
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.broken import copy_of, rows
from support.simulation.model import make_batch, open_log, open_view

PATH = "/data/staging/piece"
NOW = 1_700_000_000_000_000


def batches(count: int = 5) -> list[Batch]:
    made = [make_batch(100 + n, 3, NOW + n, producer=Producer(STAGED_IDS + 1, 0, 3 * n)) for n in range(count)]
    return [Batch.parse(bytes(batch.data)) for batch in made]


def piece(disk: SimulatedDisk, some: list[Batch]) -> File:
    disk.make_directory("/data/staging")
    file = disk.create(PATH)
    write_all(file, b"".join(batch.data for batch in some))
    file.sync()
    disk.sync_directory("/data/staging")
    return file


def values(log: Log) -> list[bytes | None]:
    return list(rows(log).values())


def test_it_is_appended_synced_and_sealed_and_only_its_headers_are_written() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(0, 2, NOW), NOW)
    some = batches()
    file, writes = piece(disk, some), list[Call]()

    def look(call: Call) -> None:
        if call.name == "write" and not call.path.endswith((".snap.tmp", ".idx.tmp", "/state")):
            writes.append(call)

    disk.fault = look
    answers = log.adopt(file, some, NOW + 1)
    disk.fault = None
    assert [call.size for call in writes] == [HEADER_SIZE] * len(some)
    assert [(answer.base_seqno, answer.index) for answer in answers] == [(2 + 3 * n, 2 + n) for n in range(5)]
    assert log.synced_index == log.last_index == 6
    log.append_one(make_batch(1, 2, NOW), NOW + 2)
    log.commit(log.sync())
    wanted = [found for batch in (make_batch(0, 2, NOW), *some, make_batch(1, 2, NOW)) for found in batch.values()]
    assert values(log) == wanted
    assert [segment.first_seqno for segment in log.segments] == [0, 2, 17]
    assert [found for batch in open_view(disk).batches() for found in batch.values()] == wanted
    for left in (copy_of(disk), *disk.power_losses()):
        left.unlink(PATH)
        again = open_log(left)
        again.commit(again.last_index)
        assert values(again) == wanted


def test_it_can_be_the_first_segment_of_a_log() -> None:
    disk = SimulatedDisk()
    log, some = open_log(disk), batches()
    log.adopt(piece(disk, some), some, NOW)
    log.commit(log.last_index)
    assert values(log) == [found for batch in some for found in batch.values()]


def test_a_power_loss_at_any_call_leaves_all_of_it_or_nothing_and_the_batches_as_they_were() -> None:
    some = batches(3)
    before = list(make_batch(0, 2, NOW).values())
    after = before + [found for batch in some for found in batch.values()]
    seen = set()
    for at in range(1, 40):
        disk = SimulatedDisk()
        log = open_log(disk)
        log.append_one(make_batch(0, 2, NOW), NOW)
        log.sync()
        file = piece(disk, some)
        start = disk.calls

        def fault(call: Call, at: int = at, start: int = start) -> None:
            if call.number >= start + at:
                raise OSError(errno.EIO, "injected", call.path)

        disk.fault = fault
        with suppress(WriteFailed, SyncFailed, LogReadOnly):
            log.adopt(file, some, NOW + 1)
        disk.fault = None
        for left in disk.power_losses():
            again = open_log(left)
            again.commit(again.last_index)
            seen.add(len(values(again)))
            assert values(again) in (before, after)
            content = left.open(PATH)
            position = 0
            for batch in some:
                found = content.read(batch.header.size, position)
                assert found[40:92] + found[96:] == bytes(batch.data[40:92]) + bytes(batch.data[96:])
                position += batch.header.size
    assert seen == {len(before), len(after)}


def test_where_a_file_cannot_have_two_names_the_log_goes_on_without_it() -> None:
    disk = SimulatedDisk()
    log, some = open_log(disk), batches()
    log.append_one(make_batch(0, 2, NOW), NOW)
    file = piece(disk, some)

    def fault(call: Call) -> None:
        if call.name == "link":
            raise OSError(errno.EXDEV, "Invalid cross-device link", call.path)

    disk.fault = fault
    with pytest.raises(WriteFailed, match="cross-device"):
        log.adopt(file, some, NOW + 1)
    assert log.refusal is None
    log.append(some, NOW + 2)
    log.commit(log.sync())
    wanted = [found for batch in (make_batch(0, 2, NOW), *some) for found in batch.values()]
    assert values(log) == wanted


def test_a_file_that_is_a_segment_already_does_not_become_another_one() -> None:
    disk = SimulatedDisk()
    log, some = open_log(disk), batches()
    file = piece(disk, some)
    log.adopt(file, some, NOW)
    content = bytes(disk.names[PATH].cached)
    with pytest.raises(WriteFailed, match="another name"):
        log.adopt(file, some, NOW + 1)
    assert bytes(disk.names[PATH].cached) == content


def test_a_link_that_fails_and_is_there_all_the_same_stops_the_log() -> None:
    disk = SimulatedDisk()
    log, some = open_log(disk), batches()
    file = piece(disk, some)

    def fault(call: Call) -> None:
        if call.name == "link":
            disk.names[call.path] = disk.names[PATH]
            raise OSError(errno.EEXIST, "File exists", call.path)

    disk.fault = fault
    with pytest.raises(SyncFailed):
        log.adopt(file, some, NOW)
    assert log.failed


def test_while_a_sync_is_under_way_nothing_becomes_a_segment() -> None:
    disk = SimulatedDisk()
    log, some = open_log(disk), batches()
    log.append_one(make_batch(0, 2, NOW), NOW)
    pending = log.begin_sync()
    assert pending is not None
    with pytest.raises(WriteFailed):
        log.adopt(piece(disk, some), some, NOW)
    log.end_sync(pending)
    assert log.last_index == 1


@pytest.mark.parametrize("name", ["sync", "sync_directory"])
def test_a_sync_that_fails_stops_the_log(name: str) -> None:
    disk = SimulatedDisk()
    log, some = open_log(disk), batches()
    file = piece(disk, some)

    def fault(call: Call) -> None:
        if call.name == name:
            raise OSError(errno.EIO, "injected", call.path)

    disk.fault = fault
    with pytest.raises(SyncFailed):
        log.adopt(file, some, NOW)
    assert log.failed
    with pytest.raises(LogReadOnly):
        log.append_one(make_batch(0, 2, NOW), NOW)
    with pytest.raises(LogReadOnly):
        log.adopt(file, some, NOW)


def test_where_no_segment_can_follow_the_adopted_one_grows() -> None:
    disk = SimulatedDisk()
    log, some = open_log(disk), batches()
    file = piece(disk, some)

    def fault(call: Call) -> None:
        if call.name == "create" and call.path.endswith(".snap.tmp"):
            raise OSError(errno.ENOSPC, "No space left on device", call.path)

    disk.fault = fault
    log.adopt(file, some, NOW)
    log.append_one(make_batch(1, 2, NOW), NOW + 1)
    disk.fault = None
    log.commit(log.sync())
    assert values(log) == [found for batch in (*some, make_batch(1, 2, NOW)) for found in batch.values()]
