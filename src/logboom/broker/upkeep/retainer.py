"""Retention with its hooks: rolls idle logs, queues what may go for its hook, and drops what has had it.

Invariant: where a topic has a hook, a segment is dropped only if it may go now and its hook's success is on the disk;
where retention waits for the archive, only if that has it. The one exception is `retention.hard_bytes`, and that is
loud. What may go is always decided anew: a limit that was raised, or a hold, saves also what is queued already.

Runs no hook and keeps no clock: its owner starts what `HookQueue.due` gives and brings the outcome to `ended`. A crash
between any two steps loses nothing but time: a success that was recorded leads to the drop, one that was not makes the
hook run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from logboom.broker.allowances import Allowances
from logboom.broker.read.archives import Archives
from logboom.broker.upkeep.hook import HookOutcome
from logboom.broker.upkeep.stats import FailingHook, Tally, Waiting, logger
from logboom.errors import StorageError, TopicNotFound
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import Topic
from logboom.storage.files.disk import Disk
from logboom.storage.log import Log
from logboom.storage.segment import Segment
from logboom.storage.upkeep.hooks import HookEntry, HookQueue
from logboom.storage.upkeep.retention import Expired, beyond_limit, expired, is_archived, is_idle, unarchived

QUEUED_MAX: Final = 64
"""How many segments of one log are queued at a time, about: the queue is written whole."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An open log that is looked after."""

    data: DataDirectory
    opened: Topic
    """As it was when the log was found; its settings may be others by now."""
    name: str
    """Its path below the data directory."""
    log: Log
    archives: Archives

    @property
    def archived(self) -> tuple[int, int] | None:
        """From where to where there is an archive of it."""
        found = self.archives.find(self.opened.id, int(self.name.rpartition("/")[2]))
        return None if found is None else (found.first, found.until)

    @property
    def topic(self) -> Topic:
        """With the settings that hold now; TopicNotFound where it was deleted."""
        topic = self.data.topic(self.opened.name)
        if topic.id != self.opened.id:
            raise TopicNotFound(self.opened.name, self.data.path)
        return topic

    @property
    def exists(self) -> bool:
        with suppress(TopicNotFound):
            return self.topic is not None
        return False

    @property
    def label(self) -> str:
        return f"{self.opened.name}/{self.name.rpartition('/')[2]}"


class RetentionPlan(NamedTuple):
    kept: Kept
    doomed: list[Expired]


def doomed(kept: Kept, now: int) -> list[Expired]:
    """What may go, oldest first, and the segments without records that a drop would take along."""
    found = expired(kept.log, kept.topic.settings.retention, now, kept.archived)
    for segment in kept.log.cold_segments()[len(found) :] if found else ():
        if not is_bare(segment):
            break
        found.append(Expired(segment, found[-1].reason))
    return found


def is_bare(segment: Segment) -> bool:
    """Whether a sealed segment holds no records."""
    return segment.after is not None and segment.after[0] == segment.first_seqno


Key = tuple[tuple[int, int], tuple[int, int] | None]
"""A segment whatever its generation: where it begins and ends."""


def key_of(segment: Segment) -> Key:
    return (segment.first_seqno, segment.first_index), segment.after


