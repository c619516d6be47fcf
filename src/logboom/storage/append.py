"""A group of batches on its way into a log: stamped, checked against their producers, written with one call.

Nothing of the log changes while a group is gathered: seqnos, indexes and producer streams are staged here, and become
the log's only when the write has succeeded. So a failed write needs no undoing.
"""

from __future__ import annotations

import msgspec

from logboom.batch.batch import Batch
from logboom.batch.header import HEADER_SIZE, STAGED_IDS, Buffer, Header, stamp
from logboom.errors import LogboomError, NotNext
from logboom.storage.files.disk import BUFFERS_MAX
from logboom.storage.producers import ProducerBatch, ProducerStream, check_sequence
from logboom.storage.tail import Control, LogTail

GROUP_BYTES_MAX = 256 * 1024 * 1024


class Appended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a batch went. For a repeat: where it went the first time."""

    base_seqno: int
    record_count: int
    index: int
    append_time: int
    repeat: bool = False

    @property
    def next_seqno(self) -> int:
        return self.base_seqno + self.record_count


Answer = Appended | LogboomError
"""One per batch: where it is, or why it is not there."""


Staged = tuple[Header, int, int, int, Control | None]
"""A batch with what it will have: its header as the producer made it, seqno, index, position; what it controls."""


class AppendGroup:
    __slots__ = (
        "_streams",
        "_synced_index",
        "_tail",
        "answers",
        "append_time",
        "buffers",
        "limit",
        "next_index",
        "next_seqno",
        "position",
        "staged",
        "stamped",
        "start",
        "term",
    )

    def __init__(self, tail: LogTail, position: int, limit: int, now: int, term: int, synced_index: int) -> None:
        self._tail = tail
        self.term = term
        self.append_time = max(now, tail.append_time)
        self.stamped = False
        """Whether the batches bring their numbers, times and terms along."""
        self._synced_index = synced_index
        self._streams: dict[int, ProducerStream] = {}
        self.start = self.position = position
        self.limit = min(limit, position + GROUP_BYTES_MAX)
        """Where the group must not reach beyond; 0 when one call takes no more buffers."""
        self.next_seqno = tail.next_seqno
        self.next_index = tail.next_index
        self.buffers: list[Buffer] = []
        self.staged: list[Staged] = []
        self.answers: list[tuple[int, Appended]] = []

    def repeat_of(self, header: Header) -> Appended | None:
        """Where this batch is already, if its producer sent it before. Raises if the producer must not send it now."""
        stream = self._streams.get(header.producer_id) or self._tail.producers.get(header.producer_id)
        written = check_sequence(stream, header, self._tail.producers.horizon)
        if written is None:
            return None
        return Appended(written.base_seqno, written.count, written.index, written.append_time, True)

    def add(self, number: int, batch: Batch, header: Header, control: Control | None) -> None:
        """Give the batch its numbers and queue its bytes. `number` is its place among the caller's batches."""
        data, seqno, index, count = batch.data, self.next_seqno, self.next_index, header.record_count
        front = stamp(data, seqno, index, self.append_time, self.term, index - self._synced_index)
        self.buffers += (front, data[HEADER_SIZE:])
        self.staged.append((header, seqno, index, self.position, control))
        self.answers.append((number, Appended(seqno, count, index, self.append_time)))
        if 0 < header.producer_id < STAGED_IDS:
            self._stage_stream(header, seqno, index)
        self.position += header.size
        self.next_seqno = seqno + count
        self.next_index = index + 1
        if len(self.buffers) + 2 > BUFFERS_MAX:
            self.limit = 0

    def add_stamped(self, batch: Batch, header: Header, control: Control | None) -> None:
        """Queue a batch that has its numbers, which must be the next ones. Only `synced` is this disk's own."""
        if (header.index, header.base_seqno) != (self.next_index, self.next_seqno):
            raise NotNext(
                f"batch {header.index} with seqno {header.base_seqno} comes where batch {self.next_index} "
                f"with seqno {self.next_seqno} must be"
            )
        if header.term < self.term or header.append_time < self.append_time:
            raise NotNext(f"batch {header.index} goes back in term or time")
        self.stamped = True
        self.term, self.append_time = header.term, header.append_time
        self.add(0, batch, header, control)

    def _stage_stream(self, header: Header, seqno: int, index: int) -> None:
        written = ProducerBatch(header.producer_seq, header.record_count, seqno, index, self.append_time)
        stream = self._streams.get(header.producer_id) or self._tail.producers.get(header.producer_id)
        epoch = header.producer_epoch
        self._streams[header.producer_id] = stream.then(epoch, written) if stream else ProducerStream(epoch, (written,))
