"""APPEND frames for one log that came one after another: one call of the broker for all, and an answer for each.

A frame's parts are cut into batches by their headers; their bodies are the broker's to verify. Where a header is broken
nobody can tell where the next batch begins, so one failure stands for the rest of that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final

from logboom.batch import Batch
from logboom.broker.api import Acks, Answer, Appended, Part
from logboom.broker.monitor.measures import Meter
from logboom.errors import BatchError, LimitExceeded, LogboomError, RemoteProtocolError
from logboom.protocols.binary.codec import encode_front
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import Append, Appends, Failure, Kind

BATCHES_MAX: Final = 16_384
"""In one frame: many batches of next to nothing would be objects of many times their bytes."""

_APPENDED: Final = int(Kind.APPENDED)

Slots = int | list[BatchError | None]
"""How many batches of a frame the broker answers; or, where some were broken, each one's place: None is for it."""


class AppendRun:
    """Frames of different logs, or with a demand, are runs of their own: no answer waits for another log's promise."""

    __slots__ = ("_began", "_first", "acks", "frames", "is_answered", "parts", "size", "stage")

    def __init__(self, first: Append) -> None:
        self._first = first
        self._began = perf_counter()
        self.acks: Acks | None = first.acks
        self.stage = first.stage
        self.parts: list[Part] = []
        self.frames: list[tuple[int, Slots]] = []
        self.size = 0
        self.is_answered = False

    def takes(self, head: Append) -> bool:
        """Whether this frame may be one of the run."""
        log = _only_log(head)
        return log is not None and self.acks == head.acks and self.stage == head.stage and log == _only_log(self._first)

    def add(self, correlation: int, head: Append, payload: memoryview) -> list[BatchError]:
        """What was wrong with batches of the frame. Raises where it is not as it says: then nothing was added."""
        parts, slots = cut(head, payload)
        if self.parts:
            for part in parts:
                self.parts[0].batches.extend(part.batches)  # type: ignore[attr-defined]
        else:
            self.parts = parts
        self.frames.append((correlation, slots))
        self.size += len(payload)
        return [] if type(slots) is int else [slot for slot in slots if slot is not None]  # type: ignore[union-attr]

    def measure(self, meter: Meter, answers: Sequence[Answer]) -> None:
        """Note what of it was appended."""
        batches = records = 0
        for answer in answers:
            if isinstance(answer, Appended) and not answer.repeat:
                batches += 1
                records += answer.record_count
        if batches:
            size = self.size if batches == len(answers) else self._appended_bytes(answers)
            meter.note_append(batches, records, size, perf_counter() - self._began)

    def _appended_bytes(self, answers: Sequence[Answer]) -> int:
        sent = [batch for part in self.parts for batch in part.batches]
        pairs = zip(sent, answers, strict=True)
        return sum(len(batch.data) for batch, answer in pairs if isinstance(answer, Appended) and not answer.repeat)

    def answer(self, answers: Sequence[Answer]) -> bytes:
        """The APPENDED frames."""
        if len(self.frames) == 1 and type(self.frames[0][1]) is int:
            return encode_front(_APPENDED, self.frames[0][0], _appends(answers))
        offset, out = 0, []
        for correlation, slots in self.frames:
            if isinstance(slots, int):
                found: Sequence[Answer] = answers[offset : offset + slots]
                offset += slots
            else:
                ours = iter(answers[offset:])
                found = [next(ours) if slot is None else slot for slot in slots]
                offset += slots.count(None)
            out.append(encode_front(_APPENDED, correlation, _appends(found)))
        return b"".join(out)

    def fail(self, error: BaseException) -> bytes:
        """The ERROR frames, where there are no answers at all."""
        failure = encode_failure(error)
        return b"".join([encode_front(Kind.ERROR, correlation, failure) for correlation, _ in self.frames])


def cut(head: Append, payload: memoryview) -> tuple[list[Part], Slots]:
    """The parts of a frame, and who answers for which batch."""
    if len(head.parts) != 1 or head.parts[0].size != len(payload):
        return _cut_many(head, payload)
    part = head.parts[0]
    batches, error = _batches(payload, BATCHES_MAX)
    parts = [Part(part.topic, batches, part.partition, part.expect_seqno, part.topic_id)] if batches else []
    return parts, len(batches) if error is None else [*[None] * len(batches), error]


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
    rest = len(data)
    while rest:
        if len(batches) >= most:
            raise LimitExceeded("batches of one append", BATCHES_MAX, "send several")
        try:
            batch = Batch.parse(data)
        except BatchError as error:
            return batches, error
        batches.append(batch)
        size = len(batch.data)
        rest -= size
        if rest:
            data = data[size:]
    return batches, None


def _only_log(head: Append) -> tuple[str, int | None, str | None] | None:
    """The log that all of a frame is for; None where there are several, or a demand that must stand alone."""
    if len(head.parts) != 1:
        return None
    part = head.parts[0]
    return None if part.expect_seqno is not None else (part.topic, part.partition, part.topic_id)


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
