"""Following several logs as server-sent events: as `tail` does one.

The id of an event is a bookmark of all logs, which stands behind the record in the log that it is of. It grows with the
number of logs, so that number has a limit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec

from logboom.batch.arrow import ORDER, PARTITION, TOPIC, complete_tables
from logboom.broker.api import Chunk, ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.errors import LimitExceeded
from logboom.protocols.http.record_page import Seqno
from logboom.protocols.http.tail_events import TailEvents
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, BookmarkSet

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.protocols.http.front_end import HttpFrontEnd

LOGS_MAX: Final = 256
LogKey = tuple[str, int]
"""The topic's id, and the partition."""


class TopicsTail(TailEvents):
    """One reader's place in each of several logs, and what it is sent."""

    def __init__(
        self, front_end: HttpFrontEnd, caller: Caller, wanted: ReadRequest, marks: dict[LogKey, Bookmark]
    ) -> None:
        self._marks = marks
        """Where it stands in each log."""
        nowhere = Chunk("", 0, 0, 0, 0, 0, TERM_UNKNOWN, memoryview(b""))
        super().__init__(front_end, caller, wanted, nowhere, TERM_UNKNOWN)

    @classmethod
    async def begin(cls, front_end: HttpFrontEnd, caller: Caller, wanted: ReadRequest) -> TopicsTail:
        """Raises what a read from there would."""
        whole = msgspec.structs.replace(wanted, whole=True, partition=None)
        if wanted.filter is not None:
            wanted.filter.selection()
        places = await front_end.broker.locate(whole, caller=caller)
        if len(places) > LOGS_MAX:
            raise LimitExceeded("logs of one tail", LOGS_MAX, "name fewer topics, or read pages")
        return cls(front_end, caller, whole, {(place.topic_id, place.partition): place.bookmark for place in places})

    def _id(self, seqno: Seqno, term: int) -> bytes:
        place = self._place
        if place.topic_id:
            lineage = place.lineage if term == place.term else 0
            key = place.topic_id, place.partition
            self._marks[key] = Bookmark(bytes.fromhex(place.topic_id), place.partition, seqno, term, lineage)
        return str(BookmarkSet(self._marks.values())).encode()

    def _request(self) -> ReadRequest:
        return msgspec.structs.replace(self._wanted, start=Start(bookmark=self._standing.decode()))

    async def _send(self, chunk: Chunk) -> AsyncGenerator[bytes, None]:
        key = chunk.topic_id, chunk.partition
        if chunk.is_gone:
            self._marks.pop(key, None)
            return
        if key not in self._marks and len(self._marks) >= LOGS_MAX:
            raise LimitExceeded("logs of one tail", LOGS_MAX, "name fewer topics, or read pages")
        known = self._marks.get(key)
        self._term = TERM_UNKNOWN if known is None else known.term
        async with aclosing(super()._send(chunk)) as sending:
            async for piece in sending:
                yield piece

    def _behind(self, chunk: Chunk) -> bytes:
        return self._standing if chunk.is_gone else super()._behind(chunk)

    def _tables(self, chunk: Chunk) -> Iterator[pa.Table]:
        found = super()._tables(chunk)
        return complete_tables(found, (TOPIC, PARTITION, *ORDER), self._topic_of(chunk), chunk.partition)

    def _topic_of(self, chunk: Chunk) -> str:
        return chunk.topic
