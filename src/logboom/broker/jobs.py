"""Work that takes long, on a few threads; its results wait until their owner takes them.

A job touches no log: it reads and writes files of its own, and returns. Invariant: `take` gives every job exactly once,
on the owner's thread. `stop` makes running jobs end early: hooks by the event, the others by their throttles.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from logboom.broker.hook import Outcome
from logboom.broker.retaining import Kept
from logboom.broker.throttle import Stopped
from logboom.storage.hooks import HookEntry
from logboom.storage.log import PendingSwap
from logboom.storage.recompression import Recompressed
from logboom.storage.scrub import ScrubResult
from logboom.storage.segment import Segment
from logboom.storage.topic import RecompressionSettings

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class Job(Generic[Result]):
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
class HookJob(Job[Outcome]):
    entry: HookEntry


@dataclass(eq=False, slots=True)
class SwapJob(Job[Recompressed | None]):
    swap: PendingSwap
    settings: RecompressionSettings


@dataclass(eq=False, slots=True)
class ScrubJob(Job[ScrubResult]):
    segment: Segment


AnyJob = TypeVar("AnyJob", bound="HookJob | SwapJob | ScrubJob")


class Jobs:
    def __init__(self, threads_max: int, wake: Callable[[], None] | None, threads: Executor | None = None) -> None:
        self._threads = threads or ThreadPoolExecutor(threads_max, "logboom-upkeep")
        self._wake = wake
        self._ended = threading.Event()
        self._jobs: list[HookJob | SwapJob | ScrubJob] = []

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def under_way(self) -> list[str]:
        return [job.what for job in self._jobs]

    def of(self, kind: type[AnyJob]) -> list[AnyJob]:
        return [job for job in self._jobs if isinstance(job, kind)]

    def start(self, job: HookJob | SwapJob | ScrubJob, work: Callable[[], object]) -> None:
        self._jobs.append(job)
        job.future = self._threads.submit(work)  # type: ignore[assignment]
        job.future.add_done_callback(self._end)

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
        self._threads.shutdown(wait=True, cancel_futures=True)
        return self.take()
