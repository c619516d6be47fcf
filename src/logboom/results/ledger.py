"""Reads and writes `_pipeline`: each event is appended only if its writer has read all before it.

Over any broker, the node's own or one behind the network. Where an answer is lost the log is read on, and tells whether
the event is in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from logboom.batch import build
from logboom.broker.api import PIPELINE_TOPIC, Broker, Chunk, Part, ReadRequest, Start
from logboom.errors import (
    BookmarkLost,
    LogboomError,
    OutcomeUnknown,
    SeqnoOutOfRange,
    TopicRecreated,
    Unavailable,
    UnexpectedSeqno,
)
from logboom.results.catalogue import Beat, Catalogue, Event, Leased, Whole, encode

WHOLE_EVERY: Final = 2000
"""Events, before another one stands for all of them."""
READ_BYTES: Final = 4 << 20
RETRY_S: Final = 0.5
BETWEEN_MS: Final = 500
"""At most so long it takes until what came between can be read: it is written, and not committed yet."""

Allowed = Callable[[Catalogue], Event | None]
"""What to append to a catalogue as it is now, None for nothing any more; raises why that must not be."""


class Ledger:
    """For any tasks of one loop: they take turns."""

    def __init__(self, connect: Callable[[], Awaitable[Broker]]) -> None:
        """`connect` gives a broker, another one where that was lost."""
        self._connect = connect
        self._broker: Broker | None = None
        self.catalogue = Catalogue()
        self._bookmark: str | None = None
        self._turn = asyncio.Lock()

    async def _its_broker(self) -> Broker:
        if self._broker is None:
            self._broker = await self._connect()
        return self._broker

    async def refresh(self, wait_ms: int = 0) -> Catalogue:
        """As of now; or, where nothing is new, as of when something is, for so long."""
        async with self._turn:
            return await self._refresh(wait_ms)

    async def _refresh(self, wait_ms: int = 0) -> Catalogue:
        while True:
            try:
                chunk = await self._read(wait_ms)
            except (BookmarkLost, SeqnoOutOfRange, TopicRecreated):
                if self._bookmark is None:
                    raise
                # Another node, or an older one: what was known of the other log is not true of this one.
                self.catalogue, self._bookmark = Catalogue(), None
                continue
            if chunk.record_count:
                self.catalogue.fold(chunk.records())
            self._bookmark = chunk.bookmark
            if chunk.at_end:
                return self.catalogue
            wait_ms = 0

    async def _read(self, wait_ms: int) -> Chunk:
        # What was trimmed stands in the `whole` that the log begins with.
        start = Start(bookmark=self._bookmark)
        broker = await self._its_broker()
        request = ReadRequest(PIPELINE_TOPIC, start, max_bytes=READ_BYTES, wait_ms=wait_ms, gaps="skip")
        try:
            return await broker.read(request)
        except Unavailable:
            self._broker = None
            raise

    async def put(self, allowed: Allowed, patience_s: float = 60.0) -> Event | None:
        """Append what is allowed, as soon as nobody comes between. A node that is away is waited for so long."""
        async with self._turn:
            return await self._put(allowed, patience_s)

    async def _put(self, allowed: Allowed, patience_s: float) -> Event | None:
        give_up = time.monotonic() + patience_s
        event: Event | None = None
        doubted: Event | None = None
        wait_ms = 0
        while True:
            try:
                await self._refresh(wait_ms)
                if doubted is not None and self._has(doubted):
                    return doubted
                event = allowed(self.catalogue)
                if event is None or await self._append(event):
                    return event
                wait_ms = BETWEEN_MS
            except (Unavailable, OutcomeUnknown):
                self._broker, doubted, wait_ms = None, event, 0
                if time.monotonic() + RETRY_S >= give_up:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _append(self, event: Event) -> bool:
        """Whether nobody came between; then it is folded too."""
        batch = build([encode(event)], keys=[_key(event)], tags=[[type(event).__name__.lower()]])
        part = Part(PIPELINE_TOPIC, [batch], 0, self.catalogue.next)
        (answer,) = await (await self._its_broker()).append([part], "durable")
        if isinstance(answer, UnexpectedSeqno):
            return False
        if isinstance(answer, LogboomError):
            raise answer
        await self._refresh()
        return True

    def _has(self, event: Event) -> bool:
        """Whether an event of ours, of which nobody heard, is in the log."""
        if isinstance(event, Beat | Whole):
            return False  # one more does no harm
        job = self.catalogue.jobs.get(event.job)
        if job is None:
            return False
        if isinstance(event, Leased):
            return job.lease is not None and job.lease.run == event.run
        return any(run.run == event.run and run.error == event.error for run in job.runs)

    async def tidy(self) -> None:
        """Where the log has grown long: let one event stand for all, and trim. Where that fails, the next one does."""
        seqno = -1

        def allowed(catalogue: Catalogue) -> Event | None:
            nonlocal seqno
            if catalogue.since_whole < WHOLE_EVERY:
                return None
            seqno = catalogue.next
            return catalogue.whole()

        if await self.put(allowed) is not None:
            broker = await self._its_broker()
            await broker.trim(PIPELINE_TOPIC, 0, seqno)


def _key(event: Event) -> bytes:
    return b"" if isinstance(event, Whole) else event.job.encode()
