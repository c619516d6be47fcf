"""A page of records of several logs: all partitions of a topic, or of the topics that a pattern fits.

As a `RecordPage`, and made of the same pieces; but it is read through a subscription, which gives what there is of each
log. Its tables have the columns topic and partition, too. It ends at a place in each log: one bookmark has them all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request

from logboom.batch.arrow import complete_tables
from logboom.broker.api import Chunk, LogPlace, ReadRequest, Start, Subscription
from logboom.broker.read.log_names import LogNames
from logboom.errors import LogboomError
from logboom.protocols.http.record_page import (
    CHUNK_BYTES,
    PATIENCE_S,
    PageRequest,
    Seqno,
    Taken,
    is_large,
    take,
    term_before,
    term_within,
    while_wanted,
)
from logboom.protocols.http.schema.operation import caller_of
from logboom.storage.bookmark import BookmarkSet

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.protocols.http.front_end import HttpFrontEnd

LogKey = tuple[str, int]
"""The topic's id, and the partition."""


@dataclass(slots=True)
class TopicsPage:
    topic: str
    places: dict[LogKey, LogPlace]
    """Where the page ends in each log."""
    at_start: bool
    """Whether nothing before it is kept any more, in any log."""
    ends: dict[LogKey, Seqno] = field(default_factory=dict)
    """Nothing from here on is wanted: of those logs where that is known."""
    is_bounded: bool = False
    """Whether a time was named to end at."""
    tables: list[pa.Table] = field(default_factory=list)
    records: int = 0
    size: int = 0

    @property
    def bookmark(self) -> str:
        return str(BookmarkSet(place.bookmark for place in self.places.values()))

    @property
    def at_end(self) -> bool:
        return all(place.seqno >= min(place.committed, self.end_of(key)) for key, place in self.places.items())

    @property
    def is_over(self) -> bool:
        """Whether nothing will ever come: every log is beyond the time that was named."""
        return self.is_bounded and all(place.seqno >= self.end_of(key) for key, place in self.places.items())

    def end_of(self, key: LogKey) -> Seqno:
        return self.ends.get(key, 2**63 - 1)


def is_several(request: ReadRequest) -> bool:
    """Whether it can only be of several logs: by what it names, or by where it begins."""
    names = LogNames.parse(request.topic)
    if len(names) > 1 or names.patterns:
        return True
    return request.start.bookmark is not None and len(BookmarkSet.parse(request.start.bookmark)) != 1


async def read_topics(front_end: HttpFrontEnd, request: Request, wanted: PageRequest) -> TopicsPage:
    reading = _TopicsReading(front_end, request, wanted)
    return await reading.run()


class _TopicsReading:
    def __init__(self, front_end: HttpFrontEnd, asked: Request, wanted: PageRequest) -> None:
        self._front_end = front_end
        self._asked = asked
        self._caller = caller_of(asked)
        self._wanted = wanted
        self._request = msgspec.structs.replace(wanted.request, whole=True, partition=None)
        self._left = wanted.limit
        now = front_end.world.monotonic_s()
        self._wait_s = min(wanted.wait_s, front_end.limits.read_wait_ms / 1000)
        self._give_up_at = now + max(PATIENCE_S, self._wait_s)
        self._waits_until = now + self._wait_s

    async def run(self) -> TopicsPage:
        places = await self._locate(self._request.start)
        page = TopicsPage(self._request.topic, places, all(place.seqno <= place.first for place in places.values()))
        if self._wanted.until.time is not None:
            found = await self._locate(Start(time=self._wanted.until.time))
            page.is_bounded = True
            page.ends = {key: place.seqno for key, place in found.items() if place.seqno < place.committed}
        if self._left and not (page.at_end and not self._wait_s):
            request = msgspec.structs.replace(self._request, start=Start(bookmark=page.bookmark))
            subscription = await self._front_end.broker.subscribe(request, caller=self._caller)
            try:
                await self._fill(page, subscription)
            finally:
                await subscription.close()
        return page

    async def _locate(self, start: Start) -> dict[LogKey, LogPlace]:
        request = msgspec.structs.replace(self._request, start=start)
        found = await self._front_end.broker.locate(request, caller=self._caller)
        return {(place.topic_id, place.partition): place for place in found}

    async def _fill(self, page: TopicsPage, subscription: Subscription) -> None:
        while self._left and page.size < self._front_end.limits.read_bytes:
            now = self._front_end.world.monotonic_s()
            waits = page.at_end
            until = self._waits_until if waits else self._give_up_at
            if now >= until or (waits and page.records):
                return
            try:
                coming = asyncio.wait_for(subscription.next(CHUNK_BYTES), until - now)
                chunk = await while_wanted(self._front_end, self._asked, coming)
            except TimeoutError:
                return
            except LogboomError:
                if page.records:
                    return
                raise
            if chunk is None:
                return
            if not await self._add(page, chunk):
                return

    async def _add(self, page: TopicsPage, chunk: Chunk) -> bool:
        """Whether to go on behind it."""
        key = chunk.topic_id, chunk.partition
        if chunk.is_gone:
            page.places.pop(key, None)
            return True
        taken = await self._take(page, chunk, page.end_of(key))
        term = term_within(chunk, taken.next_seqno)
        if term is None:
            term = await term_before(self._front_end.broker, self._caller, chunk.topic, chunk, taken.next_seqno)
        facts = chunk.first, chunk.committed, term, chunk.lineage if term == chunk.term else 0
        page.places[key] = LogPlace(chunk.topic, *key, taken.next_seqno, *facts)
        page.tables += complete_tables(
            iter(taken.tables), ("topic", "partition", *_names(taken)), chunk.topic, chunk.partition
        )
        page.records += taken.records
        page.size += taken.size
        self._left -= taken.records
        if taken.damage is not None and not page.records:
            raise taken.damage
        return taken.damage is None

    async def _take(self, page: TopicsPage, chunk: Chunk, end: Seqno) -> Taken:
        budget = max(1, self._front_end.limits.read_bytes - page.size)
        wanted = (chunk, self._left, end, budget, self._request.gaps == "skip", chunk.topic)
        if is_large(chunk):
            return await asyncio.get_running_loop().run_in_executor(None, take, *wanted)
        return take(*wanted)


def _names(taken: Taken) -> list[str]:
    return list(taken.tables[0].column_names) if taken.tables else []
