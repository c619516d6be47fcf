"""Is everything in a data directory, a topic's directory or one log's directory as it was written?

Reads every byte of every segment and goes on behind damage. Changes nothing, and holds no lock. Beside a running
writer the newest tail may be in motion: there a torn tail is no finding, and a log that looks damaged is read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from logboom.errors import DirectoryInUse, DirectoryUnusable, LogboomError
from logboom.storage.data.directory import Holder, decode_holder, find_logs, identity, read_node
from logboom.storage.data.state import FRONT, MAGIC, SLOT_SIZE, LogState, StateReader, decode
from logboom.storage.data.topic import find_topic
from logboom.storage.files.disk import Disk, read_file
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.files.readonly import ReadOnlyDisk
from logboom.storage.health.findings import CheckReport, Finding
from logboom.storage.health.plain import PlainReading
from logboom.storage.health.survey import LogSurvey, Progress, survey_log
from logboom.storage.health.verdict import judge
from logboom.storage.staged.unfinished import TOPIC as PUBLISH_TOPIC
from logboom.storage.staged.unfinished import Unfinished, find_unfinished
from logboom.storage.view import LogGone, LogView

_LEVELS: Final = 4
_DEPTH: Final = 3
"""Of a log's directory below the data directory."""
_ATTEMPTS: Final = 3
_KNOWN_NAMES: Final = {"node.json", "lock", "votes", "state", "internal", "staging", "trash", "topics", "lost+found"}
SOCKET_SUFFIX: Final = ".sock"
"""Of a Unix socket that a server may have in its data directory, and may leave there when it is killed."""

IsDirectory = Callable[[str], bool]
SurveyLog = Callable[[Disk, str, LogState | None, Progress | None], LogSurvey]


@dataclass(slots=True)
class StateSlots:
    """What the state file says."""

    standings: dict[tuple[bytes, int], LogState] = field(default_factory=dict)
    bad_positions: list[int] = field(default_factory=list)
    newer: bool = False
    front_damaged: bool = False


@dataclass(slots=True)
class CheckTarget:
    """What was asked to be checked: `root` is the data directory around it, where there is one."""

    path: str
    root: str | None
    logs: list[str]

    @property
    def state_path(self) -> str | None:
        return None if self.root is None else f"{self.root}/state"


def find_place(disk: Disk, path: str, is_directory: IsDirectory = os.path.isdir) -> CheckTarget:
    """Raises DirectoryUnusable where `path` is nothing of ours, or of a newer format."""
    path = path.rstrip("/") or "/"
    if not is_directory(path):
        raise DirectoryUnusable(f"{path} is not a directory: name a data directory, a topic's directory or a log's")
    root = _find_root(disk, path)
    below = f"{path}/topics" if root == path and disk.exists(f"{path}/topics") else path
    if root is None:
        # Not everything somewhere below: that may belong to several writers.
        logs = list(find_logs(disk, path, lambda inner: os.path.dirname(inner) == path and is_directory(inner)))
    else:
        logs = logs_below(disk, root, below, is_directory)
    if not logs and root != path:
        raise DirectoryUnusable(
            f"{path} is not a Logboom directory: name a data directory, a topic's directory or a log's"
        )
    return CheckTarget(path, root, sorted(logs))


def logs_below(disk: Disk, root: str, below: str, is_directory: IsDirectory) -> list[str]:
    """The logs of a data directory at or below a path, those included that have lost all their files."""
    depth_max = root.rstrip("/").count("/") + _DEPTH

    def leads_on(path: str) -> bool:
        """Links may lead around in circles; no log lies deeper than this."""
        return path.count("/") <= depth_max and is_directory(path)

    return sorted({*find_logs(disk, below, leads_on), *_emptied_logs(disk, root, below, leads_on)})


def _find_root(disk: Disk, path: str) -> str | None:
    """The data directory at or above `path`, told by its node.json, or by its state file where that is lost."""
    for _ in range(_LEVELS):
        try:
            node, state = read_file(disk, f"{path}/node.json"), read_file(disk, f"{path}/state")
        except IsADirectoryError:
            node = state = None
        if node is not None or (state is not None and state[: len(MAGIC)] == MAGIC):
            read_node(disk, path)  # whether it is for us
            return path
        path = os.path.dirname(path)
    return None


