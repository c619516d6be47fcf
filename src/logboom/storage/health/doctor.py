"""What is wrong in a data directory, and what to do about it.

On top of a check of the logs: node and state files, topics, hooks, scrubs, limits, space, permissions, the file system.
A quick examination reads of the logs only what is read in no time, whatever their size.

Changes nothing by construction, and may run beside a server. What this user may not read is told, and passed over.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from typing import Final

import msgspec

from logboom.errors import DirectoryUnusable
from logboom.storage.data.directory import FORMAT, NodeIdentity, find_logs
from logboom.storage.files.disk import Disk, read_file
from logboom.storage.files.envelope import UNREADABLE
from logboom.storage.files.open_files import RESERVE_BYTES
from logboom.storage.health.backlog import (
    LogSeen,
    Unusable,
    judge_hooks,
    judge_limits,
    judge_outside,
    judge_scrubs,
    seen,
)
from logboom.storage.health.check import (
    CheckTarget,
    StateSlots,
    count_log,
    judge_directory,
    logs_below,
    read_state,
    survey_and_judge,
    writer_of,
)
from logboom.storage.health.findings import SEVERITIES, Diagnosis, Finding
from logboom.storage.health.glance import Glance
from logboom.storage.health.layout import DirectoryLayout, survey_layout, unreadable
from logboom.storage.health.ownership import judge_ownership
from logboom.storage.health.plain import PlainReading
from logboom.storage.health.remains import judge_slots
from logboom.storage.health.surroundings import Surroundings
from logboom.storage.health.survey import LogSurvey, Progress, survey_log
from logboom.storage.health.volume import judge_space, judge_system

_LEVELS: Final = 4
_ATTEMPTS: Final = 20


class LenientDisk(PlainReading):
    """Directories that are gone, or may not be read, look empty."""

    def list(self, path: str) -> list[str]:
        try:
            return super().list(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return []


def find_directory(disk: Disk, path: str) -> CheckTarget:
    """The data directory at `path` with its logs, also where its node.json is lost. Raises DirectoryUnusable."""
    path = path.rstrip("/") or "/"
    if not disk.is_directory(path):
        raise DirectoryUnusable(f"{path} is not a directory: name a data directory")
    try:
        disk.list(path)
    except PermissionError:
        raise DirectoryUnusable(f"{path} cannot be read: run this as the user that owns it") from None
    if not _is_ours(disk, path):
        above = path
        for _ in range(_LEVELS):
            above = os.path.dirname(above)
            if disk.exists(f"{above}/node.json"):
                raise DirectoryUnusable(f"{path} is only a part of a data directory: name {above}")
        raise DirectoryUnusable(f"{path} is not a data directory: it has no node.json")
    reading = LenientDisk(disk)
    if _newer_format(reading, path) is not None:
        return CheckTarget(path, path, [])
    try:
        logs = logs_below(reading, path, f"{path}/topics", disk.is_directory)
    except OSError:  # the state file; that is told later
        logs = sorted(find_logs(reading, f"{path}/topics", disk.is_directory))
    return CheckTarget(path, path, logs)


def _is_ours(disk: Disk, path: str) -> bool:
    if disk.exists(f"{path}/node.json") or (disk.exists(f"{path}/state") and disk.exists(f"{path}/lock")):
        return True
    topics = f"{path}/topics"
    return disk.is_directory(topics) and any(name[-33:-32] == "~" for name in LenientDisk(disk).list(topics))


def examine(
    disk: Disk,
    path: str,
    now: int,
    quick: bool = False,
    progress: Progress | None = None,
    surroundings: Surroundings | None = None,
    reserve_bytes: int = RESERVE_BYTES,
    unusable: Unusable | None = None,
) -> Diagnosis:
    """Examine a data directory. Without `surroundings` the permissions, the volume and the limits are left out.

    `reserve_bytes` is what a server keeps free; `unusable` says what its configuration keeps it from.
    """
    place = find_directory(disk, path)
    return _Examination(disk, place, now, quick, progress, surroundings, reserve_bytes, unusable).run()


class _Examination:
    def __init__(
        self,
        disk: Disk,
        place: CheckTarget,
        now: int,
        quick: bool,
        progress: Progress | None,
        surroundings: Surroundings | None,
        reserve_bytes: int,
        unusable: Unusable | None,
    ) -> None:
        self._strict = PlainReading(disk)
        self._disk = LenientDisk(disk)
        self._place = place
        self._root = place.path
        self._now = now
        self._glance = Glance() if quick else None
        self._progress = progress
        self._surroundings = surroundings
        self._reserve_bytes = reserve_bytes
        self._unusable = unusable
        active, self._holder = writer_of(disk, self._root) if _may_read(disk, f"{self._root}/lock") else (False, None)
        self._report = Diagnosis(path=self._root, writer_active=active, quick=quick, free_bytes=disk.free_bytes())
        self._logs: dict[str, LogSeen] = {}

    def run(self) -> Diagnosis:
        report, findings = self._report, self._report.findings
        findings += self._judge_node()
        findings += self._judge_kinds()
        if not any(finding.kind == "unknown format" for finding in findings):
            self._examine_content()
        findings += judge_space(self._root, report.free_bytes, self._reserve_bytes, self._surroundings)
        if self._surroundings is not None:
            findings += judge_system(self._root, self._surroundings)
            findings += judge_ownership(self._surroundings)
        findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
        return report

    def _examine_content(self) -> None:
        disk, root, report = self._disk, self._root, self._report
        active = report.writer_active
        slots = self._slots()
        layout = survey_layout(self._strict, root, slots, active)
        report.topics = len(layout.topics)
        for log in self._place.logs:
            self._examine_log(log, slots)
        report.findings += self._judge_state(slots, layout)
        report.findings += layout.findings
        failing = list(judge_hooks(disk, root, layout.topics, self._logs, self._now))
        report.findings += failing
        names = frozenset((finding.log or "").removeprefix(f"{root}/") for finding in failing)
        report.findings += judge_limits(root, layout.topics, self._logs, names)
        report.findings += judge_outside(root, layout.topics, self._unusable)
        report.findings += judge_scrubs(disk, root, self._logs)

    def _slots(self) -> StateSlots:
        try:
            return read_state(self._disk, self._root)
        except OSError:
            return StateSlots()

    def _examine_log(self, log: str, slots: StateSlots) -> None:
        report, glance = self._report, self._glance
        try:
            found = self._survey(log, slots)
        except OSError as error:
            if not isinstance(error, PermissionError) or self._surroundings is None:
                report.findings.append(unreadable(log, error))
            return
        if found is not None:
            survey, findings = found
            count_log(report, survey)
            report.bytes_read = report.bytes if glance is None else glance.bytes_read
            report.findings += findings
            self._logs[log.removeprefix(f"{self._root}/")] = seen(survey, report.quick)

    def _survey(self, log: str, slots: StateSlots) -> tuple[LogSurvey, list[Finding]] | None:
        """None where the log was deleted meanwhile. While segments are dropped, files go from under a survey."""
        active = self._report.writer_active
        survey_one = survey_log if self._glance is None else self._glance.survey
        for attempt in range(_ATTEMPTS):
            try:
                return survey_and_judge(self._strict, self._root, log, active, self._progress, survey_one, slots)
            except FileNotFoundError:
                if not active or (attempt == _ATTEMPTS - 1 and self._strict.exists(log)):
                    raise
                if not self._strict.exists(log):
                    break
        return None

    def _judge_node(self) -> Iterator[Finding]:
        path = f"{self._root}/node.json"
        newer = _newer_format(self._disk, self._root)
        if newer is not None:
            yield Finding(
                kind="unknown format",
                severity="damage",
                file=path,
                reason=f"the directory has format {newer}, this release reads {FORMAT}; its logs were not checked",
                advice="use the release that wrote it",
            )
        remove = f"rm {shlex.quote(path)}; the next start makes a new one with a new node id"
        try:
            data = read_file(self._disk, path)
            if data is not None:
                msgspec.json.decode(data, type=NodeIdentity)
                return
            reason, advice = "it is missing", "restore it from a backup; else the next start makes a new node id"
            yield Finding(kind="bad node file", severity="warning", file=path, reason=reason, advice=advice)
        except UNREADABLE as error:
            yield Finding(
                kind="bad node file",
                severity="damage",
                file=path,
                reason=f"it cannot be read, and the server does not start: {error}",
                advice=f"restore it from a backup, or {remove}",
            )
        except PermissionError:
            return
        except OSError as error:
            yield unreadable(path, error)

    def _judge_kinds(self) -> Iterator[Finding]:
        """Files where directories must be, and the other way round: no server starts there."""
        for name in ("lock", "state"):
            path = f"{self._root}/{name}"
            try:
                read_file(self._disk, path)
            except PermissionError:
                pass
            except OSError as error:
                yield unreadable(path, error)
        for name in ("topics", "trash", "internal", "staging"):
            path = f"{self._root}/{name}"
            if self._disk.exists(path) and not self._disk.is_directory(path):
                yield unreadable(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path))

    def _judge_state(self, slots: StateSlots, layout: DirectoryLayout) -> Iterator[Finding]:
        root, report = self._root, self._report
        try:
            yield from judge_directory(self._disk, self._place, report.writer_active, self._holder)
        except OSError:  # told already
            return
        path = f"{root}/state"
        if not self._disk.exists(path) and report.segments:
            yield Finding(
                kind="missing state",
                severity="warning",
                file=path,
                reason="it is missing: direct file readers find no logs, and a lost end of a log is not noticed",
                advice="find out what removed it; the next start makes a new one",
            )
        if not report.writer_active:
            yield from judge_slots(root, slots, layout)


def _newer_format(disk: Disk, root: str) -> int | None:
    try:
        node = msgspec.json.decode(read_file(disk, f"{root}/node.json") or b"", type=NodeIdentity)
    except (OSError, *UNREADABLE):
        return None
    return node.format if node.format > FORMAT else None


def _may_read(disk: Disk, path: str) -> bool:
    try:
        return read_file(disk, path) is not None
    except OSError:
        return False
