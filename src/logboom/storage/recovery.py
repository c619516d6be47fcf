"""Opening a log: from what a crash left on disk to a tail that can be trusted.

Rules, in order. Sync the last segment and the directory and drop cached pages, because the page cache may hold what
the disk does not. Take the tail from the last segment's snapshot and follow every batch of that segment. The first
bad batch is damage, and is never cut, if a later sound batch says it was synced, if the `state` file says so, or if it
is of a version we do not know; otherwise it is a torn tail and is cut, synced, before anything is appended.

Only the last segment is read. Opening twice gives the same as opening once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from logboom.batch.header import NO_TIMESTAMP
from logboom.errors import Damage
from logboom.storage.config import LogConfig
from logboom.storage.data.state import LogState
from logboom.storage.files.disk import Disk, read_file, replace_file
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.labels import label_columns
from logboom.storage.scan import Bad, TooHostile, Window, next_sound, proves_synced, scan
from logboom.storage.segment import NUMBERS_SIZE, Segment, own_names, parse_name, snap_path
from logboom.storage.tail import LogTail, Snapshot


@dataclass(slots=True)
class Recovered:
    """What opening found, and did."""

    segments: list[Segment]
    tail: LogTail
    end: int
    """Bytes of the last segment that are sound."""
    generation: int
    segment_append_time: int | None = None
    """When the last segment's first batch was appended."""
    segment_max_timestamp: int = NO_TIMESTAMP
    """The newest timestamp in the last segment."""
    last_header_crc: int = 0
    """Of the last batch in the last segment."""
    cut_bytes: int = 0
    """How much of a torn tail was cut off."""
    standing: LogState | None = None
    """What the state file says."""
    missing: Damage | None = None
    """Segments before the first one that were not dropped; writes go on."""
    damage: Damage | None = None
    """Why the log takes no writes."""


def recover(files: OpenFiles, directory: str, config: LogConfig, standing: LogState | None) -> Recovered:
    disk = files.disk
    disk.make_directory(directory)
    disk.sync_directory(directory)
    segments = find_segments(files, directory, clean=True)
    if not segments:
        return _begin(files, directory, config, standing)
    last = segments[-1]
    snapshot, damage = snapshot_of(files, segments, len(segments) - 1, config)
    generation = max(snapshot.generation, *(segment.generation for segment in segments))
    if standing is not None:
        generation = max(generation, standing.generation)
    tail = LogTail.at(snapshot, config.producers_max)
    found = Recovered(segments, tail, 0, generation, standing=standing, damage=damage)
    first = segments[0]
    if standing is not None and standing.first < first.first_seqno:
        reason = f"the state file says that the log begins at {standing.first}"
        found.missing = Damage(first.log_path, 0, standing.first, first.first_seqno, reason)
    last.start_index(config.index_bytes)
    if damage is not None and standing is not None:
        tail.floor = max(tail.floor, standing.first)
    if disk.exists(last.log_path):
        _follow(last, found, config, standing)
    elif standing is not None and standing.synced_index >= tail.next_index:
        found.damage = _missing_tail(last, 0, tail, standing)
    return found


def find_segments(files: OpenFiles, directory: str, clean: bool = False) -> list[Segment]:
    """The segments by their names, oldest first; `clean` also removes what crashes and drops left lying about."""
    names = files.disk.list(directory)
    logs = sorted(own_names([name for name in names if name.endswith(".log")]))
    current = {name[:NUMBERS_SIZE]: name for name in logs}  # of several generations the highest: it is the last
    kept = current.values()
    others = set(names).difference(
        kept, [f"{numbers}.snap" for numbers in current], [f"{name[:-3]}idx" for name in kept]
    )
    if others:
        ours = {name: numbers[1] for name in others if (numbers := parse_name(name))}
        bare = sorted(numbers for name, numbers in ours.items() if name.endswith(".snap"))
        first = next(iter(current), bare[-1] if bare else "")
        current |= {numbers: f"{numbers}-{0:010}.log" for numbers in bare if numbers >= first}
        current = dict(sorted(current.items()))
        if clean:
            for name in sorted(others):
                if name.endswith(".tmp") or (name in ours and not (name.endswith(".snap") and ours[name] >= first)):
                    files.disk.unlink(f"{directory}/{name}")
    segments = [Segment.named(files, directory, name) for name in current.values()]
    for segment, after in pairwise(segments):
        segment.after = after.first_seqno, after.first_index
    return segments


