"""Records that were tried in vain, or rejected: written to the group's dead-letter topic, then done.

    failed → read → appended, synced → done        nothing to write to: done, and counted

At least once: a crash between the last two writes a dead letter again, equal to the first one. It says in its headers
where the record is from, so whoever reads them can tell. What is too large with those headers is written without its
value. Where it cannot be written now it is tried again, with more and more time between; meanwhile the record is not
done, and given to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from logboom.batch import Batch, Record, build
from logboom.broker.api import Acks, Answer, Part
from logboom.broker.append.sync_rounds import logger
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog
from logboom.broker.queues.job_reader import JobReader
from logboom.broker.queues.lease_table import LeasedRange, VainRange
from logboom.broker.queues.queue_state import QueueState
from logboom.broker.queues.work_queue import QueueCounts, QueuedLog, WorkQueue
from logboom.errors import BatchTooLarge, LogboomError, TopicDeleted, Unavailable

HEADER: Final = "logboom-dead-letter-"
ROUND: Final = 64
"""Ranges that are dealt with in one go."""
READ_BYTES: Final = 1024 * 1024
PAUSE_S: Final = 1.0
PAUSE_MOST_S: Final = 10.0

Append = Callable[[Sequence[Part], Acks | None, Caller], asyncio.Future[list[Answer]]]


@dataclass(slots=True)
class DeadLetters:
    state: QueueState
    reader: JobReader
    catalog: Catalog
    counts: QueueCounts
    append: Append
    writer_of: Callable[[str, str], Caller]
    """Somebody in a group who may write a topic, in whose name it is done; raises where nobody may."""
    ending: asyncio.Event

    async def bury(self, queue: WorkQueue, log: QueuedLog) -> None:
        """Until nothing of this log is in vain."""
        pause_s = PAUSE_S
        try:
            while not self.ending.is_set() and (found := log.table.vain(ROUND)):
                try:
                    for vain in found:
                        await self._bury_range(queue, log, vain)
                    pause_s = PAUSE_S
                except TopicDeleted as error:
                    if self.catalog.get(log.hosted.topic.name) is not log.hosted:
                        return
                    await self._pause(queue, log, error, pause_s)
                except LogboomError as error:
                    await self._pause(queue, log, error, pause_s)
                    pause_s = min(PAUSE_MOST_S, 2 * pause_s)
        finally:
            log.is_burying = False

    async def _pause(self, queue: WorkQueue, log: QueuedLog, error: LogboomError, pause_s: float) -> None:
        logger.warning(
            "group %s: dead letters of %s/%d cannot be written, it is tried again: %s",
            *(queue.name, log.hosted.topic.name, log.partition, error),
        )
        try:
            async with asyncio.timeout(pause_s):
                await self.ending.wait()
        except TimeoutError:
            return

    async def _bury_range(self, queue: WorkQueue, log: QueuedLog, vain: VainRange) -> None:
        table, topic, seqno = log.table, queue.settings().dead_letter, vain.seqno
        if not topic:
            self.counts.given_up += vain.until - vain.seqno
            table.put_away(vain.seqno, vain.until)
        while topic and seqno < vain.until:
            rest = [LeasedRange(seqno, vain.until, vain.tries)]
            read = await self.reader.read(log.hosted, log.partition, rest, READ_BYTES, None)
            seqno = read.unread[0].seqno if read.unread else vain.until
            until = seqno
            for leased in read.chunks:
                for record in leased.chunk.records():
                    if record.seqno is not None and vain.seqno <= record.seqno < until:
                        await self._write(queue, log, topic, record, vain)
                        self.counts.dead_letters += 1
            self.counts.skipped += sum(end - first for first, end in read.lost)
            table.put_away(vain.seqno, until)
        await asyncio.shield(self.state.save(log.id))
        queue.wake()

    async def _write(self, queue: WorkQueue, log: QueuedLog, topic: str, record: Record, vain: VainRange) -> None:
        whole, slim = _letter(queue.name, log, record, vain), None
        try:
            batch = build_one(record, whole)
        except BatchTooLarge:
            batch = slim = build_one(record, [*whole, (f"{HEADER}left-out", b"value")], is_slim=True)
        error = await self._append(queue, topic, batch, record)
        if isinstance(error, BatchTooLarge) and slim is None:
            batch = build_one(record, [*whole, (f"{HEADER}left-out", b"value")], is_slim=True)
            error = await self._append(queue, topic, batch, record)
        if isinstance(error, BatchTooLarge):  # its own headers are what is too large
            batch = build([b""], headers=[[*whole[-6:], (f"{HEADER}left-out", b"record")]])
            error = await self._append(queue, topic, batch, record)
        if error is not None:
            raise error

    async def _append(self, queue: WorkQueue, topic: str, batch: Batch, record: Record) -> LogboomError | None:
        hosted, caller = self.catalog.get(topic), self.writer_of(queue.name, topic)
        partition = None if hosted is None else (record.seqno or 0) % len(hosted.writers)
        if self.ending.is_set():
            raise Unavailable("the node is stopping")
        (answer,) = await self.append([Part(topic, [batch], partition)], "durable", caller)
        return answer if isinstance(answer, LogboomError) else None


def _letter(group: str, log: QueuedLog, record: Record, vain: VainRange) -> list[tuple[str, bytes]]:
    """The headers of a dead letter: its own, then what became of it."""
    about = {
        "topic": log.hosted.topic.name,
        "partition": log.partition,
        "seqno": record.seqno,
        "tries": vain.tries,
        "group": group,
        "reason": "rejected" if vain.is_rejected else "tries",
    }
    own = [(name, value) for name, value in record.headers if not name.startswith(HEADER)]
    return [*own, *((HEADER + name, str(value).encode()) for name, value in about.items())]


def build_one(record: Record, headers: list[tuple[str, bytes]], is_slim: bool = False) -> Batch:
    return build(
        [b"" if is_slim else record.value],
        keys=None if record.key is None else [record.key],
        timestamps=None if record.timestamp is None else [record.timestamp],
        channels=None if record.channel is None else [record.channel],
        tags=[list(record.tags)] if record.tags else None,
        headers=[headers],
    )
