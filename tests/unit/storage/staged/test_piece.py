"""Pieces of a stage: what is a lot for one log, in files that can become its segments."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from logboom.batch import Batch, Producer, build
from logboom.batch.header import HEADER_SIZE, STAGED_IDS, STAMP_SIZE
from logboom.errors import LogboomError, LowSpace, StageFailed, WriteFailed
from logboom.storage.append import Answer, Appended
from logboom.storage.files.open_files import Space
from logboom.storage.staged import stage as stage_module
from logboom.storage.staged.piece import PieceName, StagePiece
from logboom.storage.staged.stage import Opened, StageFile, StageTarget, remove_stages
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.broken import copy_of, overwrite, resize

ID = "5" * 32
DIRECTORY = "/staging"
PATH = f"{DIRECTORY}/{ID}.stage"
PRODUCER = STAGED_IDS + 7
A, B = StageTarget("a", "1" * 32, 0), StageTarget("b", "2" * 32, 3)
LIMIT = 1 << 20
SIZES = {A: 700, B: 700}
"""Two of the batches below, not three."""
Rows = list[tuple[int, bytes | None]]


@pytest.fixture(autouse=True)
def _soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "LARGE_BYTES", 300)


def create(disk: SimulatedDisk, reserve_bytes: int = 0) -> StageFile:
    return StageFile.create(disk, Space(disk, reserve_bytes), DIRECTORY, Opened(ID, PRODUCER, 1))


def load(disk: SimulatedDisk) -> StageFile:
    return StageFile.load(disk, Space(disk, 0), PATH)


def value(number: int) -> bytes:
    return str(number).encode().ljust(200)


def entry(target: StageTarget, number: int) -> tuple[StageTarget, Batch]:
    data = build([value(number)], producer=Producer(PRODUCER, 0, number)).data
    return target, Batch.parse(bytes(data))


def entries(target: StageTarget, first: int, after: int) -> list[tuple[StageTarget, Batch]]:
    return [entry(target, number) for number in range(first, after)]


def write(stage: StageFile, some: Sequence[tuple[StageTarget, Batch]]) -> list[Answer]:
    return stage.write(some, 5, LIMIT, SIZES)


def staged(stage: StageFile, target: StageTarget) -> list[bytes | None]:
    """What there is for a target, in the order in which it is published."""
    number = stage.targets.get(target)
    here = [found for of, batch in stage.batches() if of == number for found in batch.values()]
    pieces = [piece for piece in stage.pieces if piece.number == number]
    return here + [found for piece in pieces for batch in piece.batches() for found in batch.values()]


def values(count: int) -> list[bytes | None]:
    return [value(number) for number in range(count)]


def piece_paths(disk: SimulatedDisk) -> list[str]:
    return sorted(name for name in disk.names if name.endswith(".piece"))


def filled(count: int = 7) -> SimulatedDisk:
    disk = SimulatedDisk()
    stage = create(disk)
    assert all(isinstance(answer, Appended) for answer in write(stage, [*entries(A, 0, count), entry(B, 0)]))
    return copy_of(disk)


def test_what_is_a_lot_for_one_log_is_in_pieces_as_large_as_segments_and_the_rest_is_not() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    answers = write(stage, [*entries(A, 0, 7), entry(B, 0)])
    assert [answer.base_seqno for answer in answers if isinstance(answer, Appended)] == [*range(7), 0]
    for again in (stage, load(copy_of(disk))):
        again.verify(LIMIT)
        assert [(piece.number, piece.first, piece.next) for piece in again.pieces] == [
            (0, 0, 2),
            (0, 2, 4),
            (0, 4, 6),
            (0, 6, 7),
        ]
        assert all(piece.size_bytes <= SIZES[A] for piece in again.pieces)
        assert again.counts == [7, 1]
        assert staged(again, A) == values(7)
        assert staged(again, B) == values(1)


def test_a_stage_goes_on_after_a_restart_with_a_new_piece_and_leaves_the_others_as_they_are() -> None:
    disk = filled()
    before = {path: bytes(disk.names[path].cached) for path in piece_paths(disk)}
    stage = load(disk)
    repeat, new = write(stage, [entry(A, 6), entry(A, 7)])
    assert isinstance(repeat, Appended)
    assert repeat.repeat
    assert isinstance(new, Appended)
    stage.verify(LIMIT)
    assert staged(stage, A) == staged(load(copy_of(disk)), A) == values(8)
    assert {path: bytes(disk.names[path].cached) for path in before} == before


def test_stamps_count_for_nothing_however_torn_they_are() -> None:
    whole = filled()
    for path in piece_paths(whole):
        size = len(whole.names[path].cached)
        starts = range(0, size, size // (2 if size > 400 else 1))
        for start in starts:
            disk = copy_of(whole)
            overwrite(disk, path, start + 8, b"\xa5" * (STAMP_SIZE - 8))
            overwrite(disk, path, start + HEADER_SIZE - 4, b"torn")
            stage = load(disk)
            stage.verify(LIMIT)
            assert staged(stage, A) == values(7)


def test_a_piece_with_any_other_byte_changed_never_shows_anything_else_than_was_staged() -> None:
    whole = filled(3)
    path = piece_paths(whole)[0]
    size = len(whole.names[path].cached) // 2
    for position, byte in enumerate(bytes(whole.names[path].cached)):
        if STAMP_SIZE > position % size >= 8 or HEADER_SIZE > position % size >= HEADER_SIZE - 4:
            continue
        disk = copy_of(whole)
        stage = load(disk)
        overwrite(disk, path, position, bytes([byte ^ (1 << position % 8)]))
        with pytest.raises(StageFailed):
            stage.verify(LIMIT)
        found = load(disk)
        assert staged(found, A) == values(3)[: found.counts[0]]
        assert found.counts[0] < 3


def test_a_piece_cut_anywhere_holds_the_whole_batches_before_the_cut_and_the_stage_goes_on_behind_them() -> None:
    whole = filled(5)
    first, second, last = piece_paths(whole)
    for path, before in ((last, 4), (second, 2), (first, 0)):
        for cut in range(0, len(whole.names[path].cached), 7):
            disk = copy_of(whole)
            resize(disk, path, cut)
            stage = load(disk)
            stage.verify(LIMIT)
            count = stage.counts[0]
            assert before <= count < 5
            assert staged(stage, A) == values(count)
            assert all(isinstance(answer, Appended) for answer in write(stage, entries(A, count, 6)))
            stage.verify(LIMIT)
            assert staged(load(copy_of(disk)), A) == values(6)


def test_what_follows_a_piece_that_is_gone_counts_for_nothing() -> None:
    disk = filled()
    disk.unlink(piece_paths(disk)[1])
    stage = load(disk)
    assert stage.counts == [2, 1]
    assert staged(stage, A) == values(2)


def test_a_piece_of_another_target_another_stage_or_none_counts_for_nothing() -> None:
    disk = filled()
    content = bytes(disk.names[piece_paths(disk)[0]].cached)
    for name in (PieceName(ID, 9, 0), PieceName(ID, 1, 0), PieceName("6" * 32, 0, 0)):
        disk.create(name.path(DIRECTORY)).write([content[:-1]], 0)
    stage = load(disk)
    stage.verify(LIMIT)
    assert staged(stage, A) == values(7)
    assert staged(stage, B) == values(1)


def test_what_others_append_to_a_piece_that_became_a_segment_is_not_the_stages_and_stays() -> None:
    disk = filled()
    path = piece_paths(disk)[-1]
    content = bytes(disk.names[path].cached)
    others = bytes(build([b"of somebody else"]).data)
    disk.open(path).write([others], len(content))
    stage = load(disk)
    assert staged(stage, A) == values(7)
    assert isinstance(write(stage, [entry(A, 7)])[0], Appended)
    stage.sync()
    assert bytes(disk.names[path].cached) == content + others


def test_what_did_not_follow_is_gone_before_anything_is_written_and_never_counts_again() -> None:
    disk = filled()
    first, second, third, last = piece_paths(disk)
    disk.unlink(second)
    stage = load(disk)
    assert stage.counts == [2, 1]
    assert isinstance(write(stage, [entry(A, 2)])[0], Appended)
    assert first in disk.names
    assert not {third, last} & set(disk.names)
    assert load(copy_of(disk)).counts == [3, 1]
    disk = filled()
    disk.unlink(second)
    stage = load(disk)

    def fault(call: Call) -> None:
        if call.name == "unlink":
            raise OSError(errno.EIO, "injected", call.path)

    disk.fault = fault
    assert isinstance(write(stage, [entry(A, 2)])[0], WriteFailed)
    disk.fault = None
    assert isinstance(write(stage, [entry(A, 2)])[0], Appended)
    assert load(copy_of(disk)).counts == [3, 1]


def test_so_many_logs_have_pieces_and_the_others_are_in_the_stages_own_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "LARGE_MAX", 2)
    disk = SimulatedDisk()
    stage = create(disk)
    targets = [StageTarget(f"t{n}", f"{n:032}", 0) for n in range(4)]
    for target in targets:
        assert all(isinstance(answer, Appended) for answer in write(stage, entries(target, 0, 5)))
    for again in (stage, load(copy_of(disk))):
        again.verify(LIMIT)
        assert {piece.number for piece in again.pieces} == {0, 1}
        assert [staged(again, target) for target in targets] == [values(5)] * 4


def test_what_was_staged_before_it_was_a_lot_is_cut_into_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "LARGE_BYTES", 1000)
    disk = SimulatedDisk()
    stage = create(disk)
    write(stage, entries(A, 0, 9))
    for again in (stage, load(copy_of(disk))):
        again.verify(LIMIT)
        assert [(piece.first, piece.next) for piece in again.pieces] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 9)]
        assert staged(again, A) == values(9)


def test_a_piece_that_the_log_has_appended_the_next_one_to_ends_where_that_begins() -> None:
    disk = filled()
    first, second = piece_paths(disk)[:2]
    content = bytes(disk.names[first].cached)
    for size in (1, len(disk.names[second].cached) // 2, len(disk.names[second].cached)):
        disk.open(first).write([bytes(disk.names[second].cached[:size])], len(content))
        stage = load(disk)
        stage.verify(LIMIT)
        assert [(piece.first, piece.next) for piece in stage.pieces] == [(0, 2), (2, 4), (4, 6), (6, 7)]
        assert staged(stage, A) == values(7)


@pytest.mark.parametrize("name", ["create", "write", "sync", "truncate"])
def test_a_call_that_fails_while_pieces_are_made_refuses_and_what_was_refused_never_comes_back(name: str) -> None:
    first, second = ("write", name) if name in ("sync", "truncate") else (name, None)
    for at in range(1, 14):
        disk = SimulatedDisk()
        stage = create(disk)
        met: list[Call] = []

        def fault(call: Call, met: list[Call] = met, at: int = at) -> int | None:
            if call.name == second and len(met) == at:
                raise OSError(errno.EIO, "injected", call.path)
            if call.name != first:
                return None
            met.append(call)
            if len(met) != at:
                return None
            if second is not None:
                return call.size // 2
            raise OSError(errno.EIO, "injected", call.path)

        disk.fault = fault
        answers = write(stage, entries(A, 0, 7))
        disk.fault = None
        refused = [isinstance(answer, LogboomError) for answer in answers]
        assert refused == sorted(refused)
        count = refused.count(False)
        if stage.failure is None:
            stage.verify(LIMIT)
            assert staged(stage, A) == values(count)
            assert all(isinstance(answer, Appended) for answer in write(stage, entries(A, count, 7)))
            assert staged(stage, A) == staged(load(copy_of(disk)), A) == values(7)
        else:
            assert isinstance(write(stage, entries(A, count, 7))[0], WriteFailed)


def test_too_little_room_for_a_piece_refuses_and_harms_nothing() -> None:
    disk = SimulatedDisk()
    disk.free = 1000
    stage = create(disk)
    write(stage, [entry(A, 0)])
    disk.free = 0
    assert isinstance(write(stage, [entry(A, 1)])[0], LowSpace)
    disk.free = 1 << 30
    assert isinstance(write(stage, [entry(A, 1)])[0], Appended)
    stage.verify(LIMIT)
    assert staged(stage, A) == staged(load(copy_of(disk)), A) == values(2)


def test_a_sync_that_fails_for_one_piece_fails_the_stage() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    write(stage, entries(A, 0, 5))

    def fault(call: Call) -> None:
        if call.name == "sync" and call.path == piece_paths(disk)[1]:
            raise OSError(errno.EIO, "injected", call.path)

    disk.fault = fault
    with pytest.raises(StageFailed):
        stage.sync()
    disk.fault = None
    with pytest.raises(StageFailed):
        stage.sync()


def test_after_a_sync_no_power_loss_takes_anything() -> None:
    disk = SimulatedDisk()
    stage = create(disk)
    write(stage, [*entries(A, 0, 5), entry(B, 0)])
    stage.sync()
    disk.sync_directory(DIRECTORY)
    assert stage.is_synced
    for left in disk.power_losses():
        assert staged(load(left), A) == values(5)


def test_all_files_of_a_stage_go_with_it_also_where_one_cannot_be_removed() -> None:
    disk = filled()
    other = PieceName("6" * 32, 0, 0).path(DIRECTORY)
    disk.create(other)
    first = piece_paths(disk)[0]

    def fault(call: Call) -> None:
        if call.name == "unlink" and call.path == first:
            raise OSError(errno.EIO, "injected", call.path)

    disk.fault = fault
    with pytest.raises(OSError, match="injected"):
        remove_stages(disk, DIRECTORY, [ID])
    assert sorted(disk.names) == sorted([first, other])
    disk.fault = None
    remove_stages(disk, DIRECTORY, [ID])
    assert sorted(disk.names) == [other]


@pytest.mark.parametrize("name", ["", "x.piece", f"{ID}.piece", f"{ID}-1-2.piece", f"{ID}-{0:010}-{0:020}.stage"])
def test_only_names_that_pieces_are_given_are_names_of_pieces(name: str) -> None:
    assert PieceName.parse(name) is None
    assert PieceName.parse(PieceName(ID, 3, 4).path("")[1:]) == PieceName(ID, 3, 4)


def test_a_piece_of_a_stream_that_went_round_is_read() -> None:
    disk, first = SimulatedDisk(), 2**31 - 1
    name = PieceName(ID, 0, first)
    piece = StagePiece.create(disk, Space(disk, 0), DIRECTORY, name, PRODUCER)
    for seq, text in ((first, b"last"), (0, b"first again")):
        data = build([text], producer=Producer(PRODUCER, 0, seq)).data
        piece.add([(data[:HEADER_SIZE], data[HEADER_SIZE:])], 1)
    again = StagePiece.load(disk, Space(disk, 0), DIRECTORY, name, PRODUCER)
    assert (again.first, again.next) == (first, 2**31 + 1)
    assert [found for batch in again.batches() for found in batch.values()] == [b"last", b"first again"]
