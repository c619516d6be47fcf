"""A page of records: from a place in a log on, up to a number of records, an end, some bytes, or some patience.

Everything between where a page began and its `next_seqno` was looked at: going on there loses nothing and repeats
nothing. What was found is held as Arrow tables over the memory it came in; of what is compressed no more is inflated
than a page may have. Records that cannot be read end the page before them; one that would begin with them is an error.

A wait ends when the front-end closes, or when nobody is there any more: the page is what there was by then.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request

from logboom.batch import Batch, read_header, to_table, vector
from logboom.batch.moment import parse_rfc3339
from logboom.batch.tables import BatchFailure, TableStretch
from logboom.broker.api import Chunk, Filter, ReadCalls, ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.errors import BatchError, Damage, InvalidBookmark, LogboomError, NotAllowed, SeqnoOutOfRange
from logboom.protocols.http.problem import BadParameter
from logboom.protocols.http.schema.operation import Text, caller_of
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, BookmarkSet

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.protocols.http.front_end import HttpFrontEnd

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""What is asked for at once."""
FOUND_BYTES_MIN: Final = 64 * 1024
INLINE_BYTES: Final = 128 * 1024
"""What is larger is decoded on a thread."""
FEW_BATCHES: Final = 8
"""Fewer are decoded one by one: of all columns that costs more, and so does what is made of the columns then."""
PATIENCE_S: Final = 2.0
"""How long a filter may look for the records of a page that does not wait."""
SEQNO_MAX: Final = 2**63 - 1
_ZONE_LOST: Final = re.compile(r" (\d\d:\d\d)$")

Result = TypeVar("Result")
Seqno = int


class PageEnd(NamedTuple):
    """Before this seqno, or where a read from this time on would begin. Neither is the end of the log."""

    seqno: Seqno | None = None
    time: int | None = None


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that say which records of a log."""

    partition: int | None = None
    tag: tuple[str, ...] = ()
    channel: Text | None = None
    key: str | None = None
    gaps: Literal["raise", "skip"] = "raise"

    def request(self, topic: str, start: Start) -> ReadRequest:
        wanted = None
        if self.tag or self.channel is not None or self.key is not None:
            wanted = Filter(self.tag, (), self.channel, None if self.key is None else self.key.encode())
        return ReadRequest(topic, start, self.partition, filter=wanted, gaps=self.gaps)


MEANINGS: Final = {
    "topic": "The topic's name.",
    "partition": "Needed where the topic has several; a bookmark names its own.",
    "tag": "Only records with this tag; given several times, with any of them.",
    "channel": "Only records of this channel; + stands for one level, # at the end for the rest, * at the end for "
    "anything.",
    "key": "Only records with this key.",
    "gaps": "What to do where records are gone or damaged: raise is a problem, skip goes on behind them.",
}
"""Of the parameters of `Which`, and of the topic in the path."""


class PageRequest(NamedTuple):
    request: ReadRequest
    limit: int
    until: PageEnd = PageEnd()
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordPage:
    topic: str
    topic_id: str
    partition: int
    start: Seqno
    next_seqno: Seqno
    term: int
    lineage: int
    """Both of the record before `next_seqno`."""
    first: Seqno
    committed: Seqno
    end: Seqno
    """Nothing from here on is wanted, as far as that is known."""
    is_over: bool
    """Whether `until` was reached, so that nothing will ever come."""
    tables: list[pa.Table]
    records: int
    size: int
    has_gaps: bool
    """Whether a filter, or rules, leave records out."""

    @property
    def at_start(self) -> bool:
        return self.start <= self.first

    @property
    def at_end(self) -> bool:
        return self.next_seqno >= min(self.committed, self.end)

    @property
    def bookmark(self) -> str:
        return str(Bookmark(bytes.fromhex(self.topic_id), self.partition, self.next_seqno, self.term, self.lineage))


def parse_start(text: str, parameter: str = "from") -> Start:
    """
    >>> parse_start("12").seqno, parse_start("latest").at, parse_start("1970-01-01T00:00:01Z").time
    (12, 'latest', 1000000)
    """
    if text in ("earliest", "latest"):
        return Start(at="latest" if text == "latest" else "earliest")
    seqno = parse_seqno(text)
    if seqno is not None:
        return Start(seqno=seqno)
    moment = _parse_time(text)
    if moment is not None:
        return Start(time=moment)
    try:
        return Start(bookmark=str(BookmarkSet.parse(text)))
    except InvalidBookmark as error:
        places = "earliest, latest, a seqno, a time as 2026-01-31T12:00:00Z, or a bookmark"
        raise BadParameter(parameter, f"{error}, nor any other place: there are {places}") from None


def parse_end(text: str | None, parameter: str = "until") -> PageEnd:
    if text is None:
        return PageEnd()
    end = PageEnd(parse_seqno(text), _parse_time(text))
    if end == PageEnd():
        raise BadParameter(parameter, f"{text[:100]!r} is no seqno and no time as 2026-01-31T12:00:00Z")
    return end


def parse_seqno(text: str) -> Seqno | None:
    seqno = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    return seqno if 0 <= seqno <= SEQNO_MAX else None


def _parse_time(text: str) -> int | None:
    """In a query + stands for a space: who forgot to escape the one before a zone meant it all the same."""
    try:
        return parse_rfc3339(_ZONE_LOST.sub(r"+\1", text))
    except ValueError:
        return None


async def while_wanted(front_end: HttpFrontEnd, request: Request, work: Coroutine[Any, Any, Result]) -> Result | None:
    """What this gives; None where the front-end closes before, or whoever asked has gone."""
    doing = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(other) for other in (front_end.closing.wait(), _gone(request))]
    try:
        await asyncio.wait((doing, *others), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, *others):
            task.cancel()
        await asyncio.gather(doing, *others, return_exceptions=True)


async def _gone(request: Request) -> bool:
    """Waits until whoever asked has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return True


