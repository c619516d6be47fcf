"""What a client may ask for, as values, and how their lines are read.

Every line is a word and its arguments, separated by single spaces. A line that is no request becomes a Refusal: one
that ends the conversation where nobody can tell where the next command begins, else one that only answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from logboom.protocols.logd.errors import INVALID_PROTOCOL, INVALID_REQUEST, MISSING_TOPIC

NUMBER_MAX: Final = 2**63 - 1
WHOLE: Final = b"ALL"
_DIGITS_MAX: Final = 19
_TOPIC_ID: Final = re.compile(rb"[0-9a-f]{32}")
_VERSION: Final = re.compile(rb"[0-9a-f]{1,128}")


class LogName(msgspec.Struct, frozen=True):
    topic: str
    partition: int | None
    """None names the only one; a write may go to any."""
    text: bytes
    """As the client wrote it."""


class Messages(msgspec.Struct, frozen=True):
    """MSG commands for one log that came one after another; or one BATCH."""

    log: LogName
    values: list[bytes | None]
    size: int
    """Of the commands, in bytes."""
    is_batch: bool = False

    @property
    def answers_due(self) -> int:
        return 1 if self.is_batch else len(self.values)


class Mixed(msgspec.Struct, frozen=True):
    """MSG commands for several logs that came one after another."""

    messages: list[Messages]
    """One for each log."""
    turns: list[int]
    """Which of them each command belongs to."""
    size: int

    @property
    def answers_due(self) -> int:
        return len(self.turns)


class Read(msgspec.Struct, frozen=True):
    log: LogName
    start: int
    limit: int
    """0 is without end."""


class Tail(msgspec.Struct, frozen=True):
    log: LogName
    count: int
    is_whole: bool = False
    """All logs that the name stands for."""


class Head(msgspec.Struct, frozen=True):
    log: LogName


class Replicate(msgspec.Struct, frozen=True):
    log: LogName
    index: int


class Deleted(msgspec.Struct, frozen=True):
    topic_ids: tuple[str, ...]


class Access(msgspec.Struct, frozen=True):
    version: str
    """Of what the one who asks has already; empty for nothing."""


class Groups(msgspec.Struct, frozen=True):
    version: str
    """As of Access."""


class Ping(msgspec.Struct, frozen=True):
    pass


class Close(msgspec.Struct, frozen=True):
    pass


class Shutdown(msgspec.Struct, frozen=True):
    pass


class Show(msgspec.Struct, frozen=True):
    """STATS, CONFIG, TOPICS, CURSORS."""

    what: bytes


class Switch(msgspec.Struct, frozen=True):
    """REFUSE, ACCEPT."""

    what: bytes
    topic: str | None


class Auth(msgspec.Struct, frozen=True):
    """Who somebody is: a user and a password, or a token alone."""

    user: str | None
    secret: str

    def __repr__(self) -> str:
        return f"<Auth {'token' if self.user is None else 'password'}>"


class Refusal(msgspec.Struct, frozen=True):
    reason: bytes
    is_last: bool = False


Question = Read | Tail | Head | Replicate | Deleted | Access | Groups | Show | Switch | Shutdown | Auth
"""What is answered by itself, when everything before it is."""
Request = Messages | Mixed | Question | Ping | Close | Refusal


class Refused(Exception):
    """A line that is no request, in the words for it."""

    def __init__(self, reason: bytes) -> None:
        self.reason = reason


def parse_line(word: bytes, arguments: list[bytes]) -> Request:
    """A request that is no more than its line."""
    try:
        return LINES[word](word, arguments)
    except Refused as refused:
        return Refusal(refused.reason)


def parse_log(text: bytes) -> LogName:
    if b"," in text:  # several, for TAIL: no topic has such a name
        return LogName(text.decode("latin-1"), None, text)
    topic, slash, partition = text.partition(b"/")
    if not topic:
        raise Refused(MISSING_TOPIC)
    return LogName(topic.decode("latin-1"), parse_number(partition) if slash else None, text)


def parse_number(text: bytes, reason: bytes = INVALID_REQUEST) -> int:
    """Digits and nothing else, up to what a signed 64-bit number holds."""
    if not text.isdigit() or len(text) > _DIGITS_MAX or int(text) > NUMBER_MAX:
        raise Refused(reason)
    return int(text)


def parse_length(text: bytes) -> int:
    """Without it nobody can tell where the next command begins."""
    return parse_number(text, INVALID_PROTOCOL)


def _log_and_numbers(arguments: list[bytes], count: int) -> tuple[LogName, list[int]]:
    if not arguments:
        raise Refused(MISSING_TOPIC)
    if len(arguments) != 1 + count:
        raise Refused(INVALID_REQUEST)
    return parse_log(arguments[0]), [parse_number(argument) for argument in arguments[1:]]


def _read(_: bytes, arguments: list[bytes]) -> Request:
    log, (start, limit) = _log_and_numbers(arguments, 2)
    return Read(log, start, limit)


def _tail(_: bytes, arguments: list[bytes]) -> Request:
    is_whole = arguments[2:] == [WHOLE]
    log, (count,) = _log_and_numbers(arguments[:2] if is_whole else arguments, 1)
    return Tail(log, count, is_whole)


def _head(_: bytes, arguments: list[bytes]) -> Request:
    return Head(_log_and_numbers(arguments, 0)[0])


def _replicate(_: bytes, arguments: list[bytes]) -> Request:
    log, (index,) = _log_and_numbers(arguments, 1)
    if log.partition is None:
        raise Refused(INVALID_REQUEST)
    return Replicate(log, index)


def _deleted(_: bytes, arguments: list[bytes]) -> Request:
    if not arguments or not all(map(_TOPIC_ID.fullmatch, arguments)):
        raise Refused(INVALID_REQUEST)
    return Deleted(tuple(argument.decode() for argument in arguments))


def _access(word: bytes, arguments: list[bytes]) -> Request:
    if len(arguments) > 1 or not all(map(_VERSION.fullmatch, arguments)):
        raise Refused(INVALID_REQUEST)
    kind = Groups if word == b"GROUPS" else Access
    return kind(arguments[0].decode() if arguments else "")


def _switch(word: bytes, arguments: list[bytes]) -> Request:
    if not arguments:
        return Switch(word, None)
    log, _ = _log_and_numbers(arguments, 0)
    if log.partition is not None:
        raise Refused(INVALID_REQUEST)
    return Switch(word, log.topic)


def _auth(_: bytes, arguments: list[bytes]) -> Request:
    """What follows the user is the password, spaces and all: no password has the end of a line in it.

    >>> request = _auth(b"AUTH", [b"alice", b"two", b"", b"words"])
    >>> request.user, request.secret
    ('alice', 'two  words')
    """
    if not arguments or not arguments[0]:
        raise Refused(INVALID_REQUEST)
    first, *rest = arguments
    if not rest:
        return Auth(None, first.decode("utf-8", "replace"))
    return Auth(first.decode("utf-8", "replace"), b" ".join(rest).decode("utf-8", "replace"))


def _alone(request: Request) -> Callable[[bytes, list[bytes]], Request]:
    def parse(_: bytes, arguments: list[bytes]) -> Request:
        if arguments:
            raise Refused(INVALID_REQUEST)
        return request

    return parse


LINES: Final[dict[bytes, Callable[[bytes, list[bytes]], Request]]] = {
    b"READ": _read,
    b"TAIL": _tail,
    b"HEAD": _head,
    b"PING": _alone(Ping()),
    b"STATS": _alone(Show(b"STATS")),
    b"CONFIG": _alone(Show(b"CONFIG")),
    b"TOPICS": _alone(Show(b"TOPICS")),
    b"CURSORS": _alone(Show(b"CURSORS")),
    b"REFUSE": _switch,
    b"ACCEPT": _switch,
    b"REPLICATE": _replicate,
    b"DELETED": _deleted,
    b"ACCESS": _access,
    b"GROUPS": _access,
    b"AUTH": _auth,
    b"CLOSE": _alone(Close()),
    b"SHUTDOWN": _alone(Shutdown()),
}
WORDS: Final = (*LINES, b"MSG", b"BATCH")


def count_commands(requests: Iterable[Request]) -> int:
    """How many commands these were."""
    return sum(request.answers_due if isinstance(request, Messages | Mixed) else 1 for request in requests)
