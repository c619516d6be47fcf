"""What upkeep has left undone: hooks that fail or are none, damage that a scrub found, logs that near their hard limit.

Reads the ledgers below DATA/internal and compares them with what was seen of the logs. Changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec.msgpack import Decoder

from logboom.storage.data.topic import Settings, Topic, is_hook_name
from logboom.storage.files import envelope
from logboom.storage.files.disk import Disk, read_file
from logboom.storage.health.findings import Finding, Severity, counted
from logboom.storage.health.survey import LogSurvey
from logboom.storage.segment import parse_name
from logboom.storage.upkeep.hooks import HookEntry, HookQueue
from logboom.storage.upkeep.scrub import MAGIC, ScrubFinding, ScrubLedger

HARD_LIMIT_SHARE: Final = 0.8

Numbers = tuple[int, int]
Unusable = Callable[[Settings], Mapping[str, str]]
"""Why a node does not do what settings want, by key."""


@dataclass(frozen=True, slots=True)
class LogSeen:
    """What the examination learned of a log: its segments by their first seqno and index."""

    sizes: Mapping[Numbers, int]
    generations: Mapping[Numbers, int]
    damaged: frozenset[Numbers]
    read: frozenset[Numbers]
    """Those of which every byte was read."""

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())


def seen(survey: LogSurvey, quick: bool) -> LogSeen:
    segments = {(part.segment.first_seqno, part.segment.first_index): part for part in survey.segments}
    return LogSeen(
        {numbers: part.size for numbers, part in segments.items()},
        {numbers: part.segment.generation for numbers, part in segments.items()},
        frozenset(numbers for numbers, part in segments.items() if part.holes),
        frozenset() if quick else frozenset(segments),
    )


Logs = Mapping[str, LogSeen]
"""By their paths below the data directory."""


def judge_hooks(disk: Disk, root: str, topics: list[Topic], logs: Logs, now: int) -> Iterator[Finding]:
    path = f"{root}/internal/hooks"
    try:
        queue = HookQueue.open(disk, path)
    except OSError as error:
        if not isinstance(error, PermissionError):  # told with all the other permissions
            advice = "find out what it is, and move it elsewhere; hooks that have succeeded run again"
            yield Finding(kind="bad hook queue", severity="warning", file=path, reason=str(error), advice=advice)
        return
    if queue.damaged is not None:
        yield Finding(
            kind="bad hook queue",
            severity="warning",
            file=path,
            reason=queue.damaged.removeprefix(f"{path}: "),
            advice=(
                f"stop the server, then: rm {shlex.quote(path)}; no segment is dropped by that, and hooks that have "
                "succeeded run again"
            ),
        )
    by_directory = {topic.directory: topic for topic in topics}
    for entry in queue.failing:
        topic = by_directory.get(entry.topic)
        if topic is not None and entry.log in logs and is_hook_name(topic.settings.hook.delete or "none"):
            waiting = [other for other in queue.entries if other.log == entry.log and other.place >= entry.place]
            yield _judge_failing(root, topic, entry, waiting, logs[entry.log], now)


def _judge_failing(
    root: str, topic: Topic, entry: HookEntry, waiting: list[HookEntry], log: LogSeen, now: int
) -> Finding:
    held_bytes = sum(log.sizes.get(other.place, 0) for other in waiting)
    hard_bytes = topic.settings.retention.hard_bytes
    again = "is due" if entry.is_due(now) else f"is at {moment(entry.next_at)}"
    limit = "retention.hard_bytes is not set: the log grows until the disk is full"
    if hard_bytes is not None:
        limit = (
            f"the log has {log.size_bytes:,} of {hard_bytes:,} bytes ({_percent(log.size_bytes, hard_bytes)}); above "
            "that, segments are dropped without their hook"
        )
    error = " ".join((entry.last_error or "no error recorded").split())
    hook = topic.settings.hook.delete
    return Finding(
        kind="failing hook",
        severity="warning",
        log=f"{root}/{entry.log}",
        file=f"{root}/{entry.log}",
        seqno_from=entry.first_seqno,
        seqno_until=entry.next_seqno,
        reason=(
            f"the delete hook of topic {topic.name} has failed {counted(entry.attempts, 'time')} since "
            f"{moment(entry.failing_since)} (last: {error}); the next attempt {again}; it holds back "
            f"{counted(len(waiting), 'segment')} with {held_bytes:,} bytes; {limit}"
        ),
        advice=(
            f"fix the command hooks.{hook} in the configuration: the server runs it again by itself"
            if hook
            else "nothing; the topic has no hook any more, and the next retention run drops the segments"
        ),
    )


def judge_outside(root: str, topics: list[Topic], unusable: Unusable | None) -> Iterator[Finding]:
    """What topics want run or asked that the node's configuration does not have. Without that, only what none has."""
    for topic in topics:
        file = f"{root}/{topic.directory}/topic.json"
        hook, urls = topic.settings.hook.delete, topic.settings.validators.urls
        found = {} if unusable is None else unusable(topic.settings)
        not_known = "run this with --config and the node's configuration file"
        if "hook.delete" in found or (hook is not None and not is_hook_name(hook)):
            why = (
                found.get("hook.delete") or f"{hook!r} is a command; a topic may only name a hook of the configuration"
            )
            yield Finding(
                kind="unknown hook",
                severity="warning",
                file=file,
                reason=f"{why}; no hook runs, and retention drops no segments",
                advice=hook_advice(topic.name),
            )
        elif hook is not None and unusable is None:
            reason = f"topic {topic.name} names hook {hook!r}; without the node's configuration it was not checked"
            yield Finding(kind="unknown hook", severity="info", file=file, reason=reason, advice=not_known)
        if "validators.urls" in found:
            yield Finding(
                kind="validator not allowed",
                severity="warning",
                file=file,
                reason=f"{found['validators.urls']}; appends are refused",
                advice=validator_advice(topic.name),
            )
        elif urls and unusable is None:
            reason = f"topic {topic.name} has validators; without the node's configuration they were not checked"
            yield Finding(kind="validator not allowed", severity="info", file=file, reason=reason, advice=not_known)


