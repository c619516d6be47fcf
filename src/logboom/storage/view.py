"""A log as another process sees it: read-only, beside the writer, through the state file.

The state file says which seqnos are committed, the files say where they are; `refresh` catches up with both. Batches
below committed never change in place, so what was found stays true. Files come and go: a swap shows as another
generation in the state file, a roll as a file that ends too early, a drop as a name that is gone. Then the directory is
listed again; files already open go on being readable.

Control batches have no seqno, so a view cannot tell whether one at the very end is committed: it counts only what a
committed record shows to be. A roll that is not committed may be taken back: a segment counts as frozen only once a
record in a later one is committed. Maps are touched only where records are committed: those bytes are never cut.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from logboom.batch.header import HEADER_SIZE, NO_TIMESTAMP, Header
from logboom.batch.selection import Selection
from logboom.errors import BatchError, Damage, LogboomError, NotABatch
from logboom.storage.data.state import LogState, StateReader
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.index import EVERY_BYTES
from logboom.storage.readable_log import READ_BYTES, SKIP_SEGMENTS, Boundary, ReadableLog, SeqnoRange
from logboom.storage.recovery import find_segments
from logboom.storage.run import Run
from logboom.storage.scan import Bad, ScanBudget, TooHostile, Window, next_sound
from logboom.storage.segment import Segment
from logboom.storage.tail import Floor, LogTail, known_lineage, read_control

_ATTEMPTS: Final = 50
_READ_ATTEMPTS: Final = 5
_WALK_BYTES: Final = 4096

Answer = TypeVar("Answer")


class LogGone(Exception):
    """The state file knows nothing of this log, or its directory is not there: deleted, or not yet begun."""


class LogView(ReadableLog):
    def __init__(
        self, files: OpenFiles, directory: str, states: StateReader, standing: LogState, segments: list[Segment]
    ) -> None:
        """With what was listed, and what the state file said then."""
        super().__init__(directory, segments)
        self._files = files
        self._states = states
        self._key = standing[:2]
        self._standing = standing
        self._newest = NO_TIMESTAMP
        self._crossed = -1
        self.damage: Damage | None = None
        """Why the view ends before what is committed."""
        self._begin(segments[0])
        self._catch_up(standing, relist=False)

    @classmethod
    def open(cls, files: OpenFiles, directory: str, states: StateReader, topic_id: bytes, partition: int) -> LogView:
        """Raises LogGone where no writer has opened this log yet."""
        return cls(files, directory, states, *_list(files, directory, states, (topic_id, partition)))

    @property
    def standing(self) -> LogState:
        """What the state file said at the last refresh."""
        return self._standing

    def refresh(self, relist: bool = False) -> bool:
        """Catch up with the writer; whether anything has changed. `relist` looks at the directory in any case."""
        standing, before = _standing(self._states, self._key), self._standing
        if standing == before and not relist:
            return False
        relist = relist or standing.generation != before.generation or standing.committed < before.committed
        return self._catch_up(standing, relist) or standing != before

    def _catch_up(self, standing: LogState, relist: bool) -> bool:
        """Be as far as the state file says; whether there are other files or records than before."""
        before, reached, changed = self._standing, self.committed, False
        try:
            for _ in range(_ATTEMPTS):
                other = False
                if relist:
                    standing, other = self._relist()
                    changed |= other
                self._take(standing)
                tried, relist = relist, True
                if self._walk(standing.committed) or (tried and not other):
                    break
        except OSError:
            self._standing = before  # too many open files, no memory: the next call tries again
            raise
        return changed or self.committed != reached

    def _relist(self) -> tuple[LogState, bool]:
        """Look at the directory; also says whether there are other files than before."""
        standing, segments = _list(self._files, self.directory, self._states, self._key)
        old = {segment.log_path: segment for segment in self._segments}
        before = [(segment.log_path, segment.after) for segment in self._segments]
        self._segments = [old.get(new.log_path, new) for new in segments]
        for segment in self._segments:
            if segment.first_index > self._committed.segment.first_index:
                segment.forget()
        for segment, new in zip(self._segments, segments, strict=True):
            if segment.after != new.after:
                segment.after = new.after
                self._doubt(segment)
        for path in old.keys() - {segment.log_path for segment in segments}:
            self._files.forget(path)
        return standing, before != [(segment.log_path, segment.after) for segment in segments]

    def _take(self, standing: LogState) -> None:
        self._floor = standing.first
        while len(self._segments) > 1 and self._segments[1].first_seqno <= standing.first:
            self._files.forget(self._segments.pop(0).log_path)
        if self._committed.segment not in self._segments or standing.committed < self.committed:
            self._begin(self._segments[0])
        self._standing = standing

    def _doubt(self, segment: Segment) -> None:
        """What was learnt of a segment before it was frozen may not be true any more, but for its committed part."""
        if segment is not self._committed.segment:
            segment.forget()

    def _begin(self, segment: Segment) -> None:
        """Nothing in this segment is known to be committed yet; until it is frozen, only what was walked counts."""
        before = self._committed.segment
        self._newest = NO_TIMESTAMP
        segment.forget()
        segment.start_index(EVERY_BYTES)
        if before is not segment:
            before.forget()
        self._committed = Boundary(segment.first_index - 1, segment.first_seqno, segment, 0)

    def _walk(self, committed: int) -> bool:
        """Find where the last committed record ends, by headers; False where the files do not reach so far."""
        self.damage = None
        if committed <= self.committed:
            return True
        number = bisect_right(self._segments, committed - 1, key=lambda segment: segment.first_seqno) - 1
        segment = self._segments[max(0, number)]
        if segment is not self._committed.segment:
            self._begin(segment)
        while True:
            reason = self._follow(segment, committed)
            if reason is None:
                return True
            damage = Damage(segment.log_path, self._committed.end, self.committed, None, reason)
            if not self._cross(segment, committed):
                self.damage = damage
                return False

    def _follow(self, segment: Segment, committed: int) -> str | None:
        """Mark every committed batch from the last boundary on; why it ended before what is committed."""
        try:
            for position, header in self._headers(segment):
                if header.next_seqno > committed or (segment.after is not None and header.index >= segment.after[1]):
                    break
                segment.index.add(header.base_seqno, header.index, position, self._newest, position == self._crossed)
                self._newest = max(self._newest, header.newest_timestamp(header.append_time))
                if header.record_count:
                    self._committed = Boundary(header.index, header.next_seqno, segment, position + header.size)
                    if header.next_seqno == committed:
                        return None
        except BatchError as error:
            return str(error)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EIO):
                raise
            return str(error)
        return "it ends too early"

    def _cross(self, segment: Segment, committed: int) -> bool:
        """Go on behind a damaged batch, at one from which headers lead, number by number, to what is committed."""
        try:
            file = segment.file()
            size, (index, seqno, _, position, _) = file.size(), self._committed
            window = Window(file, size)

            def accept(at: int, header: Header, work: ScanBudget) -> bool:
                while header.next_seqno < committed or not header.record_count:
                    at, index, seqno = at + header.size, header.index + 1, header.next_seqno
                    if at >= size or seqno >= committed:
                        return False
                    work.spend(HEADER_SIZE)
                    try:
                        header = window.header(at)
                    except BatchError:
                        return False
                    if (header.index, header.base_seqno) != (index, seqno):
                        return False
                return header.next_seqno == committed

            found = next_sound(window, Bad(position, "", position + 8), size, LogTail(seqno, index + 1), accept)
        except (TooHostile, OSError):
            return False
        if found is None:
            return False
        self._crossed = found[0]
        self._committed = Boundary(found[1].index - 1, found[1].base_seqno, segment, found[0])
        return True

    def _headers(self, segment: Segment) -> Iterator[tuple[int, Header]]:
        """From the last boundary on. Whoever takes them stops at what is committed: nothing behind may be touched."""
        file, (index, seqno, _, position, _) = segment.file(), self._committed
        size = file.size()
        window = Window(file, size, _WALK_BYTES)
        while position < size:
            index += 1
            header = window.header(position)
            if header.index != index or header.base_seqno != seqno or position + header.size > size:
                raise NotABatch(f"another batch must be at byte {position}")
            yield position, header
            position, seqno = position + header.size, header.next_seqno

    def _is_frozen(self, segment: Segment) -> bool:
        """Only once a record behind it is committed: that it was rolled may not be true any more."""
        return segment.first_index < self._committed.segment.first_index

    def read(
        self, seqno: int, max_bytes: int = READ_BYTES, max_records: int | None = None, after: Run | None = None
    ) -> Run | None:
        return self._again(lambda: super(LogView, self).read(seqno, max_bytes, max_records, after))

    def read_index(self, index: int, max_bytes: int = READ_BYTES, committed: bool = False) -> Run | None:
        return self._again(lambda: super(LogView, self).read_index(index, max_bytes, committed))

    def seqno_at(self, timestamp: int) -> int:
        return self._again(lambda: super(LogView, self).seqno_at(timestamp))

    def skip(self, seqno: int, wanted: Selection, segments_max: int = SKIP_SEGMENTS) -> int:
        return self._again(lambda: super(LogView, self).skip(seqno, wanted, segments_max))

    def cut(self, seqno_from: int, seqno_until: int, every_bytes: int) -> list[SeqnoRange]:
        return self._again(lambda: super(LogView, self).cut(seqno_from, seqno_until, every_bytes))

    def _again(self, read: Callable[[], Answer]) -> Answer:
        """What looks like damage may be a file that was swapped or dropped meanwhile."""
        for attempt in range(_READ_ATTEMPTS):
            try:
                return read()
            except Damage:
                for segment in self._segments:
                    self._doubt(segment)
                if not self.refresh(relist=True) and attempt:
                    raise
        return read()

    def term_before(self, seqno: int) -> int | None:
        """The term of the record before this one, served or not; None where it is gone, damaged or not committed."""
        try:
            return self._again(lambda: super(LogView, self).term_before(seqno))
        except (Damage, LogGone):
            return None

    def lineage_of(self, term: int) -> int:
        """Which of all terms of this number it is; 0 where nobody knows."""
        try:
            return self._again(lambda: self._find_lineage(term))
        except (LogboomError, OSError):
            return 0

    def _find_lineage(self, term: int) -> int:
        """The last segment's snapshot has those that were begun before it; else the batch that begins the term does."""
        segment, end = self._segments[-1], self._visible_end(len(self._segments) - 1)
        before = segment.before
        if before is None or term <= before.term:
            return 0 if before is None else known_lineage(before.lineages, term)
        found = segment.find_term(term, end)
        if found is None or found[1].term != term:
            return 0
        control = read_control(segment.batch(found[0], end))
        return control.lineage if isinstance(control, Floor) else 0


def _standing(states: StateReader, key: tuple[bytes, int]) -> LogState:
    standing = states.standing(*key)
    if standing is None:
        raise LogGone
    return standing


def _list(
    files: OpenFiles, directory: str, states: StateReader, key: tuple[bytes, int]
) -> tuple[LogState, list[Segment]]:
    """The segments there are, and what the state file says after they were listed."""
    before: list[str] = []
    for _ in range(_ATTEMPTS):
        try:
            segments = find_segments(files, directory)
        except FileNotFoundError:
            raise LogGone from None
        standing = _standing(states, key)
        # Names come and go while a directory is listed: a list without its beginning is made again.
        if segments and segments[0].first_seqno <= standing.first:
            break
        paths = [segment.log_path for segment in segments]
        if paths and paths == before:
            break  # they are missing
        before = paths
    if not segments:
        raise LogGone
    return standing, segments
