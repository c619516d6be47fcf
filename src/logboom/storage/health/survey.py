"""Every batch of one log, across damage: what is sound, where the holes are, and which numbers they swallowed.

A check reports a survey, a repair acts on it. The same rules as recovery: in the last segment a bad batch is damage
only where something says that it was synced, else it is a torn tail; in any other segment it is damage. A hole keeps
its seqnos and indexes, because what follows it, or the state file, says where they go on.

Changes nothing. Holds one batch, or a chunk, in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logboom.batch.header import KIND_CONTROL, KIND_LOST, NO_TIMESTAMP, Header
from logboom.storage.data.state import LogState
from logboom.storage.files.disk import Disk, File, read_file
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.files.readonly import BLOCK, ReadOnlyFile
from logboom.storage.health.floor import floor_fault
from logboom.storage.holes import Hole, NextNumbers, resume
from logboom.storage.index import SparseIndex
from logboom.storage.labels import label_columns
from logboom.storage.recovery import evidence_of_damage, find_segments
from logboom.storage.scan import Bad, Window, scan
from logboom.storage.segment import Segment
from logboom.storage.tail import LogTail, Lost, Snapshot, read_control

PRODUCERS_MAX: Final = 1_000_000

Progress = Callable[[int], None]


class LostRange(NamedTuple):
    """Consecutive batches that an earlier repair left."""

    position: int
    seqno_from: int
    seqno_until: int
    reason: str


@dataclass(slots=True)
class SegmentSurvey:
    segment: Segment
    start: Snapshot
    """The tail at the first byte: from the snapshot, or from what lies before it, or from the name alone."""
    snapshot_sound: bool
    snapshot_derivable: bool
    """Whether the snapshot follows from sound batches before it."""
    exists: bool = False
    size: int = 0
    end: int = 0
    """Where the last sound batch ends."""
    batches: int = 0
    records: int = 0
    holes: list[Hole] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    torn: Bad | None = None
    unknown: Bad | None = None
    """A batch of a format this release does not know: never skipped, never rewritten."""
    bad_floor: Bad | None = None
    index_fault: str | None = None
    before_missing: Snapshot | None = None
    """The tail before a hole that has no bytes: what a segment put in its place begins with."""


@dataclass(slots=True)
class LogSurvey:
    directory: str
    standing: LogState | None
    segments: list[SegmentSurvey]
    tail: LogTail
    """Where the log ends, holes counted as filled."""

    @property
    def generation(self) -> int:
        """The highest that anything speaks of."""
        known = [max(survey.segment.generation, survey.start.generation) for survey in self.segments]
        return max(*known, self.standing.generation if self.standing else 0, 0)

    @property
    def first(self) -> int:
        return max(self.segments[0].segment.first_seqno if self.segments else 0, self.tail.floor)


def survey_log(disk: Disk, directory: str, standing: LogState | None, progress: Progress | None = None) -> LogSurvey:
    files = OpenFiles(disk, limit=1)
    segments = find_segments(files, directory) or [Segment(files, directory, 0, 1, 0)]
    surveys: list[SegmentSurvey] = []
    tail, whole = LogTail(), False
    for number, segment in enumerate(segments):
        survey, tail = _start(disk, segment, tail if number else None, whole, standing)
        surveys.append(survey)
        last = number == len(segments) - 1
        limit = None if last else NextNumbers(segments[number + 1].first_seqno, segments[number + 1].first_index)
        _survey_segment(disk, survey, tail, limit, standing if last else None, progress)
        whole = not survey.holes and not survey.unknown and (survey.snapshot_sound or survey.snapshot_derivable)
    return LogSurvey(directory, standing, surveys, tail)


def _start(
    disk: Disk, segment: Segment, before: LogTail | None, whole: bool, standing: LogState | None
) -> tuple[SegmentSurvey, LogTail]:
    snapshot = Snapshot.decode(read_file(disk, segment.snap_path))
    numbers = (segment.first_seqno, segment.first_index)
    if snapshot is not None and (snapshot.next_seqno, snapshot.next_index) != numbers:
        snapshot = None
    if snapshot is not None:
        tail = LogTail.at(snapshot, PRODUCERS_MAX)
        if before is not None:
            tail.term, tail.append_time = max(tail.term, before.term), max(tail.append_time, before.append_time)
    elif before is not None:
        tail = before
        tail.next_seqno, tail.next_index = segment.first_seqno, segment.first_index
    else:
        floor = 0 if numbers == (0, 1) else max(segment.first_seqno, standing.first if standing else 0)
        tail = LogTail(*numbers, floor=floor)
        tail.producers.limit = PRODUCERS_MAX
    start = snapshot or tail.snapshot(segment.generation)
    derivable = (before is not None and whole) or numbers == (0, 1)
    return SegmentSurvey(segment, start, snapshot is not None, derivable), tail


def _survey_segment(
    disk: Disk,
    survey: SegmentSurvey,
    tail: LogTail,
    limit: NextNumbers | None,
    standing: LogState | None,
    progress: Progress | None,
) -> None:
    path = survey.segment.log_path
    survey.exists = disk.exists(path)
    if survey.exists:
        file = disk.open(path)
        survey.size = file.size()
        file.drop_cache()
        index = _IndexCheck(disk, survey) if limit is not None else None
        _Walk(file, survey, tail, limit, standing, index, progress or (lambda size: None)).run()
    if survey.torn is None:
        _close(survey, tail, limit, standing)


def _close(survey: SegmentSurvey, tail: LogTail, limit: NextNumbers | None, standing: LogState | None) -> None:
    """Where the segment ends before it must, the rest is a hole, or gives the last one its numbers."""
    seqno, index = tail.next_seqno, tail.next_index
    last = survey.holes.pop() if survey.holes and survey.holes[-1].index_until is None else None
    until: tuple[int | None, int | None] = (None, None)
    if limit is not None:
        until = limit
        what = "ends at" if survey.exists else "is missing from"
        reason = f"the file {what} batch {index}, the next segment begins with {limit.index}"
    elif standing is not None and standing.synced_index >= index:
        until = max(seqno, standing.committed), standing.synced_index + 1
        reason = f"the log ends at batch {index - 1}, the state file says that {standing.synced_index} were synced"
    if last is not None:
        survey.holes.append(last._replace(seqno_until=until[0], index_until=until[1]))
    elif until[1] is not None and until != (seqno, index):
        size = survey.size
        survey.before_missing = tail.snapshot(survey.segment.generation)
        survey.holes.append(Hole(size, size, seqno, until[0], index, until[1], tail.term, tail.append_time, reason))
    tail.next_seqno = seqno if until[0] is None else until[0]
    tail.next_index = index if until[1] is None else until[1]


class _Walk:
    """Over all batches of one segment and the holes between them."""

    def __init__(
        self,
        file: File,
        survey: SegmentSurvey,
        tail: LogTail,
        limit: NextNumbers | None,
        standing: LogState | None,
        index: _IndexCheck | None,
        progress: Progress,
    ) -> None:
        self._file = file
        self._window = Window(file, survey.size)
        self._survey = survey
        self._tail = tail
        self._limit = limit
        self._standing = standing
        self._index = index
        self._progress = progress

    def run(self) -> None:
        survey, position = self._survey, 0
        while position < survey.size:
            bad = self._follow(position)
            if bad is None:
                return
            if bad.unsupported:
                survey.unknown = survey.unknown or bad
                position = self._pass_unknown(bad)
                continue
            evidence = "the segment is sealed"
            if self._limit is None:
                found = evidence_of_damage(self._window, bad, survey.size, self._tail, self._standing)
                if found is None:
                    survey.torn = bad
                    return
                evidence = found
            position = self._pass(bad, f"{bad.reason}; {evidence}")

    def _follow(self, position: int) -> Bad | None:
        """Take every batch up to the first that is not sound or belongs to the next segment."""
        survey, limit = self._survey, self._limit
        for item in scan(self._window, position, survey.size, self._tail):
            if isinstance(item, Bad):
                return item
            position, header = item
            if limit is not None and (header.index >= limit.index or header.next_seqno > limit.seqno):
                self._tail.next_seqno, self._tail.next_index = header.base_seqno, header.index
                return Bad(position, f"batch {header.index} belongs to a later segment", survey.size)
            survey.batches += 1
            survey.records += 0 if header.kind == KIND_LOST else header.record_count
            survey.end = position + header.size
            if header.kind == KIND_LOST:
                self._note_lost(position, header)
            elif header.kind == KIND_CONTROL and survey.bad_floor is None:
                reason = floor_fault(header, read_control(self._window.batch(position)))
                survey.bad_floor = None if reason is None else Bad(position, reason, survey.end)
            if self._index is not None:
                self._index.see(position, header)
            self._progress(header.size)
        return None

    def _note_lost(self, position: int, header: Header) -> None:
        control, lost = read_control(self._window.batch(position)), self._survey.lost
        if lost and not header.record_count and lost[-1].seqno_until == header.base_seqno:
            return
        reason = control.reason if isinstance(control, Lost) else ""
        lost.append(LostRange(position, header.base_seqno, header.next_seqno, reason))

    def _pass_unknown(self, bad: Bad) -> int:
        """Its header is sound, so what follows can still be checked."""
        header = self._window.header(bad.position)
        if self._tail.expects(header) is None:
            self._tail.follow(header)
            self._survey.batches += 1
            self._survey.records += header.record_count
        self._progress(header.size)
        return bad.next_position

    def _pass(self, bad: Bad, reason: str) -> int:
        """Note the hole that begins here; returns where sound batches go on."""
        survey, tail, size = self._survey, self._tail, self._survey.size
        found = resume(self._window, bad, size, tail, self._limit)
        end = found[0] if found else size
        if isinstance(self._file, ReadOnlyFile):
            blocks = sum(bad.position - BLOCK < block < end for block in self._file.unreadable)
            reason += f"; the device cannot read {blocks} blocks of it" if blocks else ""
        term, time = tail.term, tail.append_time
        if found and time == NO_TIMESTAMP:
            term, time = found[1].term, found[1].append_time
        seqno_until, index_until = (found[1].base_seqno, found[1].index) if found else (None, None)
        survey.holes.append(
            Hole(bad.position, end, tail.next_seqno, seqno_until, tail.next_index, index_until, term, time, reason)
        )
        if found:
            tail.next_seqno, tail.next_index = found[1].base_seqno, found[1].index
        if self._index is not None:
            self._index.skip(end)
        self._progress(end - bad.position)
        return end


class _IndexCheck:
    """Whether the .idx of a sealed segment says where its batches are."""

    def __init__(self, disk: Disk, survey: SegmentSurvey) -> None:
        self._survey = survey
        self._seen_position = -1
        self._index: SparseIndex | None = None
        data = read_file(disk, survey.segment.index_path)
        if data is None:
            return
        loaded = SparseIndex.decode(data)
        if loaded is None:
            survey.index_fault = "the index is incomplete or damaged"
        elif loaded[1].size != survey.size:
            survey.index_fault = f"the index covers {loaded[1].size} bytes, the segment has {survey.size}"
        else:
            self._index = loaded[0]

    def skip(self, position: int) -> None:
        """Entries before this speak of a hole: nothing tells whether they are true."""
        self._seen_position = position - 1

    def see(self, position: int, header: Header) -> None:
        if self._index is None or self._survey.index_fault is not None:
            return
        place = self._index.by_position(position)
        is_new = place is not None and place.position > self._seen_position
        if place is not None and is_new and place != (position, header.base_seqno, header.index):
            self._survey.index_fault = f"its entry for byte {place.position} is wrong"
        if label_columns(header) & ~self._index.columns:
            self._survey.index_fault = f"its labels leave out columns of batch {header.index}"
        self._seen_position = position
