"""What the thread that keeps up a membership, and the loop of the program, have for each other.

The thread puts what the node has told it last; the loop takes it when it comes by, and the latch sees to that: records
that are being taken end before the next one. Each time the loop takes a standing there is a new version of what it
holds, and what the node has said to an older version counts for nothing: it is said again.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from logboom.batch.batch import Latch
from logboom.broker.api import GroupMove, GroupStanding, HeldLog, RefusedMove


class MemberReport(NamedTuple):
    """What the loop says: these places are to be moved, then these are the logs it holds."""

    version: int
    generation: int
    """What it has heard of."""
    held: tuple[HeldLog, ...]
    moves: tuple[GroupMove, ...] = ()
    joins: bool = False
    """Whether it has heard that it was no member any more, and wants to be one again."""


class MemberNews(NamedTuple):
    """What the loop takes."""

    standing: GroupStanding | None = None
    is_out: bool = False
    """Whether it is no member any more. Then nothing it held is its own."""
    error: BaseException | None = None
    """Why it will not become one again by itself."""
    refused: tuple[tuple[GroupMove, RefusedMove], ...] = ()


class Mailbox:
    def __init__(self, latch: Latch, clock: Callable[[], float]) -> None:
        self._latch = latch
        self._clock = clock
        self._lock = Lock()
        self._news = MemberNews()
        self._is_polling = False
        self._polled = clock()
        self.version = 0

    # The thread.

    def put(self, version: int, standing: GroupStanding) -> None:
        """What the node said to this version."""
        with self._lock:
            if version != self.version or self._news.is_out:
                return
            self._news = self._news._replace(standing=standing)
        self._latch.shut()

    def end(self, error: BaseException | None = None) -> None:
        """It is no member any more."""
        with self._lock:
            self._news = MemberNews(None, True, error, self._news.refused)
        self._latch.shut()

    def refuse(self, refused: list[tuple[GroupMove, RefusedMove]]) -> None:
        with self._lock:
            self._news = self._news._replace(refused=(*self._news.refused, *refused))
        self._latch.shut()

    def generation_for(self, report: MemberReport) -> int | None:
        """What the member was told last; None while there is to be another report first."""
        with self._lock:
            if report.version != self.version:
                return None
            standing = self._news.standing
            return report.generation if standing is None else standing.generation

    def ring(self) -> None:
        """Let the loop come by."""
        self._latch.shut()

    @property
    def idle_s(self) -> float:
        """How long the loop has not come by."""
        return 0.0 if self._is_polling else self._clock() - self._polled

    # The loop.

    def take(self) -> MemberNews:
        self._latch.open()
        with self._lock:
            news, self._news = self._news, MemberNews()
            self.version += news.standing is not None or news.is_out
        return news

    def next_version(self) -> int:
        """For a report of other logs. What was told about the last one is told again."""
        with self._lock:
            self.version += 1
            self._news = self._news._replace(standing=None)
            return self.version

    def polls(self, is_waiting: bool) -> None:
        """The loop is here; and waits."""
        self._polled, self._is_polling = self._clock(), is_waiting
