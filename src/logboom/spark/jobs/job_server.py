"""Runs the jobs of a configuration at their intervals, one after another, for ever.

The pipeline's state alone says what is due and who runs what: so any number of these, on any number of machines, share
the work without doing it twice, and one more of them is how two jobs run at once. What fails is told and tried again; a
node that is away is waited for; a Spark that died is started again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from logboom.client.remote import RemoteBroker
from logboom.client.values import EVERYBODY
from logboom.errors import LeaseHeld, OutcomeUnknown, Unavailable
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import PipelineState
from logboom.spark.jobs.config import JobConfig, PipelineConfig
from logboom.spark.jobs.job_run import RunReport, run_job
from logboom.spark.jobs.schedule import FIRST_MS, RunnerWatch, due_at, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S: Final = 5.0
"""At least so often it is asked what is new."""
CONNECT_S: Final = 10.0
AWAY_S: Final = 2.0
"""Between two tries to reach a node that is away."""

logger = logging.getLogger("logboom.pipeline")


class Server:
    """To be closed."""

    def __init__(self, config: PipelineConfig, spark: Callable[[], SparkSession]) -> None:
        self._config = config
        self._spark = spark
        self._jobs = {job.work.id: job for job in config.jobs.values() if job.every_ms is not None}
        self._held: dict[str, float] = {}
        """Jobs that failed here, and until when they are left alone, whatever the pipeline's state knows of it."""
        self._watch = RunnerWatch()
        self._broker: RemoteBroker | None = None
        self._ledger = PipelineLedger(self._connect, EVERYBODY)
        self._runner = asyncio.Runner()
        self._is_away = False

    async def _connect(self) -> RemoteBroker:
        if self._broker is not None:
            await self._broker.close()
            self._broker = None
        self._broker = await RemoteBroker.connect(self._config.server, CONNECT_S, retry=False)
        return self._broker

    def run(self) -> None:
        """Until it is interrupted."""
        wait_s = 0.0
        while True:
            try:
                now = self._look(wait_s)
                if self._is_away:
                    logger.info("the node answers again")
                self._is_away = False
                wait_s = self._step(now)
            except (Unavailable, OutcomeUnknown) as error:
                if not self._is_away:
                    logger.warning("the node is away: %s", error)
                self._is_away, wait_s = True, 0.0
                time.sleep(AWAY_S)

    def _look(self, wait_s: float) -> int:
        """Catches up with the pipeline's state, or waits for news; the node's time, microseconds."""

        async def look() -> int:
            await self._ledger.refresh(int(1000 * wait_s))
            return (await (self._broker or await self._connect()).stats()).now

        now = self._runner.run(look())
        self._watch.look(self._pipeline)
        return now

    @property
    def _pipeline(self) -> PipelineState:
        return self._ledger.pipeline

    def _step(self, now: int) -> float:
        """Run what has been due longest; or, where nothing is, how long to wait."""
        waits: dict[str, tuple[float, int]] = {}
        for name, config in self._jobs.items():
            job = self._pipeline.jobs.get(name)
            due = due_at(job, config.every_ms or 0)
            free_s = self._watch.free_in_s(name, job)
            held_s = self._held.get(name, 0.0) - time.monotonic()
            waits[name] = max(0.0, (due - now) / 1e6, free_s, held_s), due
        name = min(waits, key=lambda name: waits[name])
        if waits[name][0] > 0:
            return min(LOOK_S, waits[name][0])
        self._run(self._jobs[name])
        return 0.0

    def _run(self, config: JobConfig) -> None:
        work = config.work
        logger.info("%s: %s begins", config.name, work.id)
        try:
            report = run_job(
                work,
                self._config.server,
                self._spark,
                self._config.directory,
                seen=seen(self._pipeline.jobs.get(work.id)),
                lease_s=self._config.lease_ms / 1000,
            )
        except LeaseHeld as held:
            logger.info("%s: %s has it", config.name, held.runner)
        except (Unavailable, OutcomeUnknown):
            self._held[work.id] = time.monotonic() + FIRST_MS / 1000
            raise
        except Exception as error:
            self._held[work.id] = time.monotonic() + FIRST_MS / 1000
            logger.error("%s: failed: %s", config.name, describe(error))
        else:
            logger.info("%s: %s", config.name, summarise(report))

    def close(self) -> None:
        async def close() -> None:
            # Spark's handler of Ctrl-C raises wherever it is: what was asked then is still under way.
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._broker is not None:
                await self._broker.close()

        self._runner.run(close())
        self._runner.close()


def describe(error: BaseException) -> str:
    """The first line of what Spark, or anybody, says at length."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]


def summarise(report: RunReport) -> str:
    """One line."""
    facts = ", ".join(f"{name} {_written(value)}" for name, value in report.summary.items())
    done = "done" if report.result is not None else "nothing new"
    return f"{done} in {report.seconds:.1f} s{f': {facts}' if facts else ''}"


def _written(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
