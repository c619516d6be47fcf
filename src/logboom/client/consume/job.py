"""A record to be worked on, and the piece of an answer that it came with.

A piece is shared by two threads: the one that works says how far it was given, the one that keeps the member in its
group settles what was said of it and knows until when it is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from logboom.batch import Record
from logboom.broker.api import JobVerdict, LeasedChunk
from logboom.errors import ValueUnreadable
from logboom.values.serializer import ValueCoder


@dataclass(slots=True, eq=False)
class LeasedPiece:
    """Records that were leased together."""

    leased: LeasedChunk
    until_s: float
    """Nothing of it is held any longer than that, monotonic."""
    given: int = -1
    """The last seqno that the loop was given."""
    held: set[int] = field(default_factory=set)
    """Those that are not settled, as far as was said."""

    @classmethod
    def of(cls, leased: LeasedChunk, until_s: float) -> LeasedPiece:
        chunk = leased.chunk
        if chunk.seqnos is None:
            return cls(leased, until_s, held=set(range(chunk.seqno, chunk.next_seqno)))
        return cls(leased, until_s, held=set(chunk.seqnos.cast("B").cast("q")))

    @property
    def log(self) -> tuple[str, int]:
        return self.leased.chunk.topic_id, self.leased.chunk.partition

    def ranges(self) -> Iterator[tuple[int, int]]:
        """What is held."""
        return ranges_of(sorted(self.held))

    def waiting(self) -> Iterator[tuple[int, int]]:
        """What the loop was not given yet."""
        return ranges_of(sorted(seqno for seqno in self.held if seqno > self.given))


class JobWord(NamedTuple):
    """What is to become of a record."""

    piece: LeasedPiece
    seqno: int
    verdict: JobVerdict
    delay_ms: int | None = None


class JobDesk(Protocol):
    """Where a job is settled."""

    def say(self, said: JobWord, /) -> None: ...

    def wait_for(self, said: JobWord, /) -> None:
        """Raises JobNotHeld."""
        ...


class Job:
    """A record that nobody else works on, until its lease is over.

    Say what became of it: `ack`, `release` or `reject`, once; `extend` when it takes long. These return at once, and
    are carried out in the background; with `wait` when it is durable, and then they raise JobNotHeld where the lease
    was over before.
    """

    __slots__ = ("_coder", "_desk", "_piece", "record", "tries")

    def __init__(self, record: Record, piece: LeasedPiece, desk: JobDesk, coder: ValueCoder | None = None) -> None:
        self.record = record
        """Its value is bytes until `value` was asked for."""
        self.tries = piece.leased.tries
        """How often it was given to somebody, this time included."""
        self._piece = piece
        self._desk = desk
        self._coder = coder

    def __repr__(self) -> str:
        return f"<Job {self.topic}/{self.partition} {self.seqno}, try {self.tries}>"

    @property
    def topic(self) -> str:
        return self._piece.leased.chunk.topic

    @property
    def partition(self) -> int:
        return self._piece.leased.chunk.partition

    @property
    def seqno(self) -> int:
        assert self.record.seqno is not None
        return self.record.seqno

    @property
    def value(self) -> Any:
        """Of the record, decoded where the consumer has `value=`. Raises ValueUnreadable: then reject it, or release
        it to somebody who can."""
        if self._coder is not None:
            coder, self._coder = self._coder, None
            try:
                coder.decode(self.record)
            except ValueUnreadable as error:
                self._coder = coder
                where = self.topic, self.partition, self.seqno
                raise ValueUnreadable(*where, error.serializer, error.reason, error.value) from error
        return self.record.value

    def ack(self, wait: bool = False) -> None:
        """It is done: it never comes again."""
        self._settle("ack", None, wait)

    def release(self, delay_s: float | None = None, wait: bool = False) -> None:
        """Somebody else is to try it: after this delay, or the group's."""
        self._settle("release", None if delay_s is None else round(1000 * delay_s), wait)

    def reject(self, wait: bool = False) -> None:
        """Nobody is to try it again: it becomes a dead letter."""
        self._settle("reject", None, wait)

    def extend(self, wait: bool = False) -> None:
        """It takes longer: the lease begins anew now."""
        self._settle("extend", None, wait)

    def _settle(self, verdict: JobVerdict, delay_ms: int | None, wait: bool) -> None:
        said = JobWord(self._piece, self.record.seqno or 0, verdict, delay_ms)
        if wait:
            self._desk.wait_for(said)
        else:
            self._desk.say(said)


def ranges_of(seqnos: list[int]) -> Iterator[tuple[int, int]]:
    """Those that follow each other, together."""
    first = last = -1
    for seqno in seqnos:
        if seqno != last:
            if last >= 0:
                yield first, last
            first = seqno
        last = seqno + 1
    if last >= 0:
        yield first, last
