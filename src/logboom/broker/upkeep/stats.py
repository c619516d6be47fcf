"""What upkeep has done and what it waits for: counted as it happens, shown as one frozen value that JSON can take.

Counts begin with the process. What waits (hooks that are queued or fail, findings) is what the disk knows, and older.
Everything that goes wrong passes through `Tally.guard`: it is counted and logged, and the next log has its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from logboom.errors import LogboomError
from logboom.storage.upkeep.scrub import ScrubFinding

logger = logging.getLogger("logboom.upkeep")
TOLD_MAX: Final = 16
"""How many different errors of one place are remembered."""


class Dropped(msgspec.Struct, frozen=True):
    segments: int = 0
    bytes: int = 0

    def plus(self, size: int) -> Dropped:
        return Dropped(self.segments + 1, self.bytes + size)


class FailingHook(msgspec.Struct, frozen=True):
    """A segment that stays because its hook fails, or is none that the node's configuration names: that one is never
    tried, and stands for all behind it in its log. Times are microseconds since 1970."""

    topic: str
    partition: int
    first_seqno: int
    next_seqno: int
    attempts: int
    error: str
    since: int
    next_attempt_at: int
    """0 where there is none: the node has no such hook."""


class HookStats(msgspec.Struct, frozen=True):
    run: int
    """Hooks that ended, one way or the other."""
    failed: int
    running: int
    pending: int
    """Segments that wait for their hooks, those that fail and those that run included."""
    failing: list[FailingHook]


class Waiting(msgspec.Struct, frozen=True):
    """Segments that could go if they were archived."""

    topic: str
    partition: int
    segments: int
    bytes: int
    log_bytes: int
    """Of the whole log."""
    hard_bytes: int | None
    """Beyond this they go, archived or not."""
    archived_until: int | None
    """None where nothing was ever archived of it."""


class RecompressionStats(msgspec.Struct, frozen=True):
    segments: int
    bytes_before: int
    bytes_after: int
    left_alone: int
    """Segments that would not shrink enough, or are damaged."""


class ScrubStats(msgspec.Struct, frozen=True):
    segments: int
    bytes: int
    findings: list[ScrubFinding]


class UpkeepStats(msgspec.Struct, frozen=True):
    dropped: dict[str, Dropped]
    """By reason: bytes, age, records, trim, hard_bytes."""
    dropped_without_hook: Dropped
    """Of these, segments whose hook had not succeeded when the log grew beyond `retention.hard_bytes`."""
    hooks: HookStats
    recompression: RecompressionStats
    scrub: ScrubStats
    trash_emptied: int
    """Deleted topics whose files were removed."""
    errors: int
    last_error: str | None
    dropped_without_archive: Dropped = Dropped()
    """Segments that were to wait until they were archived, and went beyond `retention.hard_bytes`."""
    waiting: list[Waiting] = []
    """Logs with segments that wait for that."""


@dataclass(slots=True)
class Tally:
    """The counts, while they grow."""

    dropped: dict[str, Dropped] = field(default_factory=dict)
    dropped_without_hook: Dropped = field(default_factory=Dropped)
    dropped_without_archive: Dropped = field(default_factory=Dropped)
    hooks_run: int = 0
    hooks_failed: int = 0
    recompressed: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    left_alone: int = 0
    scrubbed: int = 0
    scrubbed_bytes: int = 0
    trash_emptied: int = 0
    errors: int = 0
    last_error: str | None = None
    _told: dict[str, dict[str, int]] = field(default_factory=dict)
    """The last errors of each place, a log's label mostly, and how often each came."""

    def note_error(self, where: str, error: BaseException | str, what: str = "") -> None:
        """Counted each time; of the same again and again only the 1st, 2nd, 4th, 8th … is logged.

        `what` says more exactly where it was; it is told in place of `where`.
        """
        self.errors += 1
        self.last_error = f"{what or where}: {error}"
        told = self._told.setdefault(where, {})
        times = told.pop(self.last_error, 0) + 1
        told[self.last_error] = times
        if len(told) > TOLD_MAX:
            del told[next(iter(told))]
        if times & (times - 1) == 0:
            logger.warning("%s%s", self.last_error, f" ({times} times by now)" if times > 1 else "")

    def forget_others(self, labels: Collection[str]) -> None:
        """Only these logs are left. Nothing but a log's label has a slash."""
        self._told = {where: told for where, told in self._told.items() if "/" not in where or where in labels}

    def note_dropped(self, reason: str, size: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, Dropped()).plus(size)

    @contextmanager
    def guard(self, where: str, what: str = "") -> Iterator[None]:
        """One log's trouble is not the others'."""
        try:
            yield
        except (OSError, LogboomError) as error:
            self.note_error(where, error, what)
