"""Publishes that were cut off: committed, and perhaps in some of their logs only.

The next start of the node finishes them, and finds out from the logs how far each came. So until then nothing may be
taken from these logs, or it would be appended again; and what they hold is half of something, for whoever copies it.
The node keeps what is open in its topic `_publish` (see docs/formats/files.md); this reads it for those who have the
directory while no node runs.

Changes nothing. What repair has given up of that topic counts as never written, as it does for the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from logboom.batch.tables import LOST
from logboom.errors import Damage, DirectoryUnusable, PublishUnfinished
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.topic import Topic
from logboom.storage.files import envelope
from logboom.storage.files.disk import Disk, read_file
from logboom.storage.readable_log import ReadableLog
from logboom.storage.staged.stage import StageTarget

TOPIC: Final = "_publish"
FILE: Final = "internal/publish"
MAGIC: Final = b"LGIS"


class InternalSnapshot(msgspec.Struct, frozen=True):
    """What an internal topic's snapshot holds."""

    topic_id: str
    seqno: int
    """Of the first record of the topic's log that is not in here."""
    entries: dict[bytes, bytes]


class _Into(msgspec.Struct, frozen=True, array_like=True):
    target: StageTarget


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """The first fields of what is kept of a publish."""

    number: int
    at: int
    lasting: bool
    is_open: bool = True
    stages: list[str] = []
    into: list[_Into] = []


SNAPSHOT: Final = msgspec.msgpack.Decoder(InternalSnapshot)
_kept: Final = msgspec.msgpack.Decoder(_Kept)


class Unfinished(NamedTuple):
    """A publish that is committed, and of which records may be missing in these logs."""

    name: str
    number: int
    into: tuple[StageTarget, ...]

    def __str__(self) -> str:
        logs = ", ".join(f"{target.topic}/{target.partition}" for target in self.into[:5])
        more = f" and {len(self.into) - 5} more" if len(self.into) > 5 else ""
        where = f"on its way into {logs}{more}" if logs else "before its cursors were moved"
        return f"publish {self.name!r}, number {self.number}, was cut off {where}"


def find_unfinished(disk: Disk, root: str, topic: Topic, log: ReadableLog) -> list[Unfinished]:
    """By name. `log` is the one log of `topic`, which is called `_publish`. Raises DirectoryUnusable."""
    snapshot = _read_snapshot(disk, f"{root}/{FILE}", topic.id)
    if snapshot is None and log.first:
        raise DirectoryUnusable(f"{root}/{FILE} cannot be read, and the topic {TOPIC} holds only what came after it")
    entries: dict[bytes, bytes | None] = {} if snapshot is None else {**snapshot.entries}
    entries.update(_changes(log, 0 if snapshot is None else snapshot.seqno))
    found = []
    for key, value in sorted(entries.items()):
        kept = None if value is None else _kept.decode(value)
        if kept is not None and kept.is_open:
            found.append(Unfinished(key.decode(), kept.number, tuple(into.target for into in kept.into)))
    return found


def _read_snapshot(disk: Disk, path: str, topic_id: str) -> InternalSnapshot | None:
    try:
        data = read_file(disk, path)
        snapshot = None if data is None else envelope.unpack(MAGIC, data, SNAPSHOT)
    except (OSError, ValueError):
        return None
    return snapshot if snapshot is not None and snapshot.topic_id == topic_id else None


def _changes(log: ReadableLog, seqno: int) -> Iterator[tuple[bytes, bytes | None]]:
    begin = seqno
    while seqno < log.committed:
        try:
            for batch in log.batches(seqno):
                for number, key, value in zip(batch.seqnos(), batch.keys(), batch.values(), strict=True):
                    if number >= begin and key is not None:
                        yield key, value
                seqno = batch.header.next_seqno
            return
        except Damage as damage:
            if damage.reason != LOST or damage.seqno_until is None:
                raise DirectoryUnusable(f"{damage}: the node keeps its own state there; repair it first") from damage
            seqno = damage.seqno_until


def unfinished_in(data: DataDirectory) -> list[Unfinished]:
    """In a directory that the caller has taken."""
    topic = next((topic for topic in data.topics() if topic.name == TOPIC), None)
    if topic is None:
        return []
    return find_unfinished(data.files.disk, data.path, topic, data.open_partition(TOPIC, 0))


def hold_unfinished(data: DataDirectory) -> list[Unfinished]:
    """Keep everything in logs that a publish is on its way into, until the directory is closed."""
    found = unfinished_in(data)
    alive = {topic.id: topic for topic in data.topics()}
    for publish in found:
        for target in publish.into:
            topic = alive.get(target.topic_id)
            if topic is not None and target.partition < topic.partitions:
                log = data.open_partition(topic.name, target.partition)
                log.hold(f"publish {publish.name}", log.first)
    return found


def check_finished(found: Iterable[Unfinished], logs: Collection[tuple[str, int]], otherwise: str = "") -> None:
    """Raises PublishUnfinished where one is on its way into one of these logs, by topic id and partition.

    `otherwise` says what else can be done than to start the node.
    """
    for publish in found:
        if any((target.topic_id, target.partition) in logs for target in publish.into):
            raise PublishUnfinished(str(publish), otherwise)
