"""Damage is never mistaken for a torn tail where anything tells them apart, and never served as a record."""

from __future__ import annotations

import copy

import pytest

from logboom.batch import Producer, build, stamp
from logboom.errors import Damage, LogReadOnly
from logboom.storage import Log, OpenFiles
from support.disks.simulated import Call, SimulatedDisk, Truncate, Write, apply
from support.effort import strides
from support.simulation.model import DIRECTORY, SMALL, make_batch, open_log

NOW = 1_000_000
COUNT = 3


def written(sync_every: int = 1, batches: int = 14) -> SimulatedDisk:
    """A log of two sealed segments and a third, closed properly."""
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(batches):
        producer = Producer(5, 0, number * COUNT) if number % 2 else Producer()
        producer = Producer(5 + number, 0, 0) if producer.id else producer
        log.append_one(make_batch(number, COUNT, NOW + number, producer), NOW + number, 1)
        if number % sync_every == 0:
            log.commit(log.sync())
        if number in (4, 9):
            log.roll()
    log.commit(log.sync())
    log.close()
    disk.kill()
    return disk


def truth(batches: int = 14) -> dict[int, bytes | None]:
    records = [value for number in range(batches) for value in make_batch(number, COUNT, None).values()]
    return dict(enumerate(records))


def flipped(disk: SimulatedDisk, path: str, position: int, mask: int = 0xFF) -> SimulatedDisk:
    other = copy.deepcopy(disk)
    other.names[path].cached[position] ^= mask
    other.names[path].durable[:] = other.names[path].cached
    return other


def served(log: Log) -> dict[int, bytes | None]:
    """Every record the log gives, past any damage it admits."""
    got: dict[int, bytes | None] = {}
    seqno = log.first
    while seqno < log.committed:
        try:
            for batch in log.batches(seqno):
                got.update(zip(batch.seqnos(), batch.values(), strict=True))
                seqno = batch.header.next_seqno
            break
        except Damage as damage:
            if damage.seqno_until is None or damage.seqno_until <= seqno:
                break
            seqno = damage.seqno_until
    return got


def names(disk: SimulatedDisk, ending: str) -> list[str]:
    return sorted(name for name in disk.names if name.endswith(ending))


@pytest.mark.parametrize("segment", [0, 1, 2])
@pytest.mark.parametrize("stride", strides(3))
def test_no_flipped_byte_of_a_segment_is_served_or_cut(segment: int, stride: int) -> None:
    disk, right = written(), truth()
    path = names(disk, ".log")[segment]
    for position in range(0, len(disk.names[path].cached), stride):
        other = flipped(disk, path, position, 1 << position % 8)
        log = open_log(other)
        assert log.recovered.cut_bytes == 0
        if segment == 2:
            assert log.recovered.damage is not None, position
            with pytest.raises(LogReadOnly):
                log.append_one(make_batch(99, 1, None), NOW, 1)
        else:
            assert log.refusal is None
            assert log.next == len(right)
        log.commit(log.last_index)
        got = served(log)
        assert got.items() <= right.items(), position
        lost = len(right) - len(got)
        assert lost >= COUNT if segment == 2 else 0 < lost <= 2 * COUNT, position


@pytest.mark.parametrize("ending", [".idx", ".snap", "/state"])
def test_no_flipped_byte_beside_the_segments_changes_what_is_served(ending: str) -> None:
    disk, right = written(), truth()
    sound = open_log(copy.deepcopy(disk))
    sound.commit(sound.last_index)
    times = [sound.seqno_at(NOW + number) for number in range(14)]
    for path in names(disk, ending):
        for position in range(len(disk.names[path].cached)):
            other = flipped(disk, path, position)
            log = open_log(other)
            assert log.recovered.cut_bytes == 0
            log.commit(log.last_index)
            assert served(log) == right, (path, position)
            assert [log.seqno_at(NOW + number) for number in range(14)] == times
            assert log.refusal is None


