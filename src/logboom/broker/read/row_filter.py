"""What a filter, or rules, leave of a run of stored batches: one batch of the records that match, and their seqnos.

Headers are walked first. A batch that lacks a column the filter asks for holds no match: its body is not looked at.
The others are verified and evaluated on columns, many batches at once. Nothing loops over records.

Invariant: every record from the seqno asked for up to `Found.next_seqno` was looked at or cannot match; where one of
them cannot be read, `next_seqno` stands before it and `damage` says how far that goes. Memory holds what one piece of
the run inflates to, and what was found.

Touches no shared state: made for a thread.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from logboom.access.restriction import Restriction
from logboom.batch import Batch, Selection, arrow, build_table, to_table, vector
from logboom.batch.columns import CHANNEL, KEY, TAGS, TIMESTAMP
from logboom.batch.facts import ROW_BYTES, TEXTS
from logboom.batch.header import (
    BATCH_SIZE_MAX,
    ENCODING_COLUMNS,
    HEADER_SIZE,
    KIND_CONTROL,
    KIND_DATA,
    KIND_LOST,
    VERSION,
    Header,
    read_header,
)
from logboom.batch.tables import LOST, BatchFailure
from logboom.batch.validation import check_crc
from logboom.broker.api import Filter
from logboom.errors import BatchError, BatchTooLarge, Damage
from logboom.storage.bookmark import TERM_UNKNOWN
from logboom.storage.config import MIB

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.batch.selection import Mask

FOUND_BYTES: Final = 4 * MIB
"""Once so much was found, the rest of the run is left for the next time."""
RECORDS_MAX: Final = 65_536
"""In one batch of found records, as many as a batch may have that have nothing in them."""
_SEARCH_BYTES_MAX: Final = 256 * 1024
"""Larger bodies are not searched for text before they are parsed: a search does not let other threads run."""
_PIECE_BYTES: Final = MIB
"""What is looked at together, inflated; one batch may be more."""


Candidate = tuple[int, Header]
"""A batch that may hold a match, by its place in the run."""


class Found(NamedTuple):
    data: memoryview
    """One batch, as a producer would send it; empty where nothing is left."""
    seqnos: memoryview
    """Of its records, as i64."""
    next_seqno: int
    """Everything before is dealt with. May lie before the end of the run: then the rest is still to be filtered."""
    term: int
    """Of the record before `next_seqno`; TERM_UNKNOWN where the run does not hold it."""
    damage: Damage | None


def filter_run(
    data: memoryview,
    wanted: Filter,
    seqno: int,
    until: int | None = None,
    path: str = "the log",
    position: int = 0,
    found_bytes: int = FOUND_BYTES,
    records_max: int | None = None,
    restriction: Restriction | None = None,
) -> Found:
    """The records of whole consecutive batches that are wanted, from `seqno` on, below `until`.

    `path` and `position` say where the run lies, for those who are told of damage.
    """
    records_max = RECORDS_MAX if records_max is None else max(1, min(records_max, RECORDS_MAX))
    search = _Search(data, wanted.selection(), restriction, seqno, until, (found_bytes, records_max))
    walk = _Walk(data, wanted, restriction, seqno, until)
    next_seqno, failure = search.look(walk) or (walk.next_seqno, walk.failure)
    found, seqnos, rest = search.batch()
    if rest is not None:
        next_seqno, failure = rest, None
    next_seqno = max(seqno, next_seqno if until is None else min(until, next_seqno))
    damage = None
    if failure is not None:
        damage = Damage(path, position + failure.offset, next_seqno, failure.seqno_until, failure.reason)
    return Found(found, seqnos, next_seqno, walk.term_before(next_seqno), damage)


def _texts_of(wanted: Filter) -> list[tuple[bytes, ...]]:
    """Bytes that the body of a batch with a match holds: of each entry at least one."""
    literals: list[tuple[bytes, ...]] = [] if wanted.key is None else [(wanted.key,)]
    if wanted.channel is not None:
        levels = re.split(r"[+#]", wanted.channel.removesuffix("*"))
        literals.append((max(levels, key=len).removesuffix("/").encode(),))
    tags = [wanted.tags_any] if wanted.tags_any else []
    literals += [tuple(tag.encode() for tag in some) for some in (*tags, *((tag,) for tag in wanted.tags_all))]
    return [texts for texts in literals if all(texts)]


def _columns_of(wanted: Filter) -> int:
    """The columns a record needs in order to match."""
    tags = TAGS if wanted.tags_any or wanted.tags_all else 0
    return tags | (0 if wanted.channel is None else CHANNEL) | (0 if wanted.key is None else KEY)


class _Walk:
    """The headers of a run: which batches may hold a match, and how far it came. Goes no farther than it is asked."""

    def __init__(
        self, data: memoryview, wanted: Filter, restriction: Restriction | None, seqno: int, until: int | None
    ) -> None:
        self.next_seqno = seqno
        self.failure: BatchFailure | None = None
        self._bases: list[int] = []
        self._terms: list[int] = []
        self._data = data
        self._columns = _columns_of(wanted) | (0 if restriction is None else restriction.needed_columns)
        self._texts = _texts_of(wanted)
        self._seqno = seqno
        self._until = until

    def __iter__(self) -> Iterator[Candidate]:
        offset = 0
        before: Header | None = None
        while offset < len(self._data):
            try:
                header = _follow(self._data, offset, before)
            except BatchError as error:
                self.failure = BatchFailure(offset, self.next_seqno, None, str(error))
                return
            if self._until is not None and header.base_seqno >= self._until:
                return
            if header.record_count:
                if header.kind == KIND_LOST and header.next_seqno > self._seqno:
                    self.failure = BatchFailure(offset, header.base_seqno, header.next_seqno, LOST)
                    return
                self._bases.append(header.base_seqno)
                self._terms.append(header.term)
                self.next_seqno = header.next_seqno
            if self._may_match(offset, header):
                yield offset, header
            offset, before = offset + header.size, header

    def _may_match(self, offset: int, header: Header) -> bool:
        if header.next_seqno <= self._seqno or header.kind in (KIND_CONTROL, KIND_LOST):
            return False
        if header.version != VERSION or header.kind != KIND_DATA or header.encoding != ENCODING_COLUMNS:
            return True  # nobody knows: left to those who verify
        if header.columns & self._columns != self._columns:
            return False
        if header.codec or header.size > _SEARCH_BYTES_MAX or not self._texts or _is_plain(header):
            return True
        batch = self._data[offset : offset + header.size]
        body = bytes(batch[HEADER_SIZE:])
        if all(any(text in body for text in texts) for texts in self._texts):
            return True
        try:
            check_crc(header, batch)
        except BatchError:
            return True
        return False

    def term_before(self, seqno: int) -> int:
        number = bisect_right(self._bases, seqno - 1) - 1
        return TERM_UNKNOWN if number < 0 else self._terms[number]


def _is_plain(header: Header) -> bool:
    """Whether `to_table` reads many such batches in one go."""
    return not header.codec and not header.columns & ~(TIMESTAMP | TEXTS)


def _pieces(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    """Candidates to be looked at together: alike, not too much when inflated, and if plain, next to each other."""
    piece: list[Candidate] = []
    room = end = 0
    for offset, header in candidates:
        size = max(header.size, header.body_size) + ROW_BYTES * header.record_count
        is_plain = _is_plain(header)
        if piece and (size > room or is_plain != _is_plain(piece[0][1]) or (is_plain and offset != end)):
            yield piece
            piece = []
        room = (room if piece else _PIECE_BYTES) - size
        piece.append((offset, header))
        end = offset + header.size
    if piece:
        yield piece


def _follow(data: memoryview, offset: int, before: Header | None) -> Header:
    """The header here, which must be of the batch behind `before`."""
    header = read_header(data, offset)
    if before is not None and (header.base_seqno, header.index) != (before.next_seqno, before.index + 1):
        raise BatchError(f"batch {header.index} stands where {before.index + 1} must be")
    if header.size > len(data) - offset:
        raise BatchError(f"the batch of {header.size} bytes ends behind the run")
    return header


class _Search:
    """The records that match, gathered over all candidates of a run."""

    def __init__(
        self,
        data: memoryview,
        selection: Selection,
        restriction: Restriction | None,
        seqno: int,
        until: int | None,
        most: tuple[int, int],
    ) -> None:
        """`most` bytes and records are looked for: then it is enough."""
        self._data = data
        self._selection = selection
        self._restriction = restriction
        self._seqno = seqno
        self._until = until
        self._bytes_left, self._records_max = most
        self._records_left = self._records_max
        self._tables: list[pa.Table] = []

    def look(self, candidates: Iterable[Candidate]) -> tuple[int, BatchFailure | None] | None:
        """Search batches. Where that ended before the last, and why: one cannot be read, or enough was found."""
        for piece in _pieces(candidates):
            failure = self._look_at_plain(piece) if _is_plain(piece[0][1]) else self._look_at(piece)
            if failure is not None:
                return failure.seqno_from, failure
            if self._bytes_left <= 0 or self._records_left <= 0:
                return piece[-1][1].next_seqno, None
        return None

    def _look_at_plain(self, piece: list[Candidate]) -> BatchFailure | None:
        """Verified and filtered all together."""
        (begin, first), (offset, last) = piece[0], piece[-1]
        stretch = to_table(self._data[begin : offset + last.size], first.base_seqno, first.index)
        table, failure = stretch.table, stretch.failure
        self._take(table, self._mask(lambda name: table.column(name).combine_chunks(), table.column("seqno")))
        return None if failure is None else failure._replace(offset=begin + failure.offset)

    def _look_at(self, piece: list[Candidate]) -> BatchFailure | None:
        """Verified one by one; then the columns that the filter asks for are looked at together."""
        batches: list[Batch] = []
        failure = None
        for offset, header in piece:
            batch = Batch(header, self._data[offset : offset + header.size], False)
            try:
                batch.verify()
            except BatchError as error:
                failure = BatchFailure(offset, header.base_seqno, header.next_seqno, str(error))
                break
            batches.append(batch)
        if batches:
            self._pick(batches)
        return failure

    def _pick(self, batches: list[Batch]) -> None:
        """Take what matches; of batches without a match nothing else is decoded."""
        np = vector.np

        def column(name: str) -> pa.Array:
            return vector.pa.concat_arrays([arrow.column(batch, name) for batch in batches])

        mask = self._mask(column, column("seqno"))
        counts = np.array([len(batch) for batch in batches])
        hits = np.add.reduceat(mask, np.cumsum(counts) - counts, dtype=np.int64) > 0
        chosen = [batches[number].to_arrow() for number in np.flatnonzero(hits).tolist()]
        if chosen:
            self._take(vector.pa.Table.from_batches(chosen), mask[np.repeat(hits, counts)])

    def _mask(self, column: Callable[[str], pa.Array], seqnos: pa.Array | pa.ChunkedArray) -> Mask:
        numbers = seqnos.to_numpy()
        mask: Mask = numbers >= self._seqno
        if self._until is not None:
            mask &= numbers < self._until
        for part in self._selection.match(column):
            mask &= part
        for part in () if self._restriction is None else self._restriction.match(column):
            mask &= part
        return mask

    def _take(self, table: pa.Table, mask: Mask) -> None:
        if mask.any():
            found = table.combine_chunks().filter(vector.pa.array(mask))
            self._tables.append(found)
            self._bytes_left -= found.nbytes
            self._records_left -= len(found)

    def batch(self) -> tuple[memoryview, memoryview, int | None]:
        """The records found, their seqnos, and where they end before all of them: a batch has limits, and a frame."""
        if not self._tables:
            return memoryview(b""), memoryview(b""), None
        table = vector.pa.concat_tables(self._tables)
        seqnos = table.column("seqno").to_numpy()
        count = min(len(seqnos), self._records_max)
        while True:
            try:
                data = build_table(table.slice(0, count)).data
                if count == 1 or len(data) + 8 * count <= BATCH_SIZE_MAX:
                    break
            except BatchTooLarge:
                if count == 1:
                    raise
            count //= 2
        rest = int(seqnos[count - 1]) + 1 if count < len(seqnos) or count == self._records_max else None
        return data, memoryview(seqnos[:count].tobytes()), rest
