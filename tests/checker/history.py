"""What writers and readers note down: one JSON object a line, one file for each process.

    {"type": "invoke", "writer": "w1", "sequence": 7}                      about to be written
    {"type": "ok", "writer": "w1", "sequence": 7, "log": "events/0", "seqno": 12}     promised
    {"type": "fail", "writer": "w1", "sequence": 7, "why": "LowSpace"}     refused: it must never be seen
    {"type": "unknown", "writer": "w1", "sequence": 7, "why": null}        may be there or not
    {"type": "begin", "reader": "r1", "log": "events/0", "seqno": 0}       reads on from here; no seqno: from anywhere
    {"type": "poll", "reader": "r1", "log": "events/0", "records": [[12, "w1:7"]]}    seqno and value
    {"type": "gap", "reader": "r1", "log": "events/0", "seqno": 40}        was told that it goes on at this seqno
    {"type": "final", "log": "events/0", "first": 0, "records": [[12, "w1:7"]]}       what is there at last, in pieces

Who publishes has attempts, each under a key and with a label of its own, and notes with every line which one it is of:

    {"type": "stage", …, "log": "events/0", "writer": "p1", "sequences": [7, 8]}      about to be staged
    {"type": "publish", "key": "p", "number": 3, "attempt": "a"}           about to be published
    {"type": "published", …, "repeat": false, "parts": [["events/0", 12, 14]]}        with first and next seqno
    {"type": "refused", …, "why": "StageFailed"}                           it must never be seen

What was staged and not asked to be published must never be seen either; what has no answer may be there or not.

A value says who wrote it: `writer:sequence`, and after a second colon whatever makes it longer. A writer's sequences
rise as it writes. A line is written before the next thing is done, so a process may be killed at any moment; what it
wrote of a last line is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import msgspec


class Invoke(msgspec.Struct, frozen=True, tag_field="type", tag="invoke"):
    writer: str
    sequence: int


class Ok(msgspec.Struct, frozen=True, tag_field="type", tag="ok"):
    writer: str
    sequence: int
    log: str
    seqno: int


class Fail(msgspec.Struct, frozen=True, tag_field="type", tag="fail"):
    writer: str
    sequence: int
    why: str | None = None


class Unknown(msgspec.Struct, frozen=True, tag_field="type", tag="unknown"):
    writer: str
    sequence: int
    why: str | None = None


class Begin(msgspec.Struct, frozen=True, tag_field="type", tag="begin"):
    reader: str
    log: str
    seqno: int | None = None


class Poll(msgspec.Struct, frozen=True, tag_field="type", tag="poll"):
    reader: str
    log: str
    records: list[tuple[int, str]]


class Gap(msgspec.Struct, frozen=True, tag_field="type", tag="gap"):
    reader: str
    log: str
    seqno: int


class Final(msgspec.Struct, frozen=True, tag_field="type", tag="final"):
    log: str
    records: list[tuple[int, str]]
    first: int = 0


class Stage(msgspec.Struct, frozen=True, tag_field="type", tag="stage"):
    key: str
    number: int
    attempt: str
    log: str
    writer: str
    sequences: list[int]


class Publish(msgspec.Struct, frozen=True, tag_field="type", tag="publish"):
    key: str
    number: int
    attempt: str


class Published(msgspec.Struct, frozen=True, tag_field="type", tag="published"):
    key: str
    number: int
    attempt: str
    repeat: bool = False
    parts: list[tuple[str, int, int]] | None = None


class Refused(msgspec.Struct, frozen=True, tag_field="type", tag="refused"):
    key: str
    number: int
    attempt: str
    why: str | None = None


AnyEvent = Invoke | Ok | Fail | Unknown | Begin | Poll | Gap | Final | Stage | Publish | Published | Refused

_decoder = msgspec.json.Decoder(AnyEvent)


def make_value(writer: str, sequence: int, size: int = 0) -> bytes:
    """At least `size` bytes."""
    value = f"{writer}:{sequence}"
    return (value if len(value) >= size else f"{value}:".ljust(size, "x")).encode()


def identity(value: str) -> tuple[str, int] | None:
    """Who wrote this value, and as which of its records; None where nobody of ours can have."""
    writer, _, rest = value.partition(":")
    sequence = rest.partition(":")[0]
    return (writer, int(sequence)) if sequence.isdecimal() else None


class Recorder:
    """Appends to one history; each event is with the operating system when the call returns. Threads may share it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, *events: AnyEvent) -> None:
        self._file.write(b"".join(msgspec.json.encode(event) + b"\n" for event in events))

    def poll(self, reader: str, log: str, records: Sequence[tuple[int, bytes | None]]) -> None:
        if records:
            self.note(Poll(reader, log, [(seqno, (value or b"").decode()) for seqno, value in records]))


def read_histories(paths: Iterable[str | os.PathLike[str]]) -> Iterator[AnyEvent]:
    """All events of all files; ValueError names a line that is none."""
    for path in paths:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # killed while it wrote this
                try:
                    yield _decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise ValueError(f"{path}, line {number}: {error}") from None