async def check_reader(broker: ReadCalls, topic: str, caller: Caller) -> None:
    """Raises where he may not read the topic, or not all records of it: for what was made of all of them.

    Asked is for what is behind its end.
    """
    chunk = await broker.read(ReadRequest(topic, Start(at="latest"), partition=0, max_bytes=1), caller=caller)
    if chunk.seqnos is not None:
        reason = "rules on channels or tags leave records out"
        raise NotAllowed(caller.principal, "read", "topic", topic, f"{reason}, and this was made of all of them")


async def term_before(broker: ReadCalls, caller: Caller, topic: str, place: Chunk, seqno: Seqno) -> int:
    """Of the record before this one, in the log of a chunk; TERM_UNKNOWN where it cannot be looked at."""
    if not seqno:
        return 0
    start = Start(seqno=seqno - 1)
    request = ReadRequest(topic, start, place.partition, place.topic_id, max_bytes=1, max_records=1)
    try:
        chunk = await broker.read(request, caller=caller)
        if chunk.seqnos is not None:  # some are left out for him: the batch is none of the log's
            return chunk.term if chunk.next_seqno == seqno else TERM_UNKNOWN
        return read_header(chunk.data).term if len(chunk.data) else TERM_UNKNOWN
    except LogboomError:
        return TERM_UNKNOWN


async def read_page(front_end: HttpFrontEnd, request: Request, wanted: PageRequest) -> RecordPage:
    reading = _Reading(front_end, request, wanted)
    began = time.perf_counter()
    page = await reading.run()
    if page.records:
        front_end.meter.note_read(page.records, page.size, time.perf_counter() - began - reading.waited_s)
    return page


async def read_record(
    front_end: HttpFrontEnd, request: Request, topic: str, partition: int | None, seqno: Seqno
) -> RecordPage:
    """The page of this record alone. Raises SeqnoOutOfRange where it is not there, or not for whoever asks."""
    wanted = ReadRequest(topic, Start(seqno=seqno), partition)
    page = await read_page(front_end, request, PageRequest(wanted, 1, PageEnd(seqno + 1)))
    if not page.records:
        raise SeqnoOutOfRange(seqno, page.first, page.committed)
    return page


