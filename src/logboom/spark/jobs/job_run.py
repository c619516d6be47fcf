"""Runs one job of the pipeline, from its lease to its result.

    lease → work, into a directory of this run → ended, with the result → what nobody refers to any more goes

A run that dies leaves its directory and its lease: the next one takes the lease over when its beats have stopped, and
removes, before it does anything, the directories of epochs before its own that no result refers to. Nobody can publish
from those any more, so that is safe however late it happens, and whoever else is at it. Where the pipeline's state
has passed over something that may have been a result of this job, nothing is removed.

A run whose lease is lost is stopped, with what Spark does for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from logboom.client.link.address import Servers
from logboom.errors import LeaseLost, LogboomError
from logboom.results.pipeline_state import Covered, PipelineJob, Result, ResultFile
from logboom.results.places import ResultPlace
from logboom.spark.jobs.lease import GIVE_UP_S, INTERRUPTED, LEASE_S, Lease, Progress, Seen
from logboom.spark.jobs.tasks import Stoppable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS: Final = "runs"
"""Below the directory of a job: a directory for each run."""

logger = logging.getLogger("logboom.pipeline")


@dataclass(frozen=True)
class JobOutcome:
    """What a run has made; without `covers`, nothing: there was nothing to do."""

    covers: dict[str, Covered] = field(default_factory=dict)
    manifest: ResultFile | None = None
    records: int = 0
    bytes: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    """For whoever looks at the run: names and numbers."""
    then: Callable[[], None] = lambda: None
    """Called when the run has ended well: what its result has made superfluous may go."""


class JobWork(Protocol):
    """A job, as it is configured. Says what it makes, and makes it."""

    @property
    def kind(self) -> str: ...

    @property
    def topics(self) -> tuple[str, ...]: ...

    @property
    def id(self) -> str:
        """The same for all that would make the same: `checkpoint/orders/key`. Letters that a path can have."""
        ...

    def do(self, run: JobRun) -> JobOutcome:
        """Everything it writes goes below `run.place`, or below `run.home` where nobody else can want the name.

        Calls `run.check` now and then, and says in `run.progress` how far it has come.
        """
        ...


@dataclass
class JobRun:
    """What a job is given to do its work."""

    servers: Servers
    spark: Callable[[], SparkSession]
    """A session; made when it is first asked for."""
    home: ResultPlace
    """Of the job: what it keeps from run to run."""
    place: ResultPlace
    """Of this run, and empty."""
    lease: Lease
    before: PipelineJob
    """The job as it was: its results, newest last."""

    @property
    def id(self) -> str:
        return self.lease.run

    @property
    def last(self) -> Result | None:
        """The result that counts until this run has one."""
        return self.before.result

    @property
    def progress(self) -> Progress:
        return self.lease.progress

    def check(self) -> None:
        """Raises LeaseLost where somebody else has the job by now."""
        self.lease.check()


@dataclass(frozen=True)
class RunReport:
    """How a run ended."""

    job: str
    run: str
    result: Result | None
    summary: dict[str, Any]
    seconds: float


def run_job(
    work: JobWork,
    servers: Servers,
    spark: Callable[[], SparkSession],
    place: str,
    *,
    wait: bool = True,
    seen: Seen | None = None,
    lease_s: float = LEASE_S,
    on_wait: Callable[[str, float], None] = lambda runner, rest_s: None,
    on_begin: Callable[[Progress], None] = lambda progress: None,
) -> RunReport:
    """Run a job once. Raises what went wrong, which is then in the pipeline's state too; nothing is published then.

    `wait` and `seen` are those of `Lease.take`: what to do where somebody else runs it.
    """
    home = ResultPlace(place).below(work.id)
    lease = Lease(servers, work.id, work.kind, work.topics, lease_s, on_wait)
    try:
        before = lease.take(wait, seen)
        began = time.monotonic()
        own = f"{RUNS}/{lease.epoch:08d}-{lease.run}"
        try:
            on_begin(lease.progress)
            _remove_orphans(home, lease, before)
            with closing(Stoppable(spark, lambda: lease.lost is not None)) as stoppable:
                run = JobRun(servers, stoppable, home, home.below(own), lease, before)
                outcome = work.do(run)
            lease.check()
        except BaseException as error:
            _give_up(lease, error, time.monotonic() - began)
            with suppress(Exception):
                home.remove(own)
            if lease.lost is not None and isinstance(error, Exception):
                raise lease.lost from error
            raise
        seconds = time.monotonic() - began
        result = _result_of(run, outcome)
        try:
            pipeline = lease.end(result, None, outcome.summary, seconds)
        except LeaseLost:
            with suppress(Exception):
                home.remove(own)
            raise
        try:
            if result is None:
                home.remove(own)
            _sweep(home, lease, pipeline.jobs[work.id])
            outcome.then()
        except Exception as error:  # the result counts; the next run sweeps again
            logger.warning("%s: what earlier runs have left could not be removed: %s", work.id, error)
        return RunReport(work.id, lease.run, result, outcome.summary, seconds)
    finally:
        lease.close()


def _result_of(run: JobRun, outcome: JobOutcome) -> Result | None:
    if not outcome.covers and outcome.manifest is None:
        return None
    facts = outcome.records, outcome.bytes, outcome.facts
    return Result(run.id, run.place.uri, outcome.covers, outcome.manifest, *facts)


def _give_up(lease: Lease, error: BaseException, seconds: float) -> None:
    """Say why. Where that cannot be said, another runner finds out by itself."""
    if isinstance(error, LeaseLost):
        return
    is_interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
    reason = INTERRUPTED if is_interrupted else f"{type(error).__name__}: {error}"
    with suppress(LogboomError):
        lease.end(None, reason[:4000], None, seconds, GIVE_UP_S)


def _remove_orphans(home: ResultPlace, lease: Lease, job: PipelineJob) -> None:
    """What runs have left that came to no end, however often that happens."""
    try:
        _sweep(home, lease, job)
    except Exception as error:  # the next run tries again
        logger.warning("%s: what earlier runs have left could not be removed: %s", lease.job, error)


def _sweep(home: ResultPlace, lease: Lease, job: PipelineJob) -> None:
    """Directories of earlier epochs that no result is in, nor names in `runs` as having files of its own.

    By their names, which no other run has: results may have been copied here from elsewhere.
    """
    if lease.pipeline.may_have_more(lease.job):
        logger.warning("%s: nothing is removed: what cannot be read may have been a result", lease.job)
        return
    runs = home.below(RUNS)
    kept = {ResultPlace(result.place).name for result in job.results}
    kept |= {name for result in job.results for name in result.facts.get("runs", ())}
    for name in runs.list():
        number = name.partition("-")[0]
        if number.isdigit() and int(number) < lease.epoch and name.rstrip("/") not in kept:
            runs.remove(name)
