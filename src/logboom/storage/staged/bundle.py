"""A bundle: the batches of a small publish, which go with its intent and need no stage.

They stand one after the other as in a stage's file, without the batches that say where things go: the intent has that.
Their term is the number of their log, their index their place in the bundle, their seqno how many records of the bundle
came before them in that log. They carry a producer id that the node has given to this bundle alone, so that redo finds
them in their logs as it finds those of a stage. Every byte is under a checksum.

Written with the intent, in one record: a crash leaves all of it, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from logboom.batch.batch import Batch
from logboom.batch.header import HEADER_SIZE, KIND_DATA, STAGED_IDS, SYNCED_UNKNOWN, Buffer, Producer, stamp
from logboom.batch.rewrite import without_producer
from logboom.batch.validation import check_crc
from logboom.errors import MalformedBatch, NotABatch
from logboom.storage.staged.stage import StagedBatch, StageTarget, walk


@dataclass(frozen=True, slots=True)
class Bundle:
    targets: tuple[StageTarget, ...]
    """By their numbers."""
    counts: tuple[int, ...]
    """Records for each of them."""
    producer_id: int
    data: bytes

    @classmethod
    def make(cls, entries: Sequence[tuple[StageTarget, Batch]], producer_id: int, now: int, limit_bytes: int) -> Bundle:
        """Of batches that no producer has numbered. Raises BatchError where one of them is none to append."""
        numbers = {target: number for number, target in enumerate(dict.fromkeys(target for target, _ in entries))}
        counts = [0] * len(numbers)
        buffers: list[Buffer] = []
        for index, (target, batch) in enumerate(entries, 1):
            batch.verify(limit_bytes)
            header, number = batch.header, numbers[target]
            if header.kind != KIND_DATA:
                raise MalformedBatch("only the server writes control batches")
            if header.producer_id or header.producer_epoch or header.producer_seq:
                raise MalformedBatch("batches that are published in one call have no producer: the server gives one")
            mine = without_producer(batch, Producer(producer_id, 0, counts[number]))
            buffers.append(stamp(mine.data, counts[number], index, now, number, SYNCED_UNKNOWN))
            buffers.append(mine.data[HEADER_SIZE:])
            counts[number] += header.record_count
        return cls(tuple(numbers), tuple(counts), producer_id, b"".join(buffers))

    @classmethod
    def load(cls, targets: Sequence[StageTarget], data: bytes) -> Bundle:
        """As it was written. Raises NotABatch where it is not."""
        counts, producers, view = [0] * len(targets), set[int](), memoryview(data)
        for position, header in walk(view, 0, len(view), 1):
            check_crc(header, view[position : position + header.size])
            if header.kind != KIND_DATA or header.term >= len(targets) or header.base_seqno != counts[header.term]:
                raise NotABatch("a batch of a bundle stands where another must be")
            counts[header.term] += header.record_count
            producers.add(header.producer_id)
        if len(producers) > 1 or any(producer < STAGED_IDS for producer in producers):
            raise NotABatch("the batches of a bundle are not of one producer")
        return cls(tuple(targets), tuple(counts), max(producers, default=0), data)

    @property
    def records(self) -> int:
        return sum(self.counts)

    def batches(self) -> Iterator[StagedBatch]:
        """In their order, as views of the bundle."""
        view = memoryview(self.data)
        for position, header in walk(view, 0, len(view), 1):
            yield StagedBatch(header.term, Batch(header, view[position : position + header.size], True))
