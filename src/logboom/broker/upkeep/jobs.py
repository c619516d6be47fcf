"""Work that takes long, on a few threads; its results wait until their owner takes them.

A job touches no log: it reads and writes files of its own, and returns. Invariant: `take` gives every job exactly once,
on the owner's thread; one that could not be started is none, and does nothing even if a thread still gets it. Running
jobs end early when they are told to: hooks by the event, the others by their throttles. Threads that somebody else
brought are left to him.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from logboom.broker.upkeep.hook import HookOutcome
from logboom.broker.upkeep.retainer import Kept
from logboom.broker.upkeep.throttle import Stopped
from logboom.broker.world import REAL, World
from logboom.storage.data.topic import RecompressionSettings
from logboom.storage.log import PendingSwap
from logboom.storage.segment import Segment
from logboom.storage.upkeep.hooks import HookEntry
from logboom.storage.upkeep.recompression import Recompressed
from logboom.storage.upkeep.scrub import ScrubResult

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class BackgroundJob(Generic[Result]):
    kept: Kept
    what: str
    """In words, for people."""
    cancelled: threading.Event = field(default_factory=threading.Event, kw_only=True)
    future: Future[Result] = field(default_factory=Future, kw_only=True)

    def throttled(self, throttle: Callable[[int], None]) -> Callable[[int], None]:
        """The throttle, which also ends this job when it is cancelled."""

        def wait(size: int) -> None:
            if self.cancelled.is_set():
                raise Stopped
            throttle(size)

        return wait


@dataclass(eq=False, slots=True)
class HookJob(BackgroundJob[HookOutcome]):
    entry: HookEntry

    def outcome(self) -> HookOutcome:
        """How it ended; a hook that could not be run has failed."""
        try:
            return self.future.result()
        except Exception as error:
            return HookOutcome(None, 0.0, f"could not be run: {str(error) or type(error).__name__}", "")


@dataclass(eq=False, slots=True)
class SwapJob(BackgroundJob[Recompressed | None]):
    swap: PendingSwap
    settings: RecompressionSettings


@dataclass(eq=False, slots=True)
class ScrubJob(BackgroundJob[ScrubResult]):
    segment: Segment


AnyJob = TypeVar("AnyJob", bound="HookJob | SwapJob | ScrubJob")


class Jobs:
    def __init__(
        self,
        threads_max: int,
        wake: Callable[[], object] | None,
        threads: Executor | None = None,
        world: World = REAL,
    ) -> None:
        self.hurried = False
        """Whether hooks that are told to stop get no time for it."""
        self._threads = world.threads(threads_max, "logboom-upkeep") if threads is None else threads
        self._is_owner = threads is None
        self._wake = wake
        self._ended = threading.Event()
        self._jobs: list[HookJob | SwapJob | ScrubJob] = []
        self._others: list[Future[Any]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def under_way(self) -> list[str]:
        return [job.what for job in self._jobs]

    def of(self, kind: type[AnyJob]) -> list[AnyJob]:
        return [job for job in self._jobs if isinstance(job, kind)]

    def start(self, job: HookJob | SwapJob | ScrubJob, work: Callable[[], object]) -> None:
        """Raises OSError where there is no thread for it."""
        try:
            job.future = self._threads.submit(work)  # type: ignore[assignment]
        except RuntimeError as error:
            job.cancelled.set()  # a pool that cannot make a thread has queued the work all the same
            raise OSError(errno.EAGAIN, f"{job.what} could not be started: {error}") from error
        self._jobs.append(job)
        job.future.add_done_callback(self._end)

    def start_other(self, work: Callable[[], Result]) -> Future[Result]:
        """Work that is no log's; who asked for it takes the result himself. Raises OSError where there is no thread."""
        try:
            future = self._threads.submit(work)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error
        self._others = [other for other in self._others if not other.done()] + [future]
        future.add_done_callback(self._end)
        return future

    def _end(self, _: object) -> None:
        self._ended.set()
        if self._wake is not None:
            self._wake()

    def take(self) -> list[HookJob | SwapJob | ScrubJob]:
        """The jobs that have ended since the last time."""
        self._ended.clear()
        ended = [job for job in self._jobs if job.future.done()]
        self._jobs = [job for job in self._jobs if job not in ended]
        return ended

    def wait(self, timeout_s: float) -> None:
        """Until a job ends that was not taken yet."""
        self._ended.wait(timeout_s)

    def close(self) -> list[HookJob | SwapJob | ScrubJob]:
        """Wait for all of them; they were told to stop."""
        begun: list[Future[Any]] = [*self._others, *(job.future for job in self._jobs)]
        running = [future for future in begun if not future.cancel()]
        for future in running:
            future.exception()
        if self._is_owner:
            self._threads.shutdown(wait=True, cancel_futures=True)
        return self.take()
