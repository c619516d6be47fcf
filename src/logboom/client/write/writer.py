"""Write records to a topic, from any thread. See docs/howto/write.md.

with Writer("events", "localhost:1773") as writer:
    writer.write(b"21.5", key=b"kitchen")
    print(writer.send(b"22.0", key=b"kitchen").result().seqno)
"""

from __future__ import annotations

import atexit
import os
import time
import warnings
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Unpack

from logboom.batch.builder import table_columns
from logboom.client.keywords import explained
from logboom.client.link.address import Servers, parse_servers
from logboom.client.write.column_source import ColumnSource
from logboom.client.write.delivery import Delivery
from logboom.client.write.driver import Driver
from logboom.client.write.gathered import Inbox, Waiter, Written
from logboom.client.write.lane import all_safe
from logboom.client.write.ledger import OnError, tell
from logboom.client.write.options import WriterArguments, WriterOptions
from logboom.client.write.pieces import slices_of
from logboom.client.write.spill import spill_for
from logboom.client.write.writer_core import WriterCore
from logboom.errors import BufferFull, ConnectionLost, LocalProtocolError, LogboomError
from logboom.values.encoded_column import encoded_column
from logboom.values.serializer import Serializer, ValueFormat, coder_of

Payload = bytes | bytearray | memoryview | str | None


