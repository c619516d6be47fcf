"""When a job is due, by what the pipeline's state says of it: so all who run it agree, whoever ran it last.

An interval is counted from the end of the last run that succeeded. What failed is tried again sooner, after a while
that doubles each time, up to the interval.
"""

from __future__ import annotations

import time
from typing import Final

from logboom.results.pipeline_state import PipelineJob, PipelineState
from logboom.spark.jobs.lease import Seen

FIRST_MS: Final = 5_000
"""How long after a run that failed the next one begins."""
DOUBLINGS_MAX: Final = 20


def due_at(job: PipelineJob | None, every_ms: int) -> int:
    """Microseconds, by the node's clock; 0 where it was never run."""
    if job is None or not job.runs:
        return 0
    last = job.runs[-1]
    wait_ms = every_ms
    if last.error is not None:
        wait_ms = min(every_ms, FIRST_MS << min(job.failures - 1, DOUBLINGS_MAX))
    return last.ended + 1000 * wait_ms


class RunnerWatch:
    """Since when each runner is silent, by the clock of whoever watches."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, float]] = {}

    def look(self, pipeline: PipelineState, now_s: float | None = None) -> None:
        now_s = time.monotonic() if now_s is None else now_s
        leases = {name: job.lease for name, job in pipeline.jobs.items() if job.lease is not None}
        before = self._heard
        self._heard = {
            name: before[name] if before.get(name, (-1,))[0] == lease.seqno else (lease.seqno, now_s)
            for name, lease in leases.items()
        }

    def free_in_s(self, name: str, job: PipelineJob | None, now_s: float | None = None) -> float:
        """How long until the job may be taken, if nothing more is heard of who has it; 0 where nobody has."""
        if job is None or job.lease is None:
            return 0.0
        now_s = time.monotonic() if now_s is None else now_s
        return max(0.0, self._heard[name][1] + job.lease.lease_ms / 1000 - now_s)


def seen(job: PipelineJob | None) -> Seen:
    """For taking a job that is free."""
    if job is None:
        return Seen(0)
    return Seen(job.epoch, None if job.lease is None else job.lease.seqno)
