"""The records that a member was leased, as it gets them: only those, in chunks, and what could not be read.

Batches that lie within a lease go out as they are stored. Of others the leased records become a batch of their own, as
with a filter; so do those that rules on channels and tags let through, and the rest is told to whoever leased them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from logboom.access.restriction import Restriction
from logboom.batch.header import KIND_DATA, KIND_LOST, Header, read_header
from logboom.broker.api.queues import LeasedChunk
from logboom.broker.api.reads import Chunk, Filter
from logboom.broker.catalog import Hosted
from logboom.broker.queues.lease_table import LeasedRange
from logboom.broker.read.log_reader import LogReader, ReadPoint
from logboom.broker.read.row_filter import Found, filter_run
from logboom.errors import BatchError, Damage

SPARE_BYTES: Final = 16 * 1024
"""Of records that are not leased: so much goes along where that saves making a batch."""
CHUNKS_MAX: Final = 64
"""In one answer."""


@dataclass(slots=True)
class ReadJobs:
    """What became of ranges that were leased."""

    chunks: list[LeasedChunk] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Nobody can read these any more."""
    unfit: list[LeasedRange] = field(default_factory=list)
    """This member may not read these."""
    unread: list[LeasedRange] = field(default_factory=list)
    """There was no room for these."""
    size: int = 0


class JobReader:
    def __init__(self, reading: LogReader) -> None:
        self._reading = reading

    async def read(
        self,
        hosted: Hosted,
        partition: int,
        ranges: list[LeasedRange],
        max_bytes: int,
        restriction: Restriction | None,
    ) -> ReadJobs:
        found = ReadJobs()
        writer = hosted.writer(partition)
        for number, taken in enumerate(ranges):
            point = ReadPoint(hosted.topic, partition, writer, taken.seqno, True, hosted.meter)
            while point.seqno < taken.until:
                if found.size >= max_bytes or len(found.chunks) >= CHUNKS_MAX:
                    found.unread.append(taken._replace(seqno=point.seqno))
                    found.unread += ranges[number + 1 :]
                    return found
                await self._read_on(point, taken, max_bytes - found.size, restriction, found)
        return found

    async def _read_on(
        self, point: ReadPoint, taken: LeasedRange, max_bytes: int, restriction: Restriction | None, found: ReadJobs
    ) -> None:
        began = point.seqno
        chunk = await self._reading.next(point, max_bytes, taken.until - began, 0)
        if not chunk.data.nbytes:  # behind the end: that is not there any more
            found.lost.append((began, taken.until))
            point.seqno = taken.until
            return
        headers = list(_headers(chunk.data, began))
        first = min(max(began, headers[0].base_seqno), taken.until)
        if first > began:
            found.lost.append((began, first))
        for header in headers:
            if header.kind == KIND_LOST and header.next_seqno > first:
                found.lost.append((max(first, header.base_seqno), min(header.next_seqno, taken.until)))
        until = min(chunk.next_seqno, taken.until)
        if restriction is None and _is_whole(headers, first, until, chunk.data.nbytes):
            found.chunks.append(LeasedChunk(chunk._replace(seqno=first, topic=point.topic.name), taken.tries))
            found.size += chunk.data.nbytes
        elif first < until:
            until = await self._pick(chunk._replace(topic=point.topic.name), taken, (first, until), restriction, found)
        point.seqno, point.run = until, None

    async def _pick(
        self,
        chunk: Chunk,
        taken: LeasedRange,
        span: tuple[int, int],
        restriction: Restriction | None,
        found: ReadJobs,
    ) -> int:
        """Only the records that are meant. Where it came to."""
        (first, until), reading = span, self._reading
        picked = await reading.loop.run_in_executor(reading.threads, _filter, chunk.data, first, until, restriction)
        reached = min(picked.next_seqno, until)
        if picked.damage is not None and not picked.data.nbytes:
            lost_until = min(until, picked.damage.seqno_until or until)
            found.lost.append((reached, lost_until))
            return lost_until
        if picked.data.nbytes:
            # Where a batch of records was found, that of `term` is the last one looked at, not the last one found.
            one = chunk._replace(seqno=first, next_seqno=reached, data=picked.data, seqnos=picked.seqnos)
            found.chunks.append(LeasedChunk(one, taken.tries))
            found.size += picked.data.nbytes
        if restriction is not None:
            found.unfit += _missing(picked.seqnos, first, reached, taken.tries)
        return max(reached, first + 1)


def _headers(data: memoryview, seqno: int) -> Iterator[Header]:
    """Of the batches that have records; the first may begin before this seqno."""
    offset = 0
    while offset < len(data):
        try:
            header = read_header(data, offset)
        except BatchError as error:
            raise Damage("the log", offset, seqno, None, str(error)) from None
        if header.record_count:
            yield header
            seqno = header.next_seqno
        offset += header.size


def _is_whole(headers: list[Header], first: int, until: int, size: int) -> bool:
    """Whether these batches hold the records that are meant, and before them no others, or few."""
    if any(header.kind != KIND_DATA for header in headers) or headers[-1].next_seqno != until:
        return False
    return headers[0].base_seqno == first or size <= SPARE_BYTES


def _filter(data: memoryview, first: int, until: int, restriction: Restriction | None) -> Found:
    """On a thread."""
    return filter_run(data, Filter(), first, until, restriction=restriction)


def _missing(seqnos: memoryview, first: int, until: int, tries: int) -> list[LeasedRange]:
    """What lies between these."""
    missing, before = [], first
    for seqno in seqnos.cast("B").cast("q") if seqnos.nbytes else ():
        if seqno > before:
            missing.append(LeasedRange(before, seqno, tries))
        before = seqno + 1
    if before < until:
        missing.append(LeasedRange(before, until, tries))
    return missing
