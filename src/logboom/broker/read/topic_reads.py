"""Reads of several logs at once: all partitions of topics, and of topics that come while it lasts.

One subscription gives the chunks of all its logs as they come, each log in its own order, and each log in turn where
several have something: no log waits for another. A log that has nothing waits for news by itself, so a subscription of
many logs costs as much as those of them that something is written to.

A topic that comes later is read from its first record on. One that was named and is deleted is an error, or with
`gaps="skip"` is waited for; one that only fits a pattern leaves without a word.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from logboom.broker.api.reads import Chunk, LogPlace, ReadRequest, Start
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.read.log_names import LogNames
from logboom.broker.read.log_reader import LogReader, ReadPoint
from logboom.broker.rules import Rules
from logboom.errors import InvalidBookmark, LimitExceeded, LogboomError, ShuttingDown, TopicDeleted, TopicRecreated
from logboom.storage.bookmark import TERM_UNKNOWN, BookmarkSet
from logboom.storage.readable_log import READ_BYTES

FRESH_MOST: Final = 1_000
"""Topics that a subscription remembers to look at, while nobody reads from it; beyond that, all are looked at."""
TURN: Final = 100
"""So many logs are looked for without a break."""
LogKey = tuple[str, int]
"""The topic's id, and the partition."""


class TopicReads:
    """For `LocalBroker`, which has asked for the topics that are named."""

    def __init__(self, reading: LogReader, catalog: Catalog, rules: Rules) -> None:
        self.reading = reading
        self.catalog = catalog
        self.rules = rules
        self.logs = 0
        """Of all subscriptions together."""

    async def locate(self, request: ReadRequest, caller: Caller, most: int | None = None) -> list[LogPlace]:
        """Where a read of these would begin. Raises LimitExceeded for more than `most`, or than a reader may have."""
        names, starts = LogNames.parse(request.topic), _Starts(request)
        found, places = list(self.find(names, request, caller)), []
        if most is None or len(found) > most:
            self.check_count(len(found))
        starts.check([hosted for hosted, _ in found], names)
        for number, (hosted, partition) in enumerate(found, 1):
            point = await self.begin(hosted, partition, starts.of(hosted, partition), request, caller)
            places.append(_place(self.reading.stand(point), hosted.topic.name))
            if number % TURN == 0:
                await asyncio.sleep(0)  # others have their turn, however many there are
        return places

    def check_count(self, count: int) -> None:
        """Raises LimitExceeded where so many logs are too many for one reader."""
        most = self.reading.limits.logs_per_subscription
        if count > most:
            raise LimitExceeded("limits.logs_per_subscription", most, "read fewer topics at once")

    async def subscribe(self, request: ReadRequest, caller: Caller) -> TopicsSubscription:
        subscription = TopicsSubscription(self, LogNames.parse(request.topic), request, caller)
        try:
            await subscription.open()
        except BaseException:
            await subscription.close()
            raise
        return subscription

    def find(self, names: LogNames, request: ReadRequest, caller: Caller) -> Iterator[tuple[Hosted, int]]:
        """The logs that are meant, of those that the caller may read."""
        for hosted in self._topics(names):
            yield from self.find_in(hosted, names, request, caller)

    def find_in(
        self, hosted: Hosted, names: LogNames, request: ReadRequest, caller: Caller
    ) -> Iterator[tuple[Hosted, int]]:
        """Those of one topic. What cannot be opened is a gap."""
        if self.rules.allows(caller, "read", "topic", hosted.topic.name):
            for number in names.partitions_of(hosted.topic.name, len(hosted.writers)):
                if request.gaps != "skip" or not isinstance(hosted.writers[number], LogboomError):
                    yield hosted, number

    def _topics(self, names: LogNames) -> list[Hosted]:
        if names.patterns:
            return [hosted for hosted in self.catalog.all() if names.fit(hosted.topic.name)]
        found = dict.fromkeys(name.topic for name in names)
        return [hosted for topic in found if (hosted := self.catalog.get(topic)) is not None]

    async def begin(
        self, hosted: Hosted, partition: int, start: Start, request: ReadRequest, caller: Caller
    ) -> ReadPoint:
        topic, rules = hosted.topic, self.rules
        one = msgspec.structs.replace(request, topic=topic.name, partition=partition, start=start)
        restriction = rules.restriction(caller, "read")
        point = await self.reading.begin(topic, hosted.writer(partition), partition, hosted.meter, one)
        point.restriction, point.restrict = restriction, partial(rules.restriction, caller, "read")
        point.check_reader = partial(rules.check, caller, "read", "topic", topic.name)
        return point


