"""A machine that lives in simulated time: event loop, clock, chance and threads, all of them on one seed.

The loop's time is virtual: where nothing is ready it jumps to the next timer. A thread of this machine is a greenlet,
which runs while the loop waits for it; before each call that changes the disk it stands still for a while, by chance,
and the others go on. So exactly one of them runs at any moment, which one depends on nothing but the seed, and
a sync overlaps with whatever comes meanwhile.

When the machine dies no call of its disk does anything any more, and whatever still runs on it is ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from random import Random
from threading import Event
from typing import Any, Final, ParamSpec, TypeVar

from greenlet import getcurrent, greenlet

from logboom.broker.monitor.incidents import LOGGERS
from logboom.broker.world import World
from support.disks.simulated import Call, PowerLoss, SimulatedDisk

SLOW: Final = frozenset(("write", "sync", "sync_directory", "create", "rename"))
"""Calls of the disk before which a thread stands still."""
START_US: Final = 1_700_000_000_000_000
WAKE_S: Final = 0.01
"""How soon a thread that waits sees that it need not any more."""
Given = ParamSpec("Given")
Result = TypeVar("Result")


class SimulatedMachine:
    def __init__(self, disk: SimulatedDisk, seed: str, now_s: float = 0.0, ahead_us: int = 0) -> None:
        self.disk = disk
        self.died = False
        self.ended_s = now_s
        self.ahead_us = ahead_us
        """How far the clock on the wall is ahead of the time that passes: whoever sets it makes it jump."""
        self.loop = SimulatedLoop(self, now_s)
        self.world = World(
            Random(f"{seed}/chance"), self._make_threads, self.now_us, self.loop.time, self._start, self._wait
        )
        self.paused: dict[SimulatedThread, None] = {}
        self._delays = Random(f"{seed}/delays")
        self._calls_left: int | None = None
        self._dies_below = ""
        disk.fault = self._look
        self.loop.set_exception_handler(self._report)

    def now_us(self) -> int:
        return START_US + self.ahead_us + int(self.loop.time() * 1e6)

    def later(self, call: Callable[[], None]) -> None:
        """After as long as a disk takes: mostly some milliseconds, at times much longer."""
        delay_s = self._delays.expovariate(200.0)
        if self._delays.random() < 0.03:
            delay_s += self._delays.uniform(0.0, 1.0)
        self.loop.call_later(delay_s, call)

    def die_in(self, calls: int, below: str = "") -> None:
        """With the so-manieth call from now that changes what is below a path; a write may have happened in part."""
        self._calls_left, self._dies_below = calls, below

    def die(self) -> None:
        self.died = True
        self.loop.stop()

    def run(self, life: Coroutine[Any, Any, None]) -> None:
        """Until it ends or the machine dies. Raises what the life raises, unless the machine has died."""
        before = {name: list(logging.getLogger(name).handlers) for name in LOGGERS}
        task = self.loop.create_task(life)
        task.add_done_callback(self._end)
        try:
            self.loop.run_forever()
            if not self.died:
                task.result()
        finally:
            task.remove_done_callback(self._end)
            self.ended_s = self.loop.time()
            self._bury()
            for name, handlers in before.items():
                logging.getLogger(name).handlers[:] = handlers

    def _end(self, _: object) -> None:
        self.loop.stop()

    def _bury(self) -> None:
        self.died = True
        while self.paused:
            next(iter(self.paused)).step()
        while tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=60))
        self.loop.close()

    def _look(self, call: Call) -> int | None:
        thread = getcurrent()
        if isinstance(thread, SimulatedThread) and call.name in SLOW:
            thread.pause(self.later)
        if self.died:
            raise PowerLoss
        if self._calls_left is not None and call.number >= 0 and call.path.startswith(self._dies_below):
            self._calls_left -= 1
            if self._calls_left <= 0:
                self.die()
                raise PowerLoss(*([self._delays.randrange(call.size + 1)] if call.size else []))
        return None

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.died:
            loop.default_exception_handler(context)

    def _make_threads(self, count: int, name: str) -> Executor:
        return SimulatedThreads(self, count)

    def _start(self, work: Callable[[], None], name: str) -> None:
        SimulatedThreads(self, 1).submit(work)

    def _wait(self, event: Event, seconds: float) -> None:
        """On a thread: others go on meanwhile. Looks every so often whether the event is set."""
        thread, end_s = getcurrent(), self.loop.time() + seconds
        assert isinstance(thread, SimulatedThread)
        while not event.is_set() and self.loop.time() < end_s:
            pause_s = min(WAKE_S, end_s - self.loop.time())
            thread.pause(partial(self.loop.call_later, pause_s))


class _Jump:
    """In the place of a selector: nothing ever comes from outside, so waiting is a jump in time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for ever")
        self._loop.now_s += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self, machine: SimulatedMachine, now_s: float) -> None:
        super().__init__()
        self.now_s = now_s
        self._selector = _Jump(self)
        self._threads = SimulatedThreads(machine, 8)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        return super().run_in_executor(executor or self._threads, func, *args)

    def _write_to_self(self) -> None:
        """Nobody else runs while the loop does: there is nobody to wake."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""


class SimulatedThread(greenlet):  # type: ignore[misc]
    """Runs while the loop waits for it, and only then."""

    def __init__(self, machine: SimulatedMachine, work: Callable[[], None]) -> None:
        super().__init__(work)
        self._machine = machine

    def step(self) -> None:
        """Until it stands still, or is done. On the loop."""
        if self._machine.paused.pop(self, self) is None or not self:
            self.parent = getcurrent()
            self.switch()

    def pause(self, until: Callable[[Callable[[], None]], object]) -> None:
        """On this thread: others go on until somebody calls what `until` is given. Raises PowerLoss if it never is."""
        if self._machine.died:
            raise PowerLoss
        self._machine.paused[self] = None
        until(self.step)
        assert self.parent is not None
        self.parent.switch()
        if self._machine.died:
            raise PowerLoss


class SimulatedFuture(Future[Result]):
    """Who waits for it on a thread lets the others go on."""

    def __init__(self, machine: SimulatedMachine) -> None:
        super().__init__()
        self._machine = machine

    def _stand_still(self) -> None:
        thread = getcurrent()
        if not self.done() and isinstance(thread, SimulatedThread):
            thread.pause(lambda go_on: self.add_done_callback(lambda _: self._machine.loop.call_soon(go_on)))

    def result(self, timeout: float | None = None) -> Result:
        self._stand_still()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._stand_still()
        return super().exception(0)


class SimulatedThreads(Executor):
    """So many at once; each job begins after a while."""

    def __init__(self, machine: SimulatedMachine, count: int) -> None:
        self._machine = machine
        self._free = count
        self._queue: deque[tuple[SimulatedFuture[Any], Callable[[], Any]]] = deque()

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> SimulatedFuture[Result]:
        future: SimulatedFuture[Result] = SimulatedFuture(self._machine)
        self._queue.append((future, partial(fn, *args, **kwargs)))
        self._begin()
        return future

    def _begin(self) -> None:
        while self._free and self._queue and not self._machine.died:
            self._free -= 1
            self._machine.later(partial(self._start, *self._queue.popleft()))

    def _start(self, future: SimulatedFuture[Any], work: Callable[[], Any]) -> None:
        if self._machine.died:
            return
        SimulatedThread(self._machine, partial(self._run, future, work)).step()

    def _run(self, future: SimulatedFuture[Any], work: Callable[[], Any]) -> None:
        """On a thread."""
        if future.set_running_or_notify_cancel():
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        self._free += 1
        self._begin()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for future, _ in self._queue:
                future.cancel()
