from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logboom.batch.header import KIND_CONTROL
from logboom.errors import Damage, DirectoryInUse
from logboom.storage import DataDirectory, OsDisk, StateFile
from logboom.storage.health.check import check
from logboom.storage.health.repair import hold, plan_repair
from logboom.storage.holes import LOST_BATCHES_MAX
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.broken import (
    Rows,
    all_rows,
    checked,
    content,
    copy_of,
    cut_out,
    overwrite,
    places,
    remove,
    repaired,
    resize,
    rows,
    segments,
    sound_disk,
    worrying,
)
from support.simulation.model import DIRECTORY, TOPIC_ID, make_batch, open_log

Break = Callable[[SimulatedDisk], set[int]]
"""Breaks a sound disk; returns the seqnos that cannot be saved."""


def flip_in(number: int, *batches: int) -> Break:
    def broken(disk: SimulatedDisk) -> set[int]:
        lost: set[int] = set()
        at = places(disk, number)
        for batch in batches:
            position, header = at[batch]
            overwrite(disk, segments(disk)[number].log_path, position + 40, b"XXXXXXXX")
            lost |= set(range(header.base_seqno, header.next_seqno))
        return lost

    return broken


def shorten(number: int, batch: int, more: int = 0) -> Break:
    def broken(disk: SimulatedDisk) -> set[int]:
        at = places(disk, number)
        resize(disk, segments(disk)[number].log_path, at[batch][0] + more)
        return set(range(at[batch][1].base_seqno, at[-1][1].next_seqno))

    return broken


def lose_segment(number: int, with_snapshot: bool) -> Break:
    def broken(disk: SimulatedDisk) -> set[int]:
        at, segment = places(disk, number), segments(disk)[number]
        paths = [segment.log_path, segment.index_path, *([segment.snap_path] if with_snapshot else [])]
        remove(disk, *[path for path in paths if path in disk.names])
        return set(range(at[0][1].base_seqno, at[-1][1].next_seqno))

    return broken


def lose_everything(disk: SimulatedDisk) -> set[int]:
    remove(disk, *[path for path in disk.names if path.startswith(DIRECTORY)])
    return set(range(68))


def spoil_snapshot(*numbers: int) -> Break:
    def broken(disk: SimulatedDisk) -> set[int]:
        for path in [segments(disk)[number].snap_path for number in numbers]:
            overwrite(disk, path, 9, b"XXX")
        return set()

    return broken


def cut_batch_out(disk: SimulatedDisk) -> set[int]:
    position, header = places(disk, 1)[4]
    cut_out(disk, segments(disk)[1].log_path, position, header.size)
    return set(range(header.base_seqno, header.next_seqno))


def several(*breaks: Break) -> Break:
    return lambda disk: set[int]().union(*(each(disk) for each in breaks))


BREAKS: dict[str, Break] = {
    "a batch in the last segment": flip_in(2, 3),
    "the first batch of the last segment": flip_in(2, 0),
    "the last batch": flip_in(2, 8),
    "two places in the last segment": flip_in(2, 1, 5, 6),
    "a cold segment": flip_in(0, 0, 3, 11),
    "a whole cold segment": flip_in(1, *range(13)),
    "a shortened tail": shorten(2, 5),
    "a tail shortened within a batch": shorten(2, 5, 100),
    "a shortened cold segment": shorten(1, 5),
    "a cold segment shortened within a batch": shorten(1, 5, 100),
    "an emptied last segment": shorten(2, 0),
    "an emptied cold segment": shorten(1, 0),
    "a missing segment": lose_segment(1, False),
    "a missing segment with its snapshot": lose_segment(1, True),
    "a missing last segment": lose_segment(2, False),
    "no file left": lose_everything,
    "a snapshot": spoil_snapshot(1),
    "the last snapshot": spoil_snapshot(2),
    "every snapshot": spoil_snapshot(0, 1, 2),
    "a batch cut out": cut_batch_out,
    "damage and snapshots": several(flip_in(0, 2), flip_in(2, 2), spoil_snapshot(0, 1, 2)),
}
each_break = pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS.keys())


def left_of(sound: Rows, lost: set[int]) -> Rows:
    return {seqno: value for seqno, value in sound.items() if seqno not in lost}


