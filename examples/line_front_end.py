"""A front-end for lines: `topic value` appends a record, and is answered with its seqno.

    news hello        OK 0
    news world        OK 1
    a/b nonsense      ERR invalid topic

Lines take their places in the log in the order in which they came, and are answered in that order. A line that is too
long, or HTTP, or names one topic too many, ends the connection. When that is gone appends go on, and nobody is told.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections import deque
from collections.abc import Iterator
from typing import ClassVar, Final

from logboom import errors as e
from logboom.broker.access.quotas import Quotas
from logboom.broker.api import Broker
from logboom.broker.append.gatherer import Gatherer, Placed, RecordColumns
from logboom.broker.limits import Limits, Rejections
from logboom.broker.monitor.measures import Meter
from logboom.protocols.crowd import Crowd
from logboom.protocols.front_end import FrontEnd, FrontEndSetup
from logboom.protocols.stream_connection import StreamConnection

LINE_BYTES_MAX: Final = 4096
LINE_COST: Final = 512
"""Of a line that has no answer yet, beside its bytes, about."""
RECEIVE_BYTES: Final = 256 * 1024

REASONS: Final[dict[type[BaseException], bytes]] = {
    BaseException: b"unavailable",
    e.ProtocolError: b"invalid line",
    e.BatchError: b"invalid record",
    e.TopicError: b"not found",
    e.InvalidTopicName: b"invalid topic",
    e.TopicNotAllowed: b"topic not allowed",
    e.WritesRefused: b"read only",
    e.ReadOnlyReplica: b"read only",
}
"""A class that is not here has the words of the nearest one above it that is."""


def encode_error(error: BaseException) -> bytes:
    return b"ERR %b\n" % next(REASONS[kind] for kind in type(error).__mro__ if kind in REASONS)


class LineDecoder:
    def __init__(self) -> None:
        self._begun = b""
        self._is_first = True

    @property
    def held_bytes(self) -> int:
        return len(self._begun)

    def receive(self, data: memoryview) -> Iterator[bytes]:
        """Every line that is complete now. Raises at the first that is none: the same, wherever the stream was cut."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            if len(line) > LINE_BYTES_MAX or (self._is_first and line.rstrip().endswith((b"HTTP/1.0", b"HTTP/1.1"))):
                raise e.RemoteProtocolError("a line is too long, or HTTP")
            self._is_first = False
            yield line.removesuffix(b"\r")
        if len(self._begun) > LINE_BYTES_MAX:
            raise e.RemoteProtocolError("a line is too long")

    def close(self) -> None:
        self._begun = b""


class LineHandler:
    is_new: Final = False  # there is no hello
    may_be_silent: Final = False

    def __init__(self, connection: LineConnection, front_end: LineFrontEnd) -> None:
        self._connection = connection
        self._front_end = front_end
        self._due: deque[tuple[Future[Placed], int, float]] = deque()
        """What has no answer yet: how it will go, what it costs, when it came."""
        self._held_bytes = 0
        self._topics: set[str] = set()

    def take(self, line: bytes) -> None:
        topic, _, value = line.partition(b" ")
        self._topics.add(name := topic.decode("ascii", "replace"))
        if len(self._topics) > (most := self._front_end.limits.topics_per_connection):
            raise e.LimitExceeded("limits.topics_per_connection", most, "use another connection")
        columns, caller = RecordColumns([value]), self._connection.caller
        future = self._front_end.gatherer.add(name, None, columns, len(value), caller=caller)
        self._due.append((future, len(line) + LINE_COST, time.perf_counter()))
        self._held_bytes += len(line) + LINE_COST
        future.add_done_callback(self._settle)

    def _settle(self, future: Future[Placed]) -> None:
        """Send what is answered, up to the first that is not."""
        future.exception()  # else one that nobody is told of any more would be logged
        out = []
        while self._due and self._due[0][0].done():
            done, cost, began = self._due.popleft()
            self._held_bytes -= cost
            if (error := done.exception()) is not None:
                out.append(encode_error(error))
                continue
            out.append(b"OK %d\n" % done.result().seqno)
            self._front_end.meter.note_append(1, 1, cost - LINE_COST, time.perf_counter() - began)
        if out:
            self._connection.send(b"".join(out))
            self._connection.regulate()

    def is_full(self, now_paused: bool) -> bool:
        most = self._front_end.limits.in_flight_bytes
        return self._held_bytes > (most // 2 if now_paused else most)

    @property
    def is_idle(self) -> bool:
        return not self._due

    def stop(self, reason: e.LogboomError | None) -> None:
        """Nothing here goes on for ever."""

    def drop(self) -> None:
        self._due.clear()


class LineConnection(StreamConnection[LineHandler, LineDecoder]):
    __slots__ = ("_buffer",)
    protocol: ClassVar[str] = "line"
    unit: ClassVar[str] = "line"

    def __init__(self, front_end: LineFrontEnd) -> None:
        super().__init__(front_end, LineDecoder())
        self._buffer = front_end.buffer
        self._handler = LineHandler(self, front_end)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def _receive(self, nbytes: int) -> None:
        assert self._handler is not None
        lines = list(self._decoder.receive(self._buffer[:nbytes]))
        self.charge(len(lines))
        for line in lines:
            self._handler.take(line)
        if nbytes == len(self._buffer):
            self._rest()
        self.regulate()

    def _encode_error(self, error: BaseException) -> bytes:
        return encode_error(error)


class LineFrontEnd(Crowd[LineConnection]):
    refusal: Final = b"ERR unavailable\n"

    def __init__(self, broker: Broker, limits: Limits, rejections: Rejections, quotas: Quotas | None = None) -> None:
        super().__init__("line", limits, rejections, quotas)
        self.gatherer = Gatherer(broker)
        self.meter = Meter()
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        """All connections receive into it, each use ends before the next begins."""

    def factory(self) -> asyncio.BufferedProtocol:
        return LineConnection(self)


def make(setup: FrontEndSetup) -> FrontEnd:
    return LineFrontEnd(setup.broker, setup.limits, setup.rejections, setup.quotas)
