"""Batches on their way to a stage: those without an answer are kept, and sent again where that is needed.

At most WINDOW_BYTES are under way. Where a connection is lost, or the node has no room for now, they are sent again in
their order; any other refusal is raised, the first one first.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from logboom.batch import Batch
from logboom.client.link.blocking_link import BlockingLink
from logboom.client.link.calls import PASSING, Calls
from logboom.client.publish.staged_topic import StagedLog
from logboom.client.write.contact import append_answer
from logboom.errors import LogboomError, LowSpace, Unavailable
from logboom.protocols.binary.messages import Append, AppendedAt, AppendPart, Kind

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Sent and not answered, at most; unless a single batch is larger."""
WINDOW_BATCHES: Final = 256
"""However small they are: nobody reads the answers while something is sent."""
WAITED_FOR: Final = (*PASSING, LowSpace)


class _Parcel:
    """A batch that has no answer yet."""

    __slots__ = ("batch", "log", "number")

    def __init__(self, number: int, log: StagedLog, batch: Batch) -> None:
        self.number = number
        self.log = log
        self.batch = batch


class StageStream:
    def __init__(self, calls: Calls, stage: str, window_bytes: int, timeout_s: float) -> None:
        self._calls = calls
        self._stage = stage
        self._window_bytes = window_bytes
        self._timeout_s = timeout_s
        self._waiting: deque[_Parcel] = deque()
        """To be sent, in their order."""
        self._sent: dict[int, _Parcel] = {}
        """Without an answer, by correlation id, in their order."""
        self._sent_bytes = 0
        self._refused: list[tuple[_Parcel, LogboomError]] = []
        self._put_off: LogboomError | None = None
        """Why the node has taken nothing since it last took something."""
        self._link: BlockingLink | None = None
        """What they were sent on."""
        self._give_up = 0.0
        self._parcels = 0

    def send(self, log: StagedLog, batch: Batch) -> None:
        """When there is room in the window."""
        self._parcels += 1
        self._waiting.append(_Parcel(self._parcels, log, batch))
        self._drive(lambda: not self._waiting)

    def flush(self) -> None:
        """Until everything is answered."""
        self._drive(lambda: not self._sent and not self._waiting)

    def clear(self) -> None:
        self._waiting.clear()
        self._sent.clear()

    def _drive(self, is_done: Callable[[], bool]) -> None:
        """Send and take answers until this holds. Raises where nothing has gone on for long, or is of no use."""
        self._give_up = time.monotonic() + self._timeout_s
        while not is_done():
            try:
                self._send_waiting(self._hold())
                if is_done():
                    return
                self._take_answer()
                if self._refused and not self._sent:
                    self._judge()
            except LogboomError as error:
                if not self._calls.drop_lost():
                    raise
                self._calls.pause(error, self._give_up)

    def _hold(self) -> BlockingLink:
        """The link. What went over another one is to be sent again."""
        link = self._calls.link(self._give_up)
        if link is not self._link:
            link.send_timeout_s = min(link.send_timeout_s, self._timeout_s)
            self._link = link
            self._recall()
        return link

    def _send_waiting(self, link: BlockingLink) -> None:
        while self._waiting and not self._refused:
            parcel = self._waiting[0]
            log, data = parcel.log, parcel.batch.data
            is_full = self._sent_bytes + len(data) > self._window_bytes or len(self._sent) >= WINDOW_BATCHES
            if self._sent and is_full:
                return
            part = AppendPart(log.topic.name, len(data), log.partition, None, log.topic.id)
            self._sent[link.send(Kind.APPEND, Append([part], None, self._stage), (data,))] = parcel
            self._sent_bytes += len(data)
            self._waiting.popleft()

    def _take_answer(self) -> None:
        event = self._calls.next_event(max(0.0, self._give_up - time.monotonic()))
        if event is None:
            raise self._put_off or Unavailable(f"{self._calls}: nothing could be staged for {self._timeout_s:g} s")
        parcel = self._sent.pop(event.correlation, None)
        if parcel is None:
            return
        self._sent_bytes -= len(parcel.batch.data)
        answer = append_answer(event)
        if not isinstance(answer, AppendedAt):
            self._refused.append((parcel, answer))
            return
        self._calls.proved()
        self._put_off = None
        self._give_up = time.monotonic() + self._timeout_s

    def _judge(self) -> None:
        """All that was sent has its answer: the first refusal counts, for it has caused the others."""
        _, error = min(self._refused, key=lambda refused: refused[0].number)
        if not isinstance(error, WAITED_FOR):
            raise error
        self._put_off = error
        self._recall()
        self._calls.pause(error, self._give_up)

    def _recall(self) -> None:
        """What has no answer, or was refused, is to be sent again."""
        again = [*self._sent.values(), *(parcel for parcel, _ in self._refused), *self._waiting]
        self._waiting = deque(sorted(again, key=lambda parcel: parcel.number))
        self._sent.clear()
        self._refused.clear()
        self._sent_bytes = 0
