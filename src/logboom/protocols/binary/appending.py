"""APPEND frames that came one after another: one call of the broker for all, and an answer for each.

A frame's parts are cut into batches by their headers; their bodies are the broker's to verify. Where a header is broken
nobody can tell where the next batch begins, so one failure stands for the rest of that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.batch import Batch
from logboom.broker.api import Acks, Answer, Part
from logboom.errors import BatchError, LimitExceeded, LogboomError, RemoteProtocolError
from logboom.protocols.binary.codec import encode_front
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import Append, Appends, Failure, Kind

BATCHES_MAX: Final = 16_384
"""In one frame: many batches of next to nothing would be objects of many times their bytes."""

_APPENDED: Final = int(Kind.APPENDED)

Slots = int | list[BatchError | None]
"""How many batches of a frame the broker answers; or, where some were broken, each one's place: None is for it."""


class Run:
    __slots__ = ("acks", "frames", "parts", "size")

    def __init__(self, acks: Acks | None) -> None:
        self.acks = acks
        self.parts: list[Part] = []
        self.frames: list[tuple[int, Slots]] = []
        self.size = 0

    def add(self, correlation: int, head: Append, payload: memoryview) -> list[BatchError]:
        """What was wrong with batches of the frame. Raises where it is not as it says: then nothing was added."""
        parts, slots = cut(head, payload)
        last = self.parts[-1] if self.parts else None
        for part in parts:
            if last is not None and _go_together(last, part):
                last.batches.extend(part.batches)  # type: ignore[attr-defined]
            else:
                self.parts.append(part)
                last = part
        self.frames.append((correlation, slots))
        self.size += len(payload)
        return [] if type(slots) is int else [slot for slot in slots if slot is not None]  # type: ignore[union-attr]

    def answer(self, answers: Sequence[Answer]) -> bytes:
        """The APPENDED frames."""
        offset, out = 0, []
        for correlation, slots in self.frames:
            if type(slots) is int:
                found: Sequence[Answer] = answers[offset : offset + slots]
                offset += slots
            else:
                ours = iter(answers[offset:])
                found = [next(ours) if slot is None else slot for slot in slots]  # type: ignore[union-attr]
                offset += slots.count(None)  # type: ignore[union-attr]
            out.append(encode_front(_APPENDED, correlation, _appends(found)))
        return b"".join(out)

    def fail(self, error: BaseException) -> bytes:
        """The ERROR frames, where there are no answers at all."""
        failure = encode_failure(error)
        return b"".join([encode_front(Kind.ERROR, correlation, failure) for correlation, _ in self.frames])


def cut(head: Append, payload: memoryview) -> tuple[list[Part], Slots]:
    """The parts of a frame, and who answers for which batch."""
    if len(head.parts) == 1:
        part = head.parts[0]
        if part.size == len(payload):
            batches, error = _batches(payload, BATCHES_MAX)
            parts = [Part(part.topic, batches, part.partition, part.expect_seqno, part.topic_id)] if batches else []
            return parts, len(batches) if error is None else [*[None] * len(batches), error]
    return _cut_many(head, payload)


def _cut_many(head: Append, payload: memoryview) -> tuple[list[Part], Slots]:
    parts: list[Part] = []
    slots: list[BatchError | None] = []
    offset = 0
    for part in head.parts:
        end = offset + part.size
        if not offset <= end <= len(payload):
            raise RemoteProtocolError(f"the parts of an append are not the {len(payload):,} bytes that follow")
        batches, error = _batches(payload[offset:end], BATCHES_MAX - len(slots))
        if batches:
            parts.append(Part(part.topic, batches, part.partition, part.expect_seqno, part.topic_id))
            slots += [None] * len(batches)
        if error is not None:
            slots.append(error)
        offset = end
    if offset != len(payload):
        raise RemoteProtocolError(f"the parts of an append are {offset:,} bytes, {len(payload):,} follow")
    return parts, slots


def _batches(data: memoryview, most: int) -> tuple[list[Batch], BatchError | None]:
    batches: list[Batch] = []
    while len(data):
        if len(batches) >= most:
            raise LimitExceeded("batches of one append", BATCHES_MAX, "send several")
        try:
            batch = Batch.parse(data)
        except BatchError as error:
            return batches, error
        batches.append(batch)
        data = data[batch.header.size :]
    return batches, None


def _go_together(one: Part, next_one: Part) -> bool:
    """Whether two parts are for the same log, and neither demands a seqno."""
    return one._replace(batches=()) == next_one._replace(batches=()) and one.expect_seqno is None


def _appends(answers: Sequence[Answer]) -> object:
    """As Appends is on the wire. An Appended is an array there already."""
    for answer in answers:
        if isinstance(answer, LogboomError):
            break
    else:
        return (answers,)
    failures: dict[int, Failure] = {}
    found: list[Answer | None] = list(answers)
    for number, answer in enumerate(answers):
        if isinstance(answer, LogboomError):
            failures[number] = encode_failure(answer)
            found[number] = None
    return Appends(found, failures)  # type: ignore[arg-type]
