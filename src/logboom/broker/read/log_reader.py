"""Reading from a node: where to begin, what comes next, and waiting for it.

A point is a seqno with what makes the next look cheap. What is in memory is given at once, as views of the mapped
file or as bytes read from its end; what is not is read in by a thread first, so that nobody else waits for the disk.
A filter runs on a thread, and says how far it came even where it left nothing.

Before the log's own first record the archive is read, where there is one: on a thread, and in batches that nobody can
tell from the log's own. Which of the two has the next record is asked anew for each chunk: retention may drop a segment
while somebody reads in it, and a trim hides what is archived at once.

Where rules on channels and tags leave records out for who reads, that is a filter too, joined with his own. It is
looked up for each chunk, before and after: a chunk is as the rules are when it is given.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from logboom.access.restriction import Restriction
from logboom.batch import Selection
from logboom.batch.header import HEADER_SIZE, read_header
from logboom.broker.api import Chunk, Filter, ReadRequest
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.limits import Limits, said_again
from logboom.broker.monitor.measures import Meter
from logboom.broker.read.archives import ArchivedLog, Archives
from logboom.broker.read.row_filter import FOUND_BYTES, Found, filter_run
from logboom.errors import (
    BatchError,
    BookmarkLost,
    Damage,
    InvalidBookmark,
    LogboomError,
    SeqnoOutOfRange,
    ShuttingDown,
    TopicRecreated,
    Unavailable,
)
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, Term
from logboom.storage.data.topic import Topic
from logboom.storage.files.mapped import resident
from logboom.storage.log import Log
from logboom.storage.readable_log import READ_BYTES
from logboom.storage.run import Run

FILTER_BYTES: Final = 8 * 1024 * 1024
"""A filter looks at so much at once."""
FILTER_PATIENCE_S: Final = 0.5
"""And says how far it came after so long, whether it found anything or not."""
CHOICES_MOST: Final = 16
"""With more channels to choose from no segment is passed over: to ask for each takes too long."""

Fetch = Callable[[str, str, int], Awaitable[str | None]]
"""The bookmark of a cursor: by its name, the topic's name, the partition."""


@dataclass(slots=True)
class ReadPoint:
    """Where a reader stands in one log."""

    topic: Topic
    partition: int
    writer: LogWriter
    seqno: int
    skip: bool
    """Whether to go on behind what is gone."""
    meter: Meter
    filter: Filter | None = None
    restriction: Restriction | None = None
    """What rules leave of it, as of when the reader was last found to have the right to read."""
    restrict: Callable[[], Restriction | None] = lambda: None
    """Says what they leave now."""
    check_reader: Callable[[], None] = lambda: None
    """Raises where whoever reads may not do so any more."""
    run: Run | None = None
    """What was read last: where it ends need not be looked up."""


@dataclass(slots=True)
class ReadCounts:
    chunks: int = 0
    bytes: int = 0
    filtered: int = 0
    skips: int = 0
    warmed: int = 0
    archived: int = 0
    subscriptions: int = 0


