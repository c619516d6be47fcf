"""Where a log ends: everything the next append depends on.

A tail is a pure function of the batches before it. The snapshot of a segment is the tail at its first byte; `follow`
moves it over one batch. Recovery, appending, truncation and checking all use this one account, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from logboom.batch.batch import Batch
from logboom.batch.header import KIND_CONTROL, KIND_DATA, NO_TIMESTAMP, STAGED_IDS, Header
from logboom.errors import UnsupportedBatch
from logboom.storage.files import envelope
from logboom.storage.producers import ProducerBatch, Producers, ProducerStream

MAGIC: Final = b"LGSN"
LINEAGES_MAX: Final = 64
"""Of so many terms, the last ones, a log knows the lineage. Older ones are known by their numbers alone."""
LINEAGE_END: Final = 2**64


class Floor(msgspec.Struct, frozen=True, tag="floor", omit_defaults=True):
    """A control batch: nothing below this seqno is ever served again. It may also begin its term."""

    seqno: int
    lineage: int = 0
    """Random and not 0 where the batch begins its term: a term of the same number that was begun elsewhere has another
    one."""


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """The body of a lost batch: what repair knew of what it stands for."""

    reason: str


Control = Floor | Lost
_control: Final[msgspec.msgpack.Decoder[Control]] = msgspec.msgpack.Decoder(Control)


class Snapshot(msgspec.Struct, frozen=True):
    """A tail at rest. Fields may be added with defaults; they are never renamed."""

    next_seqno: int
    next_index: int
    term: int = 0
    append_time: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    floor: int = 0
    generation: int = 0
    producers: dict[int, ProducerStream] = {}
    lineages: dict[int, int] = {}
    """By term."""
    horizon: int = 0
    """The highest id of a producer, given out by a node, that the log has forgotten."""

    def encode(self) -> bytes:
        return envelope.pack(MAGIC, self)

    @classmethod
    def decode(cls, data: bytes | None) -> Snapshot | None:
        """None for anything that is not a whole snapshot of ours."""
        try:
            return None if data is None else envelope.unpack(MAGIC, data, _snapshot)
        except ValueError:
            return None


_snapshot: Final = msgspec.msgpack.Decoder(Snapshot)


@dataclass(slots=True)
class LogTail:
    next_seqno: int = 0
    next_index: int = 1
    term: int = 0
    append_time: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    floor: int = 0
    producers: Producers = field(default_factory=Producers)
    lineages: dict[int, int] = field(default_factory=dict)
    """By term; never changed in place."""

    @classmethod
    def at(cls, snapshot: Snapshot, producers_max: int) -> LogTail:
        return cls(
            snapshot.next_seqno,
            snapshot.next_index,
            snapshot.term,
            snapshot.append_time,
            snapshot.max_timestamp,
            snapshot.floor,
            Producers(snapshot.producers, producers_max, snapshot.horizon),
            snapshot.lineages,
        )

    def snapshot(self, generation: int) -> Snapshot:
        return Snapshot(
            self.next_seqno,
            self.next_index,
            self.term,
            self.append_time,
            self.max_timestamp,
            self.floor,
            generation,
            self.producers.streams(),
            self.lineages,
            self.producers.horizon,
        )

    def expects(self, header: Header) -> str | None:
        """Why a stored batch cannot be the next one, or None where it can."""
        if header.index != self.next_index:
            return f"index is {header.index}, expected {self.next_index}"
        if header.base_seqno != self.next_seqno:
            return f"base_seqno is {header.base_seqno}, expected {self.next_seqno}"
        if header.term < self.term:
            return f"term goes back from {self.term} to {header.term}"
        if header.append_time < self.append_time:
            return f"append_time goes back from {self.append_time} to {header.append_time}"
        return None

    def follow(self, header: Header, control: Control | None = None) -> None:
        """Move over one stored batch that is the next one."""
        self.advance(header, header.append_time, header.term, control)

    def advance(self, header: Header, append_time: int, term: int, control: Control | None = None) -> int:
        """Move over one batch, stamped or about to be: it gets the next numbers. Returns its newest timestamp."""
        if 0 < header.producer_id < STAGED_IDS:
            written = ProducerBatch(
                header.producer_seq, header.record_count, self.next_seqno, self.next_index, append_time
            )
            self.producers.record(header.producer_id, header.producer_epoch, written)
        self.next_seqno += header.record_count
        self.next_index += 1
        self.term = term
        self.append_time = append_time
        newest = header.newest_timestamp(append_time)
        if newest > self.max_timestamp:
            self.max_timestamp = newest
        if control is not None and isinstance(control, Floor):
            self.floor = max(self.floor, control.seqno)
            if control.lineage:
                newer = dict(sorted(self.lineages.items())[1 - LINEAGES_MAX :])
                self.lineages = {**newer, term: control.lineage}
        return newest


def new_lineage(chance: Random) -> int:
    """For a term that begins: no other has it, wherever it was begun."""
    return chance.randrange(1, LINEAGE_END)


def known_lineage(lineages: Mapping[int, int], term: int) -> int:
    """Of this term; 0 where nobody knows."""
    found = lineages.get(term, 0)
    return found if 0 < found < LINEAGE_END else 0


def read_control(batch: Batch) -> Control | None:
    """What a control or lost batch says; None for a data batch."""
    if batch.header.kind == KIND_DATA:
        return None
    try:
        control: Control = _control.decode(batch.body)
    except envelope.UNREADABLE as error:
        raise UnsupportedBatch(f"a control batch this release does not know: {error}") from None
    if isinstance(control, Floor) and not 0 <= control.lineage < LINEAGE_END:
        raise UnsupportedBatch(f"a lineage of {control.lineage}")
    if (batch.header.kind == KIND_CONTROL) != isinstance(control, Floor):
        raise UnsupportedBatch(f"kind {batch.header.kind} with a body for another")
    return control