def test_a_damaged_snapshot_is_made_again_with_its_producers() -> None:
    disk = written()
    path = names(disk, ".snap")[-1]
    right = disk.names[path].cached
    other = flipped(disk, path, 20)
    open_log(other)
    assert other.names[path].cached == right
    assert other.names[path].durable == right


def test_a_missing_snapshot_is_made_again() -> None:
    disk = written()
    path = names(disk, ".snap")[-1]
    right = disk.names.pop(path).cached
    log = open_log(disk)
    assert log.refusal is None
    assert disk.names[path].cached == right


def test_the_snapshot_that_every_log_begins_with_is_made_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(1, COUNT, None), NOW, 1)
    log.sync()
    disk.kill()
    path = names(disk, ".snap")[0]
    right = disk.names.pop(path).cached
    log = open_log(disk)
    assert log.refusal is None
    assert disk.names[path].cached == right


def test_a_log_whose_only_snapshot_is_lost_takes_no_writes() -> None:
    """Its floor and its producers are not known any more, so it must not guess."""
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(1, COUNT, None), NOW, 1)
    log.roll()
    log.append_one(make_batch(2, COUNT, None), NOW, 1)
    log.commit(log.sync())
    log.drop(COUNT)
    disk.kill()
    del disk.names[names(disk, ".snap")[0]]
    log = open_log(disk)
    assert log.refusal is not None
    assert "snapshot" in log.refusal


def test_without_the_state_file_a_later_batch_proves_that_an_earlier_one_was_synced() -> None:
    disk = written()
    path = names(disk, ".log")[-1]
    size = len(disk.names[path].cached)
    last = make_batch(13, COUNT, NOW, Producer(18, 0, 0)).header.size
    for position in range(0, size - last, 3):
        other = flipped(disk, path, position)
        log = Log.open(OpenFiles(other, reserve_bytes=0), DIRECTORY, SMALL)
        assert log.recovered.damage is not None, position
        assert log.recovered.cut_bytes == 0


def test_without_any_evidence_a_bad_last_batch_is_a_torn_tail() -> None:
    disk = written()
    path = names(disk, ".log")[-1]
    other = flipped(disk, path, len(disk.names[path].cached) - 1)
    log = Log.open(OpenFiles(other, reserve_bytes=0), DIRECTORY, SMALL)
    assert log.recovered.damage is None
    assert log.recovered.cut_bytes > 0
    assert log.next == len(truth()) - COUNT


def test_a_batch_that_was_never_known_synced_is_cut_even_when_later_ones_reached_the_disk() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(0, COUNT, None), NOW, 1)
    log.sync()
    for number in (1, 2, 3):
        log.append_one(make_batch(number, COUNT, None), NOW, 1)
    inode = disk.names[log.segments[-1].log_path]
    lost, *rest = [operation for operation in inode.unsynced if isinstance(operation, Write)]
    for operation in rest:
        apply(inode.durable, operation)
    inode.unsynced = []
    left = disk._after(lambda operation: operation, lambda change: True)
    log = open_log(left)
    assert log.recovered.damage is None
    assert log.recovered.cut_bytes == sum(len(operation.data) for operation in (lost, *rest))
    assert log.next == COUNT


def test_a_body_that_contains_a_copy_of_later_batches_proves_nothing() -> None:
    """A record may hold a dump of a log: with a sound header its size is trusted and its body not looked into."""
    source = written()
    dump = bytes(source.names[names(source, ".log")[0]].cached)
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(build([dump]), NOW, 1)
    inode = disk.names[log.segments[-1].log_path]
    apply(inode.cached, Truncate(len(inode.cached) - 8))
    inode.durable[:] = inode.cached
    inode.unsynced = []
    disk.sync_directory(DIRECTORY)
    log = open_log(disk)
    assert log.recovered.damage is None
    assert log.next == 0


def test_a_log_that_lost_its_synced_end_says_so() -> None:
    disk = written()
    path = names(disk, ".log")[-1]
    for content in (disk.names[path].cached, disk.names[path].durable):
        del content[-make_batch(13, COUNT, NOW, Producer(18, 0, 0)).header.size :]
    log = open_log(disk)
    assert log.recovered.damage is not None
    assert "were synced" in str(log.recovered.damage)