class _Reading:
    def __init__(self, front_end: HttpFrontEnd, asked: Request, wanted: PageRequest) -> None:
        self._front_end = front_end
        self._asked = asked
        self._broker: ReadCalls = front_end.broker
        self._caller = caller_of(asked)
        self._request = wanted.request
        self._left = wanted.limit
        self._until = wanted.until
        self._end = SEQNO_MAX if wanted.until.seqno is None else wanted.until.seqno
        self._end_is_open = wanted.until.time is not None
        """Whether no record is so late yet; then the end is that of the log, and moves with it."""
        if self._end_is_open:
            self._end = -1
        self._tables: list[pa.Table] = []
        self._records = self._size = 0
        self._wait_s = min(wanted.wait_s, front_end.limits.read_wait_ms / 1000)
        self._give_up_at = self._front_end.world.monotonic_s() + max(PATIENCE_S, self._wait_s)
        self.waited_s = 0.0

    async def run(self) -> RecordPage:
        chunk = await self._read()
        start = chunk.seqno
        while True:
            taken = await self._take(chunk)
            is_stuck = self._request.gaps != "skip" or taken.next_seqno == chunk.seqno
            is_stopped = taken.damage is not None and is_stuck
            if is_stopped or not self._goes_on(chunk, taken.next_seqno):
                break
            at_end = taken.next_seqno >= chunk.committed
            self._stand(chunk, taken.next_seqno)
            try:
                following = await (self._wait() if at_end else self._read())
            except LogboomError:
                if not self._records:
                    raise
                break
            if following is None:
                break
            chunk = following
        if taken.damage is not None and not self._records:
            raise taken.damage
        return await self._page(chunk, start, taken.next_seqno)

    def _goes_on(self, chunk: Chunk, next_seqno: Seqno) -> bool:
        if not self._left or self._size >= self._front_end.limits.read_bytes:
            return False
        if next_seqno >= self._end and not self._end_is_open:
            return False
        if next_seqno >= chunk.committed and (self._records or self.waited_s >= self._wait_s):
            return False
        return self._front_end.world.monotonic_s() < self._give_up_at

    def _stand(self, chunk: Chunk, next_seqno: Seqno) -> None:
        """Read on here, in the same log."""
        self._request = msgspec.structs.replace(
            self._request, start=Start(seqno=next_seqno), partition=chunk.partition, topic_id=chunk.topic_id
        )

    async def _read(self, wait_ms: int = 0) -> Chunk:
        filtered = self._request.filter is not None
        most = min(self._front_end.limits.read_bytes, CHUNK_BYTES)
        if filtered:
            most = min(most, max(FOUND_BYTES_MIN, 1024 * self._left))
        return await self._broker.read(
            msgspec.structs.replace(
                self._request,
                max_bytes=most,
                max_records=None if filtered else max(1, self._left),
                wait_ms=wait_ms,
            ),
            caller=self._caller,
        )

    async def _wait(self) -> Chunk | None:
        began = self._front_end.world.monotonic_s()
        try:
            rest_ms = round((self._wait_s - self.waited_s) * 1000)
            return await while_wanted(self._front_end, self._asked, self._read(rest_ms))
        finally:
            # At least a little: a broker may round to nothing what is left.
            self.waited_s += max(0.001, self._front_end.world.monotonic_s() - began)

    async def _take(self, chunk: Chunk) -> Taken:
        if self._end_is_open and chunk.next_seqno > self._end:
            await self._find_end(chunk)
        budget = max(1, self._front_end.limits.read_bytes - self._size)
        if not self._left:
            return Taken(chunk.seqno)
        wanted = (chunk, self._left, self._end, budget, self._request.gaps == "skip", self._request.topic)
        if is_large(chunk):
            taken = await asyncio.get_running_loop().run_in_executor(None, take, *wanted)
        else:
            taken = take(*wanted)
        self._tables += taken.tables
        self._records += taken.records
        self._left -= taken.records
        self._size += taken.size
        return taken

    async def _find_end(self, chunk: Chunk) -> None:
        """Where the time that ends the page is in the log by now."""
        start = Start(time=self._until.time)
        request = ReadRequest(self._request.topic, start, chunk.partition, chunk.topic_id, max_bytes=1)
        request = msgspec.structs.replace(request, gaps=self._request.gaps)
        found = await self._broker.read(request, caller=self._caller)
        self._end, self._end_is_open = found.seqno, found.seqno >= found.committed

    async def _page(self, chunk: Chunk, start: Seqno, next_seqno: Seqno) -> RecordPage:
        term = term_within(chunk, next_seqno)
        if term is None:
            term = await term_before(self._broker, self._caller, self._request.topic, chunk, next_seqno)
        return RecordPage(
            topic=self._request.topic,
            topic_id=chunk.topic_id,
            partition=chunk.partition,
            start=start,
            next_seqno=next_seqno,
            term=term,
            lineage=chunk.lineage if term == chunk.term else 0,
            first=chunk.first,
            committed=chunk.committed,
            end=self._end,
            is_over=next_seqno >= self._end and not self._end_is_open,
            tables=self._tables,
            records=self._records,
            size=self._size,
            has_gaps=chunk.seqnos is not None,
        )