@each_break
def test_after_a_repair_the_log_takes_writes_and_everything_sound_has_its_old_seqno(broken: Break) -> None:
    disk = sound_disk()
    sound = all_rows(disk)
    lost = broken(disk)
    repaired(disk)
    assert not checked(disk).damaged
    log = open_log(copy_of(disk))
    assert log.refusal is None
    assert rows(log) == left_of(sound, lost)
    assert (log.next, log.last_index) == (68, 35 if 67 in lost else 34)  # where the end went, a term begins
    log.append_one(make_batch(99, 2, 0), 2_000, 9)
    log.commit(log.sync())
    assert list(rows(log))[-2:] == [68, 69]
    assert all(not batch.header.record_count or batch.seqnos()[-1] >= 68 for batch in log.batches(68))
    for seqno in lost:
        with pytest.raises(Damage, match="lost"):
            next(iter(log.batches(seqno)))


@each_break
def test_a_second_repair_has_nothing_to_do(broken: Break) -> None:
    disk = sound_disk()
    broken(disk)
    assert repaired(disk).steps
    before = content(disk)
    assert repaired(disk).steps == []
    assert content(disk) == before


def cut_short(broken: Break) -> Iterator[tuple[SimulatedDisk, set[int]]]:
    """The disk as a power loss at each call of a repair leaves it."""
    for crash_at in range(1, 1000):
        disk = sound_disk()
        lost = broken(disk)
        disk.calls = 0

        def fault(call: Call, crash_at: int = crash_at) -> int | None:
            if call.number >= crash_at:
                raise PowerLoss
            return None

        disk.fault = fault
        try:
            repaired(disk)
        except PowerLoss:
            disk.kill()
            yield disk, lost
        else:
            return


@each_break
def test_a_power_loss_at_any_call_of_a_repair_takes_nothing_sound_and_it_can_be_run_again(broken: Break) -> None:
    sound = all_rows(sound_disk())
    choose = random.Random(7)
    for disk, lost in cut_short(broken):
        for left in (disk.power_loss(choose), disk):
            repaired(left)
            log = open_log(left)
            assert log.refusal is None
            assert rows(log) == left_of(sound, lost)


@each_break
def test_opening_the_log_after_a_repair_that_was_cut_short_loses_nothing_sound(broken: Break) -> None:
    sound = all_rows(sound_disk())
    choose = random.Random(8)
    for disk, lost in cut_short(broken):
        left = disk.power_loss(choose)
        open_log(left).close()
        repaired(left)
        assert rows(open_log(left)) == left_of(sound, lost)


def test_what_is_taken_away_is_kept_and_never_written_over() -> None:
    disk = sound_disk()
    path = segments(disk)[0].log_path
    flip_in(0, 2)(disk)
    broken = bytes(disk.names[path].cached)
    disk.create(f"{path}.damaged")
    repaired(disk)
    assert bytes(disk.names[f"{path}.damaged.1"].cached) == broken
    assert bytes(disk.names[f"{path}.damaged"].cached) == b""
    assert path not in disk.names


def test_a_new_generation_counts_on_from_the_highest_of_the_log() -> None:
    disk = sound_disk()
    flip_in(0, 2)(disk)
    flip_in(2, 2)(disk)
    repaired(disk)
    assert [segment.generation for segment in segments(disk)] == [1, 0, 2]
    standing = StateFile.open(disk, "/data/state").standing(TOPIC_ID, 0)
    assert standing is not None
    assert (standing.generation, standing.committed, standing.synced_index) == (2, 68, 34)


def test_a_torn_tail_is_cut_and_its_bytes_are_kept() -> None:
    disk = sound_disk()
    path = segments(disk)[2].log_path
    size = disk.open(path).size()
    overwrite(disk, path, size, b"torn" * 50)
    repaired(disk)
    assert bytes(disk.names[f"{path}.torn"].cached) == b"torn" * 50
    assert worrying(disk) == []
    position, header = places(disk, 2)[-1]
    assert (position, header.kind, header.term) == (size, KIND_CONTROL, places(disk, 2)[-2][1].term + 1)


