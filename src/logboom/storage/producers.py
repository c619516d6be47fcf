"""What a log remembers of its producers, so that a repeat is answered and not appended.

Per producer: its epoch and its last 16 batches. Sequence numbers count records, modulo 2^31. A producer the log does
not know must start at 0; a higher epoch starts again at 0; a lower one is fenced. The table is rebuilt on opening from
the segment's snapshot and a scan, so it never says anything the log does not hold.

No clock forgets anybody. The table has two shares, of producers with ids that a node gave out and of others; where one
is full, the producer of that share that was silent longest makes room. Of those forgotten the highest id that a node
gave out is kept, the horizon: ids are given out in rising order, so whoever is unknown and above it is new, and whoever
is not is told. Of ids that writers made themselves nobody can tell; they are taken for new.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.batch.header import ISSUED_END, ISSUED_IDS, SEQUENCE_MODULUS, Header
from logboom.errors import ProducerFenced, ProducerForgotten, RepeatForgotten, SequenceGap, UnknownProducer

REMEMBERED: Final = 16


class ProducerBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch as its producer numbered it, and where it went."""

    seq: int
    count: int
    base_seqno: int
    index: int
    append_time: int


class ProducerStream(msgspec.Struct, frozen=True, array_like=True):
    """One producer: its epoch and its last batches, oldest first, never empty."""

    epoch: int
    batches: tuple[ProducerBatch, ...]

    @property
    def expected(self) -> int:
        last = self.batches[-1]
        return (last.seq + last.count) % SEQUENCE_MODULUS

    def then(self, epoch: int, written: ProducerBatch) -> ProducerStream:
        kept = self.batches[1 - REMEMBERED :] if epoch == self.epoch else ()
        return ProducerStream(epoch, (*kept, written))


class Producers:
    """The table, each share ordered by when its producers last wrote."""

    def __init__(self, streams: dict[int, ProducerStream] | None = None, limit: int = 10_000, horizon: int = 0) -> None:
        self._issued: dict[int, ProducerStream] = {}
        self._others: dict[int, ProducerStream] = {}
        for producer_id, stream in (streams or {}).items():
            self._share(producer_id)[producer_id] = stream
        self.limit = limit
        """Of each share."""
        self.horizon = horizon
        """The highest id given out by a node that was forgotten; 0 where none was."""

    def __len__(self) -> int:
        return len(self._issued) + len(self._others)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Producers) and self._state == other._state

    __hash__ = None  # type: ignore[assignment]

    @property
    def _state(self) -> tuple[dict[int, ProducerStream], dict[int, ProducerStream], int]:
        return self._issued, self._others, self.horizon

    def _share(self, producer_id: int) -> dict[int, ProducerStream]:
        return self._issued if ISSUED_IDS <= producer_id < ISSUED_END else self._others

    @property
    def highest_issued(self) -> int:
        """The highest id given out by a node that ever wrote here."""
        return max(self._issued, default=0) if not self.horizon else max(self.horizon, *self._issued, 0)

    def get(self, producer_id: int) -> ProducerStream | None:
        return self._issued.get(producer_id) or self._others.get(producer_id)

    def streams(self) -> dict[int, ProducerStream]:
        return {**self._others, **self._issued}

    def record(self, producer_id: int, epoch: int, written: ProducerBatch) -> None:
        """A batch of this producer is in the log. The one that was silent longest makes room beyond the limit."""
        share = self._share(producer_id)
        stream = share.pop(producer_id, None)
        share[producer_id] = stream.then(epoch, written) if stream else ProducerStream(epoch, (written,))
        while len(share) > self.limit:
            forgotten = next(iter(share))
            del share[forgotten]
            if share is self._issued:
                self.horizon = max(self.horizon, forgotten)


def check_sequence(stream: ProducerStream | None, header: Header, horizon: int = 0) -> ProducerBatch | None:
    """None for a batch that is next in its stream; for a repeat, the batch it repeats; an error for anything else."""
    seq = header.producer_seq
    if stream is None:
        if ISSUED_IDS <= header.producer_id <= horizon:
            raise ProducerForgotten(header.producer_id, seq)
        if seq:
            raise UnknownProducer(header.producer_id, seq)
        return None
    if header.producer_epoch < stream.epoch:
        raise ProducerFenced(header.producer_id, header.producer_epoch, stream.epoch)
    if header.producer_epoch > stream.epoch:
        if seq:
            raise SequenceGap(header.producer_id, seq, 0)
        return None
    expected = stream.expected
    if seq == expected:
        return None
    for written in reversed(stream.batches):
        if written.seq == seq and written.count == header.record_count:
            return written
    if (seq - expected) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2:
        raise SequenceGap(header.producer_id, seq, expected)
    raise RepeatForgotten(header.producer_id, seq, expected)