def _emptied_logs(disk: Disk, root: str, below: str, is_directory: IsDirectory) -> Iterator[str]:
    """Directories of logs that the state file knows to have held something, and that hold no segment."""
    known = {key for key, standing in read_state(disk, root).standings.items() if standing.synced_index}
    pending = [below] if is_directory(below) else []
    while pending:
        path = pending.pop()
        if log_identity(path) in known:
            yield path
        pending += [f"{path}/{name}" for name in disk.list(path) if is_directory(f"{path}/{name}")]


def log_identity(path: str) -> tuple[bytes, int] | None:
    try:
        return identity(path)
    except ValueError:
        return None


def read_state(disk: Disk, root: str | None) -> StateSlots:
    data = None if root is None else read_file(disk, f"{root}/state")
    slots = StateSlots()
    if not data:
        return slots
    front = data[:SLOT_SIZE]
    slots.newer = front != FRONT and front[:4] == MAGIC and decode(front, 0) is not None
    slots.front_damaged = front != FRONT and not slots.newer
    for position in range(SLOT_SIZE, 0 if slots.newer else len(data), SLOT_SIZE):
        standing = decode(data, position)
        if standing is not None:
            slots.standings[standing.topic_id, standing.partition] = standing
        elif any(data[position : position + SLOT_SIZE]):
            slots.bad_positions.append(position)
    return slots


def writer_of(disk: Disk, root: str) -> tuple[bool, Holder | None]:
    """Whether a process writes here now, and what the lock file says.

    A directory closed properly has no writer. Else the lock is tried, and let go of at once.
    """
    said = read_file(disk, f"{root}/lock")
    holder = decode_holder(said) if said else None
    if holder is None or holder.is_done:
        return False, holder
    try:
        disk.lock(f"{root}/lock")
    except DirectoryInUse:
        return True, holder
    except OSError:  # somebody who may only look on
        return holder.pid > 0 and os.path.exists(f"/proc/{holder.pid}"), holder
    return False, holder


def check(
    disk: Disk, path: str, progress: Progress | None = None, is_directory: IsDirectory = os.path.isdir
) -> CheckReport:
    """Check everything at and below `path`."""
    place = find_place(disk, path, is_directory)
    active, holder = (False, None) if place.root is None else writer_of(disk, place.root)
    reading = PlainReading(disk)
    report = CheckReport(path=place.path, writer_active=active)
    slots = read_state(reading, place.root)
    for log in place.logs:
        try:
            survey, findings = survey_and_judge(reading, place.root, log, active, progress, slots=slots)
        except FileNotFoundError:
            if active and not disk.exists(log):
                continue  # its topic was deleted meanwhile
            raise
        count_log(report, survey)
        report.findings += findings
    if place.root is not None:
        report.findings += judge_directory(reading, place, active, holder)
    return report


def count_log(report: CheckReport, survey: LogSurvey) -> None:
    report.logs += 1
    report.segments += sum(segment.exists for segment in survey.segments)
    report.batches += sum(segment.batches for segment in survey.segments)
    report.records += sum(segment.records for segment in survey.segments)
    report.bytes += sum(segment.size for segment in survey.segments)


def survey_and_judge(
    disk: ReadOnlyDisk,
    root: str | None,
    log: str,
    active: bool,
    progress: Progress | None,
    survey_log: SurveyLog = survey_log,
    slots: StateSlots | None = None,
) -> tuple[LogSurvey, list[Finding]]:
    """One log. What moves while it is read looks like damage once, not again and again.

    `slots` is what the state file said a while ago: good enough for a log that turns out sound.
    """
    for attempt in range(_ATTEMPTS):
        key = log_identity(log)
        known = slots if slots is not None and not attempt else read_state(disk, root)
        standing = None if key is None else known.standings.get(key)
        last_attempt = attempt == _ATTEMPTS - 1
        try:
            survey = survey_log(disk, log, standing, progress)
        except FileNotFoundError:
            if not active or last_attempt:
                raise
            continue
        findings = judge(disk, survey, active)
        if active and key is not None and findings:
            findings = _without_dropped(survey, findings, read_state(disk, root).standings.get(key))
        if not active or last_attempt or not any(finding.severity == "damage" for finding in findings):
            break
    return survey, findings


