"""A segment stored anew, holds, and batches that bring their numbers along."""

from __future__ import annotations

import pytest

from logboom.batch import Batch, Producer
from logboom.batch.codec import ZSTD
from logboom.batch.rewrite import equal
from logboom.errors import BatchError, LogReadOnly, NotNext, SyncFailed
from logboom.storage import Log, OpenFiles
from logboom.storage.log import PendingSwap
from logboom.storage.recovery import begin_log
from logboom.storage.tail import Snapshot
from logboom.storage.upkeep.recompression import recompress
from support.disks.simulated import SimulatedDisk
from support.simulation.broken import rows
from support.simulation.model import DIRECTORY, SMALL, make_batch, open_log


def written_log(disk: SimulatedDisk, batches: int = 60) -> Log:
    log = open_log(disk)
    for number in range(batches):
        log.append_one(make_batch(number, 3, 1000 * number, size=60), number, 1 + number // 20)
    log.commit(log.sync())
    return log


def swap(disk: SimulatedDisk, log: Log, number: int) -> PendingSwap:
    pending = log.begin_swap(log.cold_segments()[number])
    done = recompress(disk, *pending, ZSTD, 1, 0.0, lambda size: None)
    assert done is not None
    assert log.end_swap(pending, done.summary, done.index)
    return pending


def test_a_swap_changes_bytes_and_nothing_else() -> None:
    disk = SimulatedDisk()
    log = written_log(disk)
    before, size = rows(log), log.size_bytes
    run = log.read(0)
    assert run is not None
    held = list(run.batches())
    pending = swap(disk, log, 0)
    assert log.size_bytes < size
    assert rows(log) == before
    assert [batch.values() for batch in run.batches()] == [batch.values() for batch in held]
    new = log.read(0)
    assert new is not None
    assert [equal(one, other) for one, other in zip(held, new.batches(), strict=False)].count(False) == 0
    assert not disk.exists(pending.old.log_path)
    assert not disk.exists(pending.old.index_path)
    assert rows(open_log(disk)) == before


def test_the_committed_end_may_lie_at_the_end_of_a_swapped_segment() -> None:
    disk = SimulatedDisk()
    log = written_log(disk)
    log.roll()
    before = rows(log)
    for number in range(len(log.cold_segments())):
        swap(disk, log, number)
    assert rows(log) == before
    log.append_one(make_batch(99, 2, None), 10_000, 5)
    log.commit(log.sync())
    assert len(rows(log)) == len(before) + 2


def test_only_cold_segments_can_be_swapped() -> None:
    log = written_log(SimulatedDisk())
    with pytest.raises(ValueError, match="not a cold segment"):
        log.begin_swap(log.segments[-1])


def test_a_swap_of_a_segment_that_was_dropped_meanwhile_is_forgotten() -> None:
    disk = SimulatedDisk()
    log = written_log(disk)
    pending = log.begin_swap(log.cold_segments()[0])
    done = recompress(disk, *pending, ZSTD, 1, 0.0, lambda size: None)
    assert done is not None
    log.drop(log.segments[1].first_seqno)
    assert not log.end_swap(pending, done.summary, done.index)
    assert not disk.exists(pending.new.temporary_path)
    assert not disk.exists(pending.new.index_path)


def test_a_swap_whose_name_may_not_be_durable_stops_the_log() -> None:
    disk = SimulatedDisk()
    log = written_log(disk)
    before = rows(log)
    pending = log.begin_swap(log.cold_segments()[0])
    done = recompress(disk, *pending, ZSTD, 1, 0.0, lambda size: None)
    assert done is not None

    def fail(call: object) -> None:
        if getattr(call, "name", "") == "sync_directory":
            raise OSError(5, "no")

    disk.fault = fail
    with pytest.raises(SyncFailed):
        log.end_swap(pending, done.summary, done.index)
    disk.kill()
    assert rows(open_log(disk)) == before


def test_generations_go_on_after_a_restart_even_if_the_highest_is_gone() -> None:
    disk = SimulatedDisk()
    log = written_log(disk)
    pending = swap(disk, log, 0)
    log.drop(log.segments[1].first_seqno)
    again = open_log(disk)
    again.commit(again.last_index)
    assert again.begin_swap(again.cold_segments()[0]).new.generation > pending.new.generation


def test_what_is_held_is_not_dropped() -> None:
    log = written_log(SimulatedDisk())
    held = log.segments[2].first_seqno + 1
    log.hold("reader", held)
    log.hold("other", log.committed)
    assert log.held == held
    log.drop(log.committed)
    assert log.segments[0].first_seqno <= held < log.segments[1].first_seqno
    log.release("reader")
    log.release("nobody")
    log.drop(log.committed)
    assert len(log.segments) == 1


def copy(disk: SimulatedDisk, start: Snapshot) -> Log:
    begin_log(disk, DIRECTORY, start)
    return open_log(disk)


def all_batches(log: Log) -> list[Batch]:
    batches: list[Batch] = []
    index = log.first_index
    while (run := log.read_index(index)) is not None:
        batches += run.batches()
        index = run.next_index
    return batches


def test_a_replica_is_equal() -> None:
    log = written_log(SimulatedDisk())
    log.trim(10, 100, 4)
    producer = Producer(7, 1, 0)
    log.append_one(make_batch(100, 4, 7, producer), 101, 4)
    log.commit(log.sync())
    batches = all_batches(log)
    replica = copy(SimulatedDisk(), Snapshot(0, 1))
    assert replica.replicate(batches[:10]) == 10
    assert replica.replicate(batches[10:]) == log.last_index
    replica.commit(replica.sync())
    assert all(equal(one, other) for one, other in zip(batches, all_batches(replica), strict=True))
    assert (replica.first, replica.next, replica.term, replica.append_time) == (10, log.next, log.term, log.append_time)
    assert replica.append_one(make_batch(100, 4, 7, producer), 200, 4).repeat
    assert [batch.header.synced for batch in all_batches(replica)][10] == 11, "of this disk, where nothing was synced"


def test_a_replica_may_begin_in_the_middle() -> None:
    log = written_log(SimulatedDisk())
    batches = all_batches(log)
    header = batches[19].header
    start = Snapshot(header.next_seqno, 21, header.term, header.append_time, 1000 * 19 + 4)
    disk = SimulatedDisk()
    replica = copy(disk, start)
    replica.replicate(batches[20:])
    replica.commit(replica.sync())
    assert (replica.first, replica.next) == (60, log.next)
    assert rows(replica) == {seqno: value for seqno, value in rows(log).items() if seqno >= 60}
    assert rows(open_log(disk)) == rows(replica)


@pytest.mark.parametrize("taken", [[1, 2], [0, 0], [0, 2], [30, 31]])
def test_batches_that_do_not_follow_are_refused(taken: list[int]) -> None:
    batches = all_batches(written_log(SimulatedDisk()))
    replica = copy(SimulatedDisk(), Snapshot(0, 1))
    with pytest.raises(NotNext):
        replica.replicate([batches[number] for number in taken])
    assert replica.last_index <= 1


def test_terms_and_times_that_go_back_are_refused() -> None:
    batches = all_batches(written_log(SimulatedDisk()))
    for start in (Snapshot(0, 1, term=9), Snapshot(0, 1, append_time=10**9)):
        with pytest.raises(NotNext):
            copy(SimulatedDisk(), start).replicate(batches)


def test_a_damaged_batch_is_not_replicated() -> None:
    (batch, *_) = all_batches(written_log(SimulatedDisk()))
    data = bytearray(batch.data)
    data[-9] ^= 1
    replica = copy(SimulatedDisk(), Snapshot(0, 1))
    with pytest.raises(BatchError):
        replica.replicate([Batch.parse(bytes(data))])
    assert replica.last_index == 0


def test_a_closed_log_takes_no_replicated_batches() -> None:
    batches = all_batches(written_log(SimulatedDisk()))
    replica = copy(SimulatedDisk(), Snapshot(0, 1))
    replica.close()
    with pytest.raises(LogReadOnly):
        replica.replicate(batches)


def test_a_replica_rolls_by_its_own_size() -> None:
    batches = all_batches(written_log(SimulatedDisk()))
    disk = SimulatedDisk()
    begin_log(disk, DIRECTORY, Snapshot(0, 1))
    replica = Log.open(OpenFiles(disk, 4, 0), DIRECTORY, SMALL)
    replica.replicate(batches)
    assert len(replica.segments) > 2
    assert all(segment.size <= SMALL.segment_bytes for segment in replica.segments[:-1])