def hook_advice(topic: str) -> str:
    """What to do about a hook that is none of the node's."""
    return (
        'give the command a name in the node\'s configuration ([hooks], NAME = "COMMAND"), restart the node, then '
        f"`logboom topic set {topic} hook.delete=NAME`; or drop segments without a hook: "
        f"`logboom topic set {topic} hook.delete=`"
    )


def validator_advice(topic: str) -> str:
    return (
        "add the URL, or its beginning, to validators.allow in the node's configuration and restart the node; "
        f"or remove the validators: `logboom topic set {topic} validators.urls=`"
    )


def judge_scrubs(disk: Disk, root: str, logs: Logs) -> Iterator[Finding]:
    path = f"{root}/internal/scrub"
    fault = _ledger_fault(disk, path)
    if fault is not None:
        yield Finding(
            kind="bad scrub ledger",
            severity="harmless",
            file=path,
            reason=fault,
            advice="nothing; all segments are scrubbed again",
        )
        return
    for found in ScrubLedger.load(disk, path).findings:
        match = parse_name(found.file)
        log = logs.get(found.log)
        if match is not None and log is not None:
            numbers = int(match[1][:20]), int(match[1][21:])
            if numbers in log.sizes:
                yield _judge_scrub(root, found, numbers, log.generations[numbers] > int(match[2] or 0), log)


def _judge_scrub(root: str, found: ScrubFinding, numbers: Numbers, rewritten: bool, log: LogSeen) -> Finding:
    severity: Severity = "info"
    if numbers in log.damaged:
        now, advice = "this check found the damage too", "see the damage above"
    elif numbers in log.read:
        now = "this check found the segment sound: it was repaired, or the device returned wrong bytes once"
        advice = "nothing, if it was repaired; else test the device (dmesg, smartctl -a) and the memory"
    elif rewritten:
        now, advice = "the segment was rewritten since then from sound batches", "nothing; the next scrub clears it"
    else:
        severity, now = "damage", "this check did not read the segment"
        again = f"`logboom doctor {shlex.quote(root)}` reads it again"
        advice = f"{again}; then restore the file from a backup, or run `logboom repair`"
    return Finding(
        kind="found by a scrub",
        severity=severity,
        log=f"{root}/{found.log}",
        file=f"{root}/{found.log}/{found.file}",
        position=found.position,
        seqno_from=found.seqno_from,
        seqno_until=found.seqno_until,
        reason=f"found at {moment(found.found_at)}: {found.reason}; {now}",
        advice=advice,
    )


def _ledger_fault(disk: Disk, path: str) -> str | None:
    try:
        data = read_file(disk, path)
        if data is not None:
            envelope.unpack(MAGIC, data, Decoder(dict))
    except (OSError, ValueError) as error:
        return str(error)
    return None


def judge_limits(root: str, topics: list[Topic], logs: Logs, failing: frozenset[str]) -> Iterator[Finding]:
    """Logs near their hard limit; of those with a `failing` hook it was told already."""
    for topic in topics:
        retention, hook = topic.settings.retention, topic.settings.hook
        hard_bytes = retention.hard_bytes
        others = retention.bytes, retention.age_ms, retention.records, hook.delete
        if hard_bytes is None or others == (None,) * len(others):
            continue  # where it is the only limit, a log is meant to reach it
        for name in topic.log_names:
            log = logs.get(name)
            if log is None or name in failing or log.size_bytes <= HARD_LIMIT_SHARE * hard_bytes:
                continue
            yield Finding(
                kind="near the hard limit",
                severity="warning",
                log=f"{root}/{name}",
                file=f"{root}/{name}",
                reason=(
                    f"it has {log.size_bytes:,} of {hard_bytes:,} bytes ({_percent(log.size_bytes, hard_bytes)}): "
                    "above that, segments are dropped without their hooks, even if other limits keep them"
                ),
                advice=f"raise retention.hard_bytes of topic {topic.name}, or lower its other limits",
            )


def _percent(part: int, whole: int) -> str:
    return f"{part * 100 // whole} %" if whole else "all"


def moment(microseconds: int | None) -> str:
    """A time in words for people; a number where it is none that a calendar has."""
    if microseconds is None:
        return "an unknown time"
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{microseconds} us"