class Retainer:
    def __init__(self, disk: Disk, path: str, tally: Tally, allowed: Allowances) -> None:
        self.queue = HookQueue.open(disk, path)
        self._tally = tally
        self._allowed = allowed
        self._refused: set[str] = set()
        """Logs that take no writes, and of which that was told."""
        self._waiting: dict[str, Waiting] = {}
        """By the log's name."""
        if self.queue.damaged is not None:
            tally.note_error("the hook queue begins anew, hooks may run again", self.queue.damaged)

    def adopt(self, kept: Kept) -> None:
        """A log was opened: finish the drop that a crash broke off."""
        if kept.log.refusal is None:
            kept.log.drop(-1)  # no segment that counts, not even one without records at seqno 0
        self._forget_dropped(kept)

    def _forget_dropped(self, kept: Kept) -> None:
        """A first segment without records ends where the one that was dropped before it did: its entry stays."""
        first = kept.log.segments[0]
        self.queue.dropped(kept.name, first.first_seqno - is_bare(first))

    @property
    def waiting(self) -> list[Waiting]:
        """Logs whose segments wait to be archived."""
        return list(self._waiting.values())

    def forget_others(self, topics: Iterable[Topic], logs: Collection[str]) -> None:
        """Only these topics are left, and of their logs these are open."""
        self._waiting = {name: waiting for name, waiting in self._waiting.items() if name in logs}
        left = {topic.directory for topic in topics}
        for gone in {entry.topic for entry in self.queue.entries} - left:
            self.queue.forget(gone)

    def retain(self, logs: Iterable[Kept], now: int, swapping: Segment | None, running: Collection[HookEntry]) -> None:
        """Do for these logs what can be done now. Nothing is queued from a segment on that is being swapped."""
        plans: list[RetentionPlan] = []
        for kept in logs:
            with self._tally.guard(kept.label):
                if self._takes_writes(kept):
                    plans.append(self._plan(kept, now))
        with self._tally.guard("the hook queue"):
            self._withdraw(plans, running)
            self.queue.push(entry for plan in plans for entry in _entries(plan, now, swapping))
        done = {(entry.log, (entry.place, entry.end)) for entry in self.queue.entries if entry.done}
        for plan in plans:
            with self._tally.guard(plan.kept.label):
                self._drop(plan, done)
                self._drop_beyond(plan.kept, done)

    def _takes_writes(self, kept: Kept) -> bool:
        """A log that takes no writes is left as it is: what is in it may be needed to mend it."""
        refusal = kept.log.refusal
        if refusal is None:
            self._refused.discard(kept.name)
        elif kept.name not in self._refused and not kept.log.closed:
            self._refused.add(kept.name)
            self._tally.note_error(kept.label, f"takes no writes and is left as it is: {refusal}")
        return refusal is None

    def _plan(self, kept: Kept, now: int) -> RetentionPlan:
        if is_idle(kept.log, kept.topic.settings.retention, now):
            kept.log.roll()
        found = doomed(kept, now)
        self._note_waiting(kept, found, now)
        return RetentionPlan(kept, found)

    def _note_waiting(self, kept: Kept, found: Sequence[Expired], now: int) -> None:
        """What would go if it were archived."""
        retention = kept.topic.settings.retention
        self._waiting.pop(kept.name, None)
        if retention.after is None:
            return
        held = unarchived(kept.log, retention, now)[len(found) :]
        if held:
            numbers = len(held), sum(stored_bytes(item.segment) for item in held), kept.log.size_bytes
            topic, _, number = kept.label.rpartition("/")
            until = None if kept.archived is None else kept.archived[1]
            self._waiting[kept.name] = Waiting(topic, int(number), *numbers, retention.hard_bytes, until)

    def _withdraw(self, plans: Sequence[RetentionPlan], running: Collection[HookEntry]) -> None:
        """What was queued, has not run, and is to stay after all. Entries of segments that are gone go too."""
        logs = {entry.log for entry in self.queue.entries}
        may_go: dict[str, set[Key]] = {}
        for kept, found in plans:
            if kept.name in logs:
                self._forget_dropped(kept)
                may_go[kept.name] = {key_of(item.segment) for item in found if kept.topic.settings.hook.delete}
        self.queue.withdraw(
            entry
            for entry in self.queue.entries
            if entry.log in may_go and (entry.place, entry.end) not in may_go[entry.log] and entry not in running
        )

    def _drop(self, plan: RetentionPlan, done: Collection[tuple[str, Key]]) -> None:
        kept, found = plan
        if kept.topic.settings.hook.delete is not None:
            until = _done_until(plan, done)
        else:
            until = found[-1].next_seqno if found else None
        if until is not None:
            self._drop_until(kept, until, found)

    def _drop_beyond(self, kept: Kept, done: Collection[tuple[str, Key]]) -> None:
        """Room comes before hooks, when it must."""
        hard_bytes = kept.topic.settings.retention.hard_bytes
        segments = [] if hard_bytes is None else beyond_limit(kept.log, hard_bytes)
        if not segments:
            return
        gone = self._drop_until(kept, Expired(segments[-1], "bytes").next_seqno, [], "hard_bytes")
        self._tell_unarchived(kept, gone)
        if kept.topic.settings.hook.delete is None:
            return
        for segment, size in gone:
            if (kept.name, key_of(segment)) in done:
                continue
            self._tally.dropped_without_hook = self._tally.dropped_without_hook.plus(size)
            logger.error(
                "%s: %s DROPPED WITHOUT ITS DELETE HOOK: the log is larger than retention.hard_bytes = %d",
                *(kept.label, range_of(*key_of(segment)), hard_bytes),
            )

    def _tell_unarchived(self, kept: Kept, gone: Iterable[tuple[Segment, int]]) -> None:
        retention = kept.topic.settings.retention
        for segment, size in gone:
            item = Expired(segment, "bytes")
            if retention.after is None or is_archived(kept.log, item, kept.archived):
                continue
            self._tally.dropped_without_archive = self._tally.dropped_without_archive.plus(size)
            logger.error(
                "%s: %s DROPPED BEFORE IT WAS ARCHIVED: the log is larger than retention.hard_bytes = %d",
                *(kept.label, range_of(*key_of(segment)), retention.hard_bytes),
            )

    def _drop_until(
        self, kept: Kept, until: int, found: Sequence[Expired], otherwise: str = ""
    ) -> list[tuple[Segment, int]]:
        """Returns what went, with its size; counted also where the drop stops half way."""
        log = kept.log
        before = [(segment, stored_bytes(segment)) for segment in log.segments[:-1] if segment.first_seqno <= until]
        reasons = {key_of(item.segment): item.reason for item in found}
        try:
            log.drop(until)
        except StorageError:
            self._count(kept, before, reasons, otherwise)
            raise
        gone = self._count(kept, before, reasons, otherwise)
        if gone:
            self._forget_dropped(kept)
        return gone

    def _count(
        self, kept: Kept, before: list[tuple[Segment, int]], reasons: Mapping[Key, str], otherwise: str
    ) -> list[tuple[Segment, int]]:
        left = set(map(key_of, kept.log.segments))
        gone = [(segment, size) for segment, size in before if key_of(segment) not in left]
        for segment, size in gone:
            reason = reasons.get(key_of(segment), otherwise)
            self._tally.note_dropped(reason, size)
            logger.info("%s: dropped %s (%s)", kept.label, range_of(*key_of(segment)), reason)
        return gone

    def ended(self, kept: Kept, entry: HookEntry, outcome: HookOutcome, now: int) -> None:
        """A hook ran. One that was stopped because we stop has neither failed nor succeeded."""
        if outcome.error == "stopped":
            return
        self._tally.hooks_run += 1
        error = outcome.error
        if error is None:
            try:
                self.queue.succeeded(entry)
            except OSError as unwritten:
                error = f"could not be recorded: {unwritten}"
        if error is None:
            return
        self._tally.hooks_failed += 1
        hook = kept.topic.settings.hook
        with self._tally.guard("the hook queue"):
            self.queue.failed(entry, now, error, hook.backoff_ms, hook.backoff_max_ms)
        same = (entry.log, entry.place, entry.end)
        later = next((other for other in self.queue.failing if (other.log, other.place, other.end) == same), None)
        if later is None:
            return  # it went meanwhile
        logger.warning(
            "%s: the delete hook of %s failed (attempt %d), the next attempt is in %g s: %s",
            *(kept.label, range_of(entry.place, entry.end), later.attempts, (later.next_at - now) / 1e6, error),
        )

    def failing(self, topics: Iterable[Topic]) -> list[FailingHook]:
        """The segments whose hook has failed, and the first of each log whose hook is none of this node's."""
        known = {topic.directory: topic for topic in topics}
        found: list[FailingHook] = []
        barred: set[str] = set()
        for entry in self.queue.entries:
            topic = known.get(entry.topic)
            reason = None if topic is None or entry.done else self._allowed.hook_refusal(topic.settings.hook.delete)
            if entry.log in barred or (reason is None and entry.failing_since is None):
                continue
            if reason is not None:
                barred.add(entry.log)
            found.append(
                FailingHook(
                    topic=entry.topic if topic is None else topic.name,
                    partition=entry.partition,
                    first_seqno=entry.first_seqno,
                    next_seqno=entry.next_seqno,
                    attempts=entry.attempts,
                    error=reason or entry.last_error or "",
                    since=entry.failing_since or entry.queued_at,
                    next_attempt_at=0 if reason is not None else entry.next_at,
                )
            )
        return found

    @property
    def pending(self) -> int:
        return sum(not entry.done for entry in self.queue.entries)


