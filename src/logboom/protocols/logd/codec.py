"""From bytes to requests, without any I/O: the same requests wherever the stream was cut.

Lines end in CRLF or LF and have at most LINE_BYTES_MAX bytes; a body has the length its line says, and a line's end
behind it. MSG commands that come one after another are one request, with the values of each log together: the loop over
them is the hot path. After the first command that cannot be understood nothing more is read.

Between two calls a decoder holds an unfinished command and nothing else, and counts it in the memory that all of them
share. Lengths are checked before anything is kept.

A decoder that is locked is a stranger's: it takes no bodies, and looks at nothing behind an AUTH until it is told to go
on, so that what was sent together with it is understood as what it will be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

from logboom.batch.header import Buffer
from logboom.errors import LimitExceeded
from logboom.protocols.logd.errors import (
    CHECKSUM_MISMATCH,
    INVALID_PROTOCOL,
    INVALID_REQUEST,
    MISSING_TOPIC,
    SIGN_IN_REQUIRED,
    TOO_LARGE,
    UNAVAILABLE,
)
from logboom.protocols.logd.requests import (
    LINES,
    WORDS,
    Auth,
    LogName,
    Messages,
    Mixed,
    Refusal,
    Refused,
    Request,
    parse_length,
    parse_line,
    parse_log,
    parse_number,
)

LINE_BYTES_MAX: Final = 4096
LOCKED_BYTES_MAX: Final = 4 * LINE_BYTES_MAX
"""Of a stranger: what has come behind an AUTH that is not answered yet."""
LINE_BYTES: Final = 12
"""Of a MSG command without its log and its body, about."""
RUN_BYTES: Final = 1024 * 1024
"""MSG commands of more than so many bytes are several requests."""
RECORDS_MAX: Final = 65_536
"""In one request: records of next to nothing would be objects of many times their bytes."""
_HTTP: Final = ([b"HTTP/1.1"], [b"HTTP/1.0"])
"""How the first line of HTTP ends. A browser can be made to send one here, whose first word is any of ours and whose
body holds more: nothing of that is a command."""
_Meaning = tuple[int, Callable[[bytes], None], int]
"""Of the line of a command with a body: whose it is, where the body goes, and its length."""


class SharedMemory:
    """What all decoders of a node may hold together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    def claim(self, size: int) -> None:
        """A decoder holds so much more, or less where `size` is negative."""
        if size > 0 and self.bytes + size > self.bytes_max:
            raise LimitExceeded("limits.receive_bytes", self.bytes_max, "too many large bodies are under way at once")
        self.bytes += size


class _Unfinished(Exception):
    """A command that has not come whole."""

    def __init__(self, end: int) -> None:
        self.end = end
        """Before so much of the data is there it need not be looked at again."""


class _Broken(Exception):
    """Nobody can tell where the next command begins."""

    def __init__(self, reason: bytes) -> None:
        self.reason = reason