@dataclass(slots=True)
class LogReader:
    """Reads of all logs of a node."""

    loop: AbstractEventLoop
    threads: Executor
    limits: Limits
    fetch: Fetch
    archives: Archives = field(default_factory=Archives)
    counts: ReadCounts = field(default_factory=ReadCounts)
    closing: bool = False
    is_copy: bool = False
    """Whether the logs are written at another node: what is not here may be on its way."""

    async def begin(
        self, topic: Topic, writer: LogWriter, partition: int, meter: Meter, request: ReadRequest
    ) -> ReadPoint:
        """Find the point that a request names."""
        start, log = request.start, writer.log
        bookmark = start.bookmark
        if bookmark is None and start.cursor is not None:
            bookmark = await self.fetch(start.cursor, topic.name, partition)
        skip = request.gaps == "skip"
        if bookmark is not None:
            place = Bookmark.parse(bookmark)
            if self.is_copy and place.seqno > log.committed and place.topic_id == topic.id_bytes:
                raise Unavailable(f"{writer.name} is a copy that ends at seqno {log.committed}: {place.seqno} may come")
            seqno = await self._resume(topic, writer, partition, place, skip)
        elif start.seqno is not None:
            seqno = start.seqno
        elif start.time is not None:
            seqno = await self._seqno_at(topic, writer, partition, start.time, skip)
        else:
            seqno = self.archives.first_of(topic.id, partition, log) if start.at == "earliest" else log.committed
        wanted = request.filter
        if wanted is not None:
            wanted.selection()  # what it cannot mean is said at once
            if not (wanted.tags_any or wanted.tags_all or wanted.channel is not None or wanted.key is not None):
                wanted = None
        return ReadPoint(topic, partition, writer, seqno, skip, meter, wanted)

    async def _seqno_at(self, topic: Topic, writer: LogWriter, partition: int, moment: int, skip: bool) -> int:
        """The first record at or after this time."""
        log, seqno = writer.log, 0
        while (seqno := max(seqno, self.archives.first_of(topic.id, partition, log))) < log.first:
            archived = self.archives.find(topic.id, partition)
            assert archived is not None
            try:
                found = await self.loop.run_in_executor(self.threads, archived.seqno_at, moment, seqno)
            except Damage as damage:
                if not skip or damage.seqno_until is None:
                    raise
                seqno = damage.seqno_until
                continue
            if found is None or found >= log.first:
                break
            if found >= self.archives.first_of(topic.id, partition, log):  # else a trim came meanwhile
                return found
        return max(log.first, log.seqno_at(moment))

    async def _resume(self, topic: Topic, writer: LogWriter, partition: int, bookmark: Bookmark, skip: bool) -> int:
        """The seqno of a bookmark, if it is of this log and what stands before it is what its reader had read."""
        log = writer.log
        if bookmark.topic_id != topic.id_bytes:
            raise TopicRecreated(topic.name, bookmark.topic_id.hex(), topic.id)
        if bookmark.partition != partition:
            raise InvalidBookmark(f"the bookmark is of partition {bookmark.partition}, not {partition}")
        seqno = bookmark.seqno
        if seqno > log.committed:
            lost: LogboomError = BookmarkLost(seqno, bookmark.term, log.term)
            if not skip:
                raise lost
            return log.committed
        if bookmark.term != TERM_UNKNOWN:
            found = await self._find_term(topic, writer, partition, seqno)
            if bookmark.before.differs(Term(found, log.lineage_of(found))) and not skip:
                raise BookmarkLost(seqno, bookmark.term, found)
        return seqno

    async def _find_term(self, topic: Topic, writer: LogWriter, partition: int, seqno: int) -> int:
        """Of the record before this one."""
        log = writer.log
        if seqno >= log.first:
            return term_before(log, seqno)
        archived = self.archives.find(topic.id, partition)
        if archived is None or seqno < self.archives.first_of(topic.id, partition, log):
            return TERM_UNKNOWN
        found = await self.loop.run_in_executor(self.threads, archived.term_before, seqno)
        return TERM_UNKNOWN if found is None else found

    async def next(self, point: ReadPoint, max_bytes: int, max_records: int | None, wait_ms: int | None) -> Chunk:
        """What comes next. Empty only where nothing came in time, or where a filter left nothing on the way."""
        deadline = None if wait_ms is None else self.loop.time() + min(wait_ms, self.limits.read_wait_ms) / 1000
        max_bytes = max(1, min(max_bytes, self.limits.read_bytes))
        began = point.seqno
        while True:
            if self.closing:
                raise ShuttingDown
            if point.writer.gone is not None:
                raise said_again(point.writer.gone)
            looked_at, log, stood = perf_counter(), point.writer.log, point.seqno
            restriction = point.restrict()
            if restriction != point.restriction:
                point.check_reader()  # he may be restricted no more because he may not read any more
                point.restriction = restriction
            try:
                chunk = await self._look(point, max_bytes, max_records)
            except Damage:
                if point.writer.gone is not None:  # its files are, too
                    raise said_again(point.writer.gone) from None
                if not log.closed or self.closing:
                    raise
                if log is point.writer.log:
                    await point.writer.news()  # another one takes its place
                continue
            if point.restrict() != point.restriction:
                point.seqno, point.run = stood, None  # the rules are others by now
                continue
            if chunk is not None:
                self.counts.chunks += 1
                self.counts.bytes += len(chunk.data)
                if chunk.record_count:
                    point.meter.note_read(chunk.record_count, len(chunk.data), perf_counter() - looked_at)
                return chunk
            moved = point.seqno > began  # a filter came to the end without a find: a subscriber is told
            if (moved and deadline is None) or not await self.wait(point.writer, deadline):
                return self._chunk(point, began, TERM_UNKNOWN, memoryview(b""))

    def stand(self, point: ReadPoint) -> Chunk:
        """Where a point stands, without a record."""
        return self._chunk(point, point.seqno, TERM_UNKNOWN, memoryview(b""))

    async def wait(self, writer: LogWriter, deadline: float | None) -> bool:
        """Whether there was news before the deadline. None came between the look and this: one thread does both."""
        rest_s = None if deadline is None else deadline - self.loop.time()
        if rest_s is not None and rest_s <= 0:
            return False
        news = writer.news()
        try:
            if rest_s is None:
                await news
            else:
                await asyncio.wait((news,), timeout=rest_s)
            return news.done()
        finally:
            writer.forget(news)

    async def _look(self, point: ReadPoint, max_bytes: int, max_records: int | None) -> Chunk | None:
        """What there is to read now; None at the end of the log."""
        if point.filter is not None or point.restriction is not None:
            return await self._look_filtered(point, max_bytes, max_records)
        while True:
            archived = self._archived(point)
            try:
                if archived is not None:
                    run = await self._read_archived(point, archived, max_bytes, max_records)
                    if run is None:
                        continue
                else:
                    run = self._run(point, max_bytes, max_records)
                    if run is None:
                        return None
                data = await self.data(run)
                break
            except Damage as damage:
                self._pass_over(point, damage)
        began, point.seqno, point.run = point.seqno, run.next_seqno, run
        term = None if archived is None else archived.term_before(run.next_seqno)
        return self._chunk(point, began, _last_term(point, run, data) if term is None else term, data)

    def _first(self, point: ReadPoint) -> int:
        return self.archives.first_of(point.topic.id, point.partition, point.writer.log)

    def _archived(self, point: ReadPoint) -> ArchivedLog | None:
        """What has the next record, where that is not the log itself any more. Passes over what nobody has."""
        log = point.writer.log
        if point.seqno >= log.first:
            return None
        first = self._first(point)
        if point.seqno < first and point.skip:
            point.seqno = first
        if not first <= point.seqno < log.first:
            return None
        return self.archives.find(point.topic.id, point.partition)

    async def _read_archived(
        self, point: ReadPoint, archived: ArchivedLog, max_bytes: int, max_records: int | None
    ) -> Run | None:
        """None where a trim or another archive came meanwhile, which may not have the same files."""
        self.counts.archived += 1
        seqno = point.seqno
        try:
            run = await self.loop.run_in_executor(self.threads, archived.read, seqno, max_bytes, max_records)
        except Damage:
            if self.archives.find(point.topic.id, point.partition) is archived and seqno >= self._first(point):
                raise
            return None
        return run if seqno >= self._first(point) else None

    def _run(self, point: ReadPoint, max_bytes: int, max_records: int | None) -> Run | None:
        """The next range of a file; where something is gone, and that is to be skipped, behind it."""
        log = point.writer.log
        while True:
            try:
                if log.committed < point.seqno <= log.next:
                    return None  # written, and soon to be committed
                if point.seqno < log.first:
                    raise SeqnoOutOfRange(point.seqno, self._first(point), log.committed)
                return log.read(point.seqno, max_bytes, max_records, point.run)
            except SeqnoOutOfRange as gap:
                if not point.skip or point.seqno >= gap.first:
                    raise
                point.seqno = gap.first
            except Damage as damage:
                self._pass_over(point, damage)

    def _pass_over(self, point: ReadPoint, damage: Damage) -> None:
        if damage.seqno_until is None:
            damage = point.writer.log.locate_damage(damage)
        until = damage.seqno_until
        if not point.skip or until is None or until <= point.seqno:
            raise damage
        point.seqno = until

    async def data(self, run: Run) -> memoryview:
        """The bytes of a run, in memory."""
        data = run.view(ready=False)
        if run.mappable and not resident(data):
            self.counts.warmed += 1
            return await self.loop.run_in_executor(self.threads, run.view)
        return data

    async def _look_filtered(self, point: ReadPoint, max_bytes: int, max_records: int | None) -> Chunk | None:
        log, began = point.writer.log, point.seqno
        patience = self.loop.time() + FILTER_PATIENCE_S
        wanted, restriction = point.filter or Filter(), point.restriction
        choices = _choices(wanted, restriction)
        while True:
            if choices and log.first <= point.seqno < log.segments[-1].first_seqno:
                reached = await self.loop.run_in_executor(self.threads, _skip, log, point.seqno, choices)
                if reached > point.seqno:
                    self.counts.skips += 1
                    point.seqno, point.run = reached, None
                    if not self.closing and self.loop.time() < patience:
                        continue  # it looks at some segments only
                    return self._chunk(point, began, TERM_UNKNOWN, memoryview(b""), memoryview(b""))
            archived = self._archived(point)
            try:
                if archived is not None:
                    run = await self._read_archived(point, archived, FILTER_BYTES, None)
                    if run is None:
                        continue
                else:
                    run = self._run(point, FILTER_BYTES, None)
                    if run is None:
                        return None
                self.counts.filtered += 1
                limits = max_bytes, max_records
                found = await self.loop.run_in_executor(
                    self.threads, _filter, run, wanted, restriction, point.seqno, *limits
                )
            except Damage as damage:
                self._pass_over(point, damage)
                continue
            point.run = run if found.next_seqno == run.next_seqno else None
            point.seqno = found.next_seqno
            if found.damage is not None and not len(found.data):
                self._pass_over(point, found.damage)
            if len(found.data):
                return self._chunk(point, began, found.term, found.data, found.seqnos)
            if self.loop.time() >= patience:
                return self._chunk(point, began, found.term, memoryview(b""), memoryview(b""))

    def _chunk(
        self, point: ReadPoint, began: int, term: int, data: memoryview, seqnos: memoryview | None = None
    ) -> Chunk:
        log = point.writer.log
        if seqnos is None and (point.filter is not None or point.restriction is not None):
            seqnos = memoryview(b"")
        if term == TERM_UNKNOWN and point.seqno <= log.committed:
            term = term_before(log, point.seqno)
        facts = (
            point.topic.id,
            point.partition,
            began,
            point.seqno,
            self._first(point),
            log.committed,
            term,
        )
        return Chunk(*facts, data, seqnos, log.lineage_of(term))


