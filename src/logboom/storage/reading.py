"""Reading a log: from a seqno, an index or a time to ranges of files.

Works on segments, where the last one ends, and what is committed; whoever keeps those true (the log's writer, or
later a reader beside it) inherits this. Readers see whole batches below committed and nothing else. A range is mapped
only if its segment is sealed and wholly committed; else it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from logboom.batch.batch import Batch
from logboom.batch.header import KIND_DATA, KIND_LOST, Header
from logboom.errors import Damage, IndexOutOfRange, SeqnoOutOfRange
from logboom.storage.run import Run
from logboom.storage.segment import Segment
from logboom.storage.tail import Tail

READ_BYTES: Final = 1024 * 1024


class Boundary(NamedTuple):
    """The end of a batch: its index, the seqno that follows it, and where in which segment."""

    index: int  # type: ignore[assignment]
    next_seqno: int
    segment: Segment
    end: int


class ReadableLog:
    def __init__(self, directory: str, segments: list[Segment], tail: Tail, end: int) -> None:
        self.directory = directory
        self._segments = segments
        self._tail = tail
        self._end = end
        first = segments[0]
        self._committed = Boundary(first.first_index - 1, first.first_seqno, first, 0)

    @property
    def first(self) -> int:
        """The first readable seqno."""
        return max(self._segments[0].first_seqno, self._tail.floor)

    @property
    def next(self) -> int:
        """The seqno the next record will get."""
        return self._tail.next_seqno

    @property
    def committed(self) -> int:
        """Readers see what is below this seqno."""
        return self._committed.next_seqno

    @property
    def first_index(self) -> int:
        return self._segments[0].first_index

    @property
    def last_index(self) -> int:
        return self._tail.next_index - 1

    @property
    def committed_index(self) -> int:
        return self._committed.index

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one takes the appends."""
        return tuple(self._segments)

    def read(self, seqno: int, max_bytes: int = READ_BYTES, max_records: int | None = None) -> Run | None:
        """Committed batches from the one that holds `seqno` on, as one range of one file; None at the end of the log.

        At least one batch, however large; else no more than `max_bytes`, and none that begins after `max_records`.
        """
        if not self.first <= seqno <= self.committed:
            raise SeqnoOutOfRange(seqno, self.first, self.committed)
        if seqno == self.committed:
            return None
        number = bisect_right(self._segments, seqno, key=lambda segment: segment.first_seqno) - 1
        until = None if max_records is None else seqno + max(1, max_records)
        with self._whole(number):
            segment, end = self._segments[number], self._visible_end(number)
            found = segment.find_seqno(seqno, end)
            if found is None:
                raise Damage(segment.log_path, end, seqno, self._seqno_after(number), "the segment ends too early")
            return self._run(number, found, max_bytes, until, end)

    def read_index(self, index: int, max_bytes: int = READ_BYTES) -> Run | None:
        """Written batches from this one on, committed or not: for replication. None at the end of the log."""
        if not self.first_index <= index <= self.last_index + 1:
            raise IndexOutOfRange(index, self.first_index, self.last_index + 1)
        if index > self.last_index:
            return None
        number = self._number_of_index(index)
        with self._whole(number):
            segment, end = self._segments[number], self._size(number)
            found = segment.find_index(index, end)
            if found is None:
                raise Damage(
                    segment.log_path, end, segment.first_seqno, self._seqno_after(number), "the segment ends too early"
                )
            return self._run(number, found, max_bytes, None, end)

    def seqno_at(self, timestamp: int) -> int:
        """The first committed record at or after this time; `committed` where there is none yet."""
        first = self.first
        for number in range(self._number_of_time(timestamp), len(self._segments)):
            segment, end = self._segments[number], self._visible_end(number)
            seqno_from = first
            with self._whole(number):
                if not end or (number < len(self._segments) - 1 and segment.max_timestamp < timestamp):
                    continue
                while (found := segment.find_time(timestamp, seqno_from, end)) is not None:
                    seqno = segment.batch(found[0], end).first_at(timestamp, seqno_from)
                    if seqno is not None:
                        return seqno
                    seqno_from = found[1].next_seqno
        return self.committed

    def batches(self, seqno: int | None = None, skip_damage: bool = False) -> Iterator[Batch]:
        """Every committed data batch from a seqno (default: the first) to the end, verified.

        Raises Damage where records cannot be read, or passes over them when asked.
        """
        seqno = self.first if seqno is None else seqno
        while True:
            try:
                run = self.read(seqno)
                if run is None:
                    return
                for batch in run.batches():
                    if batch.header.kind == KIND_LOST and batch.header.record_count:
                        raise Damage(run.file.path, run.position, seqno, batch.header.next_seqno, "lost, says repair")
                    if batch.header.kind == KIND_DATA:
                        yield batch
                    seqno = batch.header.next_seqno
            except Damage as damage:
                located = damage if damage.seqno_until is not None else self._locate_damage(damage)
                if not skip_damage or located.seqno_until is None or located.seqno_until <= seqno:
                    raise located from None
                seqno = located.seqno_until

    def _locate_damage(self, damage: Damage) -> Damage:
        """A bad header does not say how far the damage goes; looking its record up does."""
        try:
            self.read(damage.seqno_from)
        except Damage as located:
            return located
        return damage

    def _run(self, number: int, found: tuple[int, Header], max_bytes: int, until: int | None, end: int) -> Run:
        segment = self._segments[number]
        position, header = found
        place = segment.end_of_run(found, min(position + max_bytes, end), until, end)
        return Run(
            segment.file(),
            position,
            place.position - position,
            header.base_seqno,
            place.seqno,
            header.index,
            place.index,
            number < len(self._segments) - 1 and self._segments[number + 1].first_index <= self._committed.index + 1,
        )

    @contextmanager
    def _whole(self, number: int) -> Iterator[None]:
        """A segment whose file has gone is damage, with the seqnos it held."""
        segment = self._segments[number]
        try:
            yield
        except FileNotFoundError:
            until = self._seqno_after(number)
            raise Damage(segment.log_path, 0, segment.first_seqno, until, "the file is missing") from None
        except Damage as damage:
            if damage.seqno_until is None:
                damage = Damage(
                    damage.path, damage.position, damage.seqno_from, self._seqno_after(number), damage.reason
                )
            raise damage from None

    def _seqno_after(self, number: int) -> int | None:
        return self._segments[number + 1].first_seqno if number + 1 < len(self._segments) else None

    def _number_of_index(self, index: int) -> int:
        return bisect_right(self._segments, index, key=lambda segment: segment.first_index) - 1

    def _number_of_time(self, timestamp: int) -> int:
        """The segment to begin with: none before it holds a record at or after this time."""
        low, high = 0, len(self._segments)
        while low < high:
            middle = (low + high) // 2
            before = self._segments[middle].max_timestamp_before
            if before is None:
                return 0
            if before < timestamp:
                low = middle + 1
            else:
                high = middle
        return max(0, low - 1)

    def _size(self, number: int) -> int:
        return self._end if number == len(self._segments) - 1 else self._segments[number].size

    def _visible_end(self, number: int) -> int:
        """Where the committed part of a segment ends."""
        segment = self._segments[number]
        if segment is self._committed.segment:
            return self._committed.end
        return self._size(number) if segment.first_index <= self._committed.index else 0

    def _locate(self, index: int) -> Boundary:
        number = self._number_of_index(index)
        segment = self._segments[number]
        if index == self.last_index:
            return Boundary(index, self.next, segment, self._size(number))
        with self._whole(number):
            found = segment.find_index(index, self._size(number))
            if found is None:
                raise Damage(
                    segment.log_path, 0, segment.first_seqno, self._seqno_after(number), f"batch {index} is not there"
                )
        position, header = found
        return Boundary(header.index, header.next_seqno, segment, position + header.size)
