"""What an append waits for: one answer for each batch, from one log or several."""

from __future__ import annotations

import logging
import sys
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from time import perf_counter
from typing import ClassVar, Final

from logboom.batch import Batch
from logboom.batch.header import ISSUED_END, ISSUED_IDS, STAGED_IDS
from logboom.broker.monitor.measures import Meter
from logboom.errors import LogboomError
from logboom.storage.append import Answer
from logboom.storage.data.topic import Acks
from logboom.storage.staged.piece import StagePiece

logger: Final = logging.getLogger("logboom.broker")


class Promise:
    """Kept when every part has its answers: then whoever asked is called, once."""

    __slots__ = ("_answers", "_missing", "_then", "began")

    def __init__(self, then: Callable[[list[Answer]], None], batches: int, parts: int) -> None:
        self.began = perf_counter()
        self._then = then
        self._answers: list[Answer | None] = [None] * batches
        self._missing = parts
        if not parts:
            then([])

    def split(self, parts: int) -> None:
        """One part becomes several, each with answers of its own."""
        self._missing += parts - 1

    def settle(self, offset: int, answers: Sequence[Answer]) -> None:
        """The answers for one part, whose first batch has this number."""
        self._answers[offset : offset + len(answers)] = answers
        self._missing -= 1
        if not self._missing:
            try:
                self._then(self._answers)  # type: ignore[arg-type]
            except Exception:  # others wait behind it
                logger.exception("whoever asked for an append failed with its answers")


class AwaitedPromise(Promise):
    """Of those who wait for a future."""

    __slots__ = ("future",)

    def __init__(self, loop: AbstractEventLoop, batches: int, parts: int) -> None:
        self.future: Future[list[Answer]] = loop.create_future()
        super().__init__(partial(fulfil, self.future), batches, parts)


def fulfil(future: Future[list[Answer]], answers: list[Answer]) -> None:
    """Who asked may have gone away."""
    if not future.done():
        future.set_result(answers)


class Entry:
    """One part of an append, on its way into one log."""

    __slots__ = (
        "acks",
        "answers",
        "appended",
        "batches",
        "expect",
        "give_up_at",
        "is_repeat",
        "is_staged",
        "issued_id",
        "meter",
        "offset",
        "on_end",
        "promise",
        "size",
        "work_bytes",
    )
    stamped: ClassVar[bool] = False
    """Whether the batches bring their numbers along."""

    def __init__(
        self,
        promise: Promise,
        offset: int,
        batches: Sequence[Batch],
        acks: Acks,
        expect: int | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.promise = promise
        self.offset = offset
        self.batches = batches
        self.acks = acks
        self.expect = expect
        self.meter = meter
        size = work_bytes = 0
        self.is_staged = False
        """Whether a stage's producer wrote any of it."""
        self.issued_id = 0
        """The highest of the producers' ids that are given out by nodes."""
        for batch in batches:
            header = batch.header
            if header.producer_id >= ISSUED_IDS:
                if header.producer_id >= STAGED_IDS:
                    self.is_staged = True
                elif header.producer_id < ISSUED_END:
                    self.issued_id = max(self.issued_id, header.producer_id)
            size += header.size
            work_bytes += max(header.size, header.body_size)
        self.size = size
        self.work_bytes = work_bytes
        """As the bodies will be inflated."""
        self.is_repeat = False
        """Whether the log had it already: then it is answered, and never written."""
        self.on_end: Callable[[], object] | None = None
        """Called when it has its answers."""
        self.answers: Sequence[Answer] = ()
        self.appended = (0, 0, 0)
        """Batches, records and bytes that the log has taken."""
        self.give_up_at = 0.0
        """When it has waited for room long enough."""

    def expected(self, next_seqno: int) -> list[int | None]:
        """The seqno each batch must get. Where the first does not get its own, none of the others does."""
        count = len(self.batches)
        if self.expect is None or count == 1 or self.expect != next_seqno:
            return [self.expect] * count
        counts = [batch.header.record_count for batch in self.batches]
        return list(accumulate(counts[:-1], initial=self.expect))

    def split(self) -> list[Entry]:
        """One for each batch, unless they demand to stand together."""
        count = len(self.batches)
        if count == 1 or self.expect is not None:
            return [self]
        self.promise.split(count)
        return [
            Entry(self.promise, self.offset + number, [batch], self.acks, None, self.meter)
            for number, batch in enumerate(self.batches)
        ]

    def settle(self) -> None:
        if self.meter is not None and self.appended[0]:
            self.meter.note_append(*self.appended, perf_counter() - self.promise.began)
        self._end(self.answers)

    def fail(self, error: LogboomError) -> None:
        self._end([error] * len(self.batches))

    def _end(self, answers: Sequence[Answer]) -> None:
        self.promise.settle(self.offset, answers)
        if self.on_end is not None:
            self.on_end()


class Adoption(Entry):
    """A piece of a stage, on its way to becoming a segment of one log. Has no answers where it does not become one."""

    __slots__ = ("piece",)

    def __init__(self, promise: Promise, piece: StagePiece, meter: Meter | None) -> None:
        super().__init__(promise, 0, (), "leader", meter=meter)  # it is synced when it is appended
        self.piece = piece
        self.work_bytes = sys.maxsize  # never on the loop
        self.is_staged = True


class CopiedEntry(Entry):
    """Batches of a log's source, on their way into the copy."""

    __slots__ = ()
    stamped = True
