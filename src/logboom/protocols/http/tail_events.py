"""The events of a log that is followed: one for each record, as they come.

The id of an event is the bookmark behind its record, and the first thing sent is the id of where the tail begins: so
whoever loses the connection, whenever that is, goes on with `Last-Event-ID` and has every record once. What a filter
passes over moves the id too.

One chunk is held for a reader; the next is asked for when that one was sent. What ends a tail for good is an event of
its own, `error`, whose data is the problem; the closing of the front-end just ends it.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logboom.batch import read_header
from logboom.broker.api import Chunk, ReadRequest, Start, Subscription
from logboom.broker.caller import Caller
from logboom.errors import BatchError, Damage, LogboomError
from logboom.protocols.http.formats import at_once, cut, is_single, on_thread, rows
from logboom.protocols.http.large_record import pour_record
from logboom.protocols.http.problem import encode_problem, problem_of
from logboom.protocols.http.record_page import Seqno, is_large, stretches, term_before
from logboom.storage.bookmark import TERM_UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.protocols.http.front_end import HttpFrontEnd

CHUNK_BYTES: Final = 64 * 1024
STRETCH_BYTES: Final = 1024 * 1024
"""What is inflated at once of a chunk that is compressed, unless a single batch is more."""
HEARTBEAT_S: Final = 15.0
INLINE_BYTES: Final = 4 * 1024
"""Of a larger chunk events are made on a thread: thousands may come at once."""
PIECE_BYTES: Final = 32 * 1024
RETRY_MS: Final = 2_000
RETRY_IN_VAIN_MS: Final = 60_000
"""Of those that come again where there is nothing for them."""
_encoder = msgspec.json.Encoder()

Terms = Callable[[Seqno], int]
"""The term of each record of a chunk."""


class TailEvents:
    """One reader's place in a log, and what it is sent."""

    def __init__(self, front_end: HttpFrontEnd, caller: Caller, wanted: ReadRequest, place: Chunk, term: int) -> None:
        self._front_end = front_end
        self._caller = caller
        self._wanted = wanted
        self._place = place
        self._term = term
        self._standing = self._told = self._id(place.seqno, term)
        """Where it has come to, and what the reader knows of that."""
        self._due = 0.0

    @classmethod
    async def begin(cls, front_end: HttpFrontEnd, caller: Caller, wanted: ReadRequest) -> TailEvents:
        """Raises what a read from there would."""
        request = msgspec.structs.replace(wanted, max_bytes=1, filter=None)
        if wanted.filter is not None:
            wanted.filter.selection()
        chunk = await front_end.broker.read(request, caller=caller)
        if chunk.next_seqno == chunk.seqno:
            term = chunk.term
        else:
            term = await term_before(front_end.broker, caller, wanted.topic, chunk, chunk.seqno)
        return cls(front_end, caller, wanted, chunk, term)

    def _id(self, seqno: Seqno, term: int) -> bytes:
        return self._place.bookmark_at(seqno, term).encode()

    def _behind(self, chunk: Chunk) -> bytes:
        """The id of where a chunk ends."""
        return self._id(chunk.next_seqno, chunk.term)

    def _topic_of(self, chunk: Chunk) -> str:
        return self._wanted.topic

    async def events(self) -> AsyncGenerator[bytes, None]:
        yield b"retry: %d\nid: %b\n\n" % (RETRY_MS, self._told)
        try:
            while not self._front_end.closing.is_set():
                subscription = await self._front_end.broker.subscribe(self._request(), caller=self._caller)
                try:
                    async with aclosing(self._follow(subscription)) as following:
                        async for piece in following:
                            yield piece
                finally:
                    await subscription.close()
        except LogboomError as error:
            self._front_end.rejections.note(error)
            yield error_event(error)

    def _request(self) -> ReadRequest:
        return msgspec.structs.replace(
            self._wanted,
            start=Start(bookmark=self._standing.decode()),
            partition=self._place.partition,
            topic_id=self._place.topic_id,
        )

    async def _follow(self, subscription: Subscription) -> AsyncGenerator[bytes, None]:
        """Until the front-end closes, or a chunk could not be sent to its end: then another one is to be asked for."""
        closing = asyncio.ensure_future(self._front_end.closing.wait())
        coming = asyncio.ensure_future(subscription.next(CHUNK_BYTES))
        self._due = self._front_end.world.monotonic_s() + HEARTBEAT_S
        try:
            while True:
                rest_s = max(0.0, self._due - self._front_end.world.monotonic_s())
                await asyncio.wait((coming, closing), timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
                if closing.done():
                    return
                if coming.done():
                    chunk = coming.result()
                    async with aclosing(self._send(chunk)) as sending:
                        async for piece in sending:
                            yield piece
                    if self._standing != self._behind(chunk):
                        return
                    coming = asyncio.ensure_future(subscription.next(CHUNK_BYTES))
                if self._front_end.world.monotonic_s() >= self._due:
                    yield self._heartbeat()
        finally:
            for task in (coming, closing):
                task.add_done_callback(_look_away)
                task.cancel()

    def _heartbeat(self) -> bytes:
        self._due = self._front_end.world.monotonic_s() + HEARTBEAT_S
        if self._told == self._standing:
            return b":\n\n"
        self._told = self._standing
        return b":\nid: %b\n\n" % self._told

    async def _send(self, chunk: Chunk) -> AsyncGenerator[bytes, None]:
        began = time.perf_counter()
        self._place = chunk
        pieces = self._encode(chunk, await self._terms(chunk))
        try:
            async with aclosing(
                on_thread(self._front_end.threads, pieces) if is_large(chunk, INLINE_BYTES) else at_once(pieces)
            ) as events:
                async for count, piece in events:
                    self._front_end.meter.note_read(count, len(piece), time.perf_counter() - began)
                    yield piece
                    began = time.perf_counter()
            self._term, self._standing = chunk.term, self._behind(chunk)
        except Damage as damage:
            before = self._id(damage.seqno_from, TERM_UNKNOWN)
            if self._wanted.gaps != "skip" or before == self._standing:
                raise
            self._term, self._standing = TERM_UNKNOWN, before

    def _encode(self, chunk: Chunk, terms: Terms) -> Iterator[tuple[int, bytes]]:
        """Events, and how many."""
        for table in self._tables(chunk):
            for part in cut([table], PIECE_BYTES):
                if is_single(part):
                    yield from self._pour(part, terms)
                    continue
                records = rows(part)
                ids = [self._id(record.seqno + 1, terms(record.seqno)) for record in records]
                lines = map(_encoder.encode, records)
                self._told = ids[-1]
                self._due = self._front_end.world.monotonic_s() + HEARTBEAT_S
                events = [b"id: %b\ndata: %b\n\n" % event for event in zip(ids, lines, strict=True)]
                yield len(events), b"".join(events)

    def _tables(self, chunk: Chunk) -> Iterator[pa.Table]:
        return stretches(chunk, self._topic_of(chunk), self._wanted.gaps == "skip", STRETCH_BYTES)

    def _pour(self, part: pa.Table, terms: Terms) -> Iterator[tuple[int, bytes]]:
        """One event. Who does not get its end has not got it, nor its id."""
        seqno = part.column("seqno")[0].as_py()
        self._told = self._id(seqno + 1, terms(seqno))
        yield 1, b"id: %b\ndata: " % self._told
        for piece in pour_record(part):
            yield 0, piece
        self._due = self._front_end.world.monotonic_s() + HEARTBEAT_S
        yield 0, b"\n\n"

    async def _terms(self, chunk: Chunk) -> Terms:
        """They never go back, and mostly all are the same."""
        if not len(chunk.data) or chunk.term == self._term:
            return lambda seqno: chunk.term
        if chunk.seqnos is None:
            return _terms_of(chunk.data)
        first = chunk.seqnos.cast("B").cast("q")[0]
        before = await term_before(self._front_end.broker, self._caller, self._topic_of(chunk), chunk, first + 1)
        return lambda seqno: chunk.term if before == chunk.term else TERM_UNKNOWN


def _terms_of(data: memoryview) -> Terms:
    """By the batches that hold them."""
    ends: list[Seqno] = []
    terms: list[int] = []
    while len(data):
        try:
            header = read_header(data)
        except BatchError:
            break
        ends.append(header.next_seqno)
        terms.append(header.term)
        data = data[header.size :]

    def term_of(seqno: Seqno) -> int:
        at = bisect_left(ends, seqno + 1)
        return terms[at] if at < len(terms) else TERM_UNKNOWN

    return term_of


def _look_away(task: asyncio.Future[Any]) -> None:
    """Whatever it ended with is nobody's any more."""
    if not task.cancelled():
        task.exception()


def error_event(error: LogboomError) -> bytes:
    return b"event: error\nretry: %d\ndata: %b\n\n" % (RETRY_IN_VAIN_MS, encode_problem(problem_of(error)))
