"""What a source says on its logd port to a node that copies it, without any I/O: from bytes to events.

    MOK <size>\\r\\n<body>   STORED <log> <size> <next index> <first> <committed> <committed index>\\r\\n<batches>
    GONE <log>\\r\\n   ERR <reason>\\r\\n   PONG\\r\\n   OK 0 0\\r\\n

The events are the same wherever the stream was cut. Lengths are checked before anything is kept; between two calls one
unfinished line or body is held. Anything else than the above is RemoteProtocolError, and the end of the connection.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logboom.batch.header import BATCH_SIZE_MAX
from logboom.errors import RemoteProtocolError

LINE_BYTES_MAX: Final = 4096
BODY_BYTES_MAX: Final = 4 * BATCH_SIZE_MAX


class SourceAnswer(NamedTuple):
    """The answer to a question."""

    body: memoryview


class SourcePiece(NamedTuple):
    """Stored batches of a log, and where it stands at the source."""

    log: str
    data: memoryview
    next_index: int
    first: int
    committed: int
    committed_index: int


class SourceLogGone(NamedTuple):
    """No more comes of this log."""

    log: str


class SourceRefusal(NamedTuple):
    reason: str


class SourceConsent(NamedTuple):
    """What was asked for is done."""


class Pong(NamedTuple):
    pass


Event = SourceAnswer | SourcePiece | SourceLogGone | SourceRefusal | SourceConsent | Pong


class SourceStream:
    def __init__(self) -> None:
        self._line = b""
        self._words: list[str] = []
        """Of the line whose body is coming."""
        self._body: bytearray | None = None
        self._filled = 0

    def receive(self, data: bytes) -> list[Event]:
        """Every event that is complete now."""
        events: list[Event] = []
        at = 0
        while at < len(data):
            at = self._take_line(data, at, events) if self._body is None else self._take_body(data, at, events)
        return events

    def _take_line(self, data: bytes, at: int, events: list[Event]) -> int:
        end = data.find(b"\n", at)
        line = self._line + data[at : len(data) if end < 0 else end]
        if len(line) > LINE_BYTES_MAX:
            raise RemoteProtocolError(f"a line of more than {LINE_BYTES_MAX} bytes")
        if end < 0:
            self._line = line
            return len(data)
        self._line = b""
        self._begin(line.removesuffix(b"\r"), events)
        return end + 1

    def _begin(self, line: bytes, events: list[Event]) -> None:
        try:
            words = line.decode("ascii").split(" ")
        except UnicodeDecodeError:
            raise _unknown(line) from None
        match words:
            case ["PONG"]:
                events.append(Pong())
            case ["OK", "0", "0"]:
                events.append(SourceConsent())
            case ["GONE", log]:
                events.append(SourceLogGone(log))
            case ["ERR", *reason]:
                events.append(SourceRefusal(" ".join(reason)))
            case ["MOK", size] | ["STORED", _, size, _, _, _, _]:
                self._words, self._body, self._filled = words, bytearray(_size(size)), 0
                self._take_body(b"", 0, events)
            case _:
                raise _unknown(line)

    def _take_body(self, data: bytes, at: int, events: list[Event]) -> int:
        body = self._body
        assert body is not None
        end = min(len(data), at + len(body) - self._filled)
        body[self._filled : self._filled + end - at] = memoryview(data)[at:end]
        self._filled += end - at
        if self._filled == len(body):
            self._body = None
            events.append(_event(self._words, memoryview(body).toreadonly()))
        return end


def _event(words: list[str], body: memoryview) -> Event:
    if words[0] == "MOK":
        return SourceAnswer(body)
    _, log, _, next_index, first, committed, committed_index = words
    return SourcePiece(log, body, _number(next_index), _number(first), _number(committed), _number(committed_index))


def _size(text: str) -> int:
    size = _number(text)
    if size > BODY_BYTES_MAX:
        raise RemoteProtocolError(f"a body of {size} bytes, allowed are {BODY_BYTES_MAX}")
    return size


def _number(text: str) -> int:
    if not text.isdigit() or len(text) > 20:
        raise RemoteProtocolError(f"{text[:40]!r} is no number")
    return int(text)


def _unknown(line: bytes) -> RemoteProtocolError:
    return RemoteProtocolError(f"{line[:80]!r} is nothing that a source says")