def _without_dropped(survey: LogSurvey, findings: list[Finding], standing: LogState | None) -> list[Finding]:
    """A drop may take longer than all attempts; but it begins with the state file, so that tells what is going."""
    first = 0 if standing is None else standing.first
    going = [part.segment for part in survey.segments if part.segment.after and part.segment.after[0] <= first]
    files = {path for segment in going for path in (segment.log_path, segment.index_path, segment.snap_path)}
    return [finding for finding in findings if finding.file not in files]


def judge_directory(disk: ReadOnlyDisk, place: CheckTarget, active: bool, holder: Holder | None) -> Iterator[Finding]:
    root = place.root or place.path
    if active:
        yield Finding(
            kind="writer active",
            severity="info",
            file=f"{root}/lock",
            reason=f"process {holder.pid if holder else 'unknown'} writes here: the last batches may be incomplete",
            advice="nothing; to check the last batches too, stop the server and check again",
        )
    elif holder is not None and holder.is_done and not holder.clean:
        yield Finding(
            kind="term owed",
            severity="info",
            file=f"{root}/lock",
            reason="the node did not shut down cleanly, and has not been started since",
            advice="nothing; the next start begins a new term in logs with flush = os, so readers notice lost records",
        )
    elif holder is not None and not holder.is_done:
        yield Finding(
            kind="unclean shut-down",
            severity="info",
            file=f"{root}/lock",
            reason="the last process that wrote here did not shut down cleanly",
            advice="nothing; the next start recovers",
        )
    if not active:
        yield from _judge_publishes(disk, root)
    yield from _judge_state(read_state(disk, root), f"{root}/state")
    if place.path == root:
        for name in sorted(set(disk.list(root)) - _KNOWN_NAMES):
            if name.endswith(SOCKET_SUFFIX):
                continue
            yield Finding(
                kind="leftover" if name.endswith(".tmp") else "foreign file",
                severity="info",
                file=f"{root}/{name}",
                reason="Logboom did not make this file",
                advice="move it elsewhere",
            )


def _judge_publishes(disk: ReadOnlyDisk, root: str) -> Iterator[Finding]:
    found: list[Unfinished] = []
    with suppress(OSError, LogboomError, LogGone):  # what is wrong with its files is said elsewhere
        topic = find_topic(disk, root, PUBLISH_TOPIC)
        if topic is not None:
            path, states = f"{root}/{topic.log_name(0)}", StateReader(disk, f"{root}/state")
            log = LogView.open(OpenFiles(disk), path, states, topic.id_bytes, 0)
            found = find_unfinished(disk, root, topic, log)
    for publish in found:
        yield Finding(
            kind="unfinished publish",
            severity="info",
            file=f"{root}/internal",
            reason=f"{publish}: these logs may hold only a part of it",
            advice="start the node once: it finishes the publish; until then these logs are not dropped or dumped",
        )


def _judge_state(slots: StateSlots, path: str) -> Iterator[Finding]:
    if slots.newer:
        yield Finding(
            kind="unknown format",
            severity="damage",
            file=path,
            reason="the state file has a newer format",
            advice="use the release that wrote it",
        )
    if slots.front_damaged:
        yield Finding(
            kind="bad state",
            severity="harmless",
            file=path,
            reason="the header of the state file is damaged",
            advice="nothing; the next start rewrites the header and keeps the slots",
            repairable=True,
        )
    for position in slots.bad_positions:
        yield Finding(
            kind="bad state",
            severity="harmless",
            file=path,
            position=position,
            reason="the checksum of this slot does not match",
            advice="nothing; a slot is only a hint, and the next start reuses it",
            repairable=True,
        )


def total_bytes(disk: Disk, place: CheckTarget) -> int:
    """How much a check of this will read, about: a writer may add and drop segments meanwhile."""
    reading, total = PlainReading(disk), 0
    for log in place.logs:
        with suppress(FileNotFoundError, PermissionError):
            names = [name for name in reading.list(log) if name.endswith(".log")]
            for name in names:
                with suppress(OSError):  # told where it is read
                    total += reading.open(f"{log}/{name}").size()
    return total
