"""What was handed out to be written and is not known to be on disk, in the order of its numbers.

Writes are synced in that order, so a number stands for all before it. A cut takes from the writes before it what it
takes from the log: their entries are no longer what they will be when they are on disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from logboom.raft.lives import Life, RememberedLife


class PendingWrite:
    __slots__ = ("has_hard_state", "last_index", "lives", "number")

    def __init__(self, number: int, last_index: int, has_hard_state: bool, lives: tuple[RememberedLife, ...]) -> None:
        self.number = number
        self.last_index = last_index
        self.has_hard_state = has_hard_state
        self.lives = lives


class WriteOrder:
    __slots__ = ("_number", "_writes")

    def __init__(self) -> None:
        self._number = 0
        self._writes: list[PendingWrite] = []

    @property
    def awaits_hard_state(self) -> bool:
        return any(write.has_hard_state for write in self._writes)

    def begin(self, last_index: int, has_hard_state: bool, lives: tuple[RememberedLife, ...]) -> int:
        """Hand something out; `last_index` is that of its entries, 0 where it has none."""
        self._number += 1
        self._writes.append(PendingWrite(self._number, last_index, has_hard_state, lives))
        return self._number

    def end(self, number: int) -> Iterator[PendingWrite]:
        """Everything up to a number is on disk."""
        writes = self._writes
        while writes and writes[0].number <= number:
            yield writes.pop(0)

    def cut(self, index: int) -> None:
        """Entries from an index on were taken back."""
        for write in self._writes:
            write.last_index = min(write.last_index, index - 1)

    def abandon(self) -> Iterator[tuple[int, Life]]:
        """None of it will be on disk. Members and lives that were to be remembered."""
        for write in self._writes:
            yield from ((known.member, known.life) for known in write.lives)
        self._writes.clear()
