"""The stages of a node: opened, filled, and kept until they are published, discarded, or nobody wants them any more.

    stage → (queue of its stage) → written on a thread → answered

Invariants. Batches enter a stage in the order of `stage`, one write at a time. What is answered is in the file, though
not synced: that is for whoever publishes it, and for a stage that is left alone for a moment. A stage that is claimed,
because it is being published, takes nothing, and neither expires nor can be discarded.

After a restart all files are stages again; each is read when it is used first.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future, Task
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

from logboom.batch import Batch
from logboom.batch.header import STAGED_IDS
from logboom.broker.access.write_screen import WriteScreen
from logboom.broker.api import Answer, Part, Receipt, StageInfo, count_batches
from logboom.broker.append.promise import AwaitedPromise, Promise
from logboom.broker.append.sync_rounds import logger
from logboom.broker.catalog import Hosted
from logboom.broker.limits import Limits, Rejections, said_again
from logboom.broker.publish.stage import Stage, StageJob
from logboom.broker.publish.stage_folder import StageFolder
from logboom.broker.world import REAL, World
from logboom.errors import (
    BatchError,
    LimitExceeded,
    LogboomError,
    Overloaded,
    StageBusy,
    StageFailed,
    StageIncomplete,
    StageNotFound,
    StorageError,
    WriteFailed,
)
from logboom.storage.config import MIB
from logboom.storage.files.disk import SCARCE
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.staged.stage import Opened, StageFile, StageTarget

QUEUED_BYTES: Final = 256 * MIB
"""What may wait for one stage."""
SYNC_BYTES: Final = 32 * MIB
"""A sync is begun when so much is unsynced: so that a publish finds little to do."""
PREPARED_AT_ONCE: Final = 2
"""Stages of one publish that are synced and verified at a time."""
IDLE_US: Final = 1_000_000
"""So long after the last write a stage is synced and its file closed."""
TEND_S: Final = 1.0
LOGS_SHOWN: Final = 8
NOTE_CHARACTERS: Final = 200

Result = TypeVar("Result")
Judge = Callable[[Hosted, int, Sequence[Batch], WriteScreen | None], Awaitable[LogboomError | None]]
"""Why the topic's validators refuse these batches, or rules do not let them be written."""


