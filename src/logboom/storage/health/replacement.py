"""Writing what a repair puts in place of damage, and keeping what it takes away.

Every change is whole or not there at all after a crash. A new generation of a segment is written beside the old one,
scanned, synced and renamed into place before the old file gets another name; so at no moment are there fewer sound
batches than before. What is taken away is kept as NAME.damaged or NAME.torn, never written over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from logboom.batch.builder import build_control
from logboom.batch.header import HEADER_SIZE, KIND_LOST, SYNCED_UNKNOWN, stamp
from logboom.errors import Damage
from logboom.storage.files.disk import Disk, File, read_file, replace_file, write_all
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.files.readonly import ReadOnlyDisk
from logboom.storage.health.survey import PRODUCERS_MAX, SegmentSurvey
from logboom.storage.holes import LOST_RECORDS_MAX, Hole
from logboom.storage.scan import Bad, Window, scan
from logboom.storage.segment import Segment
from logboom.storage.tail import Floor, LogTail, Lost, Snapshot

_CHUNK: Final = 1 << 20
_REASON_MAX: Final = 500


class Ending(NamedTuple):
    """What a mended segment ends with."""

    floor: int | None = None
    """One that was lost with the last hole."""
    term: bytes | None = None
    """The batch that begins a term, where the end of the log was lost."""

    @property
    def batches(self) -> int:
        """How many there are besides those that stand for lost ones."""
        return 0 if self.term is None else 1


def lost_batches(hole: Hole, floor: int | None = None) -> Iterator[bytes]:
    """One for each index of the hole; the first holds its seqnos. The last may set a floor again that went with it."""
    seqno, left = hole.seqno_from, hole.records
    empty = build_control(Lost(""), KIND_LOST).data
    for index in range(hole.index_from, hole.index_from + hole.batches):
        count = min(left, LOST_RECORDS_MAX)
        data = empty
        if count or index == hole.index_from:
            data = build_control(Lost(hole.reason[:_REASON_MAX]), KIND_LOST, count).data
        if floor is not None and not count and index == hole.index_from + hole.batches - 1:
            data = build_control(Floor(floor)).data
        yield stamp(data[:HEADER_SIZE], seqno, index, hole.append_time, hole.term, SYNCED_UNKNOWN) + data[HEADER_SIZE:]
        seqno, left = seqno + count, left - count


def rewrite_segment(disk: Disk, survey: SegmentSurvey, generation: int, ending: Ending) -> None:
    """A new generation: the sound batches as they are, lost ones in the holes, no torn tail."""
    old = survey.segment
    new = Segment(OpenFiles(disk), old.directory, old.first_seqno, old.first_index, generation)
    file = ReadOnlyDisk(disk).open(old.log_path) if survey.exists else None
    batches = survey.batches + sum(hole.batches for hole in survey.holes) + ending.batches
    write_segment(disk, new, _pieces(file, survey, ending), survey.start, batches)
    if file is not None:
        if disk.exists(old.index_path):
            disk.unlink(old.index_path)
        disk.rename(old.log_path, _unused(disk, f"{old.log_path}.damaged"))
        disk.sync_directory(old.directory)


def add_segment(disk: Disk, survey: SegmentSurvey, generation: int, ending: Ending) -> None:
    """A segment of lost batches where one is missing."""
    hole, start = survey.holes[-1], survey.before_missing
    assert start is not None
    new = Segment(OpenFiles(disk), survey.segment.directory, hole.seqno_from, hole.index_from, generation)
    replace_file(disk, new.snap_path, start.encode())
    pieces = chain(lost_batches(hole, ending.floor), _term_of(ending))
    write_segment(disk, new, pieces, start, hole.batches + ending.batches)


def write_segment(disk: Disk, segment: Segment, pieces: Iterable[bytes], start: Snapshot, batches: int) -> None:
    """The file of a segment, under its name only when it is whole, verified and synced."""
    temporary = f"{segment.log_path}.tmp"
    if disk.exists(temporary):
        disk.unlink(temporary)
    try:
        file = disk.create(temporary)
        _write_pieces(file, pieces)
        file.sync()
        file.drop_cache()
        _verify(file, start, batches)
    except (Exception, KeyboardInterrupt):
        if disk.exists(temporary):
            disk.unlink(temporary)
        raise
    disk.rename(temporary, segment.log_path)
    disk.sync_directory(segment.directory)


def _term_of(ending: Ending) -> Iterator[bytes]:
    if ending.term is not None:
        yield ending.term


def _pieces(file: File | None, survey: SegmentSurvey, ending: Ending) -> Iterator[bytes]:
    position = 0
    for hole in survey.holes:
        yield from _copy(file, position, hole.position)
        yield from lost_batches(hole, ending.floor if hole is survey.holes[-1] else None)
        position = hole.end
    yield from _copy(file, position, survey.end)
    yield from _term_of(ending)


def _copy(file: File | None, position: int, end: int) -> Iterator[bytes]:
    while file is not None and position < end:
        data = file.read(min(_CHUNK, end - position), position)
        if not data:
            raise Damage(file.path, position, 0, None, "the file became shorter while it was copied")
        yield data
        position += len(data)


def _write_pieces(file: File, pieces: Iterable[bytes]) -> int:
    position, gathered, size = 0, [], 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= _CHUNK:
            write_all(file, b"".join(gathered), position)
            position, gathered, size = position + size, [], 0
    write_all(file, b"".join(gathered), position)
    return position + size


def _verify(file: File, start: Snapshot, batches: int) -> None:
    size, count = file.size(), 0
    tail = LogTail.at(start, PRODUCERS_MAX)
    for item in scan(Window(file, size), 0, size, tail):
        if isinstance(item, Bad):
            raise Damage(
                file.path, item.position, tail.next_seqno, None, f"the repaired file is not sound: {item.reason}"
            )
        count += 1
    if count != batches:
        raise Damage(
            file.path, size, tail.next_seqno, None, f"the repaired file has {count} batches instead of {batches}"
        )


def write_snapshot(disk: Disk, survey: SegmentSurvey) -> None:
    """A snapshot in place of a missing or damaged one, which is kept."""
    path = survey.segment.snap_path
    old = read_file(disk, path)
    if old:
        replace_file(disk, _unused(disk, f"{path}.damaged"), old)
    replace_file(disk, path, survey.start.encode())


def cut_tail(disk: Disk, survey: SegmentSurvey, ending: Ending) -> None:
    """Cut a torn tail off; its bytes are kept first. A crash half way leaves a tail that is torn still."""
    assert survey.torn is not None
    assert ending.term is not None
    path, position = survey.segment.log_path, survey.torn.position
    file = disk.open(path)
    kept = _unused(disk, f"{path}.torn")
    temporary = f"{kept}.tmp"
    if disk.exists(temporary):
        disk.unlink(temporary)
    copy = disk.create(temporary)
    _write_pieces(copy, _copy(file, position, survey.size))
    copy.sync()
    disk.rename(temporary, kept)
    disk.sync_directory(survey.segment.directory)
    write_all(file, ending.term, position)
    file.sync()
    file.truncate(position + len(ending.term))
    file.sync()


def _unused(disk: Disk, path: str) -> str:
    """This path, or with the first number behind it that makes it a new one."""
    name, number = path, 0
    while disk.exists(name):
        number += 1
        name = f"{path}.{number}"
    return name
