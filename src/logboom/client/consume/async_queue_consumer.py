"""Works on single records of a queue, on an event loop; a thread of its own keeps it in the group."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType

from logboom.broker.api import RefusedSettlement
from logboom.client.consume.job import Job, LeasedPiece
from logboom.client.consume.queue_consumer_state import CLOSE_S, QueueConsumerState
from logboom.errors import LocalProtocolError


class AsyncQueueConsumer(QueueConsumerState):
    """
    async with AsyncConsumer("jobs", "localhost:1773", group="workers", mode="queue") as consumer:
        async for job in consumer:
            await work(job.record.value)
            job.ack()

    A job's `ack`, `release`, `reject` and `extend` return at once; `await flush()` waits until they are durable.
    """

    async def __aenter__(self) -> AsyncQueueConsumer:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Join the group. The first loop does it, if nobody has."""
        if self._is_closed:
            raise LocalProtocolError("the consumer is closed")
        if not self._loops:
            self._loops.append(asyncio.get_running_loop())
            self._finalizer = weakref.finalize(self, self._member.leave)
            await asyncio.wrap_future(self._member.start())

    def _receiver(self) -> Callable[[LeasedPiece | BaseException], None]:
        self._loops: list[asyncio.AbstractEventLoop] = []
        """The one it runs on, when it is open."""
        self._pieces: asyncio.Queue[LeasedPiece | BaseException | None] = asyncio.Queue()
        loops, put = self._loops, self._pieces.put_nowait

        def deliver(piece: LeasedPiece | BaseException) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loops[0].call_soon_threadsafe(put, piece)

        return deliver

    def __aiter__(self) -> AsyncIterator[Job]:
        return self.jobs()

    async def jobs(self, timeout_s: float | None = None) -> AsyncIterator[Job]:
        """One after the other."""
        await self.open()
        while not self._is_stopped:
            self._member.asked_s = time.monotonic()
            if self._current is None:
                try:
                    async with asyncio.timeout(timeout_s):
                        piece = await self._pieces.get()
                except TimeoutError:
                    return
                if piece is None:
                    return  # stopped
                if isinstance(piece, BaseException):
                    self._pieces.put_nowait(piece)
                    raise piece
                self._current = piece, self._jobs_of(piece)
            job = self._next_of_current()
            if job is not None:
                yield job

    async def flush(self) -> list[RefusedSettlement]:
        """Returns when all that was said is durable: what was refused since the last time, because a lease was over."""
        return await asyncio.wrap_future(self._member.flush())

    def stop(self) -> None:
        """Let loops end when they come back, or wait."""
        self._is_stopped = True
        self._pieces.put_nowait(None)

    async def close(self) -> None:
        """Say what was said of records, and leave the group. What was not settled is free at once."""
        if not self._is_closed:
            self.stop()
            self._is_closed = True
        if self._loops:
            self._finalizer()
            await asyncio.to_thread(self._member.ended, CLOSE_S)
