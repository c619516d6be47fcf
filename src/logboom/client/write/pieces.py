"""Columns that wait to be part of a batch, and several of them as one.

`slices_of` cuts what a caller gives into slices while they are written: what is dealt out to several partitions waits
until there is enough for a batch of one of them. Of everything that was given, only that is in memory as columns.

Pieces fit together where they have the same columns, each a list in both, an Arrow array of the same type in both, or
the same single entry. What waits must not hold on to memory that it is only a small part of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from logboom.batch import vector
from logboom.batch.encode import SHORT
from logboom.batch.partitioner import ANYWHERE
from logboom.client.write.column_source import ColumnSource
from logboom.client.write.gathered import Gathered
from logboom.client.write.router import Router
from logboom.client.write.slices import BuildColumns, Slice

PIECE_BATCHES: Final = 4
"""What is dealt out to partitions is taken in pieces of so many batches,"""
PIECE_BYTES: Final = 4 * 1024 * 1024
"""or of so much, where batches are large."""


class ColumnPiece(BuildColumns):
    @classmethod
    def from_columns(cls, columns: BuildColumns) -> ColumnPiece:
        return cls(columns.count, columns._entries)

    @classmethod
    def from_rows(cls, rows: Gathered) -> ColumnPiece:
        """Records that were added one by one."""
        entries = {
            "values": rows.values,
            "keys": rows.keys,
            "timestamps": rows.timestamps,
            "channels": rows.channels,
            "tags": rows.tags,
            "headers": rows.headers,
        }
        return cls(len(rows.values), {name: entry for name, entry in entries.items() if entry is not None})

    def slices(self, partitions: int, batch_bytes: int) -> Iterator[Slice]:
        """By partition, and there in their order. They are sorted, and so copied, once for all partitions."""
        if partitions == 1 or not self._entries.keys() & {"keys", "channels"}:
            yield from self._cut(None, batch_bytes)
            return
        np, chosen = vector.np, self._partitions(partitions).astype(vector.np.int16)
        order = np.argsort(chosen, kind="stable")
        dealt = self._take(order)
        chosen = chosen[order]
        starts = [0, *(np.flatnonzero(np.diff(chosen)) + 1).tolist(), self.count] if self.count else [0]
        ends = np.concatenate(([0], np.cumsum(dealt._sizes())))
        for start, until in pairwise(starts):
            partition, size = int(chosen[start]), int(ends[until] - ends[start])
            part = ColumnPiece.from_columns(dealt._range(start, until))
            named = None if partition == ANYWHERE else partition
            if size > batch_bytes:
                yield from part._cut(named, batch_bytes)
            else:
                yield Slice(named, part, partitions, False)

    def _cut(self, partition: int | None, batch_bytes: int) -> Iterator[Slice]:
        """Evenly: about `batch_bytes` each, at most half as much again, and no small rest."""
        np, start = vector.np, 0
        ends = np.cumsum(self._sizes())
        total = int(ends[-1]) if self.count else 0
        pieces = max(1, round(total / batch_bytes))
        for number in range(1, pieces + 1):
            until = min(int(np.searchsorted(ends, total * number // pieces)) + 1, self.count)
            if until > start:
                yield Slice(partition, self._range(start, until), 1, False)
                start = until

    @property
    def held_bytes(self) -> int:
        """The memory its arrays hold on to, which may be far more than they show."""
        return sum(entry.get_total_buffer_size() for entry in self._entries.values() if _is_array(entry))

    def halves(self) -> tuple[ColumnPiece, ColumnPiece]:
        middle = self.count // 2
        return ColumnPiece.from_columns(self._range(0, middle)), ColumnPiece.from_columns(
            self._range(middle, self.count)
        )

    def compact(self) -> ColumnPiece:
        """The same, without the memory of what it was sliced from."""
        return ColumnPiece(self.count, {name: _compact(entry) for name, entry in self._entries.items()})

    def fits(self, other: ColumnPiece) -> bool:
        """Whether `other` may follow in the same batch."""
        if self._entries.keys() != other._entries.keys():
            return False
        return all(_alike(entry, other._entries[name]) for name, entry in self._entries.items())

    @classmethod
    def join(cls, pieces: Sequence[ColumnPiece]) -> ColumnPiece:
        """As one; they fit."""
        if len(pieces) == 1:
            return pieces[0]
        names = pieces[0]._entries
        entries = {name: _join([piece._entries[name] for piece in pieces]) for name in names}
        return cls(sum(piece.count for piece in pieces), entries)


def joined(pieces: Sequence[ColumnPiece]) -> Iterator[ColumnPiece]:
    """As few as can be, in the same order."""
    start = 0
    for end in range(1, len(pieces) + 1):
        if end == len(pieces) or not pieces[start].fits(pieces[end]):
            yield ColumnPiece.join(pieces[start:end])
            start = end


def slices_of(source: ColumnSource, routing: Router, batch_bytes: int, waiting_bytes: int) -> Iterator[Slice]:
    """What a caller gives, in slices of at most `batch_bytes`, and few that are less than half of that.

    Where it comes to an entry that cannot be taken, everything before the piece with that entry is given out, then the
    error is raised. About `waiting_bytes` wait, at most.
    """
    waiting = _WaitingColumns(batch_bytes, waiting_bytes)
    piece_bytes = min(PIECE_BATCHES * batch_bytes, max(batch_bytes, PIECE_BYTES))
    while True:
        partitions = routing.partitions
        is_dealt = partitions > 1 and source.has_names
        try:
            piece = source.take(piece_bytes if is_dealt else batch_bytes)
            if piece is not None and is_dealt and (piece.count > SHORT or waiting.partitions):
                piece = piece.checked()
        except Exception:
            yield from waiting.rests()
            raise
        if piece is None:
            yield from waiting.rests()
            return
        if is_dealt:
            waiting.partitions = partitions
            for partition, part in piece.deal(partitions):
                yield from waiting.add(partition, ColumnPiece.from_columns(part))
        else:
            yield Slice(None, piece, partitions, 2 * piece.size < batch_bytes)


class _WaitingColumns:
    """Pieces by partition, in their order, until they are enough for a batch."""

    def __init__(self, batch_bytes: int, waiting_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._waiting_bytes = waiting_bytes
        self._pieces: dict[int | None, list[ColumnPiece]] = {}
        self._sizes: dict[int | None, int] = {}
        self._size = 0
        self.partitions = 0
        """Among so many the pieces were dealt out; 0 where there were none yet."""

    def add(self, partition: int | None, piece: ColumnPiece) -> Iterator[Slice]:
        self._pieces.setdefault(partition, []).append(piece)
        self._sizes[partition] = size = self._sizes.get(partition, 0) + piece.size
        self._size += piece.size
        if 8 * size >= 7 * self._batch_bytes:
            yield from self._release(partition)
        elif self._size > self._waiting_bytes:
            for largest in sorted(self._sizes, key=self._sizes.__getitem__, reverse=True):
                if 2 * self._size <= self._waiting_bytes:
                    break
                yield from self._release(largest)

    def rests(self) -> Iterator[Slice]:
        for partition in list(self._pieces):
            yield from self._release(partition)

    def _release(self, partition: int | None) -> Iterator[Slice]:
        self._size -= self._sizes.pop(partition)
        for piece in joined(self._pieces.pop(partition)):
            for part in piece.cut(self._batch_bytes):
                yield Slice(partition, part, self.partitions, False)


def _compact(entry: Any) -> Any:
    if not _is_array(entry) or entry.get_total_buffer_size() <= 2 * entry.nbytes:
        return entry
    return entry.take(vector.pa.array(vector.np.arange(len(entry))))


def _is_array(entry: Any) -> bool:
    return hasattr(entry, "get_total_buffer_size")


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple)
    if _is_array(one):
        return _is_array(other) and bool(one.type == other.type)
    return type(one) is type(other) and bool(one == other)


def _join(entries: Sequence[Any]) -> Any:
    first = entries[0]
    if isinstance(first, list | tuple):
        return [item for entry in entries for item in entry]
    return vector.pa.concat_arrays(entries) if _is_array(first) else first
