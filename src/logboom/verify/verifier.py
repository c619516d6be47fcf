"""Verifies data directories: plans what to look at, has it looked at, and judges what was seen.

    plan → examine, everywhere at once → judge each log → compare replicas where digests leave a doubt

What moves while it is looked at looks wrong once, not again and again: a log that seems damaged, in a directory in
motion, is planned anew and looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from logboom.errors import BatchError, DirectoryUnusable
from logboom.verify.examination import examine_pieces
from logboom.verify.likeness import Suspect, compare, find_suspects
from logboom.verify.plan import (
    DirectoryContents,
    Examined,
    LogPlan,
    SegmentTask,
    VerifyChoice,
    VerifyProblem,
    group_pieces,
    judge_log,
    plan,
)

ATTEMPTS: Final = 3
GROUP_BYTES: Final = 512 << 20
"""Of one task: to start and end one costs Spark as much as to examine some of this in the page cache."""
SUSPECTS_MAX: Final = 100
"""Of one log: replicas that differ everywhere are not compared everywhere."""

Key = tuple[str, int]
"""The id of a topic, and a partition."""


class Execute(Protocol):
    """Calls a function for each of these, wherever there is room; the answers in their order."""

    def __call__(
        self, function: Callable[[bytes], bytes], pieces: Sequence[bytes], on_progress: Callable[[int], None]
    ) -> list[bytes]: ...


class VerifyFindings(msgspec.Struct, kw_only=True):
    """What was looked at, and what is wrong with it."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    lost: int = 0
    bytes: int = 0
    compared: int = 0
    """Batches that two replicas have."""
    problems: list[VerifyProblem] = []
    """By directory, topic and partition, each from its oldest segment on."""

    @property
    def damage(self) -> list[VerifyProblem]:
        return [problem for problem in self.problems if problem.severity == "damage"]


_encode: Final = msgspec.msgpack.Encoder().encode
_pieces: Final = msgspec.msgpack.Decoder(list[SegmentTask]).decode
_examined: Final = msgspec.msgpack.Decoder(list[Examined]).decode
_suspect: Final = msgspec.msgpack.Decoder(Suspect).decode
_compared: Final = msgspec.msgpack.Decoder(tuple[bool, VerifyProblem | None]).decode


def examine_encoded(pieces: bytes) -> bytes:
    return _encode(examine_pieces(_pieces(pieces)))


def compare_encoded(suspect: bytes) -> bytes:
    """Whether the files were still there, and the first difference."""
    try:
        return _encode((True, compare(_suspect(suspect))))
    except (FileNotFoundError, BatchError):
        return _encode((False, None))


def _ignore(done: int, total: int) -> None:
    pass