def test_a_log_whose_files_vanished_is_not_begun_anew() -> None:
    disk = written()
    for path in [path for path in disk.names if path.startswith(DIRECTORY)]:
        del disk.names[path]
    log = open_log(disk)
    assert log.recovered.damage is not None
    assert log.refusal is not None


def test_a_missing_middle_segment_hides_only_its_own_records() -> None:
    disk, right = written(), truth()
    path = names(disk, ".log")[1]
    del disk.names[path]
    log = open_log(disk)
    assert log.refusal is None
    log.commit(log.last_index)
    with pytest.raises(Damage) as caught:
        list(log.batches(15))
    assert (caught.value.seqno_from, caught.value.seqno_until) == (15, 30)
    got = served(log)
    assert got == {seqno: value for seqno, value in right.items() if not 15 <= seqno < 30}


def test_hostile_bytes_that_look_like_endless_batches_do_not_hold_up_recovery() -> None:
    """A torn batch whose header is gone, its body full of headers that each claim the rest of the file."""
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(0, 1, None), NOW, 1)
    log.sync()
    inode = disk.names[log.segments[-1].log_path]
    batch = make_batch(1, 1, None)
    header = bytearray(batch.data[:96])
    header[4:8] = (8192).to_bytes(4, "little")
    fakes = b"".join(stamp(bytes(header), 1, index, NOW, 1, 1) for index in range(3, 2000))
    apply(inode.cached, Write(len(inode.cached), bytes(96) + fakes))
    inode.durable[:] = inode.cached
    disk.sync_directory(DIRECTORY)
    log = open_log(disk)
    assert log.next == 1


def test_a_missing_oldest_segment_is_told_from_a_dropped_one() -> None:
    disk = written()
    for ending in (".log", ".snap", ".idx"):
        del disk.names[names(disk, ending)[0]]
    log = open_log(disk)
    assert log.refusal is None
    assert log.recovered.missing is not None
    assert (log.recovered.missing.seqno_from, log.recovered.missing.seqno_until) == (0, 15)


def test_dropped_segments_are_not_missing_after_a_power_loss() -> None:
    disk = written()
    log = open_log(disk)
    log.commit(log.last_index)
    assert log.drop(15) == 1
    for left in disk.power_losses():
        assert open_log(left).recovered.missing is None


def test_a_batch_inside_a_record_is_never_served_in_place_of_a_damaged_one() -> None:
    """Neither in the middle of a segment nor at its end, whatever numbers its writer guessed."""
    for others in (3, 0):
        for guess in range(1, 6):
            disk = SimulatedDisk()
            log = open_log(disk)
            log.append_one(make_batch(0, 1, None), NOW, 1)
            forged = make_batch(99, 1, None)
            inner = stamp(forged.data, guess, guess + 1, NOW, 1, 1) + bytes(forged.data[96:])
            log.append_one(build([inner]), NOW, 1)
            for number in range(others):
                log.append_one(make_batch(number, 1, None), NOW, 1)
            log.commit(log.sync())
            log.roll()
            path = log.segments[0].log_path
            log.close()
            position = make_batch(0, 1, None).header.size
            disk.names[path].cached[position] ^= 0xFF
            disk.names[path].durable[:] = disk.names[path].cached
            log = open_log(disk)
            log.commit(log.last_index)
            got = [value for batch in log.batches(skip_damage=True) for value in batch.values()]
            assert forged.values()[0] not in got
            assert len(got) == 1 + others


def test_what_the_device_cannot_read_is_damage() -> None:
    disk, right = written(), truth()
    bad = names(disk, ".log")[1]
    log = open_log(disk)
    log.commit(log.last_index)

    def fault(call: Call) -> None:
        if call.name == "read" and call.path == bad:
            raise OSError(5, "injected")

    disk.fault = fault
    with pytest.raises(Damage, match="cannot be read"):
        list(log.batches())
    disk.fault = None
    assert served(log) == right
    last = names(disk, ".log")[-1]
    bad = last
    disk.fault = fault
    log = open_log(disk)
    assert log.recovered.cut_bytes == 0
    assert log.refusal is not None
    assert "cannot read" in log.refusal


