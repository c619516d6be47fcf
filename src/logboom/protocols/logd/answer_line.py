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
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from logboom.broker.append.gatherer import Placed, RecordColumns
from logboom.broker.caller import Caller
from logboom.errors import LogboomError, OutcomeUnknown
from logboom.protocols.logd.answers import encode_error, encode_ok, encode_oks
from logboom.protocols.logd.requests import Messages, Mixed

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd

PLACE_BYTES: Final = 512
"""What a place in the line costs beside the command's bytes, about."""


class _Place:
    __slots__ = ("answer", "cost")
    is_whole = True
    """Whether the answer, if there is one, is all of it."""

    def __init__(self, cost: int, answer: bytes = b"") -> None:
        self.cost = cost
        self.answer = answer
        """Empty until there is one."""

    def fill(self, number: int, answer: bytes) -> None:
        self.answer = answer


class _MixedPlace(_Place):
    """Of commands for several logs: answered as far as those before are, whichever log is first."""

    __slots__ = ("_lines", "_turns")

    def __init__(self, cost: int, logs: int, turns: list[int]) -> None:
        super().__init__(cost)
        self._turns = turns[::-1]
        self._lines: list[Iterator[bytes] | None] = [None] * logs

    @property
    def is_whole(self) -> bool:  # type: ignore[override]
        return not self._turns

    def fill(self, number: int, answer: bytes) -> None:
        """What a log has answered, a line for each command."""
        self._lines[number] = iter(answer.splitlines(keepends=True))
        turns, out = self._turns, [self.answer]
        while turns and (lines := self._lines[turns[-1]]) is not None:
            out.append(next(lines))
            turns.pop()
        self.answer = b"".join(out)


class _Append(NamedTuple):
    place: _Place
    number: int
    """Among the logs of its place."""
    messages: Messages
    began: float


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

    def append(self, request: Messages | Mixed, check: Callable[[str], None], caller: Caller) -> None:
        """`check` raises where a topic may not be written to from here."""
        if isinstance(request, Mixed):
            logs = request.messages
            place: _Place = _MixedPlace(request.size + PLACE_BYTES * len(logs), len(logs), request.turns)
        else:
            logs, place = [request], _Place(request.size + PLACE_BYTES)
        self._enter(place)
        for number, messages in enumerate(logs):
            self._append(_Append(place, number, messages, time.perf_counter()), check, caller)
        self._advance()

    def _append(self, append: _Append, check: Callable[[str], None], caller: Caller) -> None:
        messages, log = append.messages, append.messages.log
        try:
            check(log.topic)
        except LogboomError as error:
            self._front_end.rejections.note(error)
            append.place.fill(append.number, encode_error(error) * messages.answers_due)
            return
        columns, gatherer = RecordColumns(messages.values), self._front_end.gatherer
        future = gatherer.add(log.topic, log.partition, columns, messages.size, caller=caller)
        if future.done():
            self._appended(append, future)
        else:
            future.add_done_callback(lambda future: self._appended_later(append, future))

    def drop(self) -> None:
        self._places.clear()
        self._settled = None

    def _enter(self, place: _Place) -> None:
        self._places.append(place)
        self.held_bytes += place.cost

    def _appended_later(self, append: _Append, future: Future[Placed]) -> None:
        self._appended(append, future)
        self._advance()
        if self._settled is not None:
            self._settled()

    def _appended(self, append: _Append, future: Future[Placed]) -> None:
        place, number, messages, began = append
        error = OutcomeUnknown("the append was given up") if future.cancelled() else future.exception()
        if error is None:
            count = len(messages.values)
            self._front_end.meter.note_append(1, count, messages.size, time.perf_counter() - began)
            seqno = future.result().seqno
            place.fill(number, encode_ok(seqno, 1) if messages.is_batch else encode_oks(seqno, count))
        else:
            if not isinstance(error, LogboomError):
                self._front_end.report(error)
            place.fill(number, encode_error(error) * messages.answers_due)

    def _advance(self) -> None:
        """Send what is answered, up to the first that is not."""
        places = self._places
        out = []
        while places and places[0].answer:
            place = places[0]
            out.append(place.answer)
            place.answer = b""
            if not place.is_whole:
                break
            places.popleft()
            self.held_bytes -= place.cost
        if out:
            self._send(b"".join(out))
