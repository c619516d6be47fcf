"""Scrubbing of a node's cold segments: one at a time, slowly, each once in `every_us`.

The ledger says what is due and keeps what was found, on the disk, after every segment. Findings of segments that are
gone, and all of logs that are, is forgotten. A segment that cannot be read is a finding, and the next has its turn.
The labels that a scrub has made get their place when it ends. A crash costs at most the scrub that was under way.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError
from functools import partial
from typing import Final

from logboom.broker.upkeep.jobs import Jobs, ScrubJob, SwapJob
from logboom.broker.upkeep.retainer import Kept, key_of, range_of
from logboom.broker.upkeep.stats import ScrubStats, Tally, logger
from logboom.broker.upkeep.throttle import Stopped, Throttle
from logboom.errors import Damage
from logboom.storage.files.disk import Disk
from logboom.storage.segment import Segment
from logboom.storage.upkeep.scrub import ScrubFinding, ScrubLedger, ScrubResult, scrub

_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)  # they say nothing about a file


class Scrubber:
    def __init__(self, disk: Disk, path: str, tally: Tally, jobs: Jobs, throttle: Throttle, every_us: int) -> None:
        self.throttle = throttle
        self._disk = disk
        self._ledger = ScrubLedger.load(disk, path)
        self._tally = tally
        self._jobs = jobs
        self._every_us = every_us
        self._turns: deque[str] = deque()
        """Logs of which a segment may be due."""
        self._is_forced = False
        self._forced: dict[str, int] = {}
        """Logs to be scrubbed whole now, and the index up to which that is done."""
        self._later: set[str] = set()
        """Paths that could not be read for want of something; the next pass tries again."""

    @property
    def stats(self) -> ScrubStats:
        return ScrubStats(self._tally.scrubbed, self._tally.scrubbed_bytes, list(self._ledger.findings))

    def findings_of(self, log_name: str) -> list[ScrubFinding]:
        return [finding for finding in self._ledger.findings if finding.log == log_name]

    def force(self) -> None:
        self._is_forced = True

    def begin_pass(self, logs: Mapping[str, Kept], names: Collection[str]) -> None:
        """`names` are those of all logs there are, open or not."""
        self._later.clear()
        before = self._ledger.findings
        gone = self._ledger.logs.difference(names)
        for name in gone:
            self._ledger.forget(name, ())
        for name in {finding.log for finding in before} & logs.keys():
            self._ledger.forget(name, logs[name].log.segments)
        if gone or self._ledger.findings != before:
            self._save()
        if self._is_forced:
            self._is_forced = False
            self._forced = dict.fromkeys(logs, 0)
        if not self._turns:
            self._turns.extend(logs)

    def look_again(self, name: str) -> None:
        """A segment of this log is free again."""
        if name not in self._turns:
            self._turns.append(name)

    def start(self, now: int, logs: Mapping[str, Kept], logs_max: int) -> bool:
        """Begin with the next segment, if none is under way. True where there were too many logs to look at."""
        if self._jobs.of(ScrubJob):
            return False
        for _ in range(min(logs_max, len(self._turns))):
            kept = logs.get(self._turns[0])
            segment = self._next(kept, now) if kept is not None and not kept.log.closed else None
            if kept is not None and segment is not None:
                with self._tally.guard(kept.label):
                    job = ScrubJob(kept, f"scrubbing {kept.label}, {range_of(*key_of(segment))}", segment)
                    self._jobs.start(job, partial(scrub, segment, job.throttled(self.throttle)))
                    return False
            self._turns.popleft()
        return bool(self._turns)

    def _next(self, kept: Kept, now: int) -> Segment | None:
        cold = kept.log.cold_segments()
        if kept.name in self._forced:
            reached = self._forced[kept.name]
            segment = next((segment for segment in cold if segment.first_index > reached), None)
            if segment is None:
                del self._forced[kept.name]
        else:
            segment = self._ledger.next_due(kept.name, cold, now, self._every_us)
        if segment is None or segment.log_path in self._later:
            return None
        return None if any(job.swap.old is segment for job in self._jobs.of(SwapJob)) else segment

    def ended(self, job: ScrubJob, now: int) -> None:
        """Note what was found, unless the segment went away under the reader. The log is open."""
        kept, segment = job.kept, job.segment
        if segment not in kept.log.segments:
            segment.discard_labels()
            return
        try:
            result = job.future.result()
        except Exception as error:
            if _is_passing(error):
                self._later.add(segment.log_path)
                self._tally.note_error(kept.label, error, job.what)
                return
            result = _unreadable(segment, error)
        if result.has_labels:
            with self._tally.guard(kept.label, job.what):
                segment.publish_labels()
        self._tally.scrubbed += 1
        self._tally.scrubbed_bytes += result.bytes
        for damage in result.damage:
            logger.error("%s: a scrub found damage: %s", kept.label, damage)
        self._ledger.record(kept.name, segment, result, now)
        if kept.name in self._forced:
            self._forced[kept.name] = segment.first_index
        self._save()

    def _save(self) -> None:
        with self._tally.guard("the scrub ledger"):
            self._ledger.save(self._disk)


def _is_passing(error: Exception) -> bool:
    """Whether something else than the file stood in the way."""
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES
    return isinstance(error, Stopped | MemoryError | CancelledError)


def _unreadable(segment: Segment, error: Exception) -> ScrubResult:
    assert segment.after is not None
    reason = f"it cannot be read: {str(error) or type(error).__name__}"
    return ScrubResult(0, 0, [Damage(segment.log_path, 0, segment.first_seqno, segment.after[0], reason)])