def test_a_floor_that_was_lost_with_its_batch_is_set_again_from_the_state_file() -> None:
    disk = sound_disk(floor=20)
    assert min(all_rows(disk)) == 20
    trim = next(number for number, (_, header) in enumerate(places(disk, 2)) if header.kind == 1)
    flip_in(2, trim)(disk)
    repaired(disk)
    log = open_log(copy_of(disk))
    assert (log.first, log.refusal) == (20, None)
    assert list(rows(log)) == list(range(20, 68))


def test_a_lost_control_batch_takes_no_seqno_and_stops_no_reader() -> None:
    disk = sound_disk(floor=0)
    trim = next(number for number, (_, header) in enumerate(places(disk, 2)) if header.kind == 1)
    flip_in(2, trim)(disk)
    assert not repaired(disk).lost
    log = open_log(copy_of(disk))
    log.commit(log.last_index)
    assert sum(len(batch) for batch in log.batches()) == 68


def test_bad_slots_are_freed_and_a_damaged_front_is_written_again_without_losing_the_slots() -> None:
    disk = sound_disk()
    overwrite(disk, "/data/state", 0, b"X")
    repaired(disk)
    assert worrying(disk) == []
    assert StateFile.open(disk, "/data/state").standing(TOPIC_ID, 0) is not None
    overwrite(disk, "/data/state", 64 + 30, b"X")
    repaired(disk)
    assert worrying(disk) == []


def test_a_hole_too_large_to_fill_is_not_repaired_and_says_so() -> None:
    disk = sound_disk()
    lose_segment(2, False)(disk)
    StateFile.open(disk, "/data/state").claim(TOPIC_ID, 0).write(0, 0, 68, LOST_BATCHES_MAX * 2, 0)
    plan = repaired(disk)
    assert plan.steps == []
    assert [finding.repairable for finding in plan.beyond] == [False]
    assert "backup" in plan.beyond[0].advice


def test_when_older_segments_are_gone_the_state_file_is_made_to_fit() -> None:
    disk = sound_disk()
    lose_segment(0, True)(disk)
    assert [(finding.seqno_from, finding.seqno_until) for finding in repaired(disk).lost] == [(0, 24)]
    assert worrying(disk) == []
    assert repaired(disk).steps == []
    log = open_log(disk)
    assert (log.first, log.refusal) == (24, None)


@pytest.mark.parametrize("broken", [flip_in(2, 3), flip_in(0, 3), lose_segment(1, True)])
def test_a_log_without_a_state_file_is_repaired_too(broken: Break) -> None:
    disk = sound_disk()
    sound = all_rows(disk)
    lost = broken(disk)
    remove(disk, "/data/state", "/data/node.json")
    assert checked(disk, DIRECTORY).damaged
    for step in plan_repair(disk, DIRECTORY, is_directory=disk.is_directory).steps:
        step.run()
    assert not checked(disk, DIRECTORY).damaged
    log = open_log(disk)
    assert log.refusal is None
    assert rows(log) == left_of(sound, lost)


def test_a_repair_keeps_writers_out_and_is_kept_out_by_them(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with DataDirectory.open(path), pytest.raises(DirectoryInUse), hold(OsDisk(path), path):
        pass
    with hold(OsDisk(path), path), pytest.raises(DirectoryInUse):
        DataDirectory.open(path)
    with DataDirectory.open(path) as data:
        assert data.was_clean


def test_it_works_on_real_files(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    name = DIRECTORY.removeprefix("/data/")
    with DataDirectory.open(path) as data:
        log = data.open_log(name)
        for number in range(20):
            log.append_one(make_batch(number, 2, 0), 1 + number)
        data.sync()
        file = Path(log.segments[-1].log_path)
        position = [header.index for header in (batch.header for batch in log.batches())].index(8)
    size = file.stat().st_size
    damaged = bytearray(file.read_bytes())
    damaged[size // 20 * position + 50] ^= 1
    file.write_bytes(damaged)
    disk = OsDisk(path)
    assert check(disk, path).damaged
    with hold(disk, path):
        plan = plan_repair(disk, path)
        for step in plan.steps:
            step.run()
    assert not check(disk, path).damaged
    with DataDirectory.open(path) as data:
        log = data.open_log(name)
        assert log.refusal is None
        assert sorted(rows(log)) == [seqno for seqno in range(40) if seqno not in (14, 15)]
    assert file.with_name(f"{file.name}.damaged").read_bytes() == damaged
