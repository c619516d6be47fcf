"""What the survey of a log means: its findings, each with where, why, which seqnos, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from logboom.storage.files.disk import Disk
from logboom.storage.health.findings import Finding, Kind
from logboom.storage.health.survey import LogSurvey, SegmentSurvey
from logboom.storage.holes import Hole
from logboom.storage.segment import parse_name

KEPT: Final = re.compile(r"(\d{20})-(\d{20})(-\d{10}\.log|\.snap)\.(damaged|torn)(\.\d+)?")
_REPAIR: Final = (
    "restore the file from a backup, or run `logboom repair`: it keeps sound batches and marks these seqnos as lost"
)
_NOTHING: Final = "nothing; the next start removes it"


def judge(disk: Disk, survey: LogSurvey, active: bool) -> list[Finding]:
    """Everything worth saying about one log, oldest segment first. `active`: a writer is at work on its end."""
    findings = [finding for segment in survey.segments for finding in _judge_segment(survey, segment, active)]
    findings += _judge_standing(survey)
    findings += _judge_names(disk, survey, active)
    return findings


def _judge_segment(log: LogSurvey, survey: SegmentSurvey, active: bool) -> Iterator[Finding]:
    path = survey.segment.log_path
    if not survey.snapshot_sound:
        yield _judge_snapshot(log, survey)
    for hole in survey.holes:
        yield _judge_hole(log, survey, hole)
    if survey.unknown is not None:
        yield Finding(
            kind="unknown format",
            severity="damage",
            log=log.directory,
            file=path,
            position=survey.unknown.position,
            reason=survey.unknown.reason,
            advice="use the release that wrote it",
        )
    if survey.bad_floor is not None:
        yield Finding(
            kind="damage",
            severity="damage",
            log=log.directory,
            file=path,
            position=survey.bad_floor.position,
            reason=f"{survey.bad_floor.reason}: readers do not see new records",
            advice="restore the log from a backup: Logboom never writes such a batch",
        )
    if survey.torn is not None and not active:
        yield Finding(
            kind="torn tail",
            severity="harmless",
            log=log.directory,
            file=path,
            position=survey.torn.position,
            seqno_from=log.tail.next_seqno,
            reason=f"the last {survey.size - survey.torn.position} bytes were never synced: {survey.torn.reason}",
            advice="nothing; the next start cuts them off",
            repairable=survey.unknown is None,
        )
    if survey.index_fault is not None:
        yield Finding(
            kind="bad index",
            severity="harmless",
            log=log.directory,
            file=survey.segment.index_path,
            reason=survey.index_fault,
            advice="nothing; the index is rebuilt when it is needed",
            repairable=True,
        )
    for lost in survey.lost:
        yield Finding(
            kind="lost",
            severity="info",
            log=log.directory,
            file=path,
            position=lost.position,
            seqno_from=lost.seqno_from,
            seqno_until=lost.seqno_until,
            reason=f"a repair marked these records as lost: {lost.reason}",
            advice="nothing; readers get an error here, and can skip the records",
        )


def _judge_hole(log: LogSurvey, survey: SegmentSurvey, hole: Hole) -> Finding:
    kind: Kind = "damage"
    if hole.position == hole.end == survey.size:
        kind = "missing tail" if survey.exists and survey is log.segments[-1] else "missing segment"
    repairable = hole.fillable and survey.unknown is None
    advice = _REPAIR if repairable else "restore the file from a backup: repair cannot fill a gap of this size"
    if survey.unknown is not None:
        advice = "use the release that wrote the batches of unknown format in this file"
    elif repairable and hole.seqno_until == hole.seqno_from:
        advice = "run `logboom repair`: no records are lost"
    return Finding(
        kind=kind,
        severity="damage",
        log=log.directory,
        file=survey.segment.log_path,
        position=hole.position,
        seqno_from=hole.seqno_from,
        seqno_until=hole.seqno_until,
        reason=hole.reason,
        advice=advice,
        repairable=repairable,
    )


def _judge_snapshot(log: LogSurvey, survey: SegmentSurvey) -> Finding:
    common: dict[str, Any] = {"log": log.directory, "file": survey.segment.snap_path, "repairable": True}
    if survey.snapshot_derivable:
        return Finding(
            kind="damaged snapshot",
            severity="harmless",
            reason="the snapshot is missing or damaged; it can be rebuilt from the segment before it",
            advice="nothing; it is rebuilt when it is needed",
            **common,
        )
    is_last = survey is log.segments[-1]
    lost = "producers start again at 0" if is_last else "producers and the floor come from later snapshots"
    return Finding(
        kind="damaged snapshot",
        severity="damage",
        seqno_from=survey.segment.first_seqno,
        seqno_until=survey.segment.first_seqno,
        reason="the snapshot is missing or damaged, and cannot be rebuilt from the segments before it",
        advice=f"restore it from a backup, or run `logboom repair`, which makes one from the file's name; {lost}",
        **common,
    )


def _judge_standing(log: LogSurvey) -> Iterator[Finding]:
    standing = log.standing
    if standing is None:
        return
    first = log.segments[0].segment.first_seqno
    if standing.first < first:
        yield Finding(
            kind="missing segment",
            severity="damage",
            log=log.directory,
            file=log.segments[0].segment.log_path,
            seqno_from=standing.first,
            seqno_until=first,
            reason=f"the state file says that the log begins at seqno {standing.first}, but its files begin at {first}",
            advice="restore the older segments from a backup, or run `logboom repair`: it begins at its first file",
            repairable=True,
        )


def _judge_names(disk: Disk, log: LogSurvey, active: bool) -> Iterator[Finding]:
    segments = [survey.segment for survey in log.segments]
    ours = {path for segment in segments for path in (segment.log_path, segment.index_path, segment.snap_path)}
    for name in sorted(disk.list(log.directory)):
        path = f"{log.directory}/{name}"
        common: dict[str, Any] = {"severity": "info", "log": log.directory, "file": path}
        if KEPT.fullmatch(name):
            yield Finding(
                kind="kept by repair",
                reason="repair moved these bytes here",
                advice="delete it when you need it no more",
                **common,
            )
        elif parse_name(name) or name.endswith(".tmp"):
            if path not in ours and not active:
                reason = "there is a newer generation" if name.endswith(".log") else "there is no segment for it"
                yield Finding(kind="leftover", reason=reason, advice=_NOTHING, **common)
        else:
            yield Finding(
                kind="foreign file", reason="Logboom did not make this file", advice="move it elsewhere", **common
            )