class Stages:
    def __init__(
        self,
        loop: AbstractEventLoop,
        threads: Executor,
        files: OpenFiles,
        directory: str,
        limits: Limits,
        rejections: Rejections,
        admit: Callable[[Part], Hosted],
        judge: Judge,
        world: World = REAL,
    ) -> None:
        """`admit` gives the topic of a part, or raises why nothing may be written to it."""
        self._loop = loop
        self._threads = threads
        self._files = files
        self.folder = StageFolder(loop, threads, files.disk, directory)
        self._limits = limits
        self._rejections = rejections
        self._admit = admit
        self._judge = judge
        self._world = world
        self._now_us = world.now_us
        self._stages: dict[str, Stage] = {}
        self._wake = asyncio.Event()
        self.staged_bytes = 0
        self._queued_bytes = 0
        self.opened = self.discarded = self.expired = 0

    def __len__(self) -> int:
        return len(self._stages)

    def find_all(self) -> None:
        """On a thread, before anybody is served: what is there from before."""
        now = self._now_us()
        for stage, size in self.folder.find_all().items():
            self._stages[stage] = Stage(stage, self.folder.file_path(stage), now, size_bytes=size)
        self.staged_bytes = sum(stage.size_bytes for stage in self._stages.values())

    async def open(self, note: str) -> StageInfo:
        limits, now = self._limits, self._now_us()
        if len(self._stages) >= limits.stages:
            raise LimitExceeded("limits.stages", limits.stages, "discard some (logboom stage list), or raise it")
        chance = self._world.chance
        opened = Opened(chance.randbytes(16).hex(), STAGED_IDS | chance.getrandbits(63), now, note[:NOTE_CHARACTERS])
        stage = self._stages[opened.id] = Stage(opened.id, self.folder.file_path(opened.id), now)
        stage.work = self._loop.create_task(self._create(stage, opened), name=f"logboom-stage-{stage.id}")
        await asyncio.shield(stage.work)  # where whoever asked has gone away, it expires
        return stage.describe(self._limits.stage_idle_ms)

    async def _create(self, stage: Stage, opened: Opened) -> None:
        disk, space = self._files.disk, self._files.space
        try:
            stage.file = await self._on_thread(lambda: StageFile.create(disk, space, self.folder.path, opened))
        except (LogboomError, OSError) as error:
            self.remove([stage])
            if isinstance(error, OSError):
                raise StorageError(f"a stage could not be opened: {error}") from error
            raise
        finally:
            stage.work = None
        self._grown(stage)
        self.opened += 1
        self._wake.set()

    def stage(self, name: str, parts: Sequence[Part], screen: WriteScreen | None = None) -> Future[list[Answer]]:
        promise = AwaitedPromise(self._loop, count_batches(parts), len(parts))
        offset = 0
        for part in parts:
            try:
                self._take(name, part, promise, offset, screen)
            except LogboomError as error:
                self._rejections.note(error)
                promise.settle(offset, [error] * len(part.batches))
            offset += len(part.batches)
        return promise.future

    def _take(self, name: str, part: Part, promise: Promise, offset: int, screen: WriteScreen | None) -> None:
        stage = self._find_open(name)
        hosted = self._admit(part)
        partition = hosted.writers.index(hosted.writer(part.partition))
        size = sum(len(batch.data) for batch in part.batches)
        if stage.queued_bytes and stage.queued_bytes + size > QUEUED_BYTES:
            raise Overloaded(f"stage {name}", stage.queued_bytes, QUEUED_BYTES)
        limits = self._limits
        if self._queued_bytes and self._queued_bytes + size > limits.unsynced_bytes:
            raise Overloaded("all stages", self._queued_bytes, limits.unsynced_bytes)
        if self.staged_bytes + self._queued_bytes + size > limits.staged_bytes:
            raise LimitExceeded("limits.staged_bytes", limits.staged_bytes, "publish or discard stages")
        target = StageTarget(hosted.topic.name, hosted.topic.id, partition)
        stage.jobs.append(StageJob(hosted, target, part.batches, promise, offset, size, screen))
        self._count_queued(stage, size)
        if stage.work is None:
            stage.work = self._loop.create_task(self._work(stage), name=f"logboom-stage-{name}")

    def _count_queued(self, stage: Stage, size: int) -> None:
        stage.queued_bytes += size
        self._queued_bytes += size

    def _find(self, name: str) -> Stage:
        stage = self._stages.get(name)
        if stage is None:
            raise StageNotFound(name)
        return stage

    def _find_open(self, name: str) -> Stage:
        stage = self._find(name)
        if stage.is_claimed:
            raise StageBusy(name)
        if stage.failure is not None:
            raise said_again(stage.failure)
        return stage

    async def _work(self, stage: Stage) -> None:
        """Until nothing waits: all that came meanwhile with one write."""
        try:
            while stage.jobs:
                jobs, stage.jobs = stage.jobs, deque()
                answers: list[Answer]
                try:
                    await self.load(stage)
                    jobs = await self._judged(stage, jobs)
                    entries = [(job.target, batch) for job in jobs for batch in job.batches]
                    sizes = {job.target: job.hosted.topic.settings.segment.bytes for job in jobs}
                    write = partial(stage.loaded.write, entries, self._now_us(), self._limits.batch_bytes, sizes)
                    answers = await self._on_thread(write)
                except LogboomError as error:
                    answers = [error] * sum(len(job.batches) for job in jobs)
                except Exception as error:
                    logger.exception("stage %s", stage.id)
                    stage.failed = StageFailed(stage.id, f"{type(error).__name__}: {error}")
                    answers = [stage.failed] * sum(len(job.batches) for job in jobs)
                self._settle(stage, jobs, answers)
        finally:
            stage.work = None
            if stage.id not in self._stages:  # thrown away meanwhile, but what was under way
                self.remove([stage])

    async def _judged(self, stage: Stage, jobs: deque[StageJob]) -> deque[StageJob]:
        """Those that rules, and the validators of their topics, have nothing against. A repeat is not asked about:
        neither of what the stage has, nor of what comes before it here."""
        refused: list[tuple[StageJob, LogboomError]] = []
        asked: list[tuple[StageJob, LogboomError | None]] = []
        for job in jobs:
            is_judged = job.screen is not None or bool(job.hosted.topic.settings.validators.urls)
            if not is_judged or all(stage.loaded.holds(job.target, batch.header) for batch in job.batches):
                continue
            same = next((found for found in asked if found[0].is_same(job)), None)
            if same is None:
                same = job, await self._judge(job.hosted, job.target.partition, job.batches, job.screen)
                asked.append(same)
            refusal = same[1]
            if refusal is not None:
                refused.append((job, refusal))
        for job, refusal in refused:
            jobs.remove(job)
            self._answer(stage, job, [refusal] * len(job.batches))
        return jobs

    def _settle(self, stage: Stage, jobs: deque[StageJob], answers: list[Answer]) -> None:
        start = 0
        for job in jobs:
            self._answer(stage, job, answers[start : start + len(job.batches)])
            start += len(job.batches)
        stage.touched = self._now_us()
        self._grown(stage)
        file = stage.file
        if file is None or stage.failure is not None:
            return
        if stage.sync is None and file.unsynced_bytes >= SYNC_BYTES:
            stage.sync = self._loop.create_task(self._sync(stage))

    def _answer(self, stage: Stage, job: StageJob, answers: Sequence[Answer]) -> None:
        self._count_queued(stage, -job.size)
        for answer in answers:
            if isinstance(answer, LogboomError):
                self._rejections.note(answer)
        job.promise.settle(job.offset, answers)

    def _grown(self, stage: Stage) -> None:
        size = stage.size_bytes if stage.file is None else stage.file.size_bytes
        if stage.id in self._stages:
            self.staged_bytes += size - stage.size_bytes
        stage.size_bytes = size

    async def _sync(self, stage: Stage) -> None:
        try:
            await self._on_thread(stage.loaded.sync)
        except StageFailed as error:
            logger.error("%s", error)
        finally:
            stage.sync = None

    async def load(self, stage: Stage) -> None:
        """Read it, where it is from before a restart. Raises StageFailed, or WriteFailed where that may pass."""
        if stage.file is not None:
            return
        disk, space = self._files.disk, self._files.space
        try:
            file = await self._on_thread(lambda: StageFile.load(disk, space, stage.path))
        except (OSError, BatchError) as error:
            if isinstance(error, OSError) and error.errno in SCARCE:
                raise WriteFailed(f"stage {stage.id} cannot be opened now: {error.strerror}") from error
            stage.failed = StageFailed(stage.id, f"its file cannot be read: {error}")
            raise stage.failed from error
        stage.file = stage.file or file
        self._grown(stage)

    def claim(self, receipts: Sequence[Receipt]) -> list[Stage]:
        """These are being published from now on. Raises StageNotFound, StageBusy, StageFailed, and claims none."""
        stages = [self._find_open(receipt.stage) for receipt in receipts]
        if len({receipt.stage for receipt in receipts}) < len(receipts):
            raise StageBusy(receipts[0].stage)
        for stage in stages:
            stage.is_claimed = True
        return stages

    def reclaim(self, names: Sequence[str]) -> list[Stage]:
        """These were being published before a restart: as many as there are stay. Raises StageNotFound."""
        for name in names:
            if (stage := self._stages.get(name)) is not None:
                stage.is_claimed = True
        return [self._find(name) for name in names]

    def release(self, stages: Sequence[Stage]) -> None:
        """They are not published after all."""
        for stage in stages:
            stage.is_claimed, stage.touched = False, self._now_us()
        self._wake.set()

    async def prepare(self, stages: Sequence[Stage], receipts: Sequence[Receipt]) -> None:
        """Whole, verified and durable. Raises where one of them is not."""
        for stage in stages:
            # What is written last may begin a sync, and of a failed sync only one is told.
            while under_way := [task for task in (stage.work, stage.sync) if task is not None]:
                await asyncio.wait(under_way)
            await self.load(stage)
            if stage.failure is not None:
                raise said_again(stage.failure)
        for stage, receipt in zip(stages, receipts, strict=True):
            if receipt.records is not None and receipt.records != stage.loaded.records:
                raise StageIncomplete(stage.id, receipt.records, stage.loaded.records)
        if not stages:
            return
        files = [stage.loaded for stage in stages]
        lanes = [files[number::PREPARED_AT_ONCE] for number in range(PREPARED_AT_ONCE)]
        await all_done(self._make_sure(lane) for lane in lanes)
        try:
            await self.folder.sync()
        except OSError as error:  # nobody knows which names are durable, and it is said only once
            for stage in self._stages.values():
                stage.failed = StageFailed(stage.id, f"its name could not be synced: {error}")
            raise said_again(stages[0].failed or StageFailed(stages[0].id, str(error))) from error
        for stage in stages:
            if stage.failure is not None:  # somebody else was told
                raise said_again(stage.failure)

    async def _make_sure(self, files: Sequence[StageFile]) -> None:
        """One after the other: between two of them others have their turn."""
        for file in files:
            await self._on_thread(file.sync)
            await self._on_thread(partial(file.verify, self._limits.batch_bytes))

    def remove(self, stages: Sequence[Stage]) -> None:
        """They are gone; their files soon."""
        for stage in stages:
            if self._stages.pop(stage.id, None) is not None:
                self.staged_bytes -= stage.size_bytes
        self.folder.remove([stage.id for stage in stages])

    def discard(self, names: Sequence[str]) -> int:
        found = [stage for name in dict.fromkeys(names) if (stage := self._stages.get(name)) is not None]
        found = [stage for stage in found if not stage.is_claimed]
        self.remove(found)
        self.discarded += len(found)
        return len(found)

    def topics_of(self, name: str) -> set[str]:
        """For which it has records; none where it is not there, or was not used since a restart."""
        stage = self._stages.get(name)
        return set() if stage is None or stage.file is None else {target.topic for target in stage.file.targets}

    def give_up(self, names: Sequence[str]) -> None:
        """Throw away also what was being published."""
        self.remove([stage for name in names if (stage := self._stages.get(name)) is not None])

    def list(self) -> list[StageInfo]:
        stages = sorted(self._stages.values(), key=lambda stage: stage.touched)
        return [stage.describe(self._limits.stage_idle_ms) for stage in stages]

    async def tend(self) -> None:
        """Throw away what nobody wants any more; sync what is left alone. Until it is cancelled."""
        while True:
            if not self._stages:
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(TEND_S)
            now = self._now_us()
            expiry_us = self._limits.stage_idle_ms * 1000
            for stage in list(self._stages.values()):
                if stage.is_claimed or stage.work is not None:
                    continue
                if now - stage.touched >= expiry_us:
                    logger.warning("stage %s has expired with %s bytes", stage.id, f"{stage.size_bytes:,}")
                    self.expired += 1
                    self.remove([stage])
                elif stage.file is not None and stage.sync is None and now - stage.touched >= IDLE_US:
                    if stage.file.is_synced:
                        stage.file.let_go()
                    elif stage.failure is None:
                        stage.sync = self._loop.create_task(self._sync(stage))

    async def close(self) -> None:
        """Wait for what was taken in."""
        tasks = [task for stage in self._stages.values() for task in (stage.work, stage.sync) if task is not None]
        pending: list[Future[None] | Task[None]] = [*tasks, *self.folder.removals]
        if pending:
            await asyncio.wait(pending)

    async def _on_thread(self, work: Callable[[], Result]) -> Result:
        return await self._loop.run_in_executor(self._threads, work)


async def all_done(work: Iterable[Awaitable[None]]) -> None:
    """Until all of it has come to an end. Raises what went wrong with the first that failed."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if outcome is not None:
            raise outcome
