"""Who runs a job: takes its lease, beats while it runs, and publishes its end.

All of it happens on a thread of its own, so that beats go on whatever the job is busy with. Where a beat finds that
somebody else has the job, the run is told to stop; whether it does or not, it can publish nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from logboom.client.link.address import Servers
from logboom.client.remote import RemoteBroker
from logboom.client.values import EVERYBODY
from logboom.errors import LeaseHeld, LeaseLost, LogboomError
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Beat, Ended, Event, Leased, PipelineJob, PipelineState, Result

LEASE_S: Final = 30.0
BEATS: Final = 5
"""In the time of a lease."""
CONNECT_S: Final = 10.0
LOOK_S: Final = 0.5
GIVE_UP_S: Final = 5.0
"""How long a node that is away is waited for, to tell it that a run has failed."""
INTERRUPTED: Final = "interrupted"

logger = logging.getLogger("logboom.pipeline")


class Progress:
    """How far a run has come; what beats say, and what a screen shows."""

    def __init__(self) -> None:
        self.done = 0
        self.total = 0
        self.doing = ""


class Seen(NamedTuple):
    """A job as somebody has watched it, who takes it as it is or not at all."""

    epoch: int
    """0 where nobody has ever run it."""
    silent: int | None = None
    """The seqno of the last beat of its runner, who has been silent for as long as its lease; None: it has none."""


class Lease:
    """Of one job, for one run. To be ended, with `end`, and closed."""

    def __init__(
        self,
        servers: Servers,
        job: str,
        kind: str,
        topics: tuple[str, ...],
        lease_s: float = LEASE_S,
        on_wait: Callable[[str, float], None] = lambda runner, rest_s: None,
    ) -> None:
        """`on_wait` is told who has the job, and how long until it is taken over if nothing is heard of him."""
        self.job = job
        self.run = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
        self.epoch = 0
        self.progress = Progress()
        self.lost: LogboomError | None = None
        """Why this run has the job no more."""
        self._servers = servers
        self._kind = kind
        self._topics = topics
        self._lease_s = lease_s
        self._on_wait = on_wait
        self._is_unwanted = False
        self._broker: RemoteBroker | None = None
        self._ledger = PipelineLedger(self._connect, EVERYBODY)
        self._beating: Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="logboom-lease", daemon=True)
        self._thread.start()

    async def _connect(self) -> RemoteBroker:
        if self._broker is not None:
            await self._broker.close()
            self._broker = None
        self._broker = await RemoteBroker.connect(self._servers, CONNECT_S)
        return self._broker

    def take(self, wait: bool = True, seen: Seen | None = None) -> PipelineJob:
        """The job as it was before. Waits until nobody else runs it, or who does has been silent for long enough.

        With `wait` false, or where it is not as its caller has `seen` it any more, raises LeaseHeld.
        """
        taking = asyncio.run_coroutine_threadsafe(self._take(wait) if seen is None else self._take_as(seen), self._loop)
        try:
            job = taking.result()
        except KeyboardInterrupt:
            self._give_back(taking)
            raise
        self._beating = asyncio.run_coroutine_threadsafe(self._beat(), self._loop)
        return job

    def _give_back(self, taking: Future[PipelineJob]) -> None:
        """Whoever is interrupted while it takes the job may have it all the same."""
        self._is_unwanted = True
        with suppress(LogboomError, TimeoutError):
            taking.result(GIVE_UP_S)
            self.end(error=INTERRUPTED, patience_s=GIVE_UP_S)

    async def _take(self, wait: bool) -> PipelineJob:
        heard: tuple[int, float] | None = None
        while True:
            pipeline = await self._ledger.refresh()
            job = pipeline.jobs.get(self.job)
            lease = None if job is None else job.lease
            if lease is not None:
                now = time.monotonic()
                if heard is None or heard[0] != lease.seqno:
                    heard = lease.seqno, now
                rest_s = heard[1] + lease.lease_ms / 1000 - now
                if rest_s > 0:
                    if not wait or self._is_unwanted:
                        raise LeaseHeld(self.job, lease.runner)
                    self._on_wait(lease.runner, rest_s)
                    await self._ledger.refresh(int(1000 * min(rest_s, LOOK_S)))
                    continue
            before = None if lease is None else lease.seqno
            if await self._ledger.put(partial(self._claim, silent=before)) is not None:
                return self._taken()

    async def _take_as(self, seen: Seen) -> PipelineJob:
        def claim(pipeline: PipelineState) -> Event | None:
            job = pipeline.jobs.get(self.job)
            is_so = (0 if job is None else job.epoch) == seen.epoch
            return self._claim(pipeline, seen.silent) if is_so else None

        if await self._ledger.put(claim) is None:
            job = self._ledger.pipeline.jobs.get(self.job)
            raise LeaseHeld(self.job, "another runner" if job is None or job.lease is None else job.lease.runner)
        return self._taken()

    def _taken(self) -> PipelineJob:
        job = self._ledger.pipeline.jobs[self.job]
        self.epoch = job.epoch
        return msgspec.structs.replace(job)  # the one of the pipeline's state goes on

    def _claim(self, pipeline: PipelineState, silent: int | None) -> Event | None:
        """A lease, if nobody has one but who has been silent since this seqno."""
        job = pipeline.jobs.get(self.job)
        if job is not None and job.lease is not None and job.lease.seqno != silent:
            return None
        epoch = 1 if job is None else job.epoch + 1
        runner = f"{socket.gethostname()}:{os.getpid()}"
        return Leased(self.job, self._kind, epoch, self.run, runner, int(1000 * self._lease_s), self._topics)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / BEATS)
            progress = self.progress
            beat = Beat(self.job, self.epoch, progress.done, progress.total, progress.doing)
            try:
                await self._ledger.put(partial(self._own, event=beat), self._lease_s)
            except LeaseLost as error:
                self.lost = error
                logger.error("%s", error)
                return
            except LogboomError as error:
                logger.warning("%s: a beat was not heard: %s", self.job, error)

    def _own(self, pipeline: PipelineState, event: Event) -> Event:
        pipeline.check(self.job, self.epoch, self.run)
        return event

    def check(self) -> None:
        """Raises where somebody else has the job: no need to go on."""
        if self.lost is not None:
            raise self.lost

    def end(
        self,
        result: Result | None = None,
        error: str | None = None,
        summary: dict[str, Any] | None = None,
        seconds: float = 0.0,
        patience_s: float = 60.0,
    ) -> PipelineState:
        """Publish the result, or say why there is none. Raises LeaseLost, and then nothing is published.

        Who is interrupted meanwhile is told when it is done. A node that is away is waited for so long.
        """
        ended = Ended(self.job, self.epoch, self.run, result, error, summary or {}, seconds)
        ending = asyncio.run_coroutine_threadsafe(self._end(ended, patience_s), self._loop)
        try:
            return ending.result()
        except KeyboardInterrupt:
            ending.result()
            raise

    async def _end(self, ended: Ended, patience_s: float) -> PipelineState:
        self._stop_beating()
        await self._ledger.put(partial(self._own, event=ended), patience_s)
        with suppress(LogboomError):  # what follows is for tidiness only
            await self._ledger.tidy()
        return self._ledger.pipeline

    def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    @property
    def pipeline(self) -> PipelineState:
        return self._ledger.pipeline

    def close(self) -> None:
        self._stop_beating()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._broker is not None:
            await self._broker.close()
