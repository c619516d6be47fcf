"""A node that watches itself: a sample every two seconds, of which the last minutes are kept.

A sample is what was counted since the one before, divided by the time that really passed. Where the clock was set back
samples are dated half as far apart as they are, until it has caught up: they stay in order. Topics are gone through in
slices, so that others have their turn. What is shown is always of whole samples; a pass that fails is told once and
taken again. How full the disk is is asked on a thread that nobody waits for: while it does not answer, the last answer
stands.

Closing is `stop`: it ends `run`, and with that a pass under way at its next slice.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from logboom.broker.monitor.activity import (
    Activity,
    ActivityRequest,
    DiskStats,
    History,
    Percentiles,
    TopicHistory,
)
from logboom.broker.monitor.counters import Counters, memory_bytes, open_files
from logboom.broker.monitor.lags import Lags
from logboom.broker.monitor.measures import Durations, add_up
from logboom.broker.monitor.pulses import NOTHING, Flow, Pulses, shown_numbers
from logboom.broker.monitor.ranking import Ranking, Sees
from logboom.broker.slices import slices
from logboom.broker.state.cursors import Cursors
from logboom.broker.world import REAL, World

SAMPLE_MS: Final = 2_000
HISTORY: Final = 300
"""Samples of the node that are kept."""
SLICE: Final = 64
"""Topics that are looked at in one go: the size of one that was just opened is asked of its files."""
logger = logging.getLogger("logboom.broker")
Answer = TypeVar("Answer")


class SystemProbe(Generic[Answer]):
    """A question to the system that may take for ever: asked on a thread of its own, one at a time."""

    def __init__(self, ask: Callable[[], Answer], world: World = REAL) -> None:
        self.answer: Answer | None = None
        """The last one there was."""
        self._ask = ask
        self._world = world
        self._is_asking = False

    def renew(self) -> None:
        """Ask again, unless the last answer has not come yet."""
        if self._is_asking:
            return
        self._is_asking = True
        try:
            self._world.start_thread(self._wait, "logboom-look")
        except RuntimeError:  # no thread could be made: next time
            self._is_asking = False

    def _wait(self) -> None:
        try:
            with suppress(OSError):
                self.answer = self._ask()
        finally:
            self._is_asking = False


@dataclass(frozen=True, slots=True)
class DiskVolume:
    """What the data directory lies on."""

    total_bytes: int
    free_bytes: int


def look_at_volume(path: str) -> DiskVolume:
    volume = os.statvfs(path)
    return DiskVolume(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)


@dataclass(frozen=True, slots=True)
class CountedTotals:
    """Of what is counted since the start: a sample is made of the difference of two."""

    append: Durations
    read: Durations
    sync: Durations
    rejections: int


Middle = tuple[float | None, float | None]
"""The 50th and the 99th percentile."""


@dataclass(frozen=True, slots=True)
class NodeSample:
    at: int
    rates: Flow
    append: Middle
    read: Middle
    sync: Middle
    rejections: int
    connections: int
    memory_bytes: int
    open_files: int
    unsynced_bytes: int
    disk_free_bytes: int


class Watcher:
    def __init__(
        self,
        counters: Counters,
        cursors: Callable[[], Cursors | None],
        volume: Callable[[], DiskVolume],
        reserve_bytes: int,
        world: World = REAL,
    ) -> None:
        self._counters = counters
        self._reserve_bytes = reserve_bytes
        self.clock = world.monotonic_s
        self.now = world.now_us
        self.volume = SystemProbe(volume, world)
        self._pulses = Pulses()
        self._lags = Lags(counters.catalog, cursors)
        self._ranking = Ranking(counters.catalog, self._pulses, self._lags)
        self._samples: deque[NodeSample] = deque(maxlen=HISTORY)
        self._number = 0
        """How many samples were taken."""
        self._since_s = self.clock()
        self._totals = self._count()
        self._came = NOTHING
        """In a sample that is not whole yet, of the topics that were looked at."""
        self._sampling = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopped = self._failing = False

    async def run(self) -> None:
        """Until it is stopped."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        self._since_s = self.clock()  # opening the logs may have taken long, and nothing came meanwhile
        self.volume.renew()
        while not self._stopped:
            # Where one was late the next is not hurried: rates of a moment would be any number whatever.
            due_s = max(due_s + SAMPLE_MS / 1000, loop.time() + SAMPLE_MS / 2000)
            await asyncio.sleep(due_s - loop.time())
            try:
                await self.sample()
                self._failing = False
            except Exception:
                if not self._failing:
                    logger.exception("the node could not look at itself; it tries again")
                self._failing = True

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def sample(self) -> None:
        """Take one."""
        async with self._sampling:
            now_s, at, number = self.clock(), self.now(), self._number
            elapsed_s = max(1e-3, now_s - self._since_s)
            totals, topics = self._count(), self._counters.catalog.unsorted()
            async for some in slices(topics, SLICE):
                self._came = self._came.plus(self._pulses.take(some, number, elapsed_s))
            self._pulses.keep_only(topics)
            await self._lags.take(number, now_s)
            at = max(at, self._samples[-1].at + int(elapsed_s * 5e5)) if self._samples else at
            self._samples.append(self._finish(at, totals, self._came.per(elapsed_s)))
            self._since_s, self._totals, self._came = now_s, totals, NOTHING
            self._number += 1
            self.volume.renew()

    def _finish(self, at: int, totals: CountedTotals, rates: Flow) -> NodeSample:
        before, volume = self._totals, self.volume.answer
        return NodeSample(
            at=at,
            rates=rates,
            append=_middle(totals.append.since(before.append)),
            read=_middle(totals.read.since(before.read)),
            sync=_middle(totals.sync.since(before.sync)),
            rejections=max(0, totals.rejections - before.rejections),
            connections=sum(count() for count in self._counters.connections.values()),
            memory_bytes=memory_bytes(),
            open_files=open_files(),
            unsynced_bytes=self._counters.rounds.unsynced_bytes,
            disk_free_bytes=0 if volume is None else volume.free_bytes,
        )

    def _count(self) -> CountedTotals:
        counters = self._counters
        meters = list(counters.meters.values())
        return CountedTotals(
            add_up(meter.append.shown() for meter in meters),
            add_up(meter.read.shown() for meter in meters),
            counters.rounds.counts.sync.shown(),
            sum(counters.rejections.values()),
        )

    @property
    def disk(self) -> DiskStats | None:
        """None until the disk has answered."""
        volume = self.volume.answer
        if volume is None:
            return None
        return DiskStats(volume.total_bytes, volume.free_bytes, self._reserve_bytes, self._pulses.size_bytes)

    def history(self, since: int = 0) -> History:
        samples = [sample for sample in self._samples if sample.at > since]
        return History(
            interval_ms=SAMPLE_MS,
            at=[sample.at for sample in samples],
            records_in=[sample.rates.records_in for sample in samples],
            bytes_in=[sample.rates.bytes_in for sample in samples],
            records_out=[sample.rates.records_out for sample in samples],
            bytes_out=[sample.rates.bytes_out for sample in samples],
            append=_percentiles([sample.append for sample in samples]),
            sync=_percentiles([sample.sync for sample in samples]),
            read=_percentiles([sample.read for sample in samples]),
            rejections=[sample.rejections for sample in samples],
            connections=[sample.connections for sample in samples],
            memory_bytes=[sample.memory_bytes for sample in samples],
            open_files=[sample.open_files for sample in samples],
            unsynced_bytes=[sample.unsynced_bytes for sample in samples],
            disk_free_bytes=[sample.disk_free_bytes for sample in samples],
        )

    async def activity(self, request: ActivityRequest, sees: Sees = None) -> Activity:
        """Without the topics that `sees` leaves out."""
        return await self._ranking.page(request, self._number, SAMPLE_MS, sees)

    async def topic_history(self, topic: str) -> TopicHistory:
        hosted = self._counters.catalog.find(topic)
        self._lags.note_asked(topic, self.clock())
        number = self._number
        length = len(shown_numbers(number))
        at = [sample.at for sample in self._samples][len(self._samples) - length :]
        came, went = self._pulses.recent(hosted, number)
        nothing = [0] * length
        cursors = await self._lags.history(hosted, number)
        return TopicHistory(SAMPLE_MS, at, came or nothing, went or nothing, cursors)


def _middle(durations: Durations) -> Middle:
    return durations.percentile(0.5), durations.percentile(0.99)


def _percentiles(some: list[Middle]) -> Percentiles:
    return Percentiles([p50 for p50, _ in some], [p99 for _, p99 in some])
