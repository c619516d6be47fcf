"""Reading stored batches one after another, and telling a torn tail from damage.

`Window` reads a file through a bounded buffer. `scan` follows a tail over every batch of a segment and stops at the
first that is not sound: checksums, structure, consecutive index and seqno, a term and time that never go back.
`next_sound` finds where sound batches begin again behind a bad one; a body may contain what looks like a batch, so it
demands a plausible place in the log, and bounds the work that hostile bytes can cause.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from logboom.batch.batch import Batch
from logboom.batch.header import BATCH_SIZE_MAX, HEADER_SIZE, MAGIC, SYNCED_UNKNOWN, Header, read_header
from logboom.errors import BatchError, NotABatch, UnsupportedBatch
from logboom.storage.files.disk import File
from logboom.storage.index import BatchPlace
from logboom.storage.tail import LogTail, read_control

_CHUNK: Final = 1 << 20
_WORK_FACTOR: Final = 8


class Window:
    """A moving view of a file: at most a chunk, or one batch, in memory."""

    __slots__ = ("_chunk", "_data", "_end", "_file", "_start")

    def __init__(self, file: File, end: int, chunk: int = _CHUNK) -> None:
        self._file = file
        self._end = end
        self._chunk = chunk
        self._start = 0
        self._data = memoryview(b"")

    def view(self, position: int, size: int) -> memoryview:
        """These bytes; fewer where the file, or what is asked to be seen of it, ends."""
        size = min(size, self._end - position)
        offset = position - self._start
        if offset < 0 or offset + size > len(self._data):
            self._data = memoryview(self._file.read(min(max(size, self._chunk), self._end - position), position))
            self._start, offset = position, 0
        return self._data[offset : offset + size]

    def header(self, position: int) -> Header:
        return read_header(self.view(position, HEADER_SIZE))

    def batch(self, position: int) -> Batch:
        """The batch at this position, verified."""
        header = self.header(position)
        if position + header.size > self._end:
            raise NotABatch(f"the batch of {header.size} bytes ends behind the file")
        batch = Batch(header, self.view(position, header.size), False)
        batch.verify()
        return batch


class Bad(NamedTuple):
    """The first batch that is not sound: where, why, and where the next begins if its header can be believed."""

    position: int
    reason: str
    next_position: int
    unsupported: bool = False
    unreadable: bool = False


def scan(
    window: Window, position: int, end: int, tail: LogTail, see: Callable[[Batch], None] | None = None
) -> Iterator[tuple[int, Header] | Bad]:
    """Move `tail` over every batch from `position`; yields each one's place and header, at last a Bad where one is.

    `see` is shown every sound batch.
    """
    while position < end:
        unsupported = unreadable = False
        try:
            batch = window.batch(position)
            header = batch.header
            reason = tail.expects(header)
            if reason is None:
                tail.follow(header, read_control(batch))
        except BatchError as error:
            reason = str(error)
            unsupported = isinstance(error, UnsupportedBatch)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            reason, unreadable = f"the device cannot read it: {error}", True
        if reason is not None:
            size = 8 if unreadable else _believable_size(window, position)
            yield Bad(position, reason, position + size, unsupported, unreadable)
            return
        if see is not None:
            see(batch)
        yield position, header
        position += header.size


def _believable_size(window: Window, position: int) -> int:
    try:
        return window.header(position).size
    except BatchError:
        return 8


class Gap(NamedTuple):
    """Bytes between sound batches that hold none, and the seqnos that are missing with them."""

    position: int
    seqno_from: int
    seqno_until: int
    reason: str


def walk(window: Window, place: BatchPlace, end: BatchPlace) -> Iterator[tuple[int, Header] | Gap]:
    """Headers only, from a place on, across damage: each true batch start with its header, and the gaps between.

    `end` is where the walk ends, with the numbers that come next there.
    """
    position, seqno, index = place
    while position < end.position:
        try:
            header = window.header(position)
            reason = None if (header.base_seqno, header.index) == (seqno, index) else "another batch must be here"
            if position + header.size > end.position:
                reason = "the batch ends behind the segment"
        except BatchError as error:
            reason = str(error)
        if reason is None:
            yield position, header
            position, seqno, index = position + header.size, header.next_seqno, header.index + 1
            continue
        bad = Bad(position, reason, position + 8)
        try:
            found = next_sound(window, bad, end.position, LogTail(seqno, index), leads_on(window, end))
        except TooHostile:
            found = None
        yield Gap(position, seqno, found[1].base_seqno if found else end.seqno, reason)
        if found is None:
            return
        position, seqno, index = found[0], found[1].base_seqno, found[1].index


class ScanBudget:
    """How much looking for batches may cost: hostile bytes can look like any number of them."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = _WORK_FACTOR * size + 2 * BATCH_SIZE_MAX

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise TooHostile