class _Starts:
    """Where each log begins, as a request says it."""

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self._start = request.start
        text = request.start.bookmark
        bookmarks = () if text is None else BookmarkSet.parse(text)
        self._bookmarks = {(bookmark.topic_id.hex(), bookmark.partition): bookmark for bookmark in bookmarks}

    def check(self, found: list[Hosted], names: LogNames) -> None:
        """Raises where a start means nothing, or where a topic that is named is another one than the bookmark's."""
        if self._start.seqno is not None and len(found) > 1:
            raise InvalidBookmark("a seqno is a place in one log: begin several by time, cursor, bookmark or an end")
        if self._request.gaps == "skip" or not self._bookmarks:
            return
        exact = {name.topic for name in names.exact}
        known = {topic_id for topic_id, _ in self._bookmarks}
        lost = sorted(known - {hosted.topic.id for hosted in found})
        for hosted in found:
            if lost and hosted.topic.id not in known and hosted.topic.name in exact:
                raise TopicRecreated(hosted.topic.name, lost[0], hosted.topic.id)

    def of(self, hosted: Hosted, partition: int) -> Start:
        if self._start.bookmark is None:
            return self._start
        found = self._bookmarks.get((hosted.topic.id, partition))
        return Start() if found is None else Start(bookmark=str(found))


class _Waiting(NamedTuple):
    """A log that had nothing, until it has."""

    news: asyncio.Future[None]
    writer: LogWriter


