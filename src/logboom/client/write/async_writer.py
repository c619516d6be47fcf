"""Write records to a topic from asyncio. See docs/howto/write.md.

    async with AsyncWriter("events", "localhost:1773") as writer:
        await writer.write(b"21.5", key=b"kitchen")
        print((await writer.send(b"22.0", key=b"kitchen")).seqno)

One event loop uses it, and one task of its own keeps it connected. What many tasks send while an answer is awaited
goes together as the next batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Unpack

from logboom.batch.builder import table_columns
from logboom.client.keywords import explained
from logboom.client.link.address import Servers, parse_servers
from logboom.client.write.async_driver import AsyncDriver
from logboom.client.write.column_source import ColumnSource
from logboom.client.write.gathered import Inbox, Waiter, Written
from logboom.client.write.lane import all_safe
from logboom.client.write.ledger import OnError, tell
from logboom.client.write.options import WriterArguments, WriterOptions
from logboom.client.write.pieces import slices_of
from logboom.client.write.spill import spill_for
from logboom.client.write.writer import Payload
from logboom.client.write.writer_core import WriterCore
from logboom.errors import BufferFull, ConnectionLost, LocalProtocolError, LogboomError
from logboom.values.encoded_column import encoded_column
from logboom.values.serializer import Serializer, ValueFormat, coder_of


class AsyncWriter:
    """Writes to one topic. The options are explained in WriterOptions, `value` in Writer; `async with` connects."""

    @explained(*WriterArguments.__annotations__)
    def __init__(
        self,
        topic: str,
        servers: Servers = None,
        *,
        on_error: OnError | None = None,
        value: ValueFormat | Serializer | None = None,
        **options: Unpack[WriterArguments],
    ) -> None:
        self._coder = coder_of(value)
        self.options = WriterOptions(**options)
        self.topic = topic
        self._servers = parse_servers(servers)
        with spill_for(self.options.spill, self.options.spill_bytes) as file:
            self._core = WriterCore(topic, self.options, len(self._servers), file)
        self._inbox = self._core.routing.inbox if self._coder is None else Inbox()
        self._on_error = on_error
        self._driver: AsyncDriver | None = None

    def __repr__(self) -> str:
        return f"<AsyncWriter of {self.topic!r} at {', '.join(map(str, self._servers))}: {self._core}>"

    def __len__(self) -> int:
        """Records that are neither written nor given up nor spilled."""
        return len(self._core)

    @property
    def stats(self) -> dict[str, int]:
        """Records written, failed, dropped, waiting; batches in the spill file; bytes in the buffer."""
        return self._core.stats()

    async def __aenter__(self) -> AsyncWriter:
        """Raises where no server answers, unless there is a spill file to write to."""
        self._driver = AsyncDriver(self._core, self._servers, self._on_error)
        contact, servers = self._core.contact, len(self._servers)
        patience_s = self.options.connect_timeout_s if self.options.spill is None else 0
        try:
            await self._driver.until(lambda: contact.ready, patience_s)
            await self._driver.until(lambda: contact.ready or contact.attempts >= servers)
        except BaseException:
            await self._end()
            raise
        error = contact.fatal or (None if contact.ready or self.options.spill is not None else contact.error)
        if error is not None:
            await self._end()
            raise error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        with suppress(LogboomError, TimeoutError):
            await self.close()

    async def write(
        self,
        value: Any,
        key: Payload = None,
        timestamp: int | datetime | None = None,
        channel: str | None = None,
        tags: Iterable[str] = (),
        headers: Iterable[tuple[str, bytes]] = (),
        callback: Waiter | None = None,
    ) -> None:
        """Take a record, to be sent with others; waits only where there is no room. See Writer.write."""
        if self._inbox.leave(value, key, timestamp, channel, tags, headers, callback):
            return
        core = self._core
        if self._coder is not None:
            value = self._coder.encode(value)
            if core.routing.inbox.leave(value, key, timestamp, channel, tags, headers, callback):
                return
        driver = self._running()
        if core.is_barred and not await self._make_room(1):
            if callback is not None:
                tell([(callback, self._full())], [], None)
            return
        if core.routing.add(value, key, timestamp, channel, tags, headers, callback):
            driver.step()

    async def send(
        self,
        value: Any,
        key: Payload = None,
        timestamp: int | datetime | None = None,
        channel: str | None = None,
        tags: Iterable[str] = (),
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> Written:
        """Write a record and wait until it is in its log."""
        if self._coder is not None:
            value = self._coder.encode(value)
        core, driver = self._core, self._running()
        if core.is_barred and not await self._make_room(1):
            raise self._full()
        future: asyncio.Future[Written] = driver.loop.create_future()

        def settle(outcome: Written | LogboomError) -> None:
            if future.done():
                return
            if isinstance(outcome, LogboomError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        core.routing.add(value, key, timestamp, channel, tags, headers, settle)
        core.hasten()
        driver.step_soon()
        return await future

    async def write_many(
        self,
        values: Any,
        keys: Any = None,
        timestamps: Any = None,
        channels: Any = None,
        tags: Any = None,
        headers: Any = None,
    ) -> None:
        """Columns of records. See Writer.write_many."""
        if self._coder is not None:
            values = encoded_column(values, self._coder)
        await self._write_columns(
            ColumnSource(values, keys=keys, timestamps=timestamps, channels=channels, tags=tags, headers=headers)
        )

    async def _write_columns(self, source: ColumnSource) -> None:
        routing, options, driver = self._core.routing, self.options, self._running()
        batch_bytes = min(options.batch_bytes, routing.limit_bytes)
        for part in slices_of(source, routing, batch_bytes, options.buffer_bytes // 2):
            if self._core.is_barred and not await self._make_room(part.columns.count):
                continue
            part.add_to(routing, batch_bytes, options.codec, driver.loop.time())
            driver.step()

    async def write_table(self, table: Any) -> None:
        """An Arrow table, or a pandas frame. See Writer.write_table."""
        await self._write_columns(ColumnSource(**table_columns(table)))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Until everything written so far is in its log, or spilled. See Writer.flush."""
        driver = self._running()
        waiting = self._core.flush(driver.loop.time())
        count = sum(parcel.count for parcel in waiting)
        driver.step()

        def is_done() -> bool:
            return all_safe(waiting) and (self.options.acks != "none" or driver.is_sent)

        if not await driver.until(is_done, timeout_s):
            raise TimeoutError(f"{count} records were not written within {timeout_s:g} s")
        self._raise_trouble()

    async def close(self) -> None:
        """Flush, then end the connection. Whatever happens the writer is closed afterwards."""
        if self._driver is None:
            return
        try:
            await self.flush()
        finally:
            await self._end()

    async def _end(self) -> None:
        driver, self._driver = self._driver, None
        self._core.abandon(ConnectionLost("the writer was closed before it was written"))
        self._core.contact.fatal = self._core.contact.fatal or LocalProtocolError("the writer is closed")
        self._core.bar()
        if driver is not None:
            driver.tell()
            await driver.close()
        self._core.overflow.close()

    def _running(self) -> AsyncDriver:
        if self._driver is None:
            raise self._core.contact.fatal or LocalProtocolError("not connected yet: use `async with`")
        return self._driver

    async def _make_room(self, count: int) -> bool:
        """Wait until something may be added, if need be. False: it is to be dropped."""
        core, policy = self._core, self.options.on_full
        self._raise_trouble()
        driver = self._running()
        driver.step()
        patience_s = self.options.delivery_timeout_s if policy == "block" else 0.0
        is_over = await driver.until(lambda: not core.is_barred or core.is_in_trouble, patience_s)
        self._raise_trouble()
        if not is_over:
            if policy != "drop":
                raise self._full()
            core.ledger.dropped += count
            return False
        return True

    def _full(self) -> BufferFull:
        return BufferFull(self._core.ledger.buffered, self.options.buffer_bytes)

    def _raise_trouble(self) -> None:
        error = self._core.take_trouble()
        if error is not None:
            raise error
