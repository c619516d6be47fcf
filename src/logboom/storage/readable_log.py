"""Reading a log: from a seqno, an index or a time to ranges of files.

Works on segments and what of them is committed; whoever keeps those true (a view beside the writer, or the log itself,
which also knows what is written and not committed yet) inherits this. Readers see whole batches below committed and
nothing else. Only what is committed is mapped: nobody ever cuts it.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from logboom.batch.batch import Batch
from logboom.batch.header import KIND_DATA, KIND_LOST, NO_TIMESTAMP, Header
from logboom.batch.selection import Selection
from logboom.errors import Damage, IndexOutOfRange, SeqnoOutOfRange
from logboom.storage.index import BatchPlace
from logboom.storage.run import Run
from logboom.storage.segment import Segment

READ_BYTES: Final = 1024 * 1024
SKIP_SEGMENTS: Final = 16
"""So many segments a read looks at before it says how far it has come."""
FEW_SEGMENTS: Final = 4
MAP_BYTES: Final = 256 * 1024
"""From so many bytes on a committed range is mapped; less is sooner read, and then pins no file."""


class Boundary(NamedTuple):
    """The end of a batch: its index, the seqno that follows it, and where in which segment."""

    index: int  # type: ignore[assignment]
    next_seqno: int
    segment: Segment
    end: int
    floor: int = 0
    """Of the log, once this batch is committed."""


class SeqnoRange(NamedTuple):
    """Records from one seqno up to another, and about how many bytes of files they take."""

    seqno_from: int
    seqno_until: int
    size: int


def cut_pieces(stored: Iterable[SeqnoRange], seqno_from: int, seqno_until: int, every_bytes: int) -> list[SeqnoRange]:
    """Anew, in pieces of about so many bytes, as if the records of each that is stored were all of the same size.

    They follow each other. What none of them holds comes in one piece.
    """
    pieces: list[SeqnoRange] = []
    start, size = seqno_from, 0.0
    for piece in stored:
        low, high = max(piece.seqno_from, start), min(piece.seqno_until, seqno_until)
        if low >= high:
            continue
        each = max(1, piece.size) / (piece.seqno_until - piece.seqno_from)
        while size + (high - low) * each > every_bytes * 1.5:
            count = max(1, int((every_bytes - size) / each))
            if low + count >= high:
                break
            pieces.append(SeqnoRange(start, low + count, int(size + count * each)))
            start = low = low + count
            size = 0.0
        size += (high - low) * each
    if start < seqno_until:
        pieces.append(SeqnoRange(start, seqno_until, int(size)))
    return pieces


class ReadableLog:
    def __init__(self, directory: str, segments: list[Segment], floor: int = 0) -> None:
        self.directory = directory
        self._segments = segments
        self._floor = floor
        """What counts of the floors in the log: of what lies behind committed only after opening, to be safe."""
        self._dropped = 0
        """Below this a drop had begun, however far it came before a crash."""
        first = segments[0]
        self._committed = Boundary(first.first_index - 1, first.first_seqno, first, 0)

    @property
    def first(self) -> int:
        """The first readable seqno."""
        return max(self._segments[0].first_seqno, self._floor, self._dropped)

    @property
    def floor(self) -> int:
        """Below this a user's trim has hidden everything."""
        return self._floor

    @property
    def active_bytes(self) -> int:
        """Bytes in the last segment."""
        return self._committed.end

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.stored_bytes for segment in self._segments[:-1]) + self.active_bytes

    @property
    def next(self) -> int:
        """The seqno the next record will get."""
        return self._committed.next_seqno

    @property
    def committed(self) -> int:
        """Readers see what is below this seqno."""
        return self._committed.next_seqno

    @property
    def first_index(self) -> int:
        return self._segments[0].first_index

    @property
    def last_index(self) -> int:
        return self._committed.index

    @property
    def committed_index(self) -> int:
        return self._committed.index

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one takes the appends."""
        return tuple(self._segments)

    def read(
        self, seqno: int, max_bytes: int = READ_BYTES, max_records: int | None = None, after: Run | None = None
    ) -> Run | None:
        """Committed batches from the one that holds `seqno` on, as one range of one file; None at the end of the log.

        At least one batch, however large; else no more than `max_bytes`, and none that begins after `max_records`.
        Whoever reads on says `after` which run: where that ends need not be looked up.
        """
        if not self.first <= seqno <= self.committed:
            raise SeqnoOutOfRange(seqno, self.first, self.committed)
        if seqno == self.committed:
            return None
        number = bisect_right(self._segments, seqno, key=lambda segment: segment.first_seqno) - 1
        until = None if max_records is None else seqno + max(1, max_records)
        segment = self._segments[number]
        with self._whole(segment):
            end = self._visible_end(number)
            hint = after.end if after and after.next_seqno == seqno and after.file.path == segment.log_path else None
            if hint and until is None and segment is self._committed.segment and end[0] - hint[0] <= max_bytes:
                # At the tail: from where the last run ended to where the committed part ends.
                size = end[0] - hint[0]
                return Run(segment.file(), hint[0], size, seqno, end[1], hint[2], end[2], size >= MAP_BYTES)
            return self._run(number, segment.find_seqno(seqno, end, hint), seqno, max_bytes, until, end)

    def read_index(self, index: int, max_bytes: int = READ_BYTES, committed: bool = False) -> Run | None:
        """Written batches from this one on, or only committed ones: for replication. None at the end of those."""
        last = self.committed_index if committed else self.last_index
        if not self.first_index <= index <= last + 1:
            raise IndexOutOfRange(index, self.first_index, last + 1)
        if index > last:
            return None
        number = self._number_of_index(index)
        segment = self._segments[number]
        with self._whole(segment):
            end = self._visible_end(number) if committed else self._whole_end(number)
            return self._run(number, segment.find_index(index, end), segment.first_seqno, max_bytes, None, end)

    def seqno_at(self, timestamp: int) -> int:
        """The first committed record at or after this time; `committed` where there is none yet."""
        first = self.first
        for number in range(self._number_of_time(timestamp), len(self._segments)):
            segment, seqno_from = self._segments[number], first
            with self._whole(segment):
                end = self._visible_end(number)
                if not end.position or (self._is_frozen(segment) and segment.max_timestamp < timestamp):
                    continue
                while (found := segment.find_time(timestamp, seqno_from, end)) is not None:
                    seqno = segment.batch(found[0], end).first_at(timestamp, seqno_from)
                    if seqno is not None:
                        return seqno
                    seqno_from = found[1].next_seqno
        return self.committed

    def term_before(self, seqno: int) -> int | None:
        """The term of the record before this one, served or not; None where it is gone or not committed."""
        if not seqno:
            return 0
        if seqno > self.committed:
            return None
        number = bisect_right(self._segments, seqno - 1, key=lambda segment: segment.first_seqno) - 1
        if number < 0:
            first = self._segments[0]
            before = first.before if first.first_seqno == seqno else None
            return None if before is None else before.term
        segment = self._segments[number]
        with self._whole(segment):
            found = segment.find_seqno(seqno - 1, self._visible_end(number))
        return None if found is None else found[1].term

    def skip(self, seqno: int, wanted: Selection, segments_max: int = SKIP_SEGMENTS) -> int:
        """The first seqno, from this one on, that may match: segments that cannot hold it are passed over.

        Looks at some segments and no more; whoever was moved on asks again. May read their labels, so it may block;
        any thread may call it.
        """
        segments = self.segments
        number = bisect_right(segments, seqno, key=lambda segment: segment.first_seqno) - 1
        for segment in segments[max(0, number) :][:segments_max]:
            if not self._is_frozen(segment) or _may_hold(segment, wanted):
                break
            assert segment.after is not None
            seqno = max(seqno, segment.after[0])
        return seqno

    def cut(self, seqno_from: int, seqno_until: int, every_bytes: int) -> list[SeqnoRange]:
        """Committed records in pieces of about so many bytes, by the indexes. May block.

        A piece begins with a batch that the index knows; what is not there (dropped, not committed) is left out.
        """
        seqno_from, seqno_until = max(seqno_from, self.first), min(seqno_until, self.committed)
        pieces: list[SeqnoRange] = []
        start, size = seqno_from, 0
        for number, segment in enumerate(self._segments):
            try:
                end = self._visible_end(number) if segment.first_seqno < seqno_until else segment.start
                if end.seqno <= start or end.seqno == segment.first_seqno:
                    continue
                position = self._position_of(segment, max(start, segment.first_seqno), end)
                stop = self._position_of(segment, seqno_until, end)
            except OSError:
                continue  # whoever reads it will be told
            while size + stop - position > every_bytes * 3 // 2:
                place = segment.index.by_position(position + max(0, every_bytes - size))
                if place is None or place.seqno <= start:
                    place = segment.index.behind(position)  # one batch may be larger than a piece
                if place is None or not start < place.seqno < seqno_until:
                    break
                pieces.append(SeqnoRange(start, place.seqno, size + place.position - position))
                start, position, size = place.seqno, place.position, 0
            size += stop - position
        if start < seqno_until:
            pieces.append(SeqnoRange(start, seqno_until, size))
        return pieces

    def _position_of(self, segment: Segment, seqno: int, end: BatchPlace) -> int:
        """About where a record is, by the index alone."""
        if seqno >= end.seqno:
            return end.position
        place = segment.index.by_seqno(seqno)
        return 0 if place is None else min(place.position, end.position)

    def batches(self, seqno: int | None = None, skip_damage: bool = False) -> Iterator[Batch]:
        """Every committed data batch from a seqno (default: the first) to the end, verified.

        Raises Damage where records cannot be read, or passes over them when asked.
        """
        seqno = min(self.first, self.committed) if seqno is None else seqno
        while seqno != self.committed:
            try:
                run = self.read(seqno)
                if run is None:
                    return
                position = run.position
                for batch in run.batches():
                    header = batch.header
                    if header.kind == KIND_LOST and header.record_count:
                        raise Damage(run.file.path, position, seqno, header.next_seqno, "lost, says repair")
                    if header.kind == KIND_DATA:
                        yield batch
                    seqno, position = header.next_seqno, position + header.size
            except Damage as damage:
                located = damage if damage.seqno_until is not None else self.locate_damage(damage)
                if not skip_damage or located.seqno_until is None or located.seqno_until <= seqno:
                    raise located from None
                seqno = min(located.seqno_until, self.committed)

    def locate_damage(self, damage: Damage) -> Damage:
        """A bad header does not say how far the damage goes; looking its record up does."""
        try:
            self.read(damage.seqno_from)
        except Damage as located:
            return located
        return damage

    def _run(
        self,
        number: int,
        found: tuple[int, Header] | None,
        seqno: int,
        max_bytes: int,
        until: int | None,
        end: BatchPlace,
    ) -> Run:
        segment = self._segments[number]
        if found is None:
            raise Damage(segment.log_path, end.position, seqno, end.seqno, "the segment ends too early")
        position, header = found
        place = segment.end_of_run(found, min(position + max_bytes, end.position), until, end)
        size = place.position - position
        committed = place.index <= self._committed.index + 1
        return Run(
            segment.file(),
            position,
            size,
            header.base_seqno,
            place.seqno,
            header.index,
            place.index,
            committed and (self._is_frozen(segment) or size >= MAP_BYTES),
        )

    def _is_frozen(self, segment: Segment) -> bool:
        """Whether a segment will never change any more."""
        return segment.after is not None and segment.after[1] <= self._committed.index + 1

    @contextmanager
    def _whole(self, segment: Segment) -> Iterator[None]:
        """A segment whose file has gone, or that the device cannot read, is damage with the seqnos it held."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EIO):
                raise
            until = segment.after[0] if segment.after else self.committed
            raise Damage(segment.log_path, 0, segment.first_seqno, until, f"it cannot be read: {error}") from None

    def _number_of_index(self, index: int) -> int:
        return bisect_right(self._segments, index, key=lambda segment: segment.first_index) - 1

    def _number_of_time(self, timestamp: int) -> int:
        """The segment to begin with: none before it holds a record at or after this time.

        What a segment says of the time before it is on disk: so where there are many, time is taken to have gone by
        evenly, and every third look halves what is left, in case it has not.
        """
        low, high = 0, len(self._segments)
        earlier, later = (-1, NO_TIMESTAMP), (high, NO_TIMESTAMP)
        turn, last = 0, 0
        while low < high:
            if high - low <= FEW_SEGMENTS:
                middle = (low + high) // 2
            elif turn < 2:
                middle = high - 1 if turn == 0 else 1
            elif turn % 3 == 2:
                middle = max(low, min(high - 1, _between(earlier, later, timestamp)))
            elif turn % 3 == 0:
                middle = high - 1 if high == last else low  # beside the last look
            else:
                middle = (low + high) // 2
            turn, last = turn + 1, middle
            before = self._segments[middle].max_timestamp_before
            if before is None:
                return 0
            if before < timestamp:
                low, earlier = middle + 1, (middle, before)
            else:
                high, later = middle, (middle, before)
        return max(0, low - 1)

    def _whole_end(self, number: int) -> BatchPlace:
        """Where a segment ends, committed or not."""
        segment = self._segments[number]
        if segment.after is None:
            return BatchPlace(self.active_bytes, self.next, self.last_index + 1)
        return BatchPlace(segment.size, *segment.after)

    def _visible_end(self, number: int) -> BatchPlace:
        """Where the committed part of a segment ends."""
        segment, committed = self._segments[number], self._committed
        if segment is committed.segment:
            return BatchPlace(committed.end, committed.next_seqno, committed.index + 1)
        return self._whole_end(number) if segment.first_index <= committed.index else segment.start

    def _locate(self, index: int) -> Boundary:
        number = self._number_of_index(index)
        segment = self._segments[number]
        if segment.after is not None and index == segment.after[1] - 1:
            return Boundary(index, segment.after[0], segment, segment.stored_bytes)  # also where the file is lost
        with self._whole(segment):
            end = self._whole_end(number)
            if index == self.last_index:
                return Boundary(index, self.next, segment, end.position)
            found = segment.find_index(index, end)
        if found is None:
            raise Damage(segment.log_path, 0, segment.first_seqno, end.seqno, f"batch {index} is not there")
        position, header = found
        return Boundary(header.index, header.next_seqno, segment, position + header.size)


def _between(earlier: tuple[int, int], later: tuple[int, int], timestamp: int) -> int:
    """About which segment is the first that has this time before it, between two of which that is known."""
    if NO_TIMESTAMP in (earlier[1], later[1]):
        return (earlier[0] + later[0]) // 2
    return earlier[0] - (earlier[1] - timestamp) * (later[0] - earlier[0]) // (later[1] - earlier[1])


def _may_hold(segment: Segment, wanted: Selection) -> bool:
    try:
        if wanted.time_from is not None and segment.max_timestamp < wanted.time_from:
            return False
        return segment.labels.may_hold(wanted)
    except OSError:
        return True  # whoever reads it will be told