class Writer:
    """Writes to one topic. The options are explained in WriterOptions.

    With `value` it takes other values than bytes and text: "json", "text", "msgpack", or an object with `encode` and
    `decode`, makes bytes of them. What cannot be encoded is InvalidColumn, and nothing is written.

    It connects at once: where no server answers within `connect_timeout_s` that is an error here, unless there is a
    spill file to write to.
    """

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
            self._driver = Driver(self._core, self._servers, on_error)
            self._lock = self._driver.lock
            self._add = self._core.routing.add
            self._inbox = self._core.routing.inbox if self._coder is None else Inbox()
            """Where `write` leaves records; one that never has room, where they are to be encoded first."""
            self._is_closed = False
            self._connect()
        self._driver.start()
        _open.add(self)

    def _connect(self) -> None:
        """Try every server once, and for `connect_timeout_s` where there is no spill file to begin with."""
        driver, contact = self._driver, self._core.contact
        give_up = time.monotonic() + (self.options.connect_timeout_s if self.options.spill is None else 0)

        def is_settled() -> bool:
            if contact.ready or contact.fatal is not None:
                return True
            return contact.attempts >= len(self._servers) and time.monotonic() >= give_up

        driver.drive(is_settled)
        error = contact.fatal or (None if contact.ready or self.options.spill is not None else contact.error)
        if error is not None:
            with self._lock:
                driver.close()
            raise error

    def __repr__(self) -> str:
        return f"<Writer of {self.topic!r} at {', '.join(map(str, self._servers))}: {self._core}>"

    def __len__(self) -> int:
        """Records that are neither written nor given up nor spilled."""
        return len(self._core)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with suppress(LogboomError, TimeoutError):
            self.close()

    def write(
        self,
        value: Any,
        key: Payload = None,
        timestamp: int | datetime | None = None,
        channel: str | None = None,
        tags: Iterable[str] = (),
        headers: Iterable[tuple[str, bytes]] = (),
        callback: Waiter | None = None,
    ) -> None:
        """Take a record, to be sent with others. `callback` gets a Written or the error, in another thread perhaps.

        What becomes of a record without one is told to `on_error` if it fails, else raised by a later call.
        """
        inbox = self._inbox
        if (  # what `leave` does, for the commonest case
            type(value) is bytes
            and key is None
            and timestamp is None
            and channel is None
            and callback is None
            and not tags
            and not headers
            and len(inbox.entries) < inbox.room
            and len(value) <= inbox.size_max
        ):
            inbox.entries.append(value)
            if inbox.room:
                return
            self._attend()
            return
        if callback is None and inbox.leave(value, key, timestamp, channel, tags, headers, callback):
            if not inbox.room:
                self._attend()
            return
        if self._coder is not None:
            value, inbox = self._coder.encode(value), self._core.routing.inbox
            if callback is None and inbox.leave(value, key, timestamp, channel, tags, headers, callback):
                if not inbox.room:
                    self._attend()
                return
        with self._lock:
            barred = self._core.is_barred
            if not barred:
                if not self._add(value, key, timestamp, channel, tags, headers, callback):
                    return
                self._driver.push(time.monotonic())
        if barred:
            if not self._make_room(1):
                if callback is not None:
                    tell([(callback, self._full())], [], None)
                return
            with self._lock:
                self._add(value, key, timestamp, channel, tags, headers, callback)
                self._driver.step(time.monotonic())
        self._driver.tell()

    def _attend(self) -> None:
        """The inbox was shut while something was left in it."""
        with self._lock:
            self._driver.push(time.monotonic())
        self._driver.tell()

    def send(
        self,
        value: Any,
        key: Payload = None,
        timestamp: int | datetime | None = None,
        channel: str | None = None,
        tags: Iterable[str] = (),
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> Future[Written]:
        """As `write`; the future has where the record went. Dropped for want of room it fails with BufferFull."""
        if self._coder is not None:
            value = self._coder.encode(value)
        delivery = Delivery(self._driver)
        with self._lock:
            barred = self._core.is_barred
            if not barred and self._add(value, key, timestamp, channel, tags, headers, delivery.settle):
                self._driver.step(time.monotonic())
        if barred:
            if not self._make_room(1):
                delivery.settle(self._full())
                return delivery
            with self._lock:
                self._add(value, key, timestamp, channel, tags, headers, delivery.settle)
                self._driver.step(time.monotonic())
        self._driver.tell()
        return delivery

    def write_many(
        self,
        values: Any,
        keys: Any = None,
        timestamps: Any = None,
        channels: Any = None,
        tags: Any = None,
        headers: Any = None,
    ) -> None:
        """Columns of records: lists, Arrow or NumPy arrays, pandas series, or anything that can be iterated over.

        One timestamp or channel may be for all. Far cheaper than as many calls of `write`. Batches are built and sent
        one by one, so there may be any number of records; where the buffer is full, it waits as `write` does. Columns
        of different lengths are refused before anything is written, if all of them have a length. Where an entry
        cannot be taken, nothing of its batch is, nor of what comes later: what came before is written.
        """
        if self._coder is not None:
            values = encoded_column(values, self._coder)
        self._write_columns(
            ColumnSource(values, keys=keys, timestamps=timestamps, channels=channels, tags=tags, headers=headers)
        )

    def _write_columns(self, source: ColumnSource) -> None:
        routing, options = self._core.routing, self.options
        batch_bytes = min(options.batch_bytes, routing.limit_bytes)
        for part in slices_of(source, routing, batch_bytes, options.buffer_bytes // 2):
            if self._core.is_barred and not self._make_room(part.columns.count):
                continue
            with self._lock:
                now = time.monotonic()
                part.add_to(routing, batch_bytes, options.codec, now)
                self._driver.push(now)
            self._driver.tell()

    def write_table(self, table: Any) -> None:
        """An Arrow table, or a pandas frame, with columns named as in `Record`; what was read may be written again.

        Values in it are what is stored, whatever `value` the writer was made with: as in the tables of a reader.
        """
        self._write_columns(ColumnSource(**table_columns(table)))

    def flush(self, timeout_s: float | None = None) -> None:
        """Until everything written so far is in its log or, where no server can be reached, in the spill file, and
        whoever waits for it was told.

        Raises TimeoutError when that takes longer, and the error of records that have failed meanwhile.
        """
        with self._lock:
            waiting = self._core.flush(time.monotonic())
            count = sum(parcel.count for parcel in waiting)

        def is_done() -> bool:
            # With acks none a record is settled when it is sent, and a connection that is closed sends nothing more.
            is_sent = self.options.acks != "none" or self._driver.is_sent
            return all_safe(waiting) and is_sent and self._driver.is_told

        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._driver.drive(is_done, deadline) and timeout_s is not None:
            raise TimeoutError(f"{count} records were not written within {timeout_s:g} s")
        self._raise_trouble()

    def close(self) -> None:
        """Flush, then end the connection. Whatever happens the writer is closed afterwards."""
        if self._is_closed:
            return
        try:
            self.flush()
        finally:
            self._end()

    def _end(self) -> None:
        _open.discard(self)
        with self._lock:
            self._is_closed = True
            self._core.abandon(ConnectionLost("the writer was closed before it was written"))
            self._core.contact.fatal = self._core.contact.fatal or LocalProtocolError("the writer is closed")
            self._core.bar()
            self._driver.close()
        self._driver.tell()
        self._core.overflow.close()

    @property
    def stats(self) -> dict[str, int]:
        """Records written, failed, dropped, waiting; batches in the spill file; bytes in the buffer."""
        return self._core.stats()

    def _make_room(self, count: int) -> bool:
        """Wait until something may be added, if need be. False: it is to be dropped."""
        core, policy = self._core, self.options.on_full
        self._raise_trouble()
        patience_s = self.options.delivery_timeout_s if policy == "block" else 0.0
        is_over = self._driver.drive(lambda: not core.is_barred or core.is_in_trouble, time.monotonic() + patience_s)
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
        with self._lock:
            error = self._core.take_trouble()
        if error is not None:
            raise error

    def _after_fork(self) -> None:
        """In the child: the connection and its numbers are the parent's."""
        self._driver.part()
        self._lock = self._driver.lock
        self._core.contact.fatal = LocalProtocolError("a writer is of no use after a fork: make one in each process")
        self._core.bar()
        self._core.abandon(self._core.contact.fatal)
        self._core.overflow.close()
        self._is_closed = True

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True) and len(self):
            warnings.warn(f"{self!r} was not closed: they may be lost", ResourceWarning, stacklevel=1)


_open: weakref.WeakSet[Writer] = weakref.WeakSet()


def _part_from_parent() -> None:
    for writer in list(_open):
        writer._after_fork()
    _open.clear()


def _warn_of_records_left() -> None:
    for writer in list(_open):
        if len(writer):
            warnings.warn(f"{writer!r} was not closed: they may be lost", RuntimeWarning, stacklevel=1)


os.register_at_fork(after_in_child=_part_from_parent)
atexit.register(_warn_of_records_left)
