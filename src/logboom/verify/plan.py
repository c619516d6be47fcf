"""Is what a data directory holds what was written? What is looked at, what is found, and what segments say together.

A segment is examined by itself (`examination.py`), wherever there is room. What only several of them tell is judged
here, of numbers alone: that each begins where the one before it ends, that terms and times do not go back between them,
that a snapshot says what the batches before it amount to. Whether replicas are equal is in `likeness.py`.

Nothing is written, and no lock is taken. Of a directory that was not closed properly, because a node has it or had it
when it died, only what is committed is looked at: the rest may be in motion, or is cut by the next start.
"""

from __future__ import annotations

import os
from typing import Final, Literal

import msgspec

from logboom.batch.header import NO_TIMESTAMP
from logboom.errors import DirectoryUnusable
from logboom.storage.data.directory import decode_holder, read_node
from logboom.storage.data.state import LogState
from logboom.storage.data.topic import Topic, read_topics, unreadable_topics
from logboom.storage.files.disk import read_file
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.health.check import StateSlots, read_state
from logboom.storage.health.plain import PlainDisk, PlainReading
from logboom.storage.recovery import find_segments

Kind = Literal[
    "damage",
    "missing",
    "order",
    "snapshot",
    "index",
    "topic",
    "unreadable",
    "replica",
    "archive",
]
Severity = Literal["damage", "harmless"]
"""*Harmless* is what can be made again from what is sound, or has only not come yet."""

NOTHING_BEFORE: Final = (0, 1)
"""The numbers that every log begins with."""


class VerifyProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is not as it must be, and where."""

    kind: Kind
    severity: Severity = "damage"
    directory: str
    topic: str
    partition: int = 0
    file: str
    position: int | None = None
    seqno: int | None = None
    index: int | None = None
    reason: str

    def __str__(self) -> str:
        where = f"{self.topic}/{self.partition}"
        numbers = (("seqno", self.seqno), ("index", self.index), ("byte", self.position))
        at = ", ".join(f"{name} {number}" for name, number in numbers if number is not None)
        return f"{where}{', ' if at else ''}{at}, {self.file}: {self.reason}"


class SegmentTask(msgspec.Struct, frozen=True, kw_only=True):
    """A segment to be examined."""

    directory: str
    node_id: str
    topic: str
    partition: int
    path: str
    snapshot_path: str
    seqno: int
    index: int
    after: tuple[int, int] | None
    """The seqno and index that the next segment begins with; None of the last one."""
    size: int
    standing: LogState | None
    """What the state file says of the log."""
    in_motion: bool
    """Whether only what is committed counts."""
    digests: bool
    from_disk: bool

    def problem(
        self,
        kind: Kind,
        reason: str,
        *,
        file: str | None = None,
        position: int | None = None,
        seqno: int | None = None,
        index: int | None = None,
        severity: Severity = "damage",
    ) -> VerifyProblem:
        return VerifyProblem(
            kind=kind,
            severity=severity,
            directory=self.directory,
            topic=self.topic,
            partition=self.partition,
            file=file or self.path,
            position=position,
            seqno=seqno,
            index=index,
            reason=reason,
        )


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive batches of one file, and a digest of what replicas have in common."""

    index: int
    until: int
    position: int
    end: int
    digest: int


