"""A connection that is nowhere: bytes go into it in exactly the pieces a test chooses, and what it sends is kept."""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

from logboom.protocols.logd.front_end import LogdFrontEnd

PATIENCE_S = 300.0


class Wire:
    """The transport."""

    def __init__(self, host: str | None = None) -> None:
        """`host` is where the other end is; None is nowhere."""
        self._host = host
        self.sent = bytearray()
        self.closed = False
        self.news = asyncio.Event()

    def write(self, data: bytes | memoryview) -> None:
        assert not self.closed
        self.sent += data
        self.news.set()

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True
        self.news.set()

    close = abort = write_eof

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def get_extra_info(self, name: str) -> Any:
        return (self._host, 9) if name == "peername" and self._host else None


class Line:
    """Both ends of it."""

    def __init__(self, front_end: LogdFrontEnd, host: str | None = None) -> None:
        self.wire = Wire(host)
        self.connection = front_end.factory()
        self.connection.connection_made(cast(asyncio.Transport, self.wire))
        self._seen = 0

    def send(self, data: bytes) -> None:
        while data and not self.wire.closed:
            room = memoryview(self.connection.get_buffer(-1))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    async def expect(self, pattern: bytes) -> None:
        """Returns when exactly this has come since the last time."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not re.fullmatch(pattern, self.wire.sent[self._seen :]):
                    assert not self.wire.closed, self.wire.sent[self._seen :]
                    self.wire.news.clear()
                    await self.wire.news.wait()
        except TimeoutError:
            raise AssertionError(f"{bytes(self.wire.sent[self._seen :])!r} is not {pattern!r}") from None
        self._seen = len(self.wire.sent)

    async def until_closed(self) -> None:
        """Returns when it is, and nothing more was said."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.wire.closed:
                self.wire.news.clear()
                await self.wire.news.wait()
        assert bytes(self.wire.sent[self._seen :]) == b""

    def hang_up(self) -> None:
        """Send no more, and wait for what is still to come."""
        self.connection.eof_received()

    def lose(self) -> None:
        self.connection.connection_lost(None)