class Verification:
    """Of these directories; more than one are replicas of each other."""

    def __init__(
        self,
        directories: Sequence[str],
        wanted: VerifyChoice,
        execute: Execute,
        on_progress: Callable[[int, int], None] = _ignore,
    ) -> None:
        """`on_progress` is told how many bytes are examined, and of how many, about."""
        self._directories = directories
        self._wanted = msgspec.structs.replace(wanted, digests=len(directories) > 1)
        self._execute = execute
        self._on_progress = on_progress
        self.holdings: list[DirectoryContents] = []
        self._seen: dict[tuple[str, Key], tuple[LogPlan, list[Examined]]] = {}
        self._judged: dict[tuple[str, Key], list[VerifyProblem]] = {}

    def run(self) -> VerifyFindings:
        """Raises DirectoryUnusable where a directory is not one of ours, or not a replica of the first."""
        self.holdings = holdings = [plan(path, self._wanted) for path in self._directories]
        _check_replicas(holdings)
        logs = [log for holding in holdings for log in holding.logs]
        for attempt in range(ATTEMPTS):
            if attempt:
                logs = self._plan_again(logs)
            self._examine(logs)
            unsure = {log.key for log in logs if self._is_damaged(log)}
            unsure |= self._compare({log.key for log in logs})
            moving = {holding.path for holding in self.holdings if holding.in_motion}
            logs = [log for log in logs if log.key in unsure]
            if not any(log.directory in moving for log in logs):
                break
        return self._findings()

    def _plan_again(self, logs: list[LogPlan]) -> list[LogPlan]:
        keys = {log.key for log in logs}
        self.holdings = [plan(path, self._wanted) for path in self._directories]
        for place in [place for place in self._seen if place[1] in keys]:
            del self._seen[place]  # it may be gone by now
        return [log for holding in self.holdings for log in holding.logs if log.key in keys]

    def _examine(self, logs: list[LogPlan]) -> None:
        groups = group_pieces(logs, GROUP_BYTES)
        total = sum(log.size for log in logs)
        self._on_progress(0, total)
        answers = self._execute(
            examine_encoded,
            [_encode(group) for group in groups],
            lambda done: self._on_progress(total * done // max(1, len(groups)), total),
        )
        self._on_progress(total, total)
        examined = [found for answer in answers for found in _examined(answer)]
        for log in logs:
            mine, examined = examined[: len(log.pieces)], examined[len(log.pieces) :]
            self._seen[log.directory, log.key] = log, mine
            self._judged[log.directory, log.key] = judge_log(log, mine)

    def _is_damaged(self, log: LogPlan) -> bool:
        return any(problem.severity == "damage" for problem in self._judged[log.directory, log.key])

    def _compare(self, keys: set[Key]) -> set[Key]:
        """Replicas of these logs with the first one that has them; those of which one differs, or has moved."""
        suspects: list[tuple[tuple[str, Key], Suspect]] = []
        for key in keys:
            sides = self._sides(key)
            for log, examined in sides[1:]:
                doubted = find_suspects(*sides[0], log, examined)[:SUSPECTS_MAX]
                suspects += [((log.directory, key), suspect) for suspect in doubted]
        answers = self._execute(compare_encoded, [_encode(suspect) for _, suspect in suspects], lambda done: None)
        unsure: set[Key] = set()
        for (place, _), answer in zip(suspects, answers, strict=True):
            there, problem = _compared(answer)
            if problem is not None:
                self._judged[place].append(problem)
            if problem is not None or not there:
                unsure.add(place[1])
        return unsure

    def _findings(self) -> VerifyFindings:
        found = VerifyFindings(logs=len(self._seen))
        for holding in self.holdings:
            found.problems += holding.problems
        found.problems += _judge_topics(self.holdings)
        for place in sorted(self._seen, key=lambda place: (place[0], self._seen[place][0].topic, place[1][1])):
            log, examined = self._seen[place]
            found.segments += len(log.pieces)
            for part in examined:
                found.batches += part.batches
                found.records += part.records
                found.lost += part.lost
                found.bytes += part.bytes
            found.problems += self._judged[place]
        found.compared = sum(self._common(key) for key in {key for _, key in self._seen})
        return found

    def _sides(self, key: Key) -> list[tuple[LogPlan, list[Examined]]]:
        """Replicas of a log, in the order of the directories. Each node has internal topics of its own."""
        sides = [self._seen[holding.path, key] for holding in self.holdings if (holding.path, key) in self._seen]
        return [side for side in sides if not side[0].topic.startswith("_")]

    def _common(self, key: Key) -> int:
        """How many batches all replicas after the first have in common with it."""
        blocks = [[block for part in examined for block in part.blocks] for _, examined in self._sides(key)]
        spans = [(side[0].index, side[-1].until) for side in blocks if side]
        return sum(max(0, min(spans[0][1], until) - max(spans[0][0], first)) for first, until in spans[1:])


def _check_replicas(holdings: list[DirectoryContents]) -> None:
    first = holdings[0]
    for number, other in enumerate(holdings[1:], 1):
        if any(other.path == before.path for before in holdings[:number]):
            raise DirectoryUnusable(f"{other.path} is named twice: a directory is no replica of itself")
        if other.cluster_id != first.cluster_id:
            raise DirectoryUnusable(
                f"{other.path} belongs to cluster {other.cluster_id}, {first.path} to cluster {first.cluster_id}: "
                "they are no replicas of each other"
            )


def _judge_topics(holdings: list[DirectoryContents]) -> list[VerifyProblem]:
    """Topics that not all replicas have, or that are others under the same name."""
    problems = []
    first = {topic.name: topic for topic in holdings[0].topics if not topic.name.startswith("_")}
    for holding in holdings[1:]:
        names = {topic.name: topic for topic in holding.topics if not topic.name.startswith("_")}
        for name in sorted(first.keys() | names.keys()):
            ours, theirs = first.get(name), names.get(name)
            if ours is not None and theirs is not None and ours.id == theirs.id:
                continue
            there = holdings[0].path if theirs is not None else holding.path
            reason = f"the topic is not in {there}"
            if ours is not None and theirs is not None:
                reason = f"it has id {theirs.id}, in {holdings[0].path} a topic of this name has id {ours.id}"
            topic = theirs or ours
            assert topic is not None
            problems.append(
                VerifyProblem(
                    kind="replica",
                    severity="damage" if ours is not None and theirs is not None else "harmless",
                    directory=holding.path,
                    topic=name,
                    file=f"{holding.path if theirs is not None else holdings[0].path}/{topic.directory}",
                    reason=reason,
                )
            )
    return problems
