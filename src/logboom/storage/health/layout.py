"""Is everything below a data directory where it belongs: topics, their files, the trash, the slots of the state file?

A topic's directory carries its name and id, and its topic.json says the same; whatever is not known here is told as
foreign. Files of the logs themselves are not looked at. Changes nothing.

Beside a writer a topic may be in the making: what only a finished writer must have done is then no finding.
"""

from __future__ import annotations

import errno
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from logboom.storage.data.topic import NAME_IN_PATH_MAX, PARTITIONS_MAX, Topic
from logboom.storage.files.disk import Disk, read_file
from logboom.storage.files.envelope import UNREADABLE
from logboom.storage.health.check import StateSlots
from logboom.storage.health.findings import Finding, counted
from logboom.storage.segment import parse_name

_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_DIRECTORY: Final = re.compile(r"([A-Za-z0-9._-]{1,80})~([0-9a-f]{32})", re.ASCII)
_LEDGERS: Final = (
    *("cursors", "groups", "queues", "access", "publish", "producers"),
    *("hooks", "scrub", "replica.json", "deletions"),
)
_CHANGE: Final = "stop the server, then: "


Synced = dict[str, set[int]]
"""The partitions that the state file knows to have held something, by topic id."""


@dataclass(slots=True)
class DirectoryLayout:
    """What lies below DATA/topics and DATA/trash."""

    topics: list[Topic] = field(default_factory=list)
    """Those that are whole, by name."""
    directories: dict[str, set[int]] = field(default_factory=dict)
    """The partitions that have a directory, by topic id."""
    trashed: set[str] = field(default_factory=set)
    """Topic ids."""
    whole: bool = True
    """Whether all of it could be looked at."""
    findings: list[Finding] = field(default_factory=list)


def survey_layout(disk: Disk, root: str, slots: StateSlots, active: bool) -> DirectoryLayout:
    layout = DirectoryLayout()
    synced: Synced = defaultdict(set)
    for (topic_id, partition), standing in slots.standings.items():
        if standing.synced_index:
            synced[topic_id.hex()].add(partition)
    with _telling(layout, f"{root}/topics"):
        for name in _names(disk, f"{root}/topics"):
            path = f"{root}/topics/{name}"
            match = _DIRECTORY.fullmatch(name)
            if match is not None and disk.is_directory(path):
                with _telling(layout, path):
                    _survey_topic(disk, path, match[1], match[2], synced, active, layout)
            elif disk.exists(path):
                layout.findings.append(_foreign(path))
            else:  # deleted meanwhile, or not to be looked at
                layout.whole = False
    layout.topics.sort(key=lambda topic: topic.name)
    layout.findings += _judge_doubles(root, layout.topics)
    with _telling(layout, f"{root}/internal"):
        for name in _names(disk, f"{root}/internal"):
            if name.removesuffix(".tmp") not in _LEDGERS:
                layout.findings.append(_foreign(f"{root}/internal/{name}"))
            elif name.endswith(".tmp") and not active:
                layout.findings.append(_leftover(f"{root}/internal/{name}", "the next change of that file removes it"))
    with _telling(layout, f"{root}/trash"):
        layout.findings += _judge_trash(disk, root, layout, active)
    return layout


@contextmanager
def _telling(layout: DirectoryLayout, path: str) -> Iterator[None]:
    """What cannot be looked at is told, and the rest goes on."""
    try:
        yield
    except OSError as error:
        layout.whole = False
        if not isinstance(error, PermissionError):  # told with all the other permissions
            layout.findings.append(unreadable(path, error))


def _survey_topic(
    disk: Disk, path: str, name: str, topic_id: str, synced: Synced, active: bool, layout: DirectoryLayout
) -> None:
    entries = _names(disk, path)
    partitions = [int(entry) for entry in entries if _is_partition(disk, path, entry)]
    layout.directories.setdefault(topic_id, set()).update(partitions)
    layout.findings += _judge_names(disk, path, entries, active)
    begun = {number for number in partitions if any(map(parse_name, _names(disk, f"{path}/{number}")))}
    begun |= synced.get(topic_id, set())
    again = Topic(topic_id, name, max(begun, default=0) + 1)
    if "topic.json" not in entries:
        if not active:
            others = set(entries) - {"topic.json.tmp", *map(str, partitions)}
            layout.findings.append(_judge_unfinished(path, again, len(begun), bool(others)))
        return
    data = read_file(disk, f"{path}/topic.json")
    if data is None:
        return  # deleted meanwhile
    topic = _decode_topic(data, name, topic_id)
    if isinstance(topic, str):
        layout.findings.append(_judge_bad_topic(path, topic, again))
        return
    layout.topics.append(topic)
    layout.findings += [
        Finding(
            kind="extra partition",
            severity="warning",
            log=f"{path}/{number}",
            file=f"{path}/{number}",
            reason=f"topic {topic.name} has partitions 0 to {topic.partitions - 1}: this one is not used",
            advice=f"{_CHANGE}set partitions to {number + 1} in {path}/topic.json, or move this directory away",
        )
        for number in sorted(begun.intersection(partitions))
        if number >= topic.partitions
    ]


def _judge_names(disk: Disk, path: str, entries: list[str], active: bool) -> Iterator[Finding]:
    for entry in entries:
        file = f"{path}/{entry}"
        if _is_partition(disk, path, entry):
            names = _names(disk, file)
            # Where there are segments it is a log, and the check of the log looks at its names.
            if not any(map(parse_name, names)):
                yield from (_foreign(f"{file}/{name}") for name in names if not name.endswith(".tmp"))
        elif entry == "topic.json.tmp":
            if not active and "topic.json" in entries:
                yield _leftover(file, "the next change of the topic's settings removes it")
        elif entry != "topic.json" and disk.exists(file):
            yield _foreign(file)