def test_snapshots_lost_by_the_hundred_are_made_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(1200):
        log.append_one(make_batch(number, 1, None), NOW, 1)
        log.roll()
    log.close()
    for path in names(disk, ".snap")[1:]:
        del disk.names[path]
    log = open_log(disk)
    assert log.refusal is None
    assert log.next == 1200


def test_batches_inside_a_record_are_never_served_however_many_follow_one_another() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(0, 1, None), NOW, 1)
    forged = [make_batch(90 + number, 1, None) for number in range(5)]
    inner = b"".join(
        stamp(batch.data, 2 + number, 3 + number, NOW, 1, 1) + bytes(batch.data[96:])
        for number, batch in enumerate(forged)
    )
    log.append_one(build([inner]), NOW, 1)
    for number in range(1, 9):
        log.append_one(make_batch(number, 1, None), NOW, 1)
    log.commit(log.sync())
    log.roll()
    path = log.segments[0].log_path
    log.close()
    disk.names[path].cached[make_batch(0, 1, None).header.size] ^= 0xFF
    disk.names[path].durable[:] = disk.names[path].cached
    for index in (True, False):
        if not index:
            del disk.names[names(disk, ".idx")[0]]
        log = open_log(disk)
        log.commit(log.last_index)
        got = [value for batch in log.batches(skip_damage=True) for value in batch.values()]
        assert got == [value for number in range(9) for value in make_batch(number, 1, None).values()]


def test_a_torn_batch_full_of_magic_words_is_looked_through_once() -> None:
    """Recovery reads every byte behind a bad header a bounded number of times, whatever it holds."""
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append_one(make_batch(0, 1, None), NOW, 1)
    log.sync()
    inode = disk.names[log.segments[-1].log_path]
    apply(inode.cached, Write(len(inode.cached), bytes(96) + b"LGBM0000" * 100_000))
    inode.durable[:] = inode.cached
    read = [0]

    def count(call: Call) -> None:
        read[0] += call.name == "read" and call.path.endswith(".log")

    disk.fault = count
    log = open_log(disk)
    assert log.next == 1
    assert read[0] < 20


@pytest.mark.parametrize(("term", "append_time"), [(4, NOW + 9), (5, NOW - 1)])
def test_a_stored_batch_whose_term_or_time_goes_back_is_not_taken(term: int, append_time: int) -> None:
    disk = SimulatedDisk()
    log = Log.open(OpenFiles(disk, reserve_bytes=0), DIRECTORY, SMALL)
    first = make_batch(0, 1, None)
    log.append_one(first, NOW, 5)
    log.sync()
    stray = make_batch(1, 1, None)
    data = stamp(stray.data, 1, 2, append_time, term, 1) + bytes(stray.data[96:])
    inode = disk.names[log.segments[-1].log_path]
    apply(inode.cached, Write(first.header.size, data))
    inode.durable[:] = inode.cached
    log = Log.open(OpenFiles(disk, reserve_bytes=0), DIRECTORY, SMALL)
    assert log.last_index == 1
    assert log.recovered.cut_bytes == len(data)


def test_an_index_of_another_file_of_the_same_shape_is_not_believed() -> None:
    def write(times: list[int]) -> SimulatedDisk:
        disk = SimulatedDisk()
        log = open_log(disk)
        for time in times:
            log.append_one(make_batch(0, 10, time), NOW, 1)
        log.roll()
        log.commit(log.sync())
        log.close()
        return disk

    disk, other = write([90, 10, 20, 30, 40]), write([0, 10, 20, 30, 41])
    path = names(disk, ".idx")[0]
    disk.names[path].cached[:] = other.names[path].cached
    log = open_log(disk)
    log.commit(log.last_index)
    assert log.seqno_at(90) == 0
    assert log.seqno_at(95) == log.committed
