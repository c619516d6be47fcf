"""Power loss at every byte of a write, in every order a file system may leave, with repeats and truncations between."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from logboom.batch import Producer
from logboom.errors import LogReadOnly, SyncFailed
from logboom.storage import Appended, Log, OpenFiles
from logboom.storage.health.check import check
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.model import DIRECTORY, NOBODY, SMALL, make_batch, open_log

NOW = 1_000_000


def values(log: Log) -> list[bytes | None]:
    """Everything there, after the owner has said that what was recovered is committed."""
    log.commit(log.last_index)
    return [value for batch in log.batches() for value in batch.values()]


def append(log: Log, number: int, producer: Producer = NOBODY, count: int = 2) -> Appended:
    return log.append_one(make_batch(number, count, NOW + number, producer), NOW + number, 1)


def three_batches() -> list[bytes | None]:
    return [value for number in (1, 2, 3) for value in make_batch(number, 2, None).values()]


def test_a_write_torn_at_any_byte_leaves_a_prefix_of_whole_batches() -> None:
    probe = SimulatedDisk()
    log = open_log(probe)
    append(log, 1)
    log.sync()
    boundaries = [0]
    batches = [make_batch(number, 2, NOW + number) for number in (2, 3)]
    for batch in batches:
        boundaries.append(boundaries[-1] + batch.header.size)
    for cut in range(boundaries[-1] + 1):
        disk = SimulatedDisk()
        log = open_log(disk)
        append(log, 1)
        log.sync()
        disk.fault = tear(cut)
        with pytest.raises(PowerLoss):
            log.append(batches, NOW + 3, 1)
        disk.fault = None
        whole = sum(boundary <= cut for boundary in boundaries[1:])
        for kept in (disk, *disk.power_losses()):
            kept.kill()
            log = open_log(kept)
            assert log.recovered.damage is None
            got = values(log)
            assert got in (three_batches()[:2], three_batches()[: 2 + 2 * whole])
            assert values(open_log(kept)) == got
            append(log, 4)
            assert values(log)[:-2] == got


def tear(cut: int) -> Callable[[Call], int | None]:
    def fault(call: Call) -> int | None:
        if call.name == "write" and call.path.endswith(".log"):
            raise PowerLoss(cut)
        return None

    return fault


def test_any_order_of_unsynced_writes_leaves_what_was_synced_and_a_prefix() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, 1)
    log.sync()
    for number in (2, 3, 4, 5):
        append(log, number)
    everything = [value for number in range(1, 6) for value in make_batch(number, 2, None).values()]
    for left in disk.power_losses():
        log = open_log(left)
        assert log.recovered.damage is None
        got = values(log)
        assert len(got) >= 2
        assert got == everything[: len(got)]


@pytest.mark.parametrize("seed", range(150))
def test_what_was_promised_survives_power_loss_at_any_call_of_a_busy_log(seed: int) -> None:
    """Rolls, trims, drops and truncations included; power goes before, or in the middle of, any of their calls."""
    choose = random.Random(seed)
    disk = SimulatedDisk()
    log = open_log(disk)
    promised: list[bytes | None] = []
    written: list[bytes | None] = []
    floor = 0
    disk.fault = lose_power_at(disk.calls + choose.randrange(1, 220), choose)
    try:
        for number in range(200):
            step = choose.random()
            if step < 0.6:
                batch = make_batch(number, choose.randrange(1, 9), NOW + number, size=choose.randrange(200))
                written += batch.values()
                log.append_one(batch, NOW + number, 1)
            elif step < 0.8:
                log.sync()
                promised = list(written)
                log.commit(log.last_index)
            elif step < 0.87:
                log.roll()
                promised = list(written)
            elif step < 0.93 and log.committed > log.first:
                wanted = choose.randrange(log.first, log.committed + 1)
                log.trim(wanted, NOW + number, 1)
                floor = max(floor, wanted)
                log.sync()
                promised = list(written)
                log.drop(floor)
            elif log.last_index > log.committed_index:
                promised = promised[: log.committed]
                log.truncate(log.committed_index)
                written = written[: log.next]
    except PowerLoss:
        pass
    disk.fault = None
    left = disk.power_loss(choose)
    log = open_log(left)
    assert log.recovered.damage is None
    assert log.next >= len(promised)
    got = values(log)
    seqnos = range(log.next - len(got), log.next)
    assert got == (written[seqnos.start : seqnos.stop])
    again = open_log(left)
    assert (again.first, again.next) == (log.first, log.next)


def lose_power_at(number: int, choose: random.Random) -> Callable[[Call], int | None]:
    def fault(call: Call) -> int | None:
        if call.number == number:
            if call.name == "write" and call.size:
                raise PowerLoss(choose.randrange(call.size + 1))
            raise PowerLoss
        return None

    return fault


def test_what_a_restart_found_in_the_cache_survives_the_power_loss_after_it() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, 1)
    append(log, 2)
    disk.kill()
    found = values(open_log(disk))
    assert len(found) == 4
    for left in disk.power_losses():
        assert values(open_log(left)) == found


def test_pages_that_never_reached_the_disk_are_not_served_after_a_failed_sync() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, 1)
    log.sync()
    append(log, 2)
    disk.fault = fail("sync")
    with pytest.raises(SyncFailed):
        log.sync()
    disk.fault = None
    with pytest.raises(LogReadOnly):
        append(log, 3)
    with pytest.raises(SyncFailed):
        log.sync()
    disk.kill()
    log = open_log(disk)
    assert values(log) == three_batches()[:2]
    append(log, 3)
    log.sync()
    for left in disk.power_losses():
        assert values(open_log(left))[:2] == three_batches()[:2]
        assert values(open_log(left))[2:] == make_batch(3, 2, None).values()


def fail(name: str, error: int = 5) -> Callable[[Call], int | None]:
    def fault(call: Call) -> int | None:
        if call.name == name:
            raise OSError(error, "injected")
        return None

    return fault


def test_a_repeat_of_what_is_not_yet_synced_is_answered_and_durable_with_its_original() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    producer = Producer(7, 0, 0)
    first = append(log, 1, producer)
    again = append(log, 1, producer)
    assert again.repeat
    assert (again.index, again.base_seqno) == (first.index, first.base_seqno)
    assert again.index > log.synced_index, "the repeat's promise is not kept before its original is synced"
    log.sync()
    for left in disk.power_losses():
        log = open_log(left)
        assert append(log, 1, producer).repeat
        assert len(values(log)) == 2


def test_a_repeat_of_what_a_power_loss_took_is_appended_anew() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.sync()
    append(log, 1, Producer(7, 0, 0))
    for left in disk.power_losses():
        log = open_log(left)
        had = log.next
        answer = append(log, 1, Producer(7, 0, 0))
        assert answer.repeat == bool(had)
        assert len(values(log)) == 2


def test_a_repeat_after_a_truncation_is_appended_anew() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, 1, Producer(7, 0, 0))
    append(log, 2, Producer(7, 0, 2))
    log.sync()
    log.truncate(1)
    answer = append(log, 2, Producer(7, 0, 2))
    assert not answer.repeat
    assert answer.index == 2
    log.sync()
    for left in disk.power_losses():
        log = open_log(left)
        assert append(log, 2, Producer(7, 0, 2)).repeat
        assert len(values(log)) == 4


@pytest.mark.parametrize("keep", range(9))
def test_truncation_survives_power_loss_at_every_call(keep: int) -> None:
    """After a crash in the middle the log is as before, as after, or between; once it returned, only as after."""
    for number in range(1, 40):
        disk = SimulatedDisk()
        log = open_log(disk)
        for batch in range(1, 9):
            append(log, batch, count=20)
        log.sync()
        before = values_by_index(disk)
        disk.fault = lose_power_at(disk.calls + number, random.Random(number))
        done = False
        try:
            log.truncate(keep)
            done = True
        except PowerLoss:
            pass
        disk.fault = None
        for seed in range(4):
            left = open_log(disk.power_loss(random.Random(seed)))
            assert left.recovered.damage is None
            assert keep <= left.last_index <= 8
            if done:
                assert left.last_index == keep
            got = values(left)
            assert got == before[: len(got)]
        if done:
            return
    raise AssertionError("a truncation takes fewer calls than that")


def values_by_index(disk: SimulatedDisk) -> list[bytes | None]:
    return values(open_log(disk))


def test_a_short_or_failed_write_is_cut_back_and_refused_as_not_appended() -> None:
    for short in (0, 1, 95, 96, 97, 150):
        disk = SimulatedDisk()
        log = open_log(disk)
        append(log, 1)

        def fault(call: Call, short: int = short) -> int | None:
            return short if call.name == "write" and call.path.endswith(".log") else None

        disk.fault = fault
        (answer,) = log.append([make_batch(2, 2, None)], NOW, 1)
        disk.fault = None
        assert not isinstance(answer, Appended)
        path = log.segments[-1].log_path
        assert len(disk.names[path].cached) == make_batch(1, 2, NOW + 1).header.size
        append(log, 3)
        log.sync()
        assert values(log) == [*make_batch(1, 2, None).values(), *make_batch(3, 2, None).values()]


def test_a_write_that_cannot_be_cut_back_stops_the_log() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, 1)
    log.sync()

    def fault(call: Call) -> int | None:
        if call.name == "truncate":
            raise OSError(5, "injected")
        return 10 if call.name == "write" and call.path.endswith(".log") else None

    disk.fault = fault
    (answer,) = log.append([make_batch(2, 2, None)], NOW, 1)
    assert not isinstance(answer, Appended)
    disk.fault = None
    with pytest.raises(LogReadOnly):
        append(log, 3)
    disk.kill()
    assert values(open_log(disk)) == three_batches()[:2]


@pytest.mark.parametrize("name", ["create", "rename", "sync_directory", "sync", "unlink"])
@pytest.mark.parametrize("error", [5, 28])
def test_a_disk_error_at_any_call_of_a_roll_loses_nothing(name: str, error: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    appended: list[bytes | None] = []
    for number in range(1, 30):
        disk.fault = fail(name, error) if 10 <= number < 20 else None
        answer = log.append([make_batch(number, 10, None)], NOW + number, 1)[0]
        if isinstance(answer, Appended):
            appended += make_batch(number, 10, None).values()
    disk.fault = None
    disk.kill()
    log = open_log(disk)
    assert log.recovered.damage is None
    got = values(log)
    assert got == appended[: len(got)]
    assert len(got) == len(appended) or name == "sync", "only a failed sync may take back what was not synced"


def test_a_torn_tail_that_was_cut_stays_cut_when_the_segment_is_sealed_at_once() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, 1)
    log.sync()
    disk.fault = tear(100)
    with pytest.raises(PowerLoss):
        append(log, 2)
    disk.kill()
    log = open_log(disk)
    assert log.recovered.cut_bytes == 100
    log.roll()
    append(log, 3)
    log.sync()
    for left in disk.power_losses():
        assert not check(left, "/data", is_directory=left.is_directory).damaged
        assert values(open_log(left)) == [*make_batch(1, 2, None).values(), *make_batch(3, 2, None).values()]


def test_a_drop_cut_short_at_any_call_leaves_nothing_that_looks_damaged() -> None:
    for number in range(1, 60):
        disk = SimulatedDisk()
        disk.make_directory("/data")
        log = Log.open(OpenFiles(disk, reserve_bytes=0), DIRECTORY, SMALL)
        for batch in range(1, 5):
            append(log, batch)
            log.roll()
        log.commit(log.sync())
        disk.fault = lose_power_at(disk.calls + number, random.Random(number))
        done = False
        try:
            log.drop(6)
            done = True
        except PowerLoss:
            pass
        disk.fault = None
        for left in disk.power_losses():
            assert not check(left, DIRECTORY, is_directory=left.is_directory).damaged
        if done:
            return
    raise AssertionError("a drop takes fewer calls than that")


def test_a_file_made_just_before_a_kill_has_its_name_synced_before_it_is_written_to() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)

    def fault(call: Call) -> int | None:
        if call.name == "sync_directory" and log.segments[-1].log_path in disk.names:
            raise PowerLoss
        return None

    disk.fault = fault
    with pytest.raises(PowerLoss):
        append(log, 1)
    disk.kill()
    log = open_log(disk)
    append(log, 1)
    log.sync()
    for left in disk.power_losses():
        assert values(open_log(left)) == make_batch(1, 2, None).values()