def snapshot_of(
    files: OpenFiles, segments: list[Segment], number: int, config: LogConfig, write: bool = True
) -> tuple[Snapshot, Damage | None]:
    """The snapshot of a segment; a damaged one is made again from the last sound one before it and a scan.

    Where that cannot be, the name tells the numbers and the damage says that producers and floor are not known.
    """
    snapshot = _sound_snapshot(files, segments[number])
    if snapshot is not None:
        return snapshot, None
    # Its numbers alone tell what the first snapshot of all says.
    if (segments[0].first_seqno, segments[0].first_index) == (0, 1) and _sound_snapshot(files, segments[0]) is None:
        snapshot = Snapshot(0, 1, generation=segments[0].generation)
        if write:
            replace_file(files.disk, segments[0].snap_path, snapshot.encode())
        if not number:
            return snapshot, None
    known = next((k for k in range(number - 1, -1, -1) if _sound_snapshot(files, segments[k]) is not None), number)
    snapshot = _sound_snapshot(files, segments[known])
    for segment, following in zip(segments[known:number], segments[known + 1 : number + 1], strict=True):
        snapshot = snapshot and _next_snapshot(files, segment, following, snapshot, config)
        if snapshot is not None and write:
            replace_file(files.disk, following.snap_path, snapshot.encode())
    if snapshot is not None:
        return snapshot, None
    segment = segments[number]
    reason = "the snapshot is missing or damaged, and nothing before it can stand in"
    bare = Snapshot(segment.first_seqno, segment.first_index, floor=segment.first_seqno, generation=segment.generation)
    return bare, Damage(segment.snap_path, 0, segment.first_seqno, None, reason)


def _sound_snapshot(files: OpenFiles, segment: Segment) -> Snapshot | None:
    snapshot = Snapshot.decode(read_file(files.disk, segment.snap_path))
    if snapshot is None or (snapshot.next_seqno, snapshot.next_index) != (segment.first_seqno, segment.first_index):
        return None
    return snapshot


def _next_snapshot(
    files: OpenFiles, segment: Segment, following: Segment, start: Snapshot, config: LogConfig
) -> Snapshot | None:
    """What the next segment's snapshot must say, if this one is sound and leads there."""
    if not files.disk.exists(segment.log_path):
        return None
    tail = LogTail.at(start, config.producers_max)
    end = segment.file().size()
    if any(isinstance(found, Bad) for found in scan(Window(segment.file(), end), 0, end, tail)):
        return None
    if (tail.next_seqno, tail.next_index) != (following.first_seqno, following.first_index):
        return None
    return tail.snapshot(max(start.generation, following.generation))


def begin_log(disk: Disk, directory: str, snapshot: Snapshot) -> None:
    """Make a log that begins with these numbers, in an empty directory."""
    disk.make_directory(directory)
    replace_file(disk, snap_path(directory, snapshot.next_seqno, snapshot.next_index), snapshot.encode())


def _begin(files: OpenFiles, directory: str, config: LogConfig, standing: LogState | None) -> Recovered:
    """A log with no files: a new one, unless something says there must have been some."""
    segment = Segment(files, directory, 0, 1, 0)
    tail = LogTail.at(Snapshot(0, 1), config.producers_max)
    segment.start_index(config.index_bytes)
    if standing is not None and standing.synced_index:
        return Recovered([segment], tail, 0, 0, damage=_missing_tail(segment, 0, tail, standing))
    replace_file(files.disk, segment.snap_path, tail.snapshot(0).encode())
    return Recovered([segment], tail, 0, 0)


def _follow(segment: Segment, found: Recovered, config: LogConfig, standing: LogState | None) -> None:
    """Verify the last segment and cut a torn tail off it."""
    file, tail = segment.file(), found.tail
    file.sync()
    file.drop_cache()
    size = file.size()
    window = Window(file, size)
    index = segment.index
    bad: Bad | None = None
    newest = NO_TIMESTAMP
    for item in scan(window, 0, size, tail):
        if isinstance(item, Bad):
            bad = item
            break
        position, header = item
        if found.segment_append_time is None:
            found.segment_append_time = header.append_time
        index.add(header.base_seqno, header.index, position, newest, columns=label_columns(header))
        newest = max(newest, header.newest_timestamp(header.append_time))
        found.end = position + header.size
        found.last_header_crc = header.header_crc
    found.segment_max_timestamp = newest
    if bad is None:
        if standing is not None and standing.synced_index >= tail.next_index:
            found.damage = _missing_tail(segment, size, tail, standing)
        return
    evidence = evidence_of_damage(window, bad, size, tail, standing)
    if evidence is not None:
        found.damage = found.damage or Damage(
            segment.log_path, bad.position, tail.next_seqno, None, f"{bad.reason}; {evidence}"
        )
        return
    found.cut_bytes = size - bad.position
    file.truncate(bad.position)
    file.sync()


def evidence_of_damage(window: Window, bad: Bad, end: int, tail: LogTail, standing: LogState | None) -> str | None:
    """What says that a bad batch was once synced, and so is damage; None where it may be a torn tail."""
    if standing is not None and standing.synced_index >= tail.next_index:
        return f"the state file says that batches up to {standing.synced_index} were synced"
    if bad.unreadable:
        return "that it cannot be read does not make it a torn tail"
    if bad.unsupported:
        return "it is of a format this release does not know"
    try:
        later = next_sound(window, bad, end, tail, proves_synced(tail.next_index))
    except TooHostile:
        return "what follows cannot be told apart with bounded work"
    if later is not None:
        return f"batch {later[1].index} at byte {later[0]} says that it was synced"
    return None


def _missing_tail(segment: Segment, position: int, tail: LogTail, standing: LogState) -> Damage:
    reason = (
        f"the log ends at batch {tail.next_index - 1}, the state file says that {standing.synced_index} were synced"
    )
    return Damage(segment.log_path, position, tail.next_seqno, None, reason)
