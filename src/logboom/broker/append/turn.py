"""A log as the rounds know it, and its part of one round.

    take_turn → write (on a thread) → written → (the disk syncs) → synced

A log that is `busy` takes no turn: a thread has it. Everything but `write` is called on the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from logboom.broker.append.promise import Entry
from logboom.storage.appender import PendingSync


class RoundLog(Protocol):
    @property
    def busy(self) -> bool:
        """Whether a thread has the log."""
        ...

    @property
    def is_fresh(self) -> bool:
        """Whether writing what is queued takes another file: nothing of the log waits for a sync."""
        ...

    def take_turn(self) -> LogTurn | None:
        """What the round that begins is to write and sync; None where there is nothing. Little is written right now."""
        ...

    def write(self, turn: LogTurn) -> None:
        """On a thread: write what is in the turn, and say what is to be synced."""
        ...

    def written(self, turn: LogTurn) -> None:
        """It is written, and no thread has the log any more."""
        ...

    def synced(self, turn: LogTurn) -> None:
        """The round has ended well."""
        ...

    def go_on(self) -> None:
        """A pause is over."""
        ...

    def tell(self) -> None:
        """Readers in other processes are to see what is committed."""
        ...

    def stop(self, error: OSError) -> None:
        """A sync of this or another log has failed: no more writes, though reads go on."""
        ...


@dataclass(slots=True)
class LogTurn:
    """One log's part of a round."""

    log: RoundLog
    entries: list[Entry]
    """To be written first."""
    pending: PendingSync | None = None
    """To be synced."""
