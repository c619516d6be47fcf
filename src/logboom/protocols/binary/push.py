"""A subscription on a connection: chunks are pushed while there is credit, and while the peer reads them.

Credit is bytes of frames that the peer will take. A chunk is asked for only with credit above zero and goes out whole,
so the credit may end below zero; then as much must be granted before the next. It is asked for as large as the credit,
but no smaller than half of what the subscription began with: what is left of the credit after large chunks would
become a small one each time. At most one chunk is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from logboom.batch.header import Buffer
from logboom.broker.api import Chunk, LeasedJobs
from logboom.broker.caller import Caller
from logboom.errors import RemoteProtocolError
from logboom.protocols.binary.codec import encode_front
from logboom.protocols.binary.messages import ChunkHead, JobsHead, Kind, Read

if TYPE_CHECKING:
    from logboom.protocols.binary.connection import BinaryConnection
    from logboom.protocols.binary.front_end import BinaryFrontEnd


class Push:
    __slots__ = (
        "_caller",
        "_connection",
        "_credit",
        "_front_end",
        "_least",
        "_request",
        "_wake",
        "correlation",
        "task",
    )
    task: asyncio.Task[None]

    def __init__(
        self, connection: BinaryConnection, front_end: BinaryFrontEnd, correlation: int, head: Read, caller: Caller
    ) -> None:
        if head.credit < 0:
            raise RemoteProtocolError("credit is not negative")
        self._connection = connection
        self._front_end = front_end
        self._caller = caller
        self._request = head.request
        self._credit = head.credit
        self._least = head.credit // 2
        self._wake = asyncio.Event()
        self.correlation = correlation

    def add_credit(self, size: int) -> None:
        self._credit += size
        self._wake.set()

    async def run(self, share: Callable[[], int]) -> None:
        connection = self._connection
        subscription = await self._front_end.broker.subscribe(self._request, caller=self._caller)
        try:
            while True:
                while self._credit <= 0:
                    self._wake.clear()
                    await self._wake.wait()
                await connection.writable()
                chunk = await subscription.next(min(max(self._credit, self._least), share(), self._request.max_bytes))
                began = perf_counter()
                await connection.writable()
                buffers, size = encode_chunk(self.correlation, chunk)
                connection.send_all(buffers)
                self._credit -= size
                if chunk.record_count:
                    self._front_end.meter.note_read(chunk.record_count, len(chunk.data), perf_counter() - began)
                del chunk, buffers
                await asyncio.sleep(0)  # others have their turn, however much there is to push
        finally:
            await subscription.close()


def encode_chunk(correlation: int, chunk: Chunk) -> tuple[list[Buffer], int]:
    """The buffers of a CHUNK frame, and its size."""
    head, payload, size = _parts_of(chunk)
    front = encode_front(Kind.CHUNK, correlation, head, size)
    return [front, *payload], len(front) + size


def _parts_of(chunk: Chunk) -> tuple[ChunkHead, list[Buffer], int]:
    data, seqnos = chunk.data, chunk.seqnos
    count = None if seqnos is None else seqnos.nbytes // 8
    head = ChunkHead(*chunk[:7], data.nbytes, count, chunk.lineage, chunk.topic)
    payload: list[Buffer] = [data] if data.nbytes else []
    if seqnos is not None and seqnos.nbytes:
        payload.append(seqnos.cast("B"))
    return head, payload, data.nbytes + 8 * (count or 0)


def encode_jobs(correlation: int, jobs: LeasedJobs) -> list[Buffer]:
    """The buffers of a JOBS frame."""
    parts = [_parts_of(leased.chunk) for leased in jobs.chunks]
    head = JobsHead(jobs.lease_ms, [part[0] for part in parts], [leased.tries for leased in jobs.chunks])
    front = encode_front(Kind.JOBS, correlation, head, sum(part[2] for part in parts))
    return [front, *(buffer for part in parts for buffer in part[1])]
