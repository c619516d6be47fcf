"""Reads and writes `_pipeline`: each event is appended only if its writer has read all before it.

Over any broker, the node's own or one behind the network. Where an answer is lost the log is read on, and tells whether
the event is in it.

It is read on from the last record that is known, which must be there as it was: in a node that was restored from an
older copy it is not, however far that one has come since. Then the log is read anew, from its beginning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from logboom.batch import Record, build
from logboom.broker.api import PIPELINE_TOPIC, Chunk, LogCalls, Part, ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.errors import (
    Damage,
    LogboomError,
    OutcomeUnknown,
    ResultsUnreadable,
    SeqnoOutOfRange,
    Unavailable,
    UnexpectedSeqno,
)
from logboom.results.pipeline_state import Beat, Event, Leased, PipelineState, Whole, encode

WHOLE_EVERY: Final = 2000
"""Events, before another one stands for all of them."""
READ_BYTES: Final = 4 << 20
RETRY_S: Final = 0.5
BETWEEN_MS: Final = 500
"""At most so long it takes until what came between can be read: it is written, and not committed yet."""

logger = logging.getLogger("logboom.pipeline")
Allowed = Callable[[PipelineState], Event | None]
"""What to append to the pipeline's state as it is now, None for nothing any more; raises why that must not be."""


class PipelineLedger:
    """For any tasks of one loop: they take turns."""

    def __init__(self, connect: Callable[[], Awaitable[LogCalls]], caller: Caller) -> None:
        """`connect` gives a broker, another one where that was lost; it is called in the name of `caller`."""
        self._connect = connect
        self._caller = caller
        self._broker: LogCalls | None = None
        self.pipeline = PipelineState()
        self._known: Record | None = None
        """The last one that was read."""
        self._turn = asyncio.Lock()

    async def _its_broker(self) -> LogCalls:
        if self._broker is None:
            self._broker = await self._connect()
        return self._broker

    async def refresh(self, wait_ms: int = 0) -> PipelineState:
        """As of now; or, where nothing is new, as of when something is, for so long."""
        async with self._turn:
            return await self._refresh(wait_ms)

    async def _refresh(self, wait_ms: int = 0) -> PipelineState:
        if not await self._catch_up() and wait_ms:
            with suppress(SeqnoOutOfRange):
                await self._read(self.pipeline.next, wait_ms)
            await self._catch_up()
        return self.pipeline

    async def _catch_up(self) -> bool:
        """Whether anything is new."""
        before, next_before = self.pipeline, self.pipeline.next
        chunk = await self._read_known()
        while True:
            records, reached = _take(chunk)
            if self._known is None:
                _check_beginning(chunk, records)
            self.pipeline.fold(record for record in records if record != self._known)
            if not self.pipeline.next:
                self.pipeline.next = chunk.first  # of a log that was trimmed to its end
            self.pipeline.reach(reached)
            self._known = records[-1] if records else self._known
            if reached >= chunk.committed:
                return self.pipeline is not before or self.pipeline.next != next_before
            chunk = await self._read(reached)

    async def _read_known(self) -> Chunk:
        """From the last record that is known, or from the beginning where that is not there as it was."""
        known = self._known
        if known is None:
            return await self._read(None)
        with suppress(SeqnoOutOfRange):
            chunk = await self._read(known.seqno)
            if _take(chunk)[0][:1] == [known]:
                return chunk
            if chunk.first > (known.seqno or 0):  # trimmed: it stands in the `whole` that the log begins with now
                known = None
        if known is not None:
            logger.warning("%s is not as it was, and is read anew", PIPELINE_TOPIC)
        self.pipeline, self._known = PipelineState(), None
        return await self._read(None)

    async def _read(self, seqno: int | None, wait_ms: int = 0) -> Chunk:
        start = Start() if seqno is None else Start(seqno=seqno)
        broker = await self._its_broker()
        request = ReadRequest(PIPELINE_TOPIC, start, max_bytes=READ_BYTES, wait_ms=wait_ms, gaps="skip")
        try:
            return await broker.read(request, caller=self._caller)
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
                event = allowed(self.pipeline)
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
        part = Part(PIPELINE_TOPIC, [batch], 0, self.pipeline.next)
        (answer,) = await (await self._its_broker()).append([part], "durable", caller=self._caller)
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
        job = self.pipeline.jobs.get(event.job)
        if job is None:
            return False
        if isinstance(event, Leased):
            return job.lease is not None and job.lease.run == event.run
        return any(run.run == event.run and run.error == event.error for run in job.runs)

    async def tidy(self) -> None:
        """Where the log has grown long: let one event stand for all, and trim. Where that fails, the next one does."""
        seqno = -1

        def allowed(pipeline: PipelineState) -> Event | None:
            nonlocal seqno
            if pipeline.since_whole < WHOLE_EVERY:
                return None
            seqno = pipeline.next
            return pipeline.whole()

        if await self.put(allowed) is not None:
            broker = await self._its_broker()
            await broker.trim(PIPELINE_TOPIC, 0, seqno, caller=self._caller)


def _take(chunk: Chunk) -> tuple[list[Record], int]:
    """Its records, up to what a repair could not save; and where to read on."""
    found: list[Record] = []
    try:
        found.extend(chunk.records())  # what comes before an error stays
    except Damage as damage:
        if damage.seqno_until is None:
            raise
        return found, damage.seqno_until
    return found, chunk.next_seqno


def _check_beginning(chunk: Chunk, records: list[Record]) -> None:
    """Raises ResultsUnreadable where what a trimmed log begins with is lost: it stood for all before it."""
    if 0 < chunk.first < chunk.committed and (not records or (records[0].seqno or 0) > chunk.first):
        where = f"{PIPELINE_TOPIC}, partition 0, seqno {chunk.first}"
        raise ResultsUnreadable(f"{where} is lost, and stood for all before it: put back a copy, or trim the log")


def _key(event: Event) -> bytes:
    return b"" if isinstance(event, Whole) else event.job.encode()
