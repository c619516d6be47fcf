"""Subscriptions and feeds of somebody whom a quota may bind: what was given is charged, and paid off before more is.

A quota that is set later counts from then on. A feed that has to wait says in time that nothing has come, as one does
that waits for news.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from logboom.access.quota import OUT_OF
from logboom.batch.header import HEADER_SIZE, read_header
from logboom.broker.access.quotas import Quotas
from logboom.broker.api import Chunk, FeedPiece, Subscription
from logboom.broker.caller import Caller
from logboom.broker.read.feed import LocalFeed
from logboom.errors import BatchError
from logboom.storage.readable_log import READ_BYTES


class MeteredSubscription:
    """Implements broker.api.Subscription."""

    def __init__(self, inner: Subscription, quotas: Quotas, caller: Caller) -> None:
        self._inner = inner
        self._quotas = quotas
        self._caller = caller

    async def next(self, max_bytes: int = READ_BYTES) -> Chunk:
        quotas, caller = self._quotas, self._caller
        if quotas.is_on:
            await quotas.rest(caller, OUT_OF)
            max_bytes = quotas.read_bytes(caller, max_bytes)
        chunk = await self._inner.next(max_bytes)
        if quotas.is_on:
            quotas.charge(caller, bytes_out=len(chunk.data), records_out=chunk.record_count)
        return chunk

    async def close(self) -> None:
        await self._inner.close()


class MeteredFeed:
    """Implements broker.api.Feed."""

    def __init__(self, inner: LocalFeed, quotas: Quotas, caller: Caller) -> None:
        self.origin = inner.origin
        self._inner = inner
        self._quotas = quotas
        self._caller = caller

    async def next(self, max_bytes: int = READ_BYTES, wait_ms: int = 1000) -> FeedPiece:
        quotas, caller = self._quotas, self._caller
        if quotas.is_on:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await quotas.rest(caller, OUT_OF)
            if quotas.rest_of(caller, OUT_OF) is not None:
                return self._inner.standing()
            max_bytes = quotas.read_bytes(caller, max_bytes)
        piece = await self._inner.next(max_bytes, wait_ms)
        if quotas.is_on:
            quotas.charge(caller, bytes_out=len(piece.data), records_out=_count_records(piece.data))
        return piece

    async def close(self) -> None:
        await self._inner.close()


def _count_records(data: memoryview) -> int:
    count = 0
    with suppress(BatchError):
        while len(data) >= HEADER_SIZE:
            header = read_header(data)
            count += header.record_count
            data = data[header.size :]
    return count
