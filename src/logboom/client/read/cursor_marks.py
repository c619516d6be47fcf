"""Where the cursor of a reader stands, as the reader knows: what its moves in transactions expect.

A reader that has begun at its cursor moves it from there, and from then on from where it has moved it to itself. Where
somebody else was quicker the move is refused, and with it the transaction: of two readers with one cursor only one
publishes what it has made of a record.

No input, no output. Where nobody says that a move was published, it counts as not done: the next one expects the cursor
where it was, and is refused if it was published all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from logboom.broker.api import CursorMove
from logboom.client.read.reader_core import ReaderCore
from logboom.errors import UnexpectedCursor
from logboom.storage.bookmark import Bookmark

MarkKey = tuple[str | None, str, int]
"""Topic id, topic, partition."""


class MovingReader(Protocol):
    """Whose place a transaction can take along."""

    def moves(self) -> list[CursorMove]:
        """From where its cursor stands to where it stands itself."""
        ...

    def moved(self, moves: Sequence[CursorMove]) -> None:
        """These were published."""
        ...


class CursorMarks:
    def __init__(self, is_start: bool) -> None:
        """`is_start`: the reader begins where the cursor stands."""
        self._is_start = is_start
        self._known: dict[MarkKey, str] = {}
        """Where it stands; empty where there is none."""

    def knows(self, log: ReaderCore) -> bool:
        """Whether the node need not be asked before `move`."""
        return _key(log) in self._known

    def learn(self, cursor: str, log: ReaderCore, found: str | None) -> None:
        """The node says where it stands. Raises UnexpectedCursor where it was moved on since the reader began."""
        if found is not None and self._is_start and log.began is not None:
            place = Bookmark.parse(found)
            if place.topic_id.hex() == log.topic_id and place.seqno > log.began:
                raise UnexpectedCursor(cursor, f"{log.topic}/{log.partition}", place.seqno)
        self._known[_key(log)] = found or ""

    def move(self, cursor: str, log: ReaderCore) -> CursorMove | None:
        """To where the reader stands; None where the cursor does."""
        known = self._known[_key(log)]
        return None if log.bookmark == known else CursorMove(cursor, log.topic, log.partition, log.bookmark, known)

    def moved(self, logs: Iterable[ReaderCore], moves: Iterable[CursorMove]) -> None:
        """These are done."""
        keys = {(log.topic, log.partition): _key(log) for log in logs}
        for move in moves:
            key = keys.get((move.topic, move.partition))
            if key is not None:
                self._known[key] = move.bookmark

    def forget(self) -> None:
        """The reader was put elsewhere, or has committed by itself."""
        self._known.clear()


def _key(log: ReaderCore) -> MarkKey:
    return log.topic_id, log.topic, log.partition or 0
