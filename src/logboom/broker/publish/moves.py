"""The cursors that a publish moves with its records.

    found right → in the intent (durable: the commit point) → in the cursors' dictionary → done

A move is decided as a commit is, in the step that writes the intent: until it is written, others are compared with it.
A refused one refuses the publish. From the intent on it comes true, as the records do, and right behind them: whoever
finds the cursor there writes after them. What cannot be written now is tried again, after a crash before anybody is
served. Writing one twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from logboom.broker.api import CursorMove, check_moves
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.publish.intent import KeptMove
from logboom.broker.state.cursors import OF_GROUP, CursorChange, Cursors, check_name, split_key
from logboom.broker.state.log_cursors import begin_in

_MOVE_BYTES: Final = 128
"""What one takes in the intent and in memory, beside its key, about."""


class MoveCheck(Protocol):
    """Who keeps consumer groups: asked about moves of members, in the step that commits them."""

    def check_move(self, move: CursorMove, hosted: Hosted, caller: Caller) -> None:
        """Raises where the caller may not, or the member does not hold this log in this generation."""
        ...


@dataclass(frozen=True, slots=True)
class WantedMoves:
    """What is to be moved with one publish, by one caller."""

    moves: Sequence[CursorMove]
    begin: Callable[[CursorMove], CursorChange]
    """Raises what is wrong with it."""

    @property
    def size_bytes(self) -> int:
        """About what they will take in the intent and in memory."""
        return sum(_MOVE_BYTES + move.size_bytes for move in self.moves)

    def begin_all(self, cursors: Cursors) -> list[CursorChange]:
        """All of them, each compared with those before it; or none."""
        begun: list[CursorChange] = []
        try:
            begun.extend(map(self.begin, self.moves))
        except BaseException:
            cursors.end(begun)
            raise
        return begun


class CursorMoves:
    """Makes changes of the cursors out of what callers want moved."""

    def __init__(
        self, catalog: Catalog, cursors: Callable[[], Cursors], now_us: Callable[[], int], groups: MoveCheck
    ) -> None:
        self._catalog = catalog
        self._cursors = cursors
        self._now_us = now_us
        self._groups = groups

    def want(self, moves: Sequence[CursorMove], caller: Caller) -> WantedMoves | None:
        """Raises where there are too many, or a name is none. Whether the caller may is for his broker to say."""
        check_moves(moves)
        for move in moves:
            check_name(move.cursor)
        return WantedMoves(moves, lambda move: self._begin(move, caller)) if moves else None

    def _begin(self, move: CursorMove, caller: Caller) -> CursorChange:
        hosted = self._catalog.find(move.topic)
        if move.member:
            self._groups.check_move(move, hosted, caller)
            move = msgspec.structs.replace(move, cursor=OF_GROUP + move.cursor)
        return begin_in(hosted, self._cursors(), move, self._now_us(), with_publish=True)


def keep_moves(changes: Iterable[CursorChange]) -> list[KeptMove]:
    """As the intent has them."""
    return [KeptMove(change.key, change.entry) for change in changes]


def resume_moves(kept: Iterable[KeptMove], cursors: Cursors, catalog: Catalog) -> list[CursorChange]:
    """After a restart, without those of topics that were made anew: their cursors are others."""
    return [cursors.resume(move.key, move.entry) for move in kept if _has_topic(move, catalog)]


def _has_topic(move: KeptMove, catalog: Catalog) -> bool:
    hosted = catalog.get(split_key(move.key)[1])
    return hosted is None or hosted.topic.id_bytes == move.entry.topic_id


def size_of_moves(changes: Iterable[CursorChange]) -> int:
    """What they take, in the intent and in `_cursors`, about."""
    return sum(_MOVE_BYTES + len(change.key) for change in changes)