def _choices(wanted: Filter, restriction: Restriction | None) -> list[list[Selection]]:
    """Of each of these some selection must hold for a record: what segments are passed over by."""
    allowed = None if restriction is None else restriction.channels
    choices = [] if wanted == Filter() else [[wanted.selection()]]
    if allowed and len(allowed) <= CHOICES_MOST:
        choices.append([Selection(channel=channel) for channel in allowed])
    return choices


def _skip(log: Log, seqno: int, choices: list[list[Selection]]) -> int:
    """On a thread: the first seqno, from this one on, that may match."""
    return max(min(log.skip(seqno, selection) for selection in some) for some in choices)


def _filter(
    run: Run, wanted: Filter, restriction: Restriction | None, seqno: int, max_bytes: int, max_records: int | None
) -> Found:
    """On a thread."""
    limits = min(FOUND_BYTES, max(max_bytes, 1)), max_records
    return filter_run(run.view(), wanted, seqno, None, run.file.path, run.position, *limits, restriction)


def term_before(log: Log, seqno: int) -> int:
    try:
        term = log.term_before(seqno)
    except (LogboomError, OSError):
        term = None
    return TERM_UNKNOWN if term is None else term


def _last_term(point: ReadPoint, run: Run, data: memoryview) -> int:
    """The term of the last batch of a run. Terms never go back: mostly the first batch has the log's newest already."""
    try:
        term = read_header(data[:HEADER_SIZE]).term
    except BatchError:
        return TERM_UNKNOWN
    return term if term == point.writer.log.term else term_before(point.writer.log, point.seqno)


class LocalSubscription:
    """A point, and nothing else: what was not asked for is not held."""

    def __init__(
        self,
        reading: LogReader,
        point: ReadPoint,
        max_records: int | None,
    ) -> None:
        self._reading = reading
        self._position = point
        self._max_records = max_records
        self._closed = False

    async def next(self, max_bytes: int = READ_BYTES) -> Chunk:
        self._position.check_reader()
        chunk = await self._reading.next(self._position, max_bytes, self._max_records, None)
        self._position.check_reader()
        return chunk

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reading.counts.subscriptions -= 1