class TooHostile(Exception):
    """So many things that look like batches that looking further would take for ever."""


Accept = Callable[[int, Header, ScanBudget], bool]


def leads_on(window: Window, end: BatchPlace) -> Accept:
    """Accepts a batch from which headers lead, number by number, to the end.

    A record may hold what looks like batches. Their writer cannot make them fit what is really there behind them: the
    damaged batch around them has taken the numbers that would.
    """

    def accept(position: int, header: Header, work: ScanBudget) -> bool:
        place = BatchPlace(position + header.size, header.next_seqno, header.index + 1)
        while place.position < end.position:
            work.spend(HEADER_SIZE)
            try:
                header = window.header(place.position)
            except BatchError:
                return False
            if (header.base_seqno, header.index) != place[1:]:
                return False
            place = BatchPlace(place.position + header.size, header.next_seqno, header.index + 1)
        return place == end

    return accept


def proves_synced(index: int) -> Accept:
    """Accepts a batch whose stamp says that batch `index` was already synced when it was written."""
    return lambda _, header, work: header.synced != SYNCED_UNKNOWN and header.index - header.synced >= index


def next_sound(window: Window, bad: Bad, end: int, tail: LogTail, accept: Accept) -> tuple[int, Header] | None:
    """The first sound batch behind a bad one that could belong to this log and that `accept` takes.

    Raises `TooHostile` where that cannot be told with bounded work.
    """
    work = ScanBudget(end - bad.position)
    start = (bad.next_position + 7) & ~7
    for position in _magics(window, start, end):
        work.spend(HEADER_SIZE)
        if position < start:
            continue
        header = _plausible(window, position, end, tail, bad.position)
        if header is None:
            continue
        work.spend(header.size)
        if not _holds(window, position):
            continue
        if accept(position, header, work):
            return position, header
        start = position + header.size  # sound, so what its body holds is none of our business
    return None


def _magics(window: Window, position: int, end: int) -> Iterator[int]:
    """Every place, a multiple of 8, where a header may be: magic, and a checksum that holds. Each byte is read once."""
    while position + HEADER_SIZE <= end:
        view = bytes(window.view(position, _CHUNK + HEADER_SIZE))
        at = view.find(MAGIC)
        while 0 <= at < _CHUNK:
            if not at & 7 and crc32c(view[at : at + 92]) == int.from_bytes(view[at + 92 : at + 96], "little"):
                yield position + at
            at = view.find(MAGIC, at + 1)
        position += _CHUNK


def _plausible(window: Window, position: int, end: int, tail: LogTail, bad_position: int) -> Header | None:
    try:
        header = window.header(position)
    except BatchError:
        return None
    batches_between = (position - bad_position) // HEADER_SIZE
    if not tail.next_index < header.index <= tail.next_index + max(1, batches_between):
        return None
    if header.base_seqno < tail.next_seqno or header.term < tail.term or header.append_time < tail.append_time:
        return None
    return header if position + header.size <= end else None


def _holds(window: Window, position: int) -> bool:
    try:
        window.batch(position)
    except BatchError:
        return False
    return True
