"""The queues of a node: those groups of its coordinator that share records.

A queue is opened when somebody first asks for it: its tables are as they were kept, and what was held by those who are
members no more is free. A group that is deleted, or put elsewhere, and a topic that is deleted, leave nothing behind;
what a crash kept from being removed is removed when the node opens.

A group's place in a log is its queue's base: it is committed as every group's, a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from logboom.broker.api.groups import QueueSettings
from logboom.broker.api.queues import LeasedJobs, RefusedSettlement, Settlement, TakeJobs
from logboom.broker.api.reads import ReadRequest
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.sync_rounds import logger
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.groups.coordinator import Coordinator
from logboom.broker.groups.live_group import LiveGroup, QueueStanding
from logboom.broker.groups.shares import LogId
from logboom.broker.groups.wishes import DELAY_MS, mark
from logboom.broker.queues.dead_letters import Append, DeadLetters
from logboom.broker.queues.job_reader import JobReader
from logboom.broker.queues.lease_entry import QueueLogId
from logboom.broker.queues.queue_state import QueueState
from logboom.broker.queues.work_queue import QueueCounts, QueuedLog, QueueMeans, WorkQueue
from logboom.broker.read.log_names import LogNames
from logboom.broker.read.log_reader import LogReader, term_before
from logboom.broker.rules import Rules
from logboom.errors import (
    GroupMismatch,
    InvalidGroup,
    LimitExceeded,
    LogboomError,
    MemberUnknown,
    NotAllowed,
    ShuttingDown,
)
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark

PLACE_S: Final = 1.0
"""How often the places of groups are committed at most."""
SETTLEMENTS_MAX: Final = 10_000
"""Of one call."""
KNOWN_MAX: Final = 1_000
"""Of wishes whose logs are remembered."""
RANGES_MAX: Final = 10_000
"""That a member says it knows of."""


class Queues:
    """For `LocalBroker`, which has asked whether the caller may."""

    def __init__(
        self,
        state: QueueState,
        coordinator: Coordinator,
        reading: LogReader,
        rules: Rules,
        append: Append,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._state = state
        self._groups = coordinator
        self._reading = reading
        self._rules = rules
        self._spawn = spawn
        self._catalog: Catalog = coordinator.catalog
        self._queues: dict[str, WorkQueue] = {}
        self._logs: dict[tuple[str, str, Caller], list[tuple[Hosted, int]]] = {}
        """Of members, as long as nothing is told of topics and rules: by group, topics, and who asks."""
        self._last_callers: dict[str, tuple[Caller]] = {}
        """Who was given records of a group last: in his name dead letters are written when no member is left."""
        self._places: dict[QueueLogId, int] = {}
        self._placing: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self.counts = QueueCounts()
        reader = JobReader(reading)
        letters = DeadLetters(*(state, reader, self._catalog, self.counts, append, self._writer_of, self._ending))
        places = self._first_of, self._start_of
        self._means = QueueMeans(state, reader, coordinator.limits, spawn, *places, letters.bury, self.counts)
        state.on_saved = self._note_place
        self._catalog.watchers.add(self._told)

    # What members say.

    async def take(self, request: TakeJobs, caller: Caller) -> LeasedJobs:
        group = self._find(request.group, request.member, caller)
        if request.max_records < 1 or request.max_bytes < 1:
            raise InvalidGroup(request.group, "max_records and max_bytes are at least 1")
        queue = self._queue(group)
        self._last_callers[group.name] = (caller,)
        if request.known is not None:
            if len(request.known) > RANGES_MAX:
                raise LimitExceeded("ranges that a member knows of", RANGES_MAX, "settle some first")
            self._open_all(queue, group, request.member, caller)
            queue.keep_only(request.member, request.known)
        return await queue.take(
            request,
            lambda: self._open_all(queue, self._find(request.group, request.member, caller), request.member, caller),
            lambda: self._rules.restriction(caller, "read"),
        )

    async def settle(
        self, name: str, member: str, settlements: list[Settlement], caller: Caller
    ) -> list[RefusedSettlement]:
        group = self._find(name, member, caller)
        if len(settlements) > SETTLEMENTS_MAX:
            raise LimitExceeded("settlements of one call", SETTLEMENTS_MAX, "use several")
        window = self._groups.limits.queue_window
        for each in settlements:
            if not 0 < each.until - each.seqno <= window or each.seqno < 0:
                raise InvalidGroup(name, f"a settlement is of 1 to {window:,} records, up to the one before `until`")
            if each.delay_ms is not None and not DELAY_MS[0] <= each.delay_ms <= DELAY_MS[1]:
                raise InvalidGroup(name, f"delay_ms is {each.delay_ms:,}, allowed are 0 to {DELAY_MS[1]:,}")
        queue = self._queue(group)
        opened = {(log.id.topic_id, log.partition): log for log in queue.logs}
        if any((each.topic_id, each.partition) not in opened for each in settlements):
            logs = self._open_all(queue, group, member, caller)
            opened |= {(log.id.topic_id, log.partition): log for log in logs}
        return await queue.settle(member, settlements, lambda *log: opened.get(log))

    def _find(self, name: str, member: str, caller: Caller) -> LiveGroup:
        if self._ending.is_set():
            raise ShuttingDown
        group = self._groups.groups.get(name)
        about = None if group is None else group.entry.members.get(member)
        if group is None or about is None or about.principal != caller.principal:
            raise MemberUnknown(name, member[:64])
        if group.entry.mode != "queue":
            raise GroupMismatch(name, group.entry.mode, "queue")
        return group

    def _queue(self, group: LiveGroup) -> WorkQueue:
        queue = self._queues.get(group.name)
        if queue is None:
            queue = self._queues[group.name] = WorkQueue(group.name, self._means, partial(self._settings, group.name))
        return queue

    def _settings(self, name: str) -> QueueSettings:
        group = self._groups.groups.get(name)
        return (None if group is None else group.entry.queue) or QueueSettings()

    def _open_all(self, queue: WorkQueue, group: LiveGroup, member: str, caller: Caller) -> list[QueuedLog]:
        """The logs that a member may take from, as whoever calls now: with a token it may be less than before."""
        about = group.entry.members[member]
        key = group.name, about.topics, replace(caller, address="", protocol="")
        found = self._logs.get(key)
        if found is None or any(self._catalog.get(hosted.topic.name) is not hosted for hosted, _ in found):
            request = ReadRequest(about.topics, whole=True, gaps="skip")
            found = list(self._groups.reads.find(LogNames.parse(about.topics), request, caller))
            if len(self._logs) >= KNOWN_MAX:
                self._logs.clear()
            self._logs[key] = found = found[: self._groups.limits.group_logs]
        return [queue.open(hosted, partition, group.entry.members.__contains__) for hosted, partition in found]

    def _told(self, hosted: Hosted | None) -> None:
        """A topic has come; or others may be read than before."""
        self._logs.clear()
        for queue in self._queues.values():
            queue.wake()

    def _first_of(self, hosted: Hosted, partition: int) -> int:
        return self._reading.archives.first_of(hosted.topic.id, partition, hosted.writer(partition).log)

    def _start_of(self, name: str, hosted: Hosted, partition: int) -> int:
        bookmark = self._groups.cursors.fetch(mark(name), hosted.topic.name, partition)
        place = None if bookmark is None else Bookmark.parse(bookmark)
        if place is None or place.topic_id != hosted.topic.id_bytes:
            return self._first_of(hosted, partition)
        return place.seqno

    def _writer_of(self, name: str, topic: str) -> Caller:
        group = self._groups.groups.get(name)
        callers: list[Caller] = [] if group is None else [each.caller for each in group.presences.values()]
        callers += self._last_callers.get(name, ())
        for caller in callers:
            if self._rules.allows(caller, "write", "topic", topic):
                return caller
        raise NotAllowed("no member of the group", "write", "topic", topic)

    # What becomes of groups and topics.

    def note_gone(self, group: LiveGroup, gone: Collection[str]) -> None:
        """These are members no more."""
        queue = self._queues.get(group.name)
        if queue is not None:
            queue.free_members(gone, group.entry.members)

    async def forget_group(self, name: str, logs: Collection[tuple[str, int]] | None = None) -> None:
        """All of it, or these logs: by topic id and partition. Durable when this returns."""
        queue = self._queues.get(name)

        def is_meant(log: QueueLogId) -> bool:
            return log.group == name and (logs is None or (log.topic_id, log.partition) in logs)

        if queue is not None:
            queue.drop([log for log in queue.logs if is_meant(log.id)])
            if logs is None:
                queue.end()
                del self._queues[name]
                self._last_callers.pop(name, None)
        for log in list(self._places):
            if is_meant(log):
                del self._places[log]
        await self._state.forget([log for log in self._state.logs if is_meant(log)])

    async def forget_topic(self, topic_id: str) -> None:
        for queue in self._queues.values():
            queue.drop([log for log in queue.logs if log.id.topic_id == topic_id])
        with suppress(LogboomError):  # then it is done when the node opens
            await self._state.forget([log for log in self._state.logs if log.topic_id == topic_id])

    async def tidy(self, unreadable: Collection[str]) -> None:
        """Remove what groups and topics have left that are not there any more."""
        known = {hosted.topic.id for hosted in self._catalog.unsorted()} | set(unreadable)
        groups = {name for name, group in self._groups.groups.items() if group.entry.mode == "queue"}
        await self._state.forget(
            [log for log in self._state.logs if log.topic_id not in known or log.group not in groups]
        )

    def standings(self, name: str) -> dict[LogId, QueueStanding]:
        """Of the logs that anything is known of."""
        group = self._groups.groups.get(name)
        if group is None or group.entry.mode != "queue" or self._groups.is_copy:
            return {}
        queue = self._queue(group)
        topics = {hosted.topic.id: hosted for hosted in self._catalog.unsorted()}
        known = {log for log in self._state.logs if log.group == name} | {log.id for log in queue.logs}
        found: dict[LogId, QueueStanding] = {}
        for log in known:
            hosted = topics.get(log.topic_id)
            if hosted is not None and isinstance(hosted.writers[log.partition], LogWriter):
                table = queue.open(hosted, log.partition, group.entry.members.__contains__).table
                place = LogId(hosted.topic.name, log.topic_id, log.partition)
                found[place] = QueueStanding(table.base, table.held, table.resting)
        return found

    def counted(self) -> dict[str, int]:
        tables = [log.table for queue in self._queues.values() for log in queue.logs]
        now = {"in_flight": sum(table.held for table in tables), "delayed": sum(table.resting for table in tables)}
        return {**now, **asdict(self.counts)}

    # Places.

    def _note_place(self, log: QueueLogId, base: int) -> None:
        self._places[log] = base
        if self._placing is None and not self._ending.is_set():
            self._placing = self._spawn(self._place_all())

    async def _place_all(self) -> None:
        """Commit the places that have moved; until none has."""
        try:
            while self._places and not self._ending.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(PLACE_S):
                        await self._ending.wait()
                await self._place()
        finally:
            self._placing = None

    async def _place(self) -> None:
        moved, self._places = self._places, {}
        topics = {hosted.topic.id: hosted for hosted in self._catalog.unsorted()} if moved else {}
        for log, base in moved.items():
            hosted = topics.get(log.topic_id)
            if hosted is None or log.group not in self._groups.groups:
                continue
            try:
                found = hosted.writer(log.partition).log
                term = term_before(found, base)
                lineage = 0 if term == TERM_UNKNOWN else found.lineage_of(term)
                bookmark = Bookmark(hosted.topic.id_bytes, log.partition, base, term, lineage)
                await self._groups.move(log.group, hosted, log.partition, str(bookmark), True)
            except LogboomError as error:
                logger.warning("group %s: its place cannot be committed: %s", log.group, error)

    def end(self) -> None:
        """Whoever waits is told that the node ends."""
        self._ending.set()
        self._means.closing = True
        self._catalog.watchers.discard(self._told)
        for queue in self._queues.values():
            queue.end()

    async def close(self) -> None:
        await self._state.close()
