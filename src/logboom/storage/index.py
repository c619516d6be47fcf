"""Sparse map from seqno, index and time to byte positions within one segment.

An entry stands for the first batch that begins at least `every_bytes` after the previous entry's: its seqno, index and
position, and the highest timestamp of all batches before it in the segment. All four ascend, so each is searched by
bisection; the caller walks batch headers from there.

On disk (`.idx`, written when the segment is sealed): a header of 64 bytes, the four columns, the labels of the segment.
Derived and never trusted: one that does not match its segment is ignored and made again from the .log file. Version 1
had no labels.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from logboom.storage.labels import COLUMNS, Labels

EVERY_BYTES: Final = 4096
MAGIC: Final = b"LGIX"
VERSION: Final = 2
_HEADER = Struct("<4sIQQQQqQI")
_CRC = Struct("<I")


class BatchPlace(NamedTuple):
    """Where a batch begins, and its numbers."""

    position: int
    seqno: int
    index: int  # type: ignore[assignment]


class Summary(NamedTuple):
    """What a sealed segment holds: its bytes, where it ends, its newest timestamp; header_crc of its last batch."""

    size: int
    next_seqno: int
    next_index: int
    max_timestamp: int
    last_header_crc: int


class SparseIndex:
    __slots__ = ("_every", "_indexes", "_maxima", "_next_position", "_positions", "_seqnos", "columns")

    def __init__(self, every_bytes: int = EVERY_BYTES) -> None:
        self._every = every_bytes
        self._next_position = 0
        self._seqnos = array("Q")
        self._indexes = array("Q")
        self._positions = array("Q")
        self._maxima = array("q")
        self.columns = 0
        """Which kinds of labels the batches may have."""

    def __len__(self) -> int:
        return len(self._positions)

    def add(
        self,
        seqno: int,
        index: int,
        position: int,
        max_timestamp_before: int,
        always: bool = False,
        columns: int = COLUMNS,
    ) -> None:
        """Note a batch, if it is far enough from the last one noted. `columns` are those of `label_columns`."""
        self.columns |= columns
        if position < self._next_position and not always:
            return
        self._next_position = position + self._every
        self._seqnos.append(seqno)
        self._indexes.append(index)
        self._positions.append(position)
        self._maxima.append(max_timestamp_before)

    def by_seqno(self, seqno: int) -> BatchPlace | None:
        """A place at or before the batch that holds this record."""
        return self._place(bisect_right(self._seqnos, seqno) - 1)

    def by_index(self, index: int) -> BatchPlace | None:
        """A place at or before the batch with this index."""
        return self._place(bisect_right(self._indexes, index) - 1)

    def by_position(self, position: int) -> BatchPlace | None:
        """The last place at or before this byte."""
        return self._place(bisect_right(self._positions, position) - 1)

    def behind(self, position: int) -> BatchPlace | None:
        """The first place behind this byte."""
        number = bisect_right(self._positions, position)
        return self._place(number) if number < len(self) else None

    def by_time(self, timestamp: int) -> BatchPlace | None:
        """A place such that no record before it has this timestamp or a later one."""
        return self._place(bisect_left(self._maxima, timestamp) - 1)

    def _place(self, number: int) -> BatchPlace | None:
        if number < 0:
            return None
        return BatchPlace(self._positions[number], self._seqnos[number], self._indexes[number])

    def encode(self, summary: Summary, labels: Labels | None = None) -> bytes:
        columns = [column.tobytes() for column in (self._seqnos, self._indexes, self._positions, self._maxima)]
        body = b"".join((*columns, (labels or Labels.of_columns(self.columns)).encode()))
        header = _HEADER.pack(MAGIC, VERSION, len(self), *summary[:4], self._every, summary.last_header_crc)
        return b"".join((header, _CRC.pack(crc32c(body, crc32c(header))), body))

    @classmethod
    def decode(cls, data: bytes) -> tuple[SparseIndex, Summary, Labels] | None:
        """The index and what it says of its segment; None for anything that is not whole and ours."""
        if len(data) < 64:
            return None
        magic, version, count, size, next_seqno, next_index, newest, every, last = _HEADER.unpack_from(data)
        view = memoryview(data)
        (crc,) = _CRC.unpack_from(data, 60)
        end = 64 + 32 * count
        if magic != MAGIC or version not in (1, VERSION) or end > len(data):
            return None
        if crc != crc32c(view[64:], crc32c(view[:60])):
            return None
        labels = Labels.decode(view[end:]) if version > 1 else Labels.of_columns(COLUMNS)
        if labels is None or (version == 1 and end != len(data)):
            return None
        index = cls(every)
        index.columns = labels.columns
        step = 8 * count
        for number, column in enumerate((index._seqnos, index._indexes, index._positions, index._maxima)):
            column.frombytes(view[64 + number * step : 64 + (number + 1) * step])
        index._next_position = index._positions[-1] + every if count else 0
        return index, Summary(size, next_seqno, next_index, newest, last), labels

    @property
    def last(self) -> BatchPlace | None:
        return self._place(len(self) - 1)