def _is_partition(disk: Disk, path: str, entry: str) -> bool:
    return _PARTITION.fullmatch(entry) is not None and disk.is_directory(f"{path}/{entry}")


def _decode_topic(data: bytes, name: str, topic_id: str) -> Topic | str:
    """The topic, or why a server does not take it, or takes it wrongly."""
    try:
        topic = msgspec.json.decode(data, type=Topic)
        topic.settings.check()
    except (*UNREADABLE, ValueError) as error:
        return str(error)
    if topic.id != topic_id:
        return f"the file has the topic id {topic.id}, the name of its directory {topic_id}"
    if topic.name[:NAME_IN_PATH_MAX] != name:
        return f"the file has the topic name {topic.name}, the name of its directory {name}"
    if _NAME.fullmatch(topic.name) is None:
        return f"{topic.name} is not a valid topic name"
    if not 1 <= topic.partitions <= PARTITIONS_MAX:
        return f"partitions is {topic.partitions}, allowed are 1 to {PARTITIONS_MAX}"
    return topic


def _judge_bad_topic(path: str, fault: str, again: Topic) -> Finding:
    return Finding(
        kind="bad topic",
        severity="damage",
        file=f"{path}/topic.json",
        reason=f"{fault}: the topic cannot be used",
        advice=f"{_CHANGE}restore the file from a backup, or write it again: {_rewrite(path, again)}",
    )


def _judge_unfinished(path: str, again: Topic, logs: int, others: bool) -> Finding:
    if not logs:
        return Finding(
            kind="unfinished topic",
            severity="info",
            file=path,
            reason="it has no topic.json and no records: creating the topic did not finish",
            advice=f"{_CHANGE}{'look at the other files in it, then ' if others else ''}rm -r {shlex.quote(path)}",
        )
    return Finding(
        kind="unfinished topic",
        severity="warning",
        file=path,
        reason=(
            f"it has {counted(logs, 'log')} and no topic.json: a load did not finish, or the file was removed;"
            " servers and readers cannot use this topic"
        ),
        advice=(
            "run the same `logboom load` again, it continues where it stopped; if there was none, restore "
            f"topic.json from a backup, or write it again: {_rewrite(path, again)}"
        ),
    )


def _rewrite(path: str, topic: Topic) -> str:
    said = {"id": topic.id, "name": topic.name, "partitions": topic.partitions}
    return f"echo {shlex.quote(msgspec.json.encode(said).decode())} > {shlex.quote(f'{path}/topic.json')}"


def _judge_doubles(root: str, topics: Iterable[Topic]) -> Iterator[Finding]:
    by_key: dict[str, list[Topic]] = defaultdict(list)
    for topic in topics:
        by_key[f"the name {topic.name}"].append(topic)
        by_key[f"the id {topic.id}"].append(topic)
    for key, same in by_key.items():
        if len(same) > 1:
            others = ", ".join(topic.directory for topic in same[:-1])
            yield Finding(
                kind="two topics",
                severity="damage",
                file=f"{root}/{same[-1].directory}",
                reason=f"it has {key}, and so has {others}: only one of them is used",
                advice=f"{_CHANGE}move the one that you do not need out of {root}/topics",
            )


def _judge_trash(disk: Disk, root: str, layout: DirectoryLayout, active: bool) -> Iterator[Finding]:
    path, deleted = f"{root}/trash", 0
    for name in _names(disk, path):
        match = _DIRECTORY.fullmatch(name)
        if match is None:
            yield _foreign(f"{path}/{name}", "the next start deletes everything here: move it elsewhere if you need it")
        else:
            layout.trashed.add(match[2])
            deleted += 1
    if deleted and not active:
        size = sum(_size(disk, f"{path}/{name}") for name in _names(disk, path))
        yield Finding(
            kind="trash",
            severity="info",
            file=path,
            reason=f"{counted(deleted, 'deleted topic')}; {counted(size, 'byte')} are not free yet",
            advice="nothing; a running server, or `logboom upkeep`, deletes the files",
        )


def _names(disk: Disk, path: str) -> list[str]:
    try:
        return sorted(disk.list(path)) if disk.is_directory(path) else []
    except FileNotFoundError:
        return []


def _size(disk: Disk, path: str) -> int:
    if disk.is_directory(path):
        return sum(_size(disk, f"{path}/{name}") for name in _names(disk, path))
    try:
        return disk.open(path).size()
    except OSError:
        return 0


def _foreign(path: str, advice: str = "move it elsewhere") -> Finding:
    reason = "Logboom did not make this file"
    if path.rpartition("/")[2].startswith(".nfs"):
        reason = "a deleted file that a process still has open: the network file system keeps it under this name"
        advice = "nothing; it disappears when that process ends"
    return Finding(kind="foreign file", severity="info", file=path, reason=reason, advice=advice)


def _leftover(path: str, when: str) -> Finding:
    reason = "the writer ended while it wrote this file"
    return Finding(kind="leftover", severity="info", file=path, reason=reason, advice=f"nothing; {when}")


def unreadable(path: str, error: OSError) -> Finding:
    advice = "find out what it is, and move it elsewhere if Logboom did not make it"
    if isinstance(error, PermissionError):
        advice = "run this as the user that owns it"
    elif error.errno == errno.EIO:
        advice = "the device fails: see dmesg and smartctl -a, and copy the data elsewhere"
    reason = f"it cannot be read: {error}"
    return Finding(kind="unreadable", severity="warning", file=path, reason=reason, advice=advice)
