"""Reads what its group has given it, on an asyncio event loop. As `Consumer`, with `async` before `for`.

What keeps it in the group is a thread of its own, not a task: a loop that is kept busy costs no member its logs.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from logboom.batch import Record
from logboom.client.consume.async_queue_consumer import AsyncQueueConsumer
from logboom.client.consume.consumer_core import Commit, Say, Tell
from logboom.client.consume.consumer_state import CLOSE_S, ConsumerState
from logboom.client.read.async_steps import AsyncSteps
from logboom.client.read.start import check_seqno
from logboom.errors import LogboomError

if TYPE_CHECKING:
    import pyarrow as pa

Piece = TypeVar("Piece")


class AsyncConsumer(ConsumerState, AsyncSteps):
    """
    async with AsyncConsumer("orders", "localhost:1773", group="billing") as consumer:
        async for record in consumer:
            print(record.topic, record.partition, record.seqno, record.value)

    `async with`, or the first loop, joins. One task at a time. What is called when logs come and go may be a coroutine.

    With `mode="queue"` it is a `AsyncQueueConsumer`, and takes what that takes.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: Any, mode: str = "logs", **options: Any) -> Any:
            return AsyncQueueConsumer(*arguments, **options) if mode == "queue" else super().__new__(cls)

    _is_open = False

    async def __aenter__(self) -> AsyncConsumer:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    async def open(self) -> None:
        """Join the group. A loop does this by itself."""
        self._check()
        if self._is_open:
            return
        self._is_open = True
        self._finalizer = weakref.finalize(self, self._membership.abandon)
        try:
            await asyncio.wrap_future(self._membership.start())
        except BaseException:
            self._is_closed = True
            self._finalizer()
            raise

    async def close(self) -> None:
        """Commit what the loop has come back for, and leave the group."""
        if self._is_closed:
            return
        self.stop()
        self._is_closed = True
        if not self._is_open:
            return
        self._finalizer.detach()
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.wrap_future(self._membership.leave(self._core.last_moves()))
        except (LogboomError, TimeoutError):
            pass  # what is not committed is given again
        finally:
            await self._run(self._core.fetching.close())

    async def records(self, follow: bool = True, timeout_s: float | None = None) -> AsyncIterator[Record]:
        """Record by record."""
        async for some in self._pieces(methodcaller("records"), follow, timeout_s):
            for record in some:
                yield record

    def lists(
        self, columns: Sequence[str] = ("value",), follow: bool = True, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[list[Any], ...]]:
        """Some columns as lists of Python objects, a batch at a time."""
        return self._pieces(methodcaller("lists", columns), follow, timeout_s)

    def tables(
        self, columns: Sequence[str] | None = None, follow: bool = True, timeout_s: float | None = None
    ) -> AsyncIterator[pa.Table]:
        """Arrow tables as they come, each of one log, in the memory they were received in."""
        return self._pieces(methodcaller("tables", columns), follow, timeout_s)

    async def poll(self, timeout_s: float | None = None, max_records: int = 1000) -> list[Record]:
        """Up to so many records of one log; none where none has come for `timeout_s`."""
        pieces = self._pieces(methodcaller("some", max_records), True, timeout_s)
        return await anext(pieces, [])

    async def seek(self, seqno: int, topic: str | None = None, partition: int | None = None) -> None:
        """Go on there, in the log that is named. The group's place moves no sooner than behind where it is."""
        await self._run(self._core.seek(check_seqno(seqno), topic, partition))

    async def commit(self, *records: Record) -> None:
        """Move the group's places behind all that was given, or behind these records; durable when this returns.

        Raises LogNotHeld where a log is not this member's any more.
        """
        self._check()
        await self._run(self._core.commit(records))

    async def _pieces(
        self, take: Callable[[Any], Iterator[Piece]], follow: bool, timeout_s: float | None
    ) -> AsyncIterator[Piece]:
        await self.open()
        core, latch, run = self._core, self._latch, self._run
        await run(core.begin(follow))
        deadline = core.fetching.deadline(timeout_s)
        while True:
            came, pieces = False, take(core.reading)
            while not (latch.is_shut or self._is_stopped):
                piece = core.next_of(pieces)
                if piece is None or (core.commits_before and not await run(core.commit_ahead())):
                    break
                came = True
                yield piece
                core.in_hand = False
            if self._is_stopped:
                return
            is_interrupted = latch.is_shut
            await run(core.attend())
            if came:
                deadline = core.fetching.deadline(timeout_s)
            if core.is_done or not (is_interrupted or await run(core.fetch(deadline))):
                return

    async def _do(self, step: Any) -> Any:
        if isinstance(step, Tell):
            listener = self._listeners[step.what]
            told = None if listener is None else listener(step.logs)
            return await told if inspect.isawaitable(told) else None
        if isinstance(step, Say):
            return self._membership.say(step.report)
        if isinstance(step, Commit):
            return await asyncio.wrap_future(self._membership.commit(step.moves))
        return await super()._do(step)
