"""What a log remembers of its producers, so that a repeat is answered and not appended.

Per producer: its epoch and its last 16 batches. Sequence numbers count records, modulo 2^31. A producer the log does
not know must start at 0; a higher epoch starts again at 0; a lower one is fenced. The table is rebuilt on opening from
the segment's snapshot and a scan, so it never says anything the log does not hold.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.batch.header import SEQUENCE_MODULUS, Header
from logboom.errors import ProducerFenced, RepeatForgotten, SequenceGap, UnknownProducer

REMEMBERED: Final = 16


class Written(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch as its producer numbered it, and where it went."""

    seq: int
    count: int
    base_seqno: int
    index: int
    append_time: int


class Stream(msgspec.Struct, frozen=True, array_like=True):
    """One producer: its epoch and its last batches, oldest first, never empty."""

    epoch: int
    batches: tuple[Written, ...]

    @property
    def expected(self) -> int:
        last = self.batches[-1]
        return (last.seq + last.count) % SEQUENCE_MODULUS

    def then(self, epoch: int, written: Written) -> Stream:
        kept = self.batches[1 - REMEMBERED :] if epoch == self.epoch else ()
        return Stream(epoch, (*kept, written))


class Producers:
    """The table, ordered by when each producer last wrote."""

    def __init__(self, streams: dict[int, Stream] | None = None, limit: int = 10_000) -> None:
        self._streams = dict(streams or {})
        self.limit = limit

    def __len__(self) -> int:
        return len(self._streams)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Producers) and self._streams == other._streams

    __hash__ = None  # type: ignore[assignment]

    def get(self, producer_id: int) -> Stream | None:
        return self._streams.get(producer_id)

    def streams(self) -> dict[int, Stream]:
        return dict(self._streams)

    def record(self, producer_id: int, epoch: int, written: Written) -> None:
        """A batch of this producer is in the log. The one that was silent longest makes room beyond the limit."""
        stream = self._streams.pop(producer_id, None)
        self._streams[producer_id] = stream.then(epoch, written) if stream else Stream(epoch, (written,))
        if len(self._streams) > self.limit:
            del self._streams[next(iter(self._streams))]

    def since(self, append_time: int) -> Producers:
        """The table without the producers that last wrote before this."""
        recent = {
            producer_id: stream
            for producer_id, stream in self._streams.items()
            if stream.batches[-1].append_time >= append_time
        }
        return Producers(recent, self.limit)


def check_sequence(stream: Stream | None, header: Header) -> Written | None:
    """None for a batch that is next in its stream; for a repeat, the batch it repeats; an error for anything else."""
    seq = header.producer_seq
    if stream is None:
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
