"""The segments of a log as they are shown to people: from where to where, how large, how old, and what is wrong.

What the log knows is taken on the event loop; what only the disk knows (the append time of a sealed segment's first
batch, from its header; that of its last, from the snapshot of the next segment) is read on threads, some segments at a
time, once: it stays known as long as the segment is there. Whatever goes away meanwhile is left out.
"""

from __future__ import annotations

import errno
import os
from asyncio import AbstractEventLoop
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from logboom.batch.header import HEADER_SIZE, NO_TIMESTAMP, read_header
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.limits import said_again
from logboom.broker.monitor.activity import SegmentInfo
from logboom.errors import BatchError, Damage
from logboom.storage.health.findings import counted
from logboom.storage.log import Log
from logboom.storage.segment import Segment
from logboom.storage.upkeep.scrub import ScrubFinding

SLICE: Final = 256
"""So many are looked at in one go; then other work of the threads has its turn."""
TRIES: Final = 3
LIMIT_MAX: Final = 10_000


class Glimpse(NamedTuple):
    """What the disk says of a segment."""

    size_bytes: int = 0
    oldest: int | None = None
    newest: int | None = None
    trouble: str | None = None


class SegmentLists:
    """For the logs of one node."""

    def __init__(self, loop: AbstractEventLoop, threads: Executor) -> None:
        self._loop = loop
        self._threads = threads
        self._known: WeakKeyDictionary[Log, dict[Segment, Glimpse]] = WeakKeyDictionary()
        """Of sealed segments that nothing is wrong with."""

    async def show_of(self, writer: LogWriter, findings: Iterable[ScrubFinding], limit: int) -> list[SegmentInfo]:
        """Of the log that is the writer's in the end. Raises what became of it where it is gone."""
        while True:
            log = writer.log
            found = await self.show(log, findings, limit)
            if writer.gone is not None:  # its files are, too
                raise said_again(writer.gone)
            if writer.log is log:
                return found

    async def show(self, log: Log, findings: Iterable[ScrubFinding], limit: int) -> list[SegmentInfo]:
        """The newest so many, oldest first. `findings` are those of scrubs in this log."""
        limit = max(1, min(limit, LIMIT_MAX))
        glimpses: dict[Segment, Glimpse] = {}
        for _ in range(TRIES):
            *sealed, _ = log.segments[-limit:]
            if all(segment in glimpses for segment in sealed):
                break  # else some were rolled or stored anew while others were looked at
            glimpses = await self._look_at_sealed(log, log.segments[-limit:])
        *sealed, active = log.segments[-limit:]
        troubles = _troubles(log, findings)
        newest = log.append_time if log.active_bytes else None
        glimpse = Glimpse(log.active_bytes, log.segment_append_time, newest)
        last = _describe(active, glimpse, troubles.get(active.log_path), log.next)
        if len(sealed) <= SLICE:
            return [*_describe_all(sealed, glimpses, troubles), last]
        many = self._loop.run_in_executor(self._threads, _describe_all, sealed, glimpses, troubles)
        return [*await many, last]

    async def _look_at_sealed(self, log: Log, segments: Sequence[Segment]) -> dict[Segment, Glimpse]:
        known = self._known.setdefault(log, {})
        unknown = [pair for pair in pairwise(segments) if pair[0] not in known]
        found: dict[Segment, Glimpse] = {}
        for start in range(0, len(unknown), SLICE):
            found |= await self._loop.run_in_executor(self._threads, _look_at_all, unknown[start : start + SLICE])
        known |= {segment: glimpse for segment, glimpse in found.items() if glimpse.trouble is None}
        if len(known) > len(log.segments):
            kept = set(log.segments)
            known = self._known[log] = {segment: glimpse for segment, glimpse in known.items() if segment in kept}
        return known | found


def _look_at_all(pairs: list[tuple[Segment, Segment]]) -> dict[Segment, Glimpse]:
    return {segment: _look(segment, following) for segment, following in pairs}


def _look(segment: Segment, following: Segment) -> Glimpse:
    oldest, trouble = _first_append_time(segment)
    before = None
    with suppress(OSError):
        before = following.before
    newest = None if before is None or before.append_time == NO_TIMESTAMP else before.append_time
    try:
        return Glimpse(segment.size, oldest, newest, trouble)
    except OSError as error:
        return Glimpse(0, oldest, newest, trouble or _unreadable(error))


def _first_append_time(segment: Segment) -> tuple[int | None, str | None]:
    """When its first batch was appended, and what is wrong where nobody can tell."""
    try:
        return read_header(segment.open_anew().read(HEADER_SIZE, 0)).append_time, None
    except BatchError as error:
        return None, f"its first batch cannot be read: {error}"
    except OSError as error:
        return None, _unreadable(error)


def _unreadable(error: OSError) -> str | None:
    """What an error says about a file. A lack of descriptors or memory says nothing."""
    if isinstance(error, FileNotFoundError):
        return "its file is missing"
    return f"it cannot be read: {error.strerror}" if error.errno in (errno.EIO, errno.EACCES) else None


def _troubles(log: Log, findings: Iterable[ScrubFinding]) -> dict[str, str]:
    """What opening the log, and scrubs, have found; by the path of the segment."""
    holes: dict[str, list[str]] = {}
    for finding in findings:
        path = f"{log.directory}/{os.path.basename(finding.file)}"
        holes.setdefault(path, []).append(_range(finding.seqno_from, finding.seqno_until, finding.reason))
    if log.recovered.damage is not None:
        damage = log.recovered.damage
        holes.setdefault(_segment_path(log, damage), []).insert(0, _say(damage))
    if log.recovered.missing is not None and log.segments[0].log_path == log.recovered.missing.path:
        missing = log.recovered.missing
        reason = f"segments before it are missing: {missing.reason}"
        holes.setdefault(missing.path, []).insert(0, _range(missing.seqno_from, missing.seqno_until, reason))
    return {path: said[0] + _more(len(said) - 1) for path, said in holes.items()}


def _segment_path(log: Log, damage: Damage) -> str:
    """Damage may be in the snapshot of a segment."""
    return next((segment.log_path for segment in log.segments if segment.snap_path == damage.path), damage.path)


def _say(damage: Damage) -> str:
    return _range(damage.seqno_from, damage.seqno_until, f"at byte {damage.position:,}: {damage.reason}")


def _range(seqno_from: int, seqno_until: int | None, reason: str) -> str:
    until = "the end" if seqno_until is None else str(seqno_until - 1)
    return f"seqnos {seqno_from} to {until}: {reason}"


def _more(count: int) -> str:
    return f"; and {counted(count, 'more hole')}" if count else ""


def _describe_all(
    segments: list[Segment], glimpses: dict[Segment, Glimpse], troubles: dict[str, str]
) -> list[SegmentInfo]:
    return [_describe(each, glimpses.get(each, Glimpse()), troubles.get(each.log_path)) for each in segments]


def _describe(segment: Segment, glimpse: Glimpse, trouble: str | None, next_seqno: int | None = None) -> SegmentInfo:
    """Of the active segment the log says where it ends."""
    if next_seqno is None:
        assert segment.after is not None
        next_seqno = segment.after[0]
    return SegmentInfo(
        first_seqno=segment.first_seqno,
        next_seqno=next_seqno,
        first_index=segment.first_index,
        generation=segment.generation,
        size_bytes=glimpse.size_bytes,
        sealed=segment.after is not None,
        oldest=glimpse.oldest,
        newest=glimpse.newest,
        damage=trouble or glimpse.trouble,
    )