class Decoder:
    __slots__ = (
        "_body_bytes_max",
        "_claimed",
        "_is_waiting",
        "_memory",
        "_need",
        "_rest",
        "_run_bytes",
        "is_broken",
        "is_locked",
    )

    def __init__(self, body_bytes_max: int, memory: SharedMemory, run_bytes: int = RUN_BYTES) -> None:
        self._body_bytes_max = body_bytes_max
        self._memory = memory
        self._run_bytes = run_bytes
        self._rest: bytes | bytearray = b""
        self._need = 0
        """So many bytes must there be before it is worth another look."""
        self._claimed = 0
        self._is_waiting = False
        """For the answer to an AUTH."""
        self.is_broken = False
        self.is_locked = False
        """Whether nobody has signed in who must."""

    @property
    def held_bytes(self) -> int:
        """Of a command that has begun and not ended."""
        return len(self._rest)

    def receive(self, data: Buffer) -> list[Request]:
        """Every request that is complete now. A Refusal that is the last ends the stream."""
        if self.is_broken:
            return []
        rest = self._rest
        if self._is_waiting or len(rest) + len(data) < self._need:
            return self._grow(data)
        stream = b"".join((rest, data))
        self._rest, self._need = b"", 0
        requests: list[Request] = []
        at, end = 0, len(stream)
        try:
            while at < end and not self._is_waiting:
                at = self._next(stream, at, requests)
                self._is_waiting = self.is_locked and isinstance(requests[-1], Auth)
        except _Unfinished as unfinished:
            self._keep(stream[at:], unfinished.end - at, requests)
        except _Broken as broken:
            self._break(broken.reason, requests)
        else:
            self._keep(stream[at:], 0, requests)
        return requests

    def go_on(self, is_locked: bool) -> list[Request]:
        """The AUTH is answered: what has come behind it."""
        self.is_locked, self._is_waiting = is_locked, False
        return self.receive(b"")

    def close(self) -> None:
        """Nothing more will be received: what has come of a command is dropped."""
        self._rest, self._need = b"", 0
        self._hold(0)

    def _grow(self, data: Buffer) -> list[Request]:
        requests: list[Request] = []
        rest = self._rest if isinstance(self._rest, bytearray) else bytearray(self._rest)
        if self._is_waiting and len(rest) + len(data) > LOCKED_BYTES_MAX:
            self._break(TOO_LARGE, requests)
            return requests
        try:
            self._hold(len(rest) + len(data))
        except LimitExceeded:
            self._break(UNAVAILABLE, requests)
        else:
            rest += data
            self._rest = rest
        return requests

    def _keep(self, rest: bytes, need: int, requests: list[Request]) -> None:
        try:
            self._hold(len(rest))
        except LimitExceeded:
            self._break(UNAVAILABLE, requests)
        else:
            self._rest, self._need = rest, need

    def _hold(self, size: int) -> None:
        if size != self._claimed:
            self._memory.claim(size - self._claimed)
            self._claimed = size

    def _break(self, reason: bytes, requests: list[Request]) -> None:
        self.is_broken = True
        self.close()
        requests.append(Refusal(reason, is_last=True))

    def _next(self, data: bytes, at: int, requests: list[Request]) -> int:
        """Read the command that begins here; where the next one begins."""
        newline = data.find(b"\n", at, at + LINE_BYTES_MAX)
        if newline < 0:
            raise _unfinished_line(data, at)
        word, *arguments = _split(data[at : newline + 1])
        if arguments[-1:] in _HTTP:
            raise _Broken(INVALID_PROTOCOL)
        if self.is_locked and word in (b"MSG", b"BATCH"):
            raise _Broken(SIGN_IN_REQUIRED)
        try:
            if word == b"MSG":
                return self._messages(data, at, newline + 1, arguments, requests)
            if word == b"BATCH":
                return self._batch(data, at, newline + 1, arguments, requests)
        except Refused as refused:
            raise _Broken(refused.reason) from None
        if word not in LINES:
            raise _Broken(INVALID_PROTOCOL)
        requests.append(parse_line(word, arguments))
        return newline + 1

    def _messages(self, data: bytes, at: int, body: int, arguments: list[bytes], requests: list[Request]) -> int:
        """MSG, and all that follow it."""
        if len(arguments) < 2:
            raise Refused(MISSING_TOPIC)
        if len(arguments) > 2:
            raise Refused(INVALID_PROTOCOL)
        length = self._length(arguments[1])
        end = _end_of_body(data, body + length)
        try:
            parse_log(arguments[0])
        except Refused as refused:
            requests.append(Refusal(refused.reason))
            return end
        run = _Run(self._length)
        turns, end = _read_bodies(data, at, max(end, at + self._run_bytes), RECORDS_MAX, run.look)
        requests.append(run.request(turns, end - at))
        return end

    def _batch(self, data: bytes, at: int, body: int, arguments: list[bytes], requests: list[Request]) -> int:
        if len(arguments) < 2:
            raise Refused(MISSING_TOPIC)
        end = body + self._length(arguments[0])
        if end > len(data):
            raise _Unfinished(end)
        try:
            log, values = self._read_batch(data, body, end, arguments[1:])
            requests.append(Messages(log, values, end - at, is_batch=True))
        except Refused as refused:
            requests.append(Refusal(refused.reason))
        return end

    def _read_batch(
        self, data: bytes, at: int, until: int, arguments: list[bytes]
    ) -> tuple[LogName, list[bytes | None]]:
        if len(arguments) != 3:
            raise Refused(INVALID_REQUEST)
        log = parse_log(arguments[0])
        checksum, count = map(parse_number, arguments[1:])
        if crc32(memoryview(data)[at:until]) != checksum:
            raise Refused(CHECKSUM_MISMATCH)
        if count > RECORDS_MAX:
            raise Refused(TOO_LARGE)
        values: list[bytes | None] = []

        def look(line: bytes) -> _Meaning:
            word, *lengths = _split(line)
            if word != b"MSG" or len(lengths) != 1:
                raise Refused(INVALID_REQUEST)
            return 0, values.append, self._length(lengths[0])

        _, end = _read_bodies(data, at, until, count, look)
        if not count or len(values) != count or end != until:
            raise Refused(INVALID_REQUEST)
        return log, values

    def _length(self, text: bytes) -> int:
        length = parse_length(text)
        if length > self._body_bytes_max:
            raise Refused(TOO_LARGE)
        return length


