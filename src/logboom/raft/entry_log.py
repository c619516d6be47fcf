"""One view of the log: what the journal keeps, and before that what waits to be written, synced or committed.

    first … persisted … handed … last

`handed` is what the driver was given to write, `persisted` what it has synced. Entries stay in the tail until they are
persisted and committed, so whatever may still be cut or sent is here; a cut takes effect on disk when the entries that
replace it are written, because a write replaces everything from its first index on.

After a crash there is no tail: what the journal has is persisted, whatever was here besides was never acknowledged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from logboom.raft.entry import ENTRY_COST, KeptEntries, RaftEntry, RaftSnapshot

TRIM_COUNT = 32
"""How many entries in front of the tail may be persisted and committed before they are dropped."""


class EntryLog:
    __slots__ = ("_ends", "_kept", "_offset", "_tail", "handed", "last_index", "last_term", "persisted")

    def __init__(self, kept: KeptEntries) -> None:
        self._kept = kept
        self.last_index = kept.last_index
        self.last_term = kept.term(self.last_index)
        self.persisted = self.handed = self.last_index
        self._tail: list[RaftEntry] = []
        self._ends = [0]
        """Bytes up to and with each entry of the tail, behind those before it."""
        self._offset = self.last_index + 1

    @property
    def first_index(self) -> int:
        """Of the first entry whose body can still be had."""
        return self._kept.first_index

    def term(self, index: int) -> int | None:
        """Of an entry, or of the one before the first; None where there is none, or it is gone."""
        if index >= self._offset:
            place = index - self._offset
            return self._tail[place].term if place < len(self._tail) else None
        if index == self.last_index:
            return self.last_term
        return self._kept.term(index) if index >= self._kept.first_index - 1 else None

    def entries(self, first: int, bytes_max: int) -> tuple[RaftEntry, ...]:
        """From `first`, at least one where there is one, as many as have that many bytes together."""
        if first > self.last_index:
            return ()
        if first < self._offset:
            return tuple(self._kept.entries(first, self._offset - 1, bytes_max))
        place = first - self._offset
        until = bisect_right(self._ends, self._ends[place] + bytes_max) - 1
        return tuple(self._tail[place : max(until, place + 1)])

    def size(self, first: int, last: int) -> int:
        """What entries of the tail count for; those before it count for nothing."""
        first, last = max(first, self._offset), min(last, self.last_index)
        return self._ends[last - self._offset + 1] - self._ends[first - self._offset] if first <= last else 0

    def append(self, entry: RaftEntry) -> None:
        """The next one."""
        self._tail.append(entry)
        self._ends.append(self._ends[-1] + entry.size + ENTRY_COST)
        self.last_index = entry.index
        self.last_term = entry.term

    def extend(self, entries: Iterable[RaftEntry]) -> None:
        for entry in entries:
            self.append(entry)

    def cut(self, index: int) -> None:
        """Take back an entry and all behind it."""
        if index < self._offset:
            self._offset = index
            self._tail, self._ends = [], [0]
        else:
            place = index - self._offset
            del self._tail[place:], self._ends[place + 1 :]
        self.last_index = index - 1
        self.last_term = self.term(index - 1) if self._tail else self._kept.term(index - 1)  # type: ignore[assignment]
        self.handed = min(self.handed, self.last_index)
        self.persisted = min(self.persisted, self.last_index)

    def hand_over(self) -> tuple[RaftEntry, ...]:
        """What is to be written now."""
        if self.handed == self.last_index:
            return ()
        found = tuple(self._tail[self.handed + 1 - self._offset :])
        self.handed = self.last_index
        return found

    def trim(self, index: int) -> None:
        """Entries up to an index are persisted and committed: the journal has them."""
        count = min(index + 1 - self._offset, len(self._tail))
        if count >= TRIM_COUNT:
            del self._tail[:count], self._ends[:count]
            self._offset += count

    def restart(self, index: int, term: int) -> None:
        """The journal was replaced by a snapshot that ends here."""
        self._tail, self._ends = [], [0]
        self._offset = index + 1
        self.last_index = self.handed = self.persisted = index
        self.last_term = term

    def snapshot(self) -> RaftSnapshot | None:
        return self._kept.snapshot()

    def is_covered_by(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so is at least as new as this one: its owner may lead."""
        return last_term > self.last_term or (last_term == self.last_term and last_index >= self.last_index)

    def meeting_point(self, index: int, term: int) -> tuple[int, int]:
        """The last entry at or below an index whose term is not higher: above it no log that has that can be equal."""
        high = min(index, self.last_index)
        low = self.first_index - 1
        if index < low:
            return index, 0
        while low < high:
            middle = (low + high + 1) // 2
            if (self.term(middle) or 0) <= term:
                low = middle
            else:
                high = middle - 1
        return low, self.term(low) or 0