class TopicsSubscription:
    """Implements broker.api.Subscription."""

    def __init__(self, reads: TopicReads, names: LogNames, request: ReadRequest, caller: Caller) -> None:
        self._reads = reads
        self._names = names
        self._exact = {name.topic for name in names.exact}
        self._request = request
        self._caller = caller
        self._points: dict[LogKey, ReadPoint] = {}
        self._ready: deque[LogKey] = deque()
        """Logs that may have something, in the order of their turns."""
        self._waiting: dict[LogKey, _Waiting] = {}
        self._hidden: dict[LogKey, int] = {}
        """Logs that the caller may not read any more: where he goes on once he may."""
        self._fresh: list[Hosted] = []
        """Topics that have come and were not looked at yet."""
        self._is_stale = False
        """Whether all are to be looked at."""
        self._wake = asyncio.Event()
        self._is_closed = False

    async def open(self) -> None:
        """Find every log, and where it begins."""
        reads, starts = self._reads, _Starts(self._request)
        reads.reading.counts.subscriptions += 1
        reads.catalog.watchers.add(self._told)
        found = list(reads.find(self._names, self._request, self._caller))
        starts.check(list(dict.fromkeys(hosted for hosted, _ in found)), self._names)
        for hosted, number in found:
            await self._join(hosted, number, starts.of(hosted, number))

    async def _join(self, hosted: Hosted, partition: int, start: Start) -> None:
        reads, key = self._reads, (hosted.topic.id, partition)
        reads.check_count(len(self._points) + 1)
        most = reads.reading.limits.subscribed_logs
        if reads.logs >= most:
            raise LimitExceeded("limits.subscribed_logs", most, "too many logs are being followed")
        reads.logs += 1
        try:
            self._points[key] = await reads.begin(hosted, partition, start, self._request, self._caller)
        finally:
            reads.logs -= key not in self._points
        self._ready.append(key)
        if len(self._points) % TURN == 0:
            await asyncio.sleep(0)  # others have their turn, however many there are

    async def next(self, max_bytes: int = READ_BYTES) -> Chunk:
        while True:
            if self._reads.reading.closing:
                raise ShuttingDown
            if self._is_stale or self._fresh:
                await self._look_for_topics()
            while self._ready:
                chunk = await self._look(self._ready.popleft(), max_bytes)
                if chunk is not None:
                    return chunk
            if not self._is_stale and not self._fresh:
                self._wake.clear()
                await self._wake.wait()

    def _told(self, hosted: Hosted | None) -> None:
        """A topic has come; or others may be read than before."""
        if hosted is None or len(self._fresh) >= FRESH_MOST:
            self._is_stale = True
        elif self._names.fit(hosted.topic.name):
            self._fresh.append(hosted)
        else:
            return
        self._wake.set()

    async def _look_for_topics(self) -> None:
        """Which have come. Those that have gone say so themselves."""
        is_stale, fresh, about = self._is_stale, self._fresh, (self._names, self._request, self._caller)
        self._is_stale, self._fresh = False, []
        found = (
            self._reads.find(*about)
            if is_stale
            else chain.from_iterable(self._reads.find_in(hosted, *about) for hosted in fresh)
        )
        for hosted, number in list(found):
            key = hosted.topic.id, number
            if key not in self._points:
                await self._join(hosted, number, Start(seqno=self._hidden.pop(key, None)))

    async def _look(self, key: LogKey, max_bytes: int) -> Chunk | None:
        """What a log has next, or that it is gone; None where it has nothing, and waits."""
        point, topic = self._points[key], self._points[key].topic.name
        if topic not in self._exact and not self._reads.rules.allows(self._caller, "read", "topic", topic):
            if len(self._hidden) < self._reads.reading.limits.logs_per_subscription:
                self._hidden[key] = point.seqno
            return self._leave(key, point)
        try:
            point.check_reader()
            chunk = await self._reads.reading.next(point, max_bytes, self._request.max_records, 0)
            point.check_reader()
        except TopicDeleted as error:
            if topic in self._exact and self._request.gaps != "skip":
                raise named(error, point) from None
            return self._leave(key, point)
        except LogboomError as error:
            raise named(error, point) from None
        if chunk.next_seqno > chunk.seqno or len(chunk.data):
            self._ready.append(key)
            return chunk._replace(topic=topic)
        news = point.writer.news()
        self._waiting[key] = _Waiting(news, point.writer)
        news.add_done_callback(partial(self._woken, key))
        return None

    def _leave(self, key: LogKey, point: ReadPoint) -> Chunk:
        """This log is read no more, and whoever reads is told."""
        del self._points[key]
        self._reads.logs -= 1
        return Chunk(*key, point.seqno, point.seqno, 1, 0, TERM_UNKNOWN, memoryview(b""), topic=point.topic.name)

    def _woken(self, key: LogKey, news: asyncio.Future[None]) -> None:
        if self._waiting.pop(key, None) is not None:
            self._ready.append(key)
            self._wake.set()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        reads = self._reads
        reads.reading.counts.subscriptions -= 1
        reads.catalog.watchers.discard(self._told)
        reads.logs -= len(self._points)
        waiting, self._waiting = self._waiting, {}
        for news, writer in waiting.values():
            writer.forget(news)


def named(error: LogboomError, point: ReadPoint) -> LogboomError:
    """The same error, which says of which log it is."""
    if point.topic.name not in str(error):
        error.args = (f"{point.topic.name}/{point.partition}: {error}",)
    return error


def _place(chunk: Chunk, topic: str) -> LogPlace:
    facts = chunk.topic_id, chunk.partition, chunk.seqno, chunk.first, chunk.committed, chunk.term, chunk.lineage
    return LogPlace(topic, *facts)
