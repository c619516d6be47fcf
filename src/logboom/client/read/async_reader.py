"""Reads a log from a node, on an asyncio event loop. As `Reader` in everything but the `async` before `for`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from logboom.batch import Batch, Record
from logboom.batch.tables import join_tables
from logboom.broker.api import CursorMove
from logboom.client.read.async_steps import AsyncSteps
from logboom.client.read.reader_state import ReaderState, need_pandas
from logboom.client.read.start import check_seqno

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Piece = TypeVar("Piece")


class AsyncReader(ReaderState, AsyncSteps):
    """
    async with AsyncReader("events", "localhost:1773", at="latest") as reader:
        async for record in reader.records(follow=True):
            print(record.seqno, record.value)

    `async with`, or the first loop, connects. One task at a time.
    """

    async def __aenter__(self) -> AsyncReader:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self.records()

    async def open(self) -> None:
        """Connect, and find the start. A loop does this by itself."""
        if not self._reading.is_located:
            try:
                await self._run(self._fetching.open(self._connect_timeout_s))
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """Where it stands is still known afterwards; a loop would connect again."""
        await self._run(self._fetching.close())

    async def records(self, follow: bool = False, timeout_s: float | None = None) -> AsyncIterator[Record]:
        """Record by record."""
        async for some in self._pieces(methodcaller("records"), follow, timeout_s):
            for record in some:
                yield record

    def lists(
        self, columns: Sequence[str] = ("value",), follow: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[list[Any], ...]]:
        """Some columns as lists of Python objects, a batch at a time."""
        return self._pieces(methodcaller("lists", columns), follow, timeout_s)

    def batches(self, follow: bool = False, timeout_s: float | None = None) -> AsyncIterator[Batch]:
        """Batches as they are stored. The first may begin before the position. Not with a filter."""
        return self._pieces(methodcaller("batches"), follow, timeout_s)

    def tables(
        self, columns: Sequence[str] | None = None, follow: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[pa.Table]:
        """Arrow tables as they come, in the memory they were received in: the fastest way to read much."""
        return self._pieces(methodcaller("tables", columns), follow, timeout_s)

    async def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Everything from the position to the end of the log as one table."""
        return join_tables([table async for table in self.tables(columns)], columns)

    async def frames(
        self, columns: Sequence[str] | None = None, follow: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[pd.DataFrame]:
        """The same as pandas frames."""
        need_pandas()
        async for table in self.tables(columns, follow, timeout_s):
            yield table.to_pandas()

    async def refresh(self) -> None:
        """Ask the node where the log begins and ends now."""
        await self._run(self._fetching.until())

    async def seek(self, seqno: int, topic: str | None = None, partition: int | None = None) -> None:
        """The next loop begins there; where several logs are read, in the one that is named."""
        await self._run(self._fetching.seek(check_seqno(seqno), topic, partition))
        self._marks.forget()

    async def commit(self, *, force: bool = False, expect: str | None = None) -> None:
        """Let the cursor stand where the reader does: behind what the loop was given last.

        Raises CursorMovedBack where it stands further on already, because another reader has the same one; `force`
        moves it back. With `expect`, a bookmark, or "" for none, UnexpectedCursor where it stands elsewhere.
        """
        await self._run(self._fetching.commit(self._cursor(), force, expect))
        self._marks.forget()

    async def moves(self) -> list[CursorMove]:
        """What a publish is to do so that the cursor stands where the reader does: behind what the loop was given last.

        For the transaction that has what was made of these records (`publish_batches` of `connect`). Each expects the
        cursor where this reader has found it, or moved it (`moved`): where somebody else has, UnexpectedCursor.
        """
        found: list[CursorMove] = await self._run(self._fetching.moves(self._cursor(), self._marks))
        return found

    async def _pieces(
        self, take: Callable[[Any], Iterator[Piece]], follow: bool, timeout_s: float | None
    ) -> AsyncIterator[Piece]:
        await self.open()
        reading, fetching = self._reading, self._fetching
        until = None if follow else await self._run(fetching.until())
        deadline: float | None = None
        while True:
            came = False
            if reading.state is not None:
                await asyncio.to_thread(reading.state.fill)
            for piece in take(reading):
                came = True
                yield piece
            if reading.state is not None:
                continue
            if not follow and (until is None or reading.has_reached(until)):
                return
            # At the end of the log, what a filter has left nothing of is nothing.
            if came or deadline is None or not self.at_end:
                deadline = fetching.deadline(timeout_s)
            elif fetching.is_late(deadline):
                return
            if not await self._run(fetching.next(follow, deadline)):
                return
