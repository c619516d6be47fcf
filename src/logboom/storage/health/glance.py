"""A log at a glance: what can be told of it in no time, however large it is.

Of a sealed segment that is its name, its size, its snapshot and the front of its index; of the last one every batch, as
long as the budget lasts. The result is a survey like the one that reads everything, so the same verdicts follow from
it; what was not read counts as sound.

Changes nothing. The budget is for all logs together and counts batches too: tiny ones take the longest.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from logboom.storage.data.state import LogState
from logboom.storage.files.disk import Disk, read_file
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.files.readonly import ReadOnlyDisk, ReadOnlyFile
from logboom.storage.health.survey import LogSurvey, Progress, SegmentSurvey, survey_log
from logboom.storage.holes import Hole
from logboom.storage.index import SparseIndex
from logboom.storage.recovery import find_segments
from logboom.storage.segment import Segment
from logboom.storage.tail import LogTail, Snapshot

BUDGET_BYTES: Final = 256 * 1024 * 1024
BUDGET_BATCHES: Final = 20_000
_INDEX_SIZE: Final = Struct("<16xQ")


class Glance:
    """Surveys logs until it has read enough."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES, budget_batches: int = BUDGET_BATCHES) -> None:
        self._bytes = budget_bytes
        self._batches = budget_batches
        self.bytes_read = 0

    def survey(self, disk: Disk, directory: str, standing: LogState | None, progress: Progress | None) -> LogSurvey:
        segments = find_segments(OpenFiles(disk, limit=1), directory)
        if len(segments) < 2:
            return self._survey_last(disk, directory, segments[0] if segments else None, standing, progress)
        sealed = [_survey_sealed(disk, segment, number) for number, segment in enumerate(segments[:-1])]
        found = self._survey_last(disk, directory, segments[-1], standing, progress)
        found.segments[0].snapshot_derivable = True
        return LogSurvey(directory, standing, [*sealed, *found.segments], found.tail)

    def _survey_last(
        self, disk: Disk, directory: str, last: Segment | None, standing: LogState | None, progress: Progress | None
    ) -> LogSurvey:
        if last is not None:
            disk = _NarrowDisk(disk, last)
        try:
            return survey_log(disk, directory, standing, lambda size: self._count(size, progress))
        except _Enough:
            assert last is not None
            start = _start(disk, last)
            survey = SegmentSurvey(last, start or _bare(last), start is not None, True, True)
            survey.size = survey.end = disk.open(last.log_path).size()
            return LogSurvey(directory, standing, [survey], LogTail(last.first_seqno, last.first_index))

    def _count(self, size: int, progress: Progress | None) -> None:
        if self._bytes < size or not self._batches:
            raise _Enough
        self._bytes -= size
        self._batches -= 1
        self.bytes_read += size
        if progress is not None:
            progress(size)


class _Enough(Exception):
    """The budget is spent."""


class _NarrowDisk(ReadOnlyDisk):
    """Shows of a log's directory only the files of one segment."""

    def __init__(self, disk: Disk, segment: Segment) -> None:
        super().__init__(disk)
        self._inner = disk
        self._segment = segment

    def open(self, path: str) -> ReadOnlyFile:
        file = self._inner.open(path)
        return file if isinstance(file, ReadOnlyFile) else ReadOnlyFile(file)

    def list(self, path: str) -> list[str]:
        prefix = f"{self._segment.first_seqno:020}-{self._segment.first_index:020}"
        return [name for name in super().list(path) if name.startswith(prefix)]


def _survey_sealed(disk: Disk, segment: Segment, number: int) -> SegmentSurvey:
    start = _start(disk, segment)
    derivable = number > 0 or (segment.first_seqno, segment.first_index) == (0, 1)
    survey = SegmentSurvey(segment, start or _bare(segment), start is not None, derivable)
    survey.exists = disk.exists(segment.log_path)
    assert segment.after is not None
    seqno, index = segment.after
    if not survey.exists:
        reason = f"the file is missing; the next segment begins with batch {index}"
        survey.holes.append(Hole(0, 0, segment.first_seqno, seqno, segment.first_index, index, 0, 0, reason))
        return survey
    survey.size = survey.end = disk.open(segment.log_path).size()
    size, full_size = survey.size, _size_once(disk, segment, survey.size)
    if full_size is not None:
        reason = f"the file has {size:,} bytes; it had {full_size:,} when it was sealed"
        survey.holes.append(Hole(size, full_size, segment.first_seqno, seqno, segment.first_index, index, 0, 0, reason))
    return survey


def _size_once(disk: Disk, segment: Segment, size: int) -> int | None:
    """How large the file was when its index was made, where that is more, and the index can be believed."""
    try:
        file = disk.open(segment.index_path)
    except FileNotFoundError:
        return None
    front = file.read(_INDEX_SIZE.size, 0)
    if len(front) < _INDEX_SIZE.size or _INDEX_SIZE.unpack(front)[0] <= size:
        return None
    loaded = SparseIndex.decode(file.read(file.size(), 0))
    if loaded is None or (loaded[1].next_seqno, loaded[1].next_index) != segment.after:
        return None
    return loaded[1].size


def _start(disk: Disk, segment: Segment) -> Snapshot | None:
    snapshot = Snapshot.decode(read_file(disk, segment.snap_path))
    if snapshot is None or (snapshot.next_seqno, snapshot.next_index) != (segment.first_seqno, segment.first_index):
        return None
    return snapshot


def _bare(segment: Segment) -> Snapshot:
    return Snapshot(segment.first_seqno, segment.first_index, generation=segment.generation)