def _unfinished_line(data: bytes, at: int) -> Exception:
    """What to make of a line without an end: a stranger is told apart by its first word, however little there is."""
    word, space, _ = data[at : at + LINE_BYTES_MAX].partition(b" ")
    known = word in WORDS if space else any(known.startswith(word.removesuffix(b"\r")) for known in WORDS)
    if not known:
        return _Broken(INVALID_PROTOCOL)
    return _Broken(TOO_LARGE) if len(data) - at >= LINE_BYTES_MAX else _Unfinished(len(data) + 1)


def _end_of_body(data: bytes, at: int) -> int:
    """Where the next command begins, behind the line's end that belongs to a body."""
    after = data[at : at + 2]
    if after == b"\r\n":
        return at + 2
    if after[:1] == b"\n":
        return at + 1
    if not after or after == b"\r":
        raise _Unfinished(at + len(after) + 1)
    raise _Broken(INVALID_PROTOCOL)


class _Run:
    """MSG commands one behind another: the values for each log, and whose turn it was."""

    def __init__(self, length_of: Callable[[bytes], int]) -> None:
        self._length_of = length_of
        self._numbers: dict[bytes, int] = {}
        self._logs: list[tuple[LogName, list[bytes | None]]] = []

    def look(self, line: bytes) -> _Meaning:
        word, *arguments = _split(line)
        if word != b"MSG" or len(arguments) != 2:
            raise Refused(INVALID_PROTOCOL)
        length, text = self._length_of(arguments[1]), arguments[0]
        if text not in self._numbers:
            log = parse_log(text)
            self._numbers[text] = len(self._logs)
            self._logs.append((log, []))
        number = self._numbers[text]
        return number, self._logs[number][1].append, length

    def request(self, turns: list[int], size: int) -> Request:
        found = [(log, values) for log, values in self._logs if values]  # the last one may have come to nothing
        if len(found) == 1:
            return Messages(*found[0], size)
        return Mixed([Messages(log, values, _size(log, values)) for log, values in found], turns, size)


def _size(log: LogName, values: list[bytes | None]) -> int:
    """Of its commands, about."""
    return sum(map(len, filter(None, values))) + len(values) * (len(log.text) + LINE_BYTES)


def _split(line: bytes) -> list[bytes]:
    return line.removesuffix(b"\n").removesuffix(b"\r").split(b" ")


def _read_bodies(
    data: bytes, at: int, until: int, records_max: int, look: Callable[[bytes], _Meaning]
) -> tuple[list[int], int]:
    """Commands with a body, one behind another: whose turn each was, and where they end. `look` says what lines mean.

    As far as they are whole, sound, and end before `until`: what comes then is for others to judge.
    """
    known: dict[bytes, _Meaning] = {}
    turns: list[int] = []
    startswith, note = data.startswith, turns.append
    line, line_size = b"\n", 1
    while len(turns) < records_max:
        if startswith(line, at):
            body = at + line_size
        else:
            body = data.find(b"\n", at, at + LINE_BYTES_MAX) + 1
            line, line_size = data[at:body], body - at
            meaning = known.get(line)
            if meaning is None:
                try:
                    meaning = known[line] = look(line)
                except Refused:
                    break
            turn, add, length = meaning
        end = body + length
        if startswith(b"\r\n", end):
            following = end + 2
        elif startswith(b"\n", end):
            following = end + 1
        else:
            break
        if following > until:
            break
        add(data[body:end])
        note(turn)
        at = following
    return turns, at
