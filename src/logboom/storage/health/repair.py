"""Mending what a check finds: `plan_repair` says what would be done, each step does its part.

Whoever runs the steps holds the directory (`hold`). Steps are independent and each is whole or undone after a crash, so
a repair can be stopped anywhere and run again; run to the end it leaves nothing to do. Afterwards every sound batch is
where it was, with its old numbers, and what could not be saved is marked as lost. Where the end of a log went, and
nobody knows how many records that were, a new term tells those who have read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import NamedTuple

from logboom.batch.builder import build_control
from logboom.batch.header import HEADER_SIZE, SYNCED_UNKNOWN, stamp
from logboom.storage.data.directory import Holder, decode_holder, write_holder
from logboom.storage.data.state import FRONT, SLOT_SIZE, LogState, StateFile
from logboom.storage.files.disk import Disk, write_all
from logboom.storage.files.readonly import ReadOnlyDisk
from logboom.storage.health import replacement
from logboom.storage.health.check import CheckTarget, IsDirectory, find_place, read_state, survey_and_judge
from logboom.storage.health.findings import Finding
from logboom.storage.health.survey import LogSurvey, Progress, SegmentSurvey
from logboom.storage.means import SYSTEM
from logboom.storage.tail import Floor, new_lineage


class Step(NamedTuple):
    """One change: what it does, in words, and the act."""

    text: str
    run: Callable[[], None]


class RepairPlan(NamedTuple):
    findings: list[Finding]
    steps: list[Step]

    @property
    def lost(self) -> list[Finding]:
        """What stays lost: seqnos that no step brings back."""
        return [f for f in self.findings if f.repairable and f.severity == "damage" and f.seqno_from != f.seqno_until]

    @property
    def beyond(self) -> list[Finding]:
        """Damage that no step mends."""
        return [finding for finding in self.findings if finding.severity == "damage" and not finding.repairable]


@contextmanager
def hold(disk: Disk, root: str | None) -> Iterator[None]:
    """Keep writers away; gives whether the last one closed properly, and leaves it so. Raises DirectoryInUse."""
    if root is None:
        yield
        return
    lock = disk.lock(f"{root}/lock")
    holder = decode_holder(lock.read(lock.size(), 0))
    write_holder(lock, Holder(os.getpid(), False))
    try:
        yield
    finally:
        write_holder(lock, holder)


def plan_repair(
    disk: Disk,
    path: str,
    progress: Progress | None = None,
    is_directory: IsDirectory = os.path.isdir,
    chance: Random = SYSTEM.chance,
) -> RepairPlan:
    """Read everything, change nothing, and say what would mend it."""
    place = find_place(disk, path, is_directory)
    reading = ReadOnlyDisk(disk)
    plan = RepairPlan([], list(_mend_state(disk, place)))
    for log in place.logs:
        survey, findings = survey_and_judge(reading, place.root, log, False, progress)
        plan.findings.extend(findings)
        plan.steps.extend(_mend_log(disk, place, survey, chance))
    return plan


def _mend_log(disk: Disk, place: CheckTarget, log: LogSurvey, chance: Random) -> Iterator[Step]:
    generation, mended = log.generation, False
    for survey in log.segments:
        if not survey.snapshot_sound:
            yield Step(f"write {survey.segment.snap_path} again", partial(replacement.write_snapshot, disk, survey))
        if survey.index_fault is not None:
            path = survey.segment.index_path
            yield Step(f"delete {path}: it is rebuilt when it is needed", partial(_remove, disk, path))
        step = _mend_segment(disk, log, survey, generation + 1, chance)
        if step is not None:
            yield step
            generation, mended = generation + 1, mended or bool(survey.holes)
    standing = log.standing
    begins_later = standing is not None and standing.first < log.segments[0].segment.first_seqno
    if place.root is not None and standing is not None and (mended or begins_later):
        fitting = standing._replace(
            generation=generation,
            first=log.first,
            committed=min(standing.committed, log.tail.next_seqno),
            synced_index=min(standing.synced_index, log.tail.next_index - 1),
        )
        yield Step("write the log's slot in the state file", partial(_write_slot, disk, place.root, fitting))


def _mend_segment(disk: Disk, log: LogSurvey, survey: SegmentSurvey, generation: int, chance: Random) -> Step | None:
    name = survey.segment.log_path
    if survey.unknown is not None or not all(hole.fillable for hole in survey.holes):
        return None
    ending = replacement.Ending(_lost_floor(log, survey) if survey.holes else None, _new_term(log, survey, chance))
    if survey.holes:
        batches = sum(hole.batches for hole in survey.holes)
        if survey.size and len(survey.holes) == 1 and survey.before_missing is not None and survey.torn is None:
            text = f"add a segment of {batches} lost batches after {name}"
            return Step(text, partial(replacement.add_segment, disk, survey, generation, ending))
        text = f"rewrite {name}: {survey.batches} sound batches, {batches} lost"
        if survey.exists:
            text += "; the old file is kept as .damaged"
        return Step(text, partial(replacement.rewrite_segment, disk, survey, generation, ending))
    if survey.torn is not None:
        text = f"cut the torn tail of {survey.size - survey.torn.position} bytes off {name}; it is kept as .torn"
        return Step(text, partial(replacement.cut_tail, disk, survey, ending))
    return None


def _new_term(log: LogSurvey, survey: SegmentSurvey, chance: Random) -> bytes | None:
    """The batch that a log ends with when its end is taken away; None where sound batches follow."""
    ends = survey.torn is not None or (bool(survey.holes) and survey.holes[-1].position >= survey.end)
    if survey is not log.segments[-1] or not ends:
        return None
    tail, known = log.tail, 0 if log.standing is None else log.standing.term
    batch = build_control(Floor(tail.floor, new_lineage(chance))).data
    numbers = tail.next_seqno, tail.next_index, tail.append_time, max(tail.term, known) + 1
    return stamp(batch[:HEADER_SIZE], *numbers, SYNCED_UNKNOWN) + batch[HEADER_SIZE:]


def _lost_floor(log: LogSurvey, survey: SegmentSurvey) -> int | None:
    """The floor, if the state file knows one that was lost with the last hole of the log."""
    standing, hole = log.standing, survey.holes[-1]
    if standing is None or survey is not log.segments[-1] or standing.first <= log.first:
        return None
    until = hole.seqno_from if hole.seqno_until is None else hole.seqno_until
    return standing.first if standing.first <= until else None


def _mend_state(disk: Disk, place: CheckTarget) -> Iterator[Step]:
    path, slots = place.state_path, read_state(ReadOnlyDisk(disk), place.root)
    if path is None or slots.newer:
        return
    if slots.front_damaged:
        yield Step(f"write the header of {path} again", partial(_write_at, disk, path, FRONT, 0))
    for position in slots.bad_positions:
        text = f"free the unreadable slot at byte {position} of {path}"
        yield Step(text, partial(_write_at, disk, path, bytes(SLOT_SIZE), position))


def _write_at(disk: Disk, path: str, data: bytes, position: int) -> None:
    file = disk.open(path)
    write_all(file, data, position)
    file.sync()


def _write_slot(disk: Disk, root: str, standing: LogState) -> None:
    slot = StateFile.open(disk, f"{root}/state").claim(standing.topic_id, standing.partition)
    slot.write(*standing[2:])
    slot.sync()


def _remove(disk: Disk, path: str) -> None:
    disk.unlink(path)
    disk.sync_directory(os.path.dirname(path))
