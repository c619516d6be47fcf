"""A hole in a segment: where it ends, and which numbers it swallowed.

A record may hold what looks like a batch, and a damaged header hides where its batch ends. So a batch found behind a
hole is believed the more if the next one follows it. All work is bounded.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from logboom.batch.header import Header
from logboom.errors import BatchError
from logboom.storage.index import BatchPlace
from logboom.storage.scan import Bad, ScanBudget, TooHostile, Window, leads_on, next_sound
from logboom.storage.tail import LogTail

LOST_RECORDS_MAX: Final = 2**32 - 1
"""What the header's record_count can say."""
LOST_BATCHES_MAX: Final = 2**21
"""Holes with more batches than this (256 MiB of lost ones) are not filled."""
_CANDIDATES_MAX: Final = 1000


class Hole(NamedTuple):
    """Bytes that hold no sound batch, and the numbers missing with them; `until` is None where nothing tells."""

    position: int
    end: int
    seqno_from: int
    seqno_until: int | None
    index_from: int
    index_until: int | None
    term: int
    append_time: int
    reason: str

    @property
    def batches(self) -> int:
        return 0 if self.index_until is None else self.index_until - self.index_from

    @property
    def records(self) -> int:
        return 0 if self.seqno_until is None else self.seqno_until - self.seqno_from

    @property
    def fillable(self) -> bool:
        """Whether lost batches can stand for it."""
        return 0 <= self.batches <= LOST_BATCHES_MAX and 0 <= self.records <= self.batches * LOST_RECORDS_MAX


class NextNumbers(NamedTuple):
    """The numbers that the next segment begins with."""

    seqno: int
    index: int  # type: ignore[assignment]


def resume(window: Window, bad: Bad, end: int, tail: LogTail, limit: NextNumbers | None) -> tuple[int, Header] | None:
    """Where sound batches go on behind a bad one.

    A record may hold what looks like a batch. One that leads to the end of the segment is true, and so is one before it
    whose numbers fit. Where nothing leads to the end, one that the next batch follows is believed before one that
    stands alone, unless both can be true.
    """

    def accept(position: int, header: Header, work: ScanBudget) -> bool:
        room = (header.index - tail.next_index) * LOST_RECORDS_MAX
        if header.base_seqno - tail.next_seqno > room:
            return False
        return limit is None or (header.index < limit.index and header.next_seqno <= limit.seqno)

    here = _out_of_place(window, bad.position, tail)
    if here is not None and accept(*here, ScanBudget(end)):
        return here
    if limit is not None:
        with suppress(TooHostile):
            true = next_sound(window, bad, end, tail, leads_on(window, BatchPlace(end, *limit)))
            if true is not None:
                return next_sound(
                    window, bad, end, tail, lambda *found: accept(*found) and _can_precede(found[:2], true)
                )
    alone: tuple[int, Header] | None = None
    for _ in range(_CANDIDATES_MAX):
        try:
            found = next_sound(window, bad, end, tail, accept)
        except TooHostile:
            break
        if found is None:
            break
        if _is_followed(window, found, end):
            return alone if alone and _can_precede(alone, found) else found
        alone = alone or found
        bad = bad._replace(next_position=found[0] + 8)
    return alone


def _out_of_place(window: Window, position: int, tail: LogTail) -> tuple[int, Header] | None:
    """The batch right here, if it is sound and only those before it are missing."""
    try:
        header = window.batch(position).header
    except BatchError:
        return None
    if not tail.next_index < header.index <= tail.next_index + LOST_BATCHES_MAX or header.base_seqno < tail.next_seqno:
        return None
    return None if header.term < tail.term or header.append_time < tail.append_time else (position, header)


def _is_followed(window: Window, found: tuple[int, Header], end: int) -> bool:
    position, header = found[0] + found[1].size, found[1]
    if position == end:
        return True
    try:
        after = window.header(position)
    except BatchError:
        return False
    return (after.index, after.base_seqno) == (header.index + 1, header.next_seqno)


def _can_precede(one: tuple[int, Header], other: tuple[int, Header]) -> bool:
    """Whether both can be true; a batch can precede itself."""
    return one == other or (
        one[0] + one[1].size <= other[0]
        and one[1].index < other[1].index
        and one[1].next_seqno <= other[1].base_seqno
        and one[1].term <= other[1].term
        and one[1].append_time <= other[1].append_time
    )
