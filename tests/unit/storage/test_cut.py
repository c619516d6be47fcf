"""Committed records in pieces for several to read, by the indexes alone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from logboom.batch import build
from logboom.storage import Log, LogConfig
from logboom.storage.readable_log import SeqnoRange
from support.disks.simulated import SimulatedDisk
from support.simulation.model import make_batch, open_log, open_view

KIB = 1024


def write(log: Log, sizes: list[int], records: int = 2) -> None:
    for number, size in enumerate(sizes):
        log.append_one(make_batch(number, records, number, size=size), number)
    log.commit(log.sync())


def check(pieces: list[SeqnoRange], seqno_from: int, seqno_until: int) -> None:
    """Dense, in order, exactly so much."""
    assert pieces[0].seqno_from == seqno_from
    assert pieces[-1].seqno_until == seqno_until
    assert all(one.seqno_until == other.seqno_from for one, other in pairwise(pieces))
    assert all(piece.seqno_from < piece.seqno_until for piece in pieces)
    assert all(piece.size >= 0 for piece in pieces)


def test_a_log_is_cut_into_pieces_of_about_the_size_asked_for() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    write(log, [100] * 300)
    assert len(log.segments) > 10
    for readable in (log, open_view(disk)):
        for every in (1, 512, 2 * KIB, 4 * KIB, 10 * KIB, 33 * KIB):
            pieces = readable.cut(0, 600, every)
            check(pieces, 0, 600)
            assert sum(piece.size for piece in pieces) == log.size_bytes
            assert all(piece.size <= every * 3 // 2 + 4 * KIB for piece in pieces), "an entry of the index apart"
            assert len(pieces) <= 2 * log.size_bytes // every + 1
        assert readable.cut(0, 600, 2**40) == [SeqnoRange(0, 600, log.size_bytes)]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 2), (17, 460), (299, 301), (599, 600)])
def test_any_range_is_cut_exactly(low: int, high: int) -> None:
    log = open_log(SimulatedDisk())
    write(log, [100] * 300)
    check(log.cut(low, high, 2 * KIB), low, high)


def test_what_is_not_there_is_left_out() -> None:
    log = open_log(SimulatedDisk())
    assert log.cut(0, 10, KIB) == []
    write(log, [100] * 100)
    log.append_one(make_batch(100, 5, 100), 100)
    check(log.cut(0, 10_000, 4 * KIB), 0, 200)
    log.drop(90)
    assert log.first > 0
    check(log.cut(0, 200, 4 * KIB), log.first, 200)
    log.trim(199, 100)
    log.commit(log.sync())
    assert [piece[:2] for piece in log.cut(0, 10_000, 4 * KIB)] == [(199, 205)]
    assert log.cut(150, 160, KIB) == []
    assert log.cut(204, 204, KIB) == []
    assert log.cut(300, 400, KIB) == []


def test_a_batch_larger_than_a_piece_is_one_piece_and_what_follows_is_cut_as_ever() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=1 << 20, index_bytes=512, batch_bytes_max=1 << 20))
    write(log, [*[100] * 20, 60_000, *[100] * 200, 60_000, 60_000, *[100] * 20], records=1)
    assert len(log.segments) == 1
    pieces = log.cut(0, 243, 8 * KIB)
    check(pieces, 0, 243)
    large = [piece for piece in pieces if piece.size > 16 * KIB]
    assert len(large) == 3
    assert all(piece.seqno_until - piece.seqno_from < 60 for piece in large)
    check(open_view(disk).cut(0, 243, 8 * KIB), 0, 243)


def test_a_piece_that_is_nearly_full_ends_with_its_segment() -> None:
    """Else the next segment, however large, would go with it."""
    log = open_log(SimulatedDisk(), LogConfig(segment_bytes=64 * KIB, index_bytes=512, batch_bytes_max=65536))
    write(log, [100] * 30, records=10)
    log.roll()
    first = log.size_bytes
    write(log, [100] * 60, records=10)
    pieces = log.cut(0, log.committed, first * 3 // 4)
    check(pieces, 0, log.committed)
    assert max(piece.size for piece in pieces) < first * 3 // 2


def test_records_without_an_index_entry_of_their_own_are_in_one_piece() -> None:
    log = open_log(SimulatedDisk())
    log.append_one(build([b"x"] * 1000), 0)
    log.commit(log.sync())
    assert [piece[:2] for piece in log.cut(100, 900, 1)] == [(100, 900)]


def test_a_log_that_grows_and_is_trimmed_meanwhile_is_cut_as_it_is_now() -> None:
    disk = SimulatedDisk()
    log, count = open_log(disk), 0
    view = open_view(disk)
    for step in range(30):
        for number in range(20):
            log.append_one(make_batch(number, 3, step, size=50), step)
        log.commit(log.sync())
        count += 60
        if step % 4 == 3:
            log.drop(count - 150)
        view.refresh()
        check(view.cut(0, 2**62, 3 * KIB), log.first, count)
