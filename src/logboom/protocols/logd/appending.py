"""Appends under way, and the line of answers: each command has its place, and nobody overtakes.

An append is called when its command comes, which is its place in its log's order; it is answered when the promise is
kept and everything before it is answered. What is known at once waits in the same line. `held_bytes` is what all in the
line costs; whoever reads commands stops while it is too much.

When the connection is gone appends go on, and nobody is told.
"""

from __future__ import annotations

import time
from asyncio import Future
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from logboom.broker.gathering import Columns, Placed
from logboom.errors import LogboomError, OutcomeUnknown
from logboom.protocols.logd.answers import encode_error, encode_ok, encode_oks
from logboom.protocols.logd.requests import Messages

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd

PLACE_BYTES: Final = 512
"""What a place in the line costs beside the command's bytes, about."""


class _Place:
    __slots__ = ("answer", "cost")

    def __init__(self, cost: int, answer: bytes = b"") -> None:
        self.cost = cost
        self.answer = answer
        """Empty until there is one."""


class AnswerLine:
    __slots__ = ("_front_end", "_places", "_send", "_settled", "held_bytes")

    def __init__(
        self, front_end: LogdFrontEnd, send: Callable[[bytes], None], settled: Callable[[], None] | None
    ) -> None:
        self._front_end = front_end
        self._send = send
        self._settled = settled
        """Called when something was answered that was not at once; None when nobody wants to know any more."""
        self._places: deque[_Place] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._places)

    def answer(self, answer: bytes) -> None:
        """What is known already, when it is its turn."""
        if self._places:
            self._enter(_Place(PLACE_BYTES, answer))
        else:
            self._send(answer)

    def append(self, messages: Messages) -> None:
        began, log = time.perf_counter(), messages.log
        place = _Place(messages.size + PLACE_BYTES)
        self._enter(place)
        future = self._front_end.gatherer.add(log.topic, log.partition, Columns(messages.values), messages.size)
        if future.done():
            self._appended(place, messages, began, future)
        else:
            future.add_done_callback(lambda future: self._appended_later(place, messages, began, future))

    def drop(self) -> None:
        self._places.clear()
        self._settled = None

    def _enter(self, place: _Place) -> None:
        self._places.append(place)
        self.held_bytes += place.cost

    def _appended_later(self, place: _Place, messages: Messages, began: float, future: Future[Placed]) -> None:
        self._appended(place, messages, began, future)
        if self._settled is not None:
            self._settled()

    def _appended(self, place: _Place, messages: Messages, began: float, future: Future[Placed]) -> None:
        error = OutcomeUnknown("the append was given up") if future.cancelled() else future.exception()
        if error is None:
            count = len(messages.values)
            self._front_end.meter.note_append(1, count, messages.size, time.perf_counter() - began)
            seqno = future.result().seqno
            place.answer = encode_ok(seqno, 1) if messages.is_batch else encode_oks(seqno, count)
        else:
            if not isinstance(error, LogboomError):
                self._front_end.report(error)
            place.answer = encode_error(error) * messages.answers_due
        self._advance()

    def _advance(self) -> None:
        """Send what is answered, up to the first that is not."""
        places = self._places
        out = []
        while places and places[0].answer:
            place = places.popleft()
            self.held_bytes -= place.cost
            out.append(place.answer)
        if out:
            self._send(b"".join(out))
