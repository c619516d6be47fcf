"""The file of a stage: what is in it is as it was staged, or it says so."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest

from logboom.batch import Batch, Producer, build
from logboom.batch.builder import build_control
from logboom.batch.header import SEQUENCE_MODULUS, STAGED_IDS
from logboom.errors import (
    BatchError,
    BatchTooLarge,
    BodyCorrupt,
    LogboomError,
    LowSpace,
    MalformedBatch,
    SequenceGap,
    StageFailed,
    WriteFailed,
)
from logboom.storage.append import Answer, Appended
from logboom.storage.files.open_files import Space
from logboom.storage.staged.stage import Opened, StageFile, StageTarget, remove_stages, stage_id
from support.disks.simulated import Call, Fault, SimulatedDisk
from support.simulation.broken import copy_of, overwrite, resize

ID = "5" * 32
PATH = f"/staging/{ID}.stage"
PRODUCER = STAGED_IDS + 7
A, B = StageTarget("a", "1" * 32, 0), StageTarget("b", "2" * 32, 3)
LIMIT = 1 << 20
Rows = list[tuple[int, list[bytes | None]]]


def create(disk: SimulatedDisk, reserve_bytes: int = 0) -> StageFile:
    return StageFile.create(disk, Space(disk, reserve_bytes), "/staging", Opened(ID, PRODUCER, 1, "a note"))


def load(disk: SimulatedDisk) -> StageFile:
    return StageFile.load(disk, Space(disk, 0), PATH)


def batch(values: Sequence[str], seq: int, producer_id: int = PRODUCER, epoch: int = 0) -> Batch:
    data = build([value.encode() for value in values], producer=Producer(producer_id, epoch, seq)).data
    return Batch.parse(bytes(data))


def rows(stage: StageFile) -> Rows:
    return [(number, found.values()) for number, found in stage.batches()]


def write(stage: StageFile, *entries: tuple[StageTarget, Batch]) -> list[Answer]:
    return stage.write(entries, 5, LIMIT)


def counts(answers: list[Answer]) -> list[tuple[int, int, bool]]:
    assert all(isinstance(answer, Appended) for answer in answers), answers
    return [(answer.base_seqno, answer.record_count, answer.repeat) for answer in answers]  # type: ignore[union-attr]


FEW = ((A, batch("xyz", 0)), (B, batch("uv", 0)), (A, batch("w", 3)))
FEW_ROWS: Rows = [(0, [b"x", b"y", b"z"]), (1, [b"u", b"v"]), (0, [b"w"])]


def filled() -> SimulatedDisk:
    disk = SimulatedDisk()
    write(create(disk), *FEW)
    return copy_of(disk)


def once(name: str, act: Callable[[Call], int | None]) -> Fault:
    left = [1]

    def fault(call: Call) -> int | None:
        if call.name != name or not left:
            return None
        left.pop()
        return act(call)

    return fault


def fail(call: Call) -> int | None:
    raise OSError(errno.EIO, "injected", call.path)


def fill_up(call: Call) -> int | None:
    raise OSError(errno.ENOSPC, "injected", call.path)


def test_what_was_staged_is_read_as_it_was_staged_also_after_a_restart() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    assert counts(write(stage, *FEW)) == [(0, 3, False), (0, 2, False), (3, 1, False)]
    stage.verify(LIMIT)
    for again in (stage, load(copy_of(disk))):
        assert rows(again) == FEW_ROWS
        assert again.targets == {A: 0, B: 1}
        assert (again.counts, again.records) == ([4, 2], 6)
        assert again.opened == Opened(ID, PRODUCER, 1, "a note")
        again.verify(LIMIT)


def test_a_stage_goes_on_after_a_restart_where_it_was() -> None:
    disk = filled()
    stage = load(disk)
    assert counts(write(stage, (A, batch("w", 3)), (B, batch("w", 2)))) == [(3, 1, True), (2, 1, False)]
    stage.verify(LIMIT)
    assert rows(load(copy_of(disk))) == [*FEW_ROWS, (1, [b"w"])]


def test_nothing_but_the_next_batch_of_the_stages_own_stream_is_staged() -> None:
    stage = create(SimulatedDisk())
    control = Batch.parse(bytes(build_control(A).data))
    data = bytearray(batch("x", 0).data)
    data[-1] ^= 1
    for bad, error in (
        (batch("x", 0, PRODUCER + 1), MalformedBatch),
        (batch("x", 0, 0), MalformedBatch),
        (batch("x", 0, epoch=1), MalformedBatch),
        (batch("x", 1), SequenceGap),
        (batch("x", SEQUENCE_MODULUS - 1), SequenceGap),
        (control, MalformedBatch),
        (batch(["x" * LIMIT], 0), BatchTooLarge),
        (Batch.parse(bytes(data)), BodyCorrupt),
    ):
        (answer,) = write(stage, (A, bad))
        assert isinstance(answer, error), answer
    assert (stage.targets, stage.records) == ({}, 0)
    assert counts(write(stage, (A, batch("xy", 0)))) == [(0, 2, False)]
    stage.verify(LIMIT)


def test_a_repeat_is_answered_and_not_staged_and_one_that_says_more_is_a_gap() -> None:
    disk = filled()
    stage = load(disk)
    assert counts(write(stage, (A, batch("xyz", 0)), (A, batch("yz", 1)))) == [(0, 3, True), (1, 2, True)]
    (answer,) = write(stage, (A, batch("zwq", 2)))
    assert isinstance(answer, SequenceGap)
    assert rows(stage) == FEW_ROWS


def test_once_one_is_refused_all_that_follow_are() -> None:
    stage = create(SimulatedDisk())
    entries = [(A, batch("x", n)) for n in range(600)]
    entries[300] = (A, batch("x", 301))
    answers = write(stage, *entries)
    assert counts(answers[:300]) == [(n, 1, False) for n in range(300)]
    assert all(isinstance(answer, SequenceGap) for answer in answers[300:])
    assert stage.records == 300
    stage.verify(LIMIT)


def test_a_repeat_of_what_could_not_be_written_is_not_called_staged() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    write(stage, (A, batch("x", 0)))
    disk.fault = once("write", fill_up)
    answers = write(stage, (A, batch("x", 0)), (A, batch("y", 1)), (A, batch("y", 1)), (B, batch("u", 0)))
    assert counts(answers[:1]) == [(0, 1, True)]
    assert all(isinstance(answer, LowSpace) for answer in answers[1:])
    assert (stage.targets, stage.counts) == ({A: 0}, [1])


@pytest.mark.parametrize("act", [fail, fill_up, lambda call: call.size // 2, lambda call: call.size - 8])
def test_what_was_refused_never_comes_back_whatever_the_power_does(act: Callable[[Call], int | None]) -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    write(stage, (A, batch("x", 0)))
    disk.fault = once("write", act)
    (refused, second) = write(stage, (A, batch("y", 1)), (B, batch("u", 0)))
    assert isinstance(refused, LowSpace | WriteFailed)
    assert isinstance(second, LowSpace | WriteFailed)
    disk.sync_directory("/staging")
    assert counts(write(stage, (A, batch("z", 1)))) == [(1, 1, False)]
    for left in disk.power_losses():
        assert rows(load(left)) in ([(0, [b"x"])], [(0, [b"x"]), (0, [b"z"])])
    stage.sync()
    for left in disk.power_losses():
        assert rows(load(left)) == [(0, [b"x"]), (0, [b"z"])]


@pytest.mark.parametrize("name", ["truncate", "sync"])
def test_a_stage_whose_failed_write_cannot_be_cut_off_is_of_no_use(name: str) -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    write(stage, (A, batch("x", 0)))

    def fault(call: Call) -> int | None:
        return fail(call) if call.name == name else call.size // 2

    disk.fault = fault
    assert isinstance(write(stage, (A, batch("y", 1)))[0], WriteFailed)
    disk.fault = None
    assert isinstance(write(stage, (A, batch("y", 1)))[0], WriteFailed)
    with pytest.raises(StageFailed):
        stage.sync()


def test_a_failed_sync_is_not_hidden_by_one_that_succeeds() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    disk.fault = once("sync", fail)
    for _ in range(2):
        with pytest.raises(StageFailed):
            stage.sync()
    assert isinstance(write(stage, (A, batch("y", 0)))[0], WriteFailed)


def test_too_little_room_refuses_and_harms_nothing() -> None:
    disk = SimulatedDisk()
    disk.free = 400
    stage = create(disk)
    disk.free = 0
    assert isinstance(write(stage, (A, batch("y", 0)))[0], LowSpace)
    disk.free = 1 << 30
    assert counts(write(stage, (A, batch("y", 0)))) == [(0, 1, False)]
    stage.verify(LIMIT)


def test_a_file_cut_anywhere_holds_the_whole_batches_before_the_cut_and_goes_on_behind_them() -> None:
    whole = filled()
    size = whole.open(PATH).size()
    for cut in range(size + 1):
        disk = copy_of(whole)
        resize(disk, PATH, cut)
        try:
            stage = load(disk)
        except BatchError:
            assert cut < 96 + 200
            continue
        found = rows(stage)
        assert found == FEW_ROWS[: len(found)]
        stage.verify(LIMIT)
        for entry in FEW[len(found) :]:
            assert counts(write(stage, entry))[0][2] is False
        stage.verify(LIMIT)
        stage.sync()
        disk.sync_directory("/staging")
        for left in disk.power_losses():
            assert rows(load(left)) == FEW_ROWS
    assert found == FEW_ROWS


def test_a_file_with_any_byte_changed_never_shows_anything_else_than_was_staged() -> None:
    whole = filled()
    content = bytes(whole.names[PATH].cached)
    for position, byte in enumerate(content):
        disk = copy_of(whole)
        stage = load(disk)
        overwrite(disk, PATH, position, bytes([byte ^ (1 << position % 8)]))
        with pytest.raises(StageFailed):
            stage.verify(LIMIT)
        try:
            found = rows(load(disk))
        except BatchError:
            continue
        assert found == FEW_ROWS[: len(found)]
        assert len(found) < len(FEW_ROWS)


def test_what_a_crash_left_behind_the_sound_part_is_not_taken_for_what_follows_later() -> None:
    disk = filled()
    stage = load(copy_of(disk))
    first_size = next(iter(stage.batches())).batch.header.size
    start = bytes(disk.names[PATH].cached).index(bytes(next(iter(stage.batches())).batch.data))
    overwrite(disk, PATH, start, bytes(first_size))  # one write was lost, those behind it were not
    stage = load(disk)
    assert rows(stage) == []
    assert counts(write(stage, (A, batch("abc", 0)))) == [(0, 3, False)]
    stage.sync()
    disk.sync_directory("/staging")
    for left in disk.power_losses():
        assert rows(load(left)) == [(0, [b"a", b"b", b"c"])]


def test_reading_a_damaged_file_changes_nothing_of_it() -> None:
    disk = filled()
    size = disk.open(PATH).size()
    overwrite(disk, PATH, size - 50, b"??")
    before = bytes(disk.names[PATH].cached)
    load(disk)
    assert bytes(disk.names[PATH].cached) == before


def test_a_file_under_the_name_of_another_stage_is_not_believed() -> None:
    disk = filled()
    other = PATH.replace("5", "6")
    disk.rename(PATH, other)
    with pytest.raises(BatchError):
        StageFile.load(disk, Space(disk, 0), other)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, bytes(build([b"x"]).data), bytes(build_control(A).data)])
def test_a_file_that_is_no_stage_says_so(content: bytes) -> None:
    disk = SimulatedDisk()
    disk.create(PATH).write([content], 0)
    with pytest.raises(BatchError):
        load(disk)


def test_a_batch_over_a_limit_that_was_lowered_is_found_before_anything_is_published() -> None:
    disk = filled()
    with pytest.raises(StageFailed, match="over"):
        load(disk).verify(120)


def test_a_file_that_is_closed_is_opened_again_and_one_that_cannot_be_has_not_failed() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    stage.sync()
    stage.let_go()
    assert counts(write(stage, (A, batch("x", 0)))) == [(0, 1, False)]
    stage.sync()
    stage.let_go()
    inode = disk.names.pop(PATH)
    assert isinstance(write(stage, (A, batch("y", 1)))[0], WriteFailed)
    disk.names[PATH] = inode
    assert counts(write(stage, (A, batch("y", 1)))) == [(1, 1, False)]
    assert stage.failure is None


def test_many_tiny_batches_for_many_logs_are_staged_and_found_again() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    targets = [StageTarget("t", "3" * 32, number) for number in range(500)]
    entries = [(target, batch("x", seq)) for seq in range(4) for target in targets]
    assert not any(isinstance(answer, LogboomError) for answer in write(stage, *entries))
    stage.verify(LIMIT)
    again = load(copy_of(disk))
    assert again.counts == [4] * 500
    assert [number for number, _ in again.batches()] == list(range(500)) * 4


def test_removing_a_file_twice_is_no_error() -> None:
    disk = SimulatedDisk()
    create(disk)
    for _ in range(2):
        remove_stages(disk, "/staging", [ID])
    assert not disk.exists(PATH)


def test_only_names_that_stages_are_given_are_names_of_stages() -> None:
    assert stage_id(PATH) == ID
    for name in (".stage", "5.stage", f"{ID}.stage.tmp", f"{ID}", f"{ID.replace('5', 'Z')}.stage", f"../{ID}x.stage"):
        assert stage_id(f"/staging/{name}") is None
