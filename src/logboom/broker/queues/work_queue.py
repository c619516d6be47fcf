"""The queue of one group: the tables of its logs, and whoever waits for records.

    take: table → durable, while the records are read → the member    settle: table → durable → the member

Invariant. A member is given records when it is durable that they are leased to it, and a settlement is answered when it
is durable. One log after the other has its turn. Those who wait look again when a record has come, was given back, or
its time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from logboom.access.restriction import Restriction
from logboom.broker.api.groups import QueueSettings
from logboom.broker.api.queues import JobRange, LeasedJobs, RefusedSettlement, Settlement, TakeJobs
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.catalog import Hosted
from logboom.broker.limits import Limits
from logboom.broker.queues.job_reader import JobReader, ReadJobs
from logboom.broker.queues.lease_entry import QueueLogId
from logboom.broker.queues.lease_table import LeasedRange, LeaseTable
from logboom.broker.queues.queue_state import QueueState
from logboom.errors import JobNotHeld, ShuttingDown, TopicDeleted, code_of

SOONEST_S: Final = 0.01
"""So long a timer waits at least: what ends together is looked at together."""


@dataclass(slots=True)
class QueueCounts:
    """Since the node began."""

    leases: int = 0
    redeliveries: int = 0
    """Leases of records that were leased before."""
    acks: int = 0
    releases: int = 0
    rejects: int = 0
    refused: int = 0
    """Records that were settled by somebody who did not hold them."""
    dead_letters: int = 0
    given_up: int = 0
    """Records that were tried in vain, and had no dead-letter topic."""
    skipped: int = 0
    """Records that were gone before they were done."""


@dataclass(slots=True)
class QueueMeans:
    """What all queues of a node share."""

    state: QueueState
    reader: JobReader
    limits: Limits
    spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    first_of: Callable[[Hosted, int], int]
    """The first record of a log that can be read."""
    start_of: Callable[[str, Hosted, int], int]
    """Where a group begins in a log."""
    bury: Callable[[WorkQueue, QueuedLog], Coroutine[Any, Any, None]]
    """Deal with what was tried in vain."""
    counts: QueueCounts = field(default_factory=QueueCounts)
    closing: bool = False


@dataclass(slots=True, eq=False)
class QueuedLog:
    id: QueueLogId
    hosted: Hosted
    partition: int
    table: LeaseTable
    is_burying: bool = False
    news: asyncio.Future[None] | None = None
    """While somebody waits: done when something has come."""

    @property
    def writer(self) -> LogWriter:
        return self.hosted.writer(self.partition)


class WorkQueue:
    def __init__(self, name: str, means: QueueMeans, settings: Callable[[], QueueSettings]) -> None:
        self.name = name
        self.settings = settings
        self._means = means
        self._logs: dict[QueueLogId, QueuedLog] = {}
        self._turn = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._freed = 0
        """Rises when records are free that were leased, or rested."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    @property
    def logs(self) -> Collection[QueuedLog]:
        return self._logs.values()

    def open(self, hosted: Hosted, partition: int, is_member: Callable[[str], bool]) -> QueuedLog:
        """A log of the group's topics. What those held who are members no more is free."""
        log = QueueLogId(self.name, hosted.topic.id, partition)
        found = self._logs.get(log)
        if found is None:
            settings, means = self.settings(), self._means
            start = means.start_of(self.name, hosted, partition)
            place = start, hosted.writer(partition).log.committed
            table = means.state.open(log, means.limits.queue_window, settings.tries, *place, settings.lease_ms)
            found = self._logs[log] = QueuedLog(log, hosted, partition, table)
            for member in list(table.in_flight):
                if not is_member(member):
                    table.free_member(member)
            self.changed(found)
        return found

    # Records for members.

    async def take(
        self,
        request: TakeJobs,
        logs: Callable[[], list[QueuedLog]],
        restrict: Callable[[], Restriction | None],
    ) -> LeasedJobs:
        """`logs` are those that the member may read, now; it raises where it is none any more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.wait_ms, self._means.limits.read_wait_ms) / 1000
        passed: dict[QueueLogId, int] = {}
        freed = self._freed
        while True:
            if self._means.closing:
                raise ShuttingDown
            theirs = logs()
            if freed != self._freed:
                freed = self._freed
                passed.clear()
            jobs = await self._take_now(request, theirs, restrict, passed)
            if jobs is not None:
                return jobs
            rest_s = deadline - loop.time()
            if rest_s <= 0:
                return LeasedJobs([], self.settings().lease_ms)
            if freed == self._freed and not self._is_worth_a_look(theirs, passed, request.member):
                await self._wait(theirs, rest_s)
            else:
                await asyncio.sleep(0)  # others have their turn, however often there is something

    def _is_worth_a_look(self, logs: list[QueuedLog], passed: dict[QueueLogId, int], member: str) -> bool:
        return self._room(member) > 0 and any(
            log.table.peek(1, log.writer.log.committed, passed.get(log.id, 0)) for log in logs
        )

    def _room(self, member: str) -> int:
        """How many records more it may hold."""
        limits = self._means.limits
        held = sum(log.table.held for log in self.logs)
        his = sum(log.table.in_flight.get(member, 0) for log in self.logs)
        return min(limits.queue_member_in_flight - his, limits.queue_in_flight - held)

    async def _take_now(
        self,
        request: TakeJobs,
        logs: list[QueuedLog],
        restrict: Callable[[], Restriction | None],
        passed: dict[QueueLogId, int],
    ) -> LeasedJobs | None:
        """From the first log that has something; None where none has."""
        self._turn += 1
        now_ms = self._means.state.now_ms()
        for number in range(len(logs)):
            log = logs[(self._turn + number) % len(logs)]
            count = min(request.max_records, self._room(request.member))
            if count <= 0:
                return None
            self._tidy(log, now_ms)
            restriction = restrict()
            try:
                if restriction is None:
                    jobs = await self._take_from(log, request, count)
                else:
                    jobs = await self._take_fitting(log, request, count, restriction, passed)
            except TopicDeleted:
                self.drop([log])
                continue
            if jobs is not None:
                return jobs
        return None

    def _tidy(self, log: QueuedLog, now_ms: int) -> None:
        """What time and retention have done to it."""
        table = log.table
        table.tries_max = self.settings().tries
        if table.expire(now_ms):
            self.changed(log)
        first = self._means.first_of(log.hosted, log.partition)
        if table.base < first:
            self._means.counts.skipped += table.skip_below(first)
            self._means.state.save(log.id)

    async def _take_from(self, log: QueuedLog, request: TakeJobs, count: int) -> LeasedJobs | None:
        table, state = log.table, self._means.state
        state.check_room(table, count)
        lease_ms = self.settings().lease_ms
        taken = table.take(request.member, count, log.writer.log.committed, state.now_ms() + lease_ms)
        self._note_due(log)
        self._bury(log)
        if not taken:
            return None
        saved = state.save(log.id)
        try:
            read = await self._read(log, taken, request.max_bytes, None)
            await asyncio.shield(saved)
        except BaseException:
            table.take_back(request.member, taken)
            self.changed(log)
            raise
        self._give_up_unread(log, request.member, read)
        return self._leased(taken, read, lease_ms) if read.chunks else None

    def _give_up_unread(self, log: QueuedLog, member: str, read: ReadJobs) -> None:
        for seqno, until in read.lost:
            before = log.table.skipped
            log.table.lose(member, seqno, until)
            self._means.counts.skipped += log.table.skipped - before
        log.table.take_back(member, read.unread)
        if read.lost or read.unread:
            self.changed(log)

    async def _read(
        self, log: QueuedLog, ranges: list[LeasedRange], max_bytes: int, restriction: Restriction | None
    ) -> ReadJobs:
        most = max(1, min(max_bytes, self._means.limits.read_bytes))
        return await self._means.reader.read(log.hosted, log.partition, ranges, most, restriction)

    def _leased(self, taken: list[LeasedRange], read: ReadJobs, lease_ms: int) -> LeasedJobs:
        counts = self._means.counts
        for leased in read.chunks:
            counts.leases += leased.chunk.record_count
            counts.redeliveries += leased.chunk.record_count if leased.tries > 1 else 0
        return LeasedJobs(read.chunks, lease_ms)

    async def _take_fitting(
        self,
        log: QueuedLog,
        request: TakeJobs,
        count: int,
        restriction: Restriction,
        passed: dict[QueueLogId, int],
    ) -> LeasedJobs | None:
        """Only what the rules let through: read first, and leased if it is still free then."""
        table, state, member = log.table, self._means.state, request.member
        while wanted := table.peek(count, log.writer.log.committed, passed.get(log.id, 0)):
            read = await self._read(log, wanted, request.max_bytes, restriction)
            fitting = _without(wanted, [(each.seqno, each.until) for each in (*read.unfit, *read.unread)] + read.lost)
            if not read.chunks:
                passed[log.id] = wanted[-1].until
                continue
            state.check_room(table, count)
            lease_ms = self.settings().lease_ms
            if table.take_these(member, fitting, state.now_ms() + lease_ms):
                self._note_due(log)
                try:
                    await asyncio.shield(state.save(log.id))
                except BaseException:
                    table.take_back(member, fitting)
                    self.changed(log)
                    raise
                return self._leased(fitting, read, lease_ms)
        return None

    async def _wait(self, logs: list[QueuedLog], rest_s: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        for log in logs:
            if log.news is None:
                log.news = log.writer.news()
                log.news.add_done_callback(partial(self._heard, log))
        try:
            await asyncio.wait((woken,), timeout=rest_s)
        finally:
            self._waiting.discard(woken)
            if not self._waiting:
                self._forget_news()

    def _heard(self, log: QueuedLog, news: asyncio.Future[None]) -> None:
        if log.news is news:
            log.news = None
            self.wake()

    def _forget_news(self) -> None:
        for log in self.logs:
            news, log.news = log.news, None
            if news is not None:
                log.hosted.writers[log.partition].forget(news)  # type: ignore[union-attr]

    def wake(self) -> None:
        """Whoever waits looks again."""
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)

    # What becomes of them.

    async def settle(
        self, member: str, settlements: list[Settlement], find: Callable[[str, int], QueuedLog | None]
    ) -> list[RefusedSettlement]:
        refused: list[RefusedSettlement] = []
        saved: asyncio.Future[None] | None = None
        for settlement in settlements:
            log = find(settlement.topic_id, settlement.partition)
            if log is None:
                not_held = [(settlement.seqno, settlement.until)]
            else:
                not_held = self._settle(log, member, settlement)
                saved = self._means.state.save(log.id)
            for seqno, until in not_held:
                error = JobNotHeld(self.name, seqno, until)
                place = settlement.topic_id, settlement.partition, seqno, until
                refused.append(RefusedSettlement(*place, code_of(error), str(error)))
                self._means.counts.refused += until - seqno
        if saved is not None:
            await asyncio.shield(saved)
        return refused

    def _settle(self, log: QueuedLog, member: str, settlement: Settlement) -> list[tuple[int, int]]:
        table, counts, now_ms = log.table, self._means.counts, self._means.state.now_ms()
        seqno, until, verdict = settlement.seqno, settlement.until, settlement.verdict
        count = until - seqno
        if table.expire(now_ms):
            self.changed(log)
        if verdict == "ack":
            is_tight = self._waiting and (table.top - table.base >= table.window or self._room(member) <= 0)
            refused = table.acknowledge(member, seqno, until)
            counts.acks += count - _count(refused)
            if is_tight:
                self.wake()
            return refused
        if verdict == "extend":
            refused = table.extend(member, seqno, until, now_ms + self.settings().lease_ms)
            self._note_due(log)
            return refused
        if verdict == "reject":
            refused = table.reject(member, seqno, until)
            counts.rejects += count - _count(refused)
        else:
            delay_ms = self.settings().retry_delay_ms if settlement.delay_ms is None else settlement.delay_ms
            refused = table.release(member, seqno, until, now_ms + delay_ms if delay_ms > 0 else None)
            counts.releases += count - _count(refused)
        self.changed(log)
        return refused

    def keep_only(self, member: str, known: list[JobRange]) -> None:
        """What the member was leased besides these, it does not know of."""
        for log in self.logs:
            ranges = [
                (each.seqno, each.until)
                for each in known
                if (each.topic_id, each.partition) == (log.id.topic_id, log.partition)
            ]
            if log.table.keep_only(member, ranges):
                self._means.state.save(log.id)
                self.changed(log)

    def free_members(self, gone: Collection[str], left: Collection[str]) -> None:
        """They are members no more."""
        for log in self.logs:
            freed = sum(log.table.free_member(member) for member in gone)
            log.table.forget_members(left)
            if freed:
                self._means.state.save(log.id)
                self.changed(log)

    # What time does.

    def changed(self, log: QueuedLog) -> None:
        """Records of it may be free, or in vain, that were not."""
        self._freed += 1
        self._note_due(log)
        self.wake()
        if log.table.dirty:
            self._means.state.save(log.id)
        self._bury(log)

    def _bury(self, log: QueuedLog) -> None:
        if log.table.has_vain and not log.is_burying and not self._means.closing:
            log.is_burying = True
            self._means.spawn(self._means.bury(self, log))

    def _note_due(self, log: QueuedLog) -> None:
        due_ms = log.table.next_due_ms()
        if due_ms is not None and (self._timer_ms is None or due_ms < self._timer_ms):
            if self._timer is not None:
                self._timer.cancel()
            rest_s = max(SOONEST_S, (due_ms - self._means.state.now_ms()) / 1000)
            self._timer_ms = due_ms
            self._timer = asyncio.get_running_loop().call_later(rest_s, self._expire)

    def _expire(self) -> None:
        self._timer = self._timer_ms = None
        now_ms = self._means.state.now_ms()
        for log in self.logs:
            if log.table.expire(now_ms):
                self.changed(log)
            else:
                self._note_due(log)

    def drop(self, logs: Collection[QueuedLog]) -> None:
        """These are not the group's any more."""
        for log in list(logs):
            self._logs.pop(log.id, None)
            if log.news is not None:
                log.news.cancel()
        self.wake()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._forget_news()
        self.wake()


def _count(ranges: list[tuple[int, int]]) -> int:
    return sum(until - seqno for seqno, until in ranges)


def _without(ranges: list[LeasedRange], left_out: list[tuple[int, int]]) -> list[LeasedRange]:
    """What remains of ranges, all in their order."""
    rest: list[LeasedRange] = []
    holes = iter(sorted(left_out))
    hole = next(holes, None)
    for seqno, until, tries in ranges:
        while hole is not None and hole[0] < until:
            if seqno < hole[0]:
                rest.append(LeasedRange(seqno, hole[0], tries))
            seqno = max(seqno, hole[1])
            if hole[1] > until:
                break
            hole = next(holes, None)
        if seqno < until:
            rest.append(LeasedRange(seqno, until, tries))
    return rest
