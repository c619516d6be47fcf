"""Where the cursor of a reader stands, as the reader knows: what its moves in transactions expect.

A reader that has begun at its cursor moves it from there, and from then on from where it has moved it to itself. Where
somebody else was quicker the move is refused, and with it the transaction: of two readers with one cursor only one
publishes what it has made of a record.

No input, no output. What became of a transaction the reader may not know: then it asks where the cursor stands.
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
        self._given: dict[MarkKey, str] = {}
        """Where a transaction is to move it, or has."""

    def is_unsure(self, log: ReaderCore) -> bool:
        """Whether the node is to be asked before `move`."""
        key = _key(log)
        return key in self._given or key not in self._known

    def learn(self, cursor: str, log: ReaderCore, found: str | None) -> None:
        """The node says where it stands. Raises UnexpectedCursor where it was not this reader who put it there."""
        key, found = _key(log), found or ""
        given, known = self._given.pop(key, None), self._known.get(key)
        if found not in (given, known) and (known is not None or self._is_ahead(log, found)):
            at = Bookmark.parse(found).seqno if found else None
            raise UnexpectedCursor(cursor, f"{log.topic}/{log.partition}", at)
        self._known[key] = found

    def _is_ahead(self, log: ReaderCore, found: str) -> bool:
        """Whether somebody has moved it on since the reader began."""
        if not found or not self._is_start or log.began is None:
            return False
        place = Bookmark.parse(found)
        return place.topic_id.hex() == log.topic_id and place.seqno > log.began

    def move(self, cursor: str, log: ReaderCore) -> CursorMove | None:
        """To where the reader stands; None where the cursor does."""
        key, bookmark = _key(log), log.bookmark
        known = self._known[key]
        if bookmark == known:
            return None
        self._given[key] = bookmark
        return CursorMove(cursor, log.topic, log.partition, bookmark, known)

    def moved(self, logs: Iterable[ReaderCore], moves: Iterable[CursorMove]) -> None:
        """These are done."""
        keys = {(log.topic, log.partition): _key(log) for log in logs}
        for move in moves:
            key = keys.get((move.topic, move.partition))
            if key is not None:
                self._given.pop(key, None)
                self._known[key] = move.bookmark

    def forget(self) -> None:
        """The reader was put elsewhere, or has committed by itself."""
        self._known.clear()
        self._given.clear()


def _key(log: ReaderCore) -> MarkKey:
    return log.topic_id, log.topic, log.partition or 0