def range_of(place: tuple[int, int], end: tuple[int, int] | None) -> str:
    """A segment in words."""
    first, until = place[0], end[0] if end else place[0]
    return f"seqnos {first} to {until - 1}" if until > first else f"a segment without records at seqno {first}"


def _entries(plan: RetentionPlan, now: int, swapping: Segment | None) -> Iterable[HookEntry]:
    """A prefix of the log, never cut between a segment and the ones without records behind it."""
    if plan.kept.topic.settings.hook.delete is None:
        return
    for number, (segment, reason) in enumerate(plan.doomed):
        if segment is swapping or (number >= QUEUED_MAX and not is_bare(segment)):
            return
        assert segment.after is not None
        yield HookEntry(plan.kept.name, segment.first_seqno, segment.first_index, *segment.after, reason, now)


def _done_until(plan: RetentionPlan, done: Collection[tuple[str, Key]]) -> int | None:
    """Up to where the segments that may go have had their hooks, from the log's first one on.

    A segment without records ends where the one before it does: until it is done, both stay.
    """
    until: int | None = None
    for item in plan.doomed:
        if (plan.kept.name, key_of(item.segment)) not in done:
            return until - 1 if until is not None and item.next_seqno <= until else until
        until = item.next_seqno
    return until


def stored_bytes(segment: Segment) -> int:
    """A file that is lost has none."""
    with suppress(OSError):
        return segment.size
    return 0
