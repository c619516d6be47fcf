"""One stage of a node: its file, what waits to be written to it, and what is under way with it."""

from __future__ import annotations

from asyncio import Task
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from logboom.batch import Batch
from logboom.broker.access.write_screen import WriteScreen
from logboom.broker.api import StageInfo
from logboom.broker.append.promise import Promise
from logboom.broker.catalog import Hosted
from logboom.errors import StageFailed
from logboom.storage.staged.stage import StageFile, StageTarget

LOGS_SHOWN: Final = 8


class StageJob(NamedTuple):
    hosted: Hosted
    target: StageTarget
    batches: Sequence[Batch]
    promise: Promise
    offset: int
    size: int
    screen: WriteScreen | None = None

    def is_same(self, other: StageJob) -> bool:
        """Whether one of them repeats the other."""
        mine, theirs = ([batch.data for batch in job.batches] for job in (self, other))
        return (self.target, self.screen) == (other.target, other.screen) and mine == theirs


@dataclass(slots=True, eq=False)
class Stage:
    id: str
    path: str
    touched: int
    file: StageFile | None = None
    """None until it is used first after a restart."""
    size_bytes: int = 0
    is_claimed: bool = False
    failed: StageFailed | None = None
    jobs: deque[StageJob] = field(default_factory=deque)
    queued_bytes: int = 0
    work: Task[None] | None = None
    sync: Task[None] | None = None

    @property
    def loaded(self) -> StageFile:
        assert self.file is not None
        return self.file

    @property
    def failure(self) -> StageFailed | None:
        return self.failed or (None if self.file is None else self.file.failure)

    @property
    def state(self) -> Literal["open", "publishing", "failed"]:
        if self.is_claimed:
            return "publishing"
        return "open" if self.failure is None else "failed"

    def describe(self, idle_ms: int) -> StageInfo:
        """`idle_ms` is how long one is kept that nobody uses."""
        expires = self.touched + idle_ms * 1000
        file = self.file
        if file is None:
            return StageInfo(self.id, 0, self.touched, self.touched, expires, 0, self.size_bytes, [], self.state)
        opened, targets = file.opened, list(file.targets)[:LOGS_SHOWN]
        logs = [f"{target.topic}/{target.partition}" for target in targets]
        return StageInfo(
            *(self.id, opened.producer_id, opened.at, self.touched, expires, file.records, self.size_bytes),
            *(logs, self.state, opened.note),
        )