class SegmentSums(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot says, and batches amount to, besides numbers."""

    term: int = 0
    append_time: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    floor: int = 0

    def then(self, other: SegmentSums) -> SegmentSums:
        """Of these batches and the ones behind them."""
        newest = max(self.max_timestamp, other.max_timestamp)
        return SegmentSums(other.term, other.append_time, newest, max(self.floor, other.floor))


class Examined(msgspec.Struct, kw_only=True):
    """What one segment is."""

    batches: int = 0
    records: int = 0
    lost: int = 0
    """Records that a repair could not save: it left their numbers."""
    bytes: int = 0
    next_seqno: int
    next_index: int
    first: tuple[int, int] | None = None
    """The term and append time of its first batch."""
    sums: SegmentSums | None = None
    """Of its batches; None without any, and where there are holes."""
    snapshot: SegmentSums | None = None
    """What its snapshot says; None where that is missing or damaged."""
    problems: list[VerifyProblem] = []
    blocks: list[Block] = []


class LogPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A log of a directory, and its segments, oldest first."""

    directory: str
    topic: str
    topic_id: str
    partition: int
    standing: LogState | None
    pieces: tuple[SegmentTask, ...]
    problems: tuple[VerifyProblem, ...] = ()
    """Those that show without a look into its files."""

    @property
    def key(self) -> tuple[str, int]:
        return self.topic_id, self.partition

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


class DirectoryContents(msgspec.Struct, frozen=True, kw_only=True):
    """A data directory, as far as it was asked for."""

    path: str
    node_id: str
    cluster_id: str
    in_motion: bool
    topics: tuple[Topic, ...]
    logs: tuple[LogPlan, ...]
    problems: tuple[VerifyProblem, ...] = ()


def open_directory(path: str) -> PlainReading:
    """To read from, and for nothing else. Raises DirectoryUnusable where there is none."""
    if not os.path.isdir(path):
        raise DirectoryUnusable(f"{path} is not a directory: name a data directory")
    try:
        return PlainReading(PlainDisk(path))
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be read: {error}") from None


class VerifyChoice(msgspec.Struct, frozen=True):
    """Which topics, by name or by a pattern for whole names; without either, all. How they are to be read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    digests: bool = False
    from_disk: bool = False

    def has(self, topic: str) -> bool:
        import re

        if not self.topics and self.pattern is None:
            return True
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)


def plan(path: str, wanted: VerifyChoice) -> DirectoryContents:
    """What there is to be examined. Raises DirectoryUnusable where that is no data directory, or not for us."""
    path = os.path.abspath(path)
    disk = open_directory(path)
    try:
        node = read_node(disk, path)
        if node is None:
            raise DirectoryUnusable(f"{path} is no data directory: it has no node.json")
        # In this order: what the state file promises now is in the files that are listed later.
        said = read_file(disk, f"{path}/lock")
        in_motion = bool(said) and not decode_holder(said or b"").is_done
        slots = read_state(disk, path)
        if slots.newer:
            raise DirectoryUnusable(f"{path}/state is of a newer format: use the release that wrote it")
        topics = tuple(topic for topic in read_topics(disk, path) if wanted.has(topic.name))
        problems = [
            VerifyProblem(
                kind="topic",
                directory=path,
                topic=topic_id,
                file=f"{path}/topics",
                reason=f"the topic with id {topic_id} has no topic.json that can be read",
            )
            for topic_id in (() if in_motion or wanted.topics or wanted.pattern else unreadable_topics(disk, path))
        ]
        logs = [
            found
            for topic in topics
            for partition in range(topic.partitions)
            if (found := plan_log(disk, path, node.node_id, topic, partition, slots, in_motion, wanted)) is not None
        ]
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be read: {error}") from None
    return DirectoryContents(
        path=path,
        node_id=node.node_id,
        cluster_id=node.cluster_id,
        in_motion=in_motion,
        topics=topics,
        logs=tuple(logs),
        problems=tuple(problems),
    )


def plan_log(
    disk: PlainReading,
    path: str,
    node_id: str,
    topic: Topic,
    partition: int,
    slots: StateSlots,
    in_motion: bool,
    wanted: VerifyChoice,
) -> LogPlan | None:
    """None where nobody has begun the log."""
    standing = slots.standings.get((topic.id_bytes, partition))
    log = f"{path}/{topic.log_name(partition)}"
    begun = standing is not None and standing.synced_index > 0
    segments = find_segments(OpenFiles(disk, limit=1), log) if disk.exists(log) else []
    if in_motion and standing is not None:
        # A drop begins with the state file: what it has given up is going.
        segments = [segment for segment in segments if segment.after is None or segment.after[0] > standing.first]
    if not segments and not begun:
        return None
    problems = []
    first = segments[0].first_seqno if segments else None
    if standing is not None and begun and (first is None or standing.first < first):
        until = "it has no files" if first is None else f"its files begin at {first}"
        problems.append(
            VerifyProblem(
                kind="missing",
                directory=path,
                topic=topic.name,
                partition=partition,
                file=segments[0].log_path if segments else log,
                seqno=standing.first,
                reason=f"the state file says that the log begins at {standing.first}, {until}",
            )
        )
    pieces = [
        SegmentTask(
            directory=path,
            node_id=node_id,
            topic=topic.name,
            partition=partition,
            path=segment.log_path,
            snapshot_path=segment.snap_path,
            seqno=segment.first_seqno,
            index=segment.first_index,
            after=segment.after,
            size=_size(segment.log_path),
            standing=standing,
            in_motion=in_motion,
            digests=wanted.digests,
            from_disk=wanted.from_disk,
        )
        for segment in segments
    ]
    return LogPlan(
        directory=path,
        topic=topic.name,
        topic_id=topic.id,
        partition=partition,
        standing=standing,
        pieces=tuple(pieces),
        problems=tuple(problems),
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # told where it is examined


def group_pieces(plans: list[LogPlan], group_bytes: int) -> list[list[SegmentTask]]:
    """Of about so many bytes each; a segment is never cut."""
    groups: list[list[SegmentTask]] = []
    room = 0
    for piece in (piece for log in plans for piece in log.pieces):
        if room <= 0:
            groups.append([])
            room = group_bytes
        groups[-1].append(piece)
        room -= max(piece.size, 1 << 16)  # to open a file costs something too
    return groups


def judge_log(log: LogPlan, examined: list[Examined]) -> list[VerifyProblem]:
    """Everything that is wrong with one log, oldest segment first."""
    problems = list(log.problems)
    before: Examined | None = None
    known: SegmentSums | None = SegmentSums() if log.pieces and _begins(log.pieces[0]) else None
    for piece, found in zip(log.pieces, examined, strict=True):
        if before is not None:
            problems += _judge_order(piece, before, found)
        problems += _judge_snapshot(piece, found, known)
        problems += found.problems
        start = known or found.snapshot  # one that says something else is told once
        whole = found.sums is not None and not found.lost
        known = start.then(found.sums) if start is not None and whole and found.sums is not None else None
        before = found
    return problems


def _begins(piece: SegmentTask) -> bool:
    return (piece.seqno, piece.index) == NOTHING_BEFORE


def _judge_order(piece: SegmentTask, before: Examined, found: Examined) -> list[VerifyProblem]:
    """What went on with the batch before must go on with the first of this segment."""
    if before.sums is None or found.first is None:
        return []
    for what, old, new in zip(
        ("term", "append_time"), (before.sums.term, before.sums.append_time), found.first, strict=True
    ):
        if new < old:
            reason = f"{what} goes back from {old} to {new}"
            return [piece.problem("order", reason, position=0, seqno=piece.seqno, index=piece.index)]
    return []


def _judge_snapshot(piece: SegmentTask, found: Examined, known: SegmentSums | None) -> list[VerifyProblem]:
    """`known`: what must be in it, where that is known."""
    numbers = {"file": piece.snapshot_path, "seqno": piece.seqno, "index": piece.index}
    if found.snapshot is None:
        derivable = known is not None
        reason = "the snapshot is missing or damaged, " + (
            "and follows from the segment before" if derivable else "and nothing sound before it can stand in"
        )
        severity: Severity = "harmless" if derivable else "damage"
        return [piece.problem("snapshot", reason, severity=severity, **numbers)]  # type: ignore[arg-type]
    if known is None or known == found.snapshot:
        return []
    differ = [
        f"{name} {getattr(found.snapshot, name)} where the batches before it have {getattr(known, name)}"
        for name in SegmentSums.__struct_fields__
        if getattr(known, name) != getattr(found.snapshot, name)
    ]
    return [piece.problem("snapshot", f"it says {', '.join(differ)}", **numbers)]  # type: ignore[arg-type]