@dataclass(slots=True)
class Taken:
    next_seqno: Seqno
    tables: list[pa.Table] = field(default_factory=list)
    records: int = 0
    size: int = 0
    damage: Damage | None = None
    """What stands at `next_seqno` and cannot be read."""


def take(chunk: Chunk, left: int, end: Seqno, budget_bytes: int, skip: bool, topic: str) -> Taken:
    """The records of a chunk below `end`, so many of them, and about so many bytes. Made for a thread."""
    taken = Taken(chunk.seqno)
    end = max(chunk.seqno, min(end, chunk.next_seqno))
    try:
        for table in stretches(chunk, topic, skip, budget_bytes):
            numbers = table.column("seqno").to_numpy()
            count = min(left - taken.records, int(vector.np.searchsorted(numbers, end)))
            if count:
                taken.tables.append(table.slice(0, count))
                taken.records += count
                taken.size += taken.tables[-1].nbytes
                taken.next_seqno = int(numbers[count - 1]) + 1
            if taken.records == left or taken.size >= budget_bytes:
                return taken
            if count < len(numbers):
                break
    except Damage as damage:
        if damage.seqno_from < end:
            taken.next_seqno, taken.damage = damage.seqno_from, damage
            return taken
    taken.next_seqno = end
    return taken


def stretches(chunk: Chunk, topic: str, skip: bool, budget_bytes: int) -> Iterator[pa.Table]:
    """The records of a chunk, in tables of about so many bytes, or one batch. None is empty.

    Raises Damage where records cannot be read, or goes on behind them when asked. Where they do not say how many they
    are it raises all the same: a broker that is asked to read on from there finds what is sound behind them.
    """
    if not len(chunk.data):
        return
    if chunk.seqnos is not None:
        table = vector.pa.Table.from_batches([Batch.parse(chunk.data).to_arrow()])
        seqnos = vector.pa.array(vector.np.frombuffer(chunk.seqnos, vector.I64))
        yield table.set_column(0, "seqno", seqnos)
        return
    data, seqno = chunk.data, chunk.seqno
    while len(data):
        stretch, failure = _stretch(data, seqno, budget_bytes)
        if stretch is not None:
            if stretch.next_seqno > seqno:
                yield stretch.table.slice(len(stretch.table) - (stretch.next_seqno - seqno))
                seqno = stretch.next_seqno
            data = data[stretch.size :]
        if failure is not None:
            until = chunk.next_seqno if failure.seqno_until is None else failure.seqno_until
            if until > seqno and (failure.seqno_until is None or not skip):
                raise Damage(f"{topic}/{chunk.partition}", 0, seqno, until, failure.reason)
            if failure.seqno_until is None:
                return
            seqno = max(seqno, until)
            data = data[read_header(data).size :]


def _stretch(data: memoryview, seqno: Seqno, budget_bytes: int) -> tuple[TableStretch | None, BatchFailure | None]:
    """Whole batches, and the one that stopped them."""
    try:
        header = read_header(data)
    except BatchError as error:
        return None, BatchFailure(0, seqno, None, str(error))
    stretch = to_table(data, header.base_seqno, header.index, few=FEW_BATCHES, budget_bytes=budget_bytes)
    return stretch, stretch.failure


def is_large(chunk: Chunk, inline_bytes: int = INLINE_BYTES) -> bool:
    """Whether to look at a chunk takes so long that a thread should do it."""
    if not len(chunk.data) or len(chunk.data) > inline_bytes:
        return bool(len(chunk.data))
    try:
        return read_header(chunk.data).body_size > inline_bytes
    except BatchError:
        return False


def term_within(chunk: Chunk, seqno: Seqno) -> int | None:
    """Of the record before this one, if the chunk tells."""
    if seqno == chunk.next_seqno:
        return chunk.term
    if chunk.seqnos is not None:
        return None
    data = chunk.data
    while len(data):
        try:
            header = read_header(data)
        except BatchError:
            return None
        if header.base_seqno < seqno and (seqno <= header.next_seqno or header.term == chunk.term):
            return header.term  # terms never go back: from the first that is the last one's on, all are
        data = data[header.size :]
    return None
