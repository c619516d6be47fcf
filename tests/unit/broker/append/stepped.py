"""A node without threads: a loop, executors and a disk that do what they were given when the test says so."""

from __future__ import annotations

import errno
import time
from asyncio import AbstractEventLoop, Future, Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from concurrent.futures import Future as ThreadFuture
from contextvars import Context
from pathlib import Path
from typing import Any, Literal, cast

from logboom.batch import Batch, build
from logboom.broker.append.commitment import STANDALONE, Commitment
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.append.promise import AwaitedPromise, Entry
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.broker.limits import Limits
from logboom.storage.append import Answer
from logboom.storage.config import LogConfig
from logboom.storage.data.topic import Acks, FlushSettings, Settings
from logboom.storage.files.disk import File, OsDisk
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.log import Log


class SteppedLoop:
    """As much of an event loop as the rounds and the owners of logs use."""

    def __init__(self) -> None:
        self.as_loop = cast(AbstractEventLoop, self)
        self.now = 0.0
        self._ready: deque[Handle] = deque()
        self._timers: list[TimerHandle] = []

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> Future[Any]:
        return Future(loop=self.as_loop)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, self.as_loop, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self.as_loop, context)
        self._timers.append(timer)
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        self._timers.remove(handle)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context["message"]) from context.get("exception")

    def step(self) -> None:
        """Everything that is to be called, and what comes of it."""
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self._timers if timer.when() <= self.now]:
            self._timers.remove(timer)
            self._ready.append(timer)
        self.step()


class SteppedExecutor(Executor):
    def __init__(self) -> None:
        self._work: deque[Callable[[], object]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ThreadFuture[Any]:
        self._work.append(lambda: fn(*args, **kwargs))
        return ThreadFuture()

    def __len__(self) -> int:
        return len(self._work)

    def run(self) -> None:
        """What was submitted until now; what it tells the loop is not heard yet."""
        for _ in range(len(self._work)):
            self._work.popleft()()


class SteppedDisk(OsDisk):
    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.failing = False
        self.rounds: list[int] = []
        """How many files each sync had."""

    def sync(self, files: Collection[File]) -> None:
        if self.failing:
            raise OSError(errno.EIO, "the disk says no")
        self.rounds.append(len(files))


class SteppedNode:
    def __init__(
        self,
        path: Path,
        limits: Limits = Limits(),  # noqa: B008
        dirty_max: int = 100,
        commitment: Commitment = STANDALONE,
    ) -> None:
        self.path = path
        self.loop = SteppedLoop()
        self.threads, self.syncs = SteppedExecutor(), SteppedExecutor()
        self.disk = SteppedDisk(str(path))
        self.files = OpenFiles(self.disk, reserve_bytes=0)
        self.rounds = SyncRounds(self.loop.as_loop, self.files, self.threads, self.syncs, limits, dirty_max, commitment)

    def writer(
        self,
        name: str = "log",
        policy: Literal["each", "interval", "os"] = "each",
        segment_bytes: int = 1 << 20,
        begun: bool = True,
    ) -> LogWriter:
        """The owner of a log; where it is `begun`, with one batch in it that is synced."""
        log = Log.open(self.files, f"{self.path}/{name}", LogConfig(segment_bytes=segment_bytes))
        if begun:
            log.append_one(build([b"first"]), time.time_ns() // 1000)
            log.sync()
        log.commit_synced()
        writer = LogWriter(name, log, Settings(flush=FlushSettings(policy, 500)), self.rounds)
        self.rounds.writers[writer] = None
        return writer

    def send(self, writer: LogWriter, *batches: Batch | bytes, acks: Acks = "durable") -> Future[list[Answer]]:
        built = [build([batch]) if isinstance(batch, bytes) else batch for batch in batches]
        promise = AwaitedPromise(self.loop.as_loop, len(built), 1)
        writer.submit(Entry(promise, 0, built, acks))
        return promise.future

    def write(self) -> None:
        """What threads were given to write, but for the round's."""
        self.threads.run()
        self.loop.step()

    def sync(self) -> None:
        """The round that is due, to its end."""
        self.loop.step()
        self.syncs.run()
        self.loop.step()

    def settle(self) -> None:
        """Until nobody has anything to do."""
        self.loop.step()
        while self.threads or self.syncs:
            self.write()
            self.sync()
