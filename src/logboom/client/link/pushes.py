"""A subscription on a connection of an event loop: what was pushed and nobody has taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from logboom.broker.api import Chunk
from logboom.errors import LogboomError
from logboom.protocols.binary.messages import Credit, Kind

if TYPE_CHECKING:
    from logboom.client.link.async_link import AsyncLink

CREDIT_BYTES: Final = 8 * 1024 * 1024
"""What the server may push ahead of the consumer."""
TOP_UP_BYTES: Final = CREDIT_BYTES // 4
"""After so much credit is granted again: with each large chunk, while others are still on their way."""


class Pushes:
    """A subscription on an AsyncLink: chunks that have come, no more than there was credit for."""

    def __init__(self, link: AsyncLink, correlation: int) -> None:
        self._link = link
        self._correlation = correlation
        self._chunks: deque[tuple[Chunk, int]] = deque()
        self._taken = 0
        self.waiting_bytes = 0
        self._error: LogboomError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._closing = False

    async def next(self, max_bytes: int = 0) -> Chunk:
        """The next chunk, however long it takes. How large it is, the request has said."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        chunk, size = self._chunks.popleft()
        self._taken += size
        self.waiting_bytes -= size
        if self._taken >= TOP_UP_BYTES and self._error is None and not self._closing:
            self._link._tell(self._correlation, Kind.CREDIT, Credit(self._taken))
            self._taken = 0
        return chunk

    async def close(self) -> None:
        if not self._closing and self._error is None:
            self._closing = True
            self._chunks.clear()
            self._link._tell(self._correlation, Kind.UNSUBSCRIBE)

    def push(self, chunk: Chunk, size: int) -> None:
        if not self._closing:
            self._chunks.append((chunk, size))
            self.waiting_bytes += size
            self._wake()

    def fail(self, error: LogboomError) -> None:
        """What has come before is still given."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
