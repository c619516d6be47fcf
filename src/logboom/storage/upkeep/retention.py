"""Which segments of a log may go: by bytes, age, count of records, or because a user trimmed them.

Only whole segments go, oldest first, sealed and wholly committed ones, and never past what is held. A limit says what
stays at least: a log with `bytes = 1000` keeps a little more, as segments go one by one. Age goes by the append time of
a segment's last batch. With `after = archive` a segment goes only if all of it, from the floor on, is archived.

Decides and changes nothing: whoever asks runs the delete hooks, and then calls `Log.drop`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Literal, NamedTuple

from logboom.storage.data.topic import RetentionSettings
from logboom.storage.log import Log
from logboom.storage.segment import Segment

Reason = Literal["bytes", "age", "records", "trim"]


class Expired(NamedTuple):
    """A segment that may go, and why."""

    segment: Segment
    reason: Reason

    @property
    def next_seqno(self) -> int:
        assert self.segment.after is not None
        return self.segment.after[0]


def expired(log: Log, retention: RetentionSettings, now: int, archived: tuple[int, int] | None = None) -> list[Expired]:
    """The segments that may go, oldest first. `archived` says from where to where there is an archive of the log."""
    found = _expired(log, retention, now)
    if retention.after is None:
        return list(found)
    return list(takewhile(lambda item: item.reason == "trim" or is_archived(log, item, archived), found))


def unarchived(log: Log, retention: RetentionSettings, now: int) -> list[Expired]:
    """The segments that may go if they are archived."""
    return list(_expired(log, retention, now))


def is_archived(log: Log, item: Expired, archived: tuple[int, int] | None) -> bool:
    """Whether all of a segment from the floor on is between these seqnos."""
    if archived is None:
        return item.next_seqno <= log.floor
    return archived[0] <= max(item.segment.first_seqno, log.floor) and item.next_seqno <= archived[1]


def _expired(log: Log, retention: RetentionSettings, now: int) -> Iterator[Expired]:
    segments = log.segments
    size, cold = log.size_bytes, log.cold_segments()
    for segment, following in pairwise(segments):
        if segment not in cold or _is_held(log, following):
            return
        size -= segment.stored_bytes
        reason = _reason(log, following, size, retention, now)
        if reason is None:
            return
        yield Expired(segment, reason)


def _reason(log: Log, following: Segment, size_after: int, retention: RetentionSettings, now: int) -> Reason | None:
    """Why everything before `following` may go; `size_after` is what would stay."""
    if following.first_seqno <= log.floor:
        return "trim"
    if retention.bytes is not None and size_after >= retention.bytes:
        return "bytes"
    if retention.records is not None and log.committed - following.first_seqno >= retention.records:
        return "records"
    if retention.age_ms is not None and _append_time_before(log, following) <= now - retention.age_ms * 1000:
        return "age"
    return None


def _append_time_before(log: Log, following: Segment) -> int:
    """When the last batch before a segment was appended; where its snapshot is damaged, no earlier than that."""
    rest = (segment for segment in log.segments if segment.first_index >= following.first_index)
    return next((segment.before.append_time for segment in rest if segment.before is not None), log.append_time)


def beyond_limit(log: Log, hard_bytes: int) -> list[Segment]:
    """The oldest segments that must go, hooks or not, for the log to be no larger than this."""
    excess, found = log.size_bytes - hard_bytes, []
    for segment, following in zip(log.cold_segments(), log.segments[1:], strict=False):
        if excess <= 0 or _is_held(log, following):
            break
        excess -= segment.stored_bytes
        found.append(segment)
    return found


def is_idle(log: Log, retention: RetentionSettings, now: int) -> bool:
    """Whether all of the segment that takes the appends is too old: it may be rolled, so that it can go."""
    if retention.age_ms is None or not log.active_bytes or log.committed_index < log.last_index:
        return False
    return log.append_time <= now - retention.age_ms * 1000


def _is_held(log: Log, following: Segment) -> bool:
    return log.held is not None and following.first_seqno > log.held
