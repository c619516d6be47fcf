"""How each job of the pipeline stands: whether it runs, what it has made last, and how far that is behind its log.

Made of the pipeline's state and of where the logs end. The command line, HTTP, the console and metrics show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from logboom.broker.api import TopicCalls, TopicInfo
from logboom.broker.caller import Caller
from logboom.results.pipeline_state import Covered, LeaseHolder, PastRun, PipelineJob, PipelineState, Result

State = Literal["running", "silent", "idle", "failed", "new"]
"""`silent`: its runner was not heard of for as long as its lease; `new`: it is configured and was never run."""


STRAY_KEPT_US: Final = 3_600_000_000
"""A job of a topic that is not there is shown for so long after it has failed, microseconds."""


class RunningInfo(msgspec.Struct, frozen=True):
    """A run that has not ended."""

    run: str
    runner: str
    """Host and process id."""
    since: int
    """Microseconds, as all times here."""
    heard: int
    done: int
    total: int
    """Of the same unit as `done`; 0 where nobody knows."""
    doing: str

    @classmethod
    def of(cls, lease: LeaseHolder) -> RunningInfo:
        facts = lease.since, lease.heard, lease.done, lease.total, lease.doing
        return cls(lease.run, lease.runner, *facts)


class JobInfo(msgspec.Struct, frozen=True):
    job: str
    """What it makes: `archive/events`."""
    kind: str
    topics: tuple[str, ...]
    state: State
    name: str | None = None
    """What the configuration calls it, where that is known."""
    running: RunningInfo | None = None
    result: Result | None = None
    """The one that counts."""
    lag: int | None = None
    """Records of its topics that came after what the result covers; None where there is no result to compare."""
    succeeded: int | None = None
    """When a run last ended without an error."""
    error: str | None = None
    """Of the last run that has ended."""
    runs: list[PastRun] = []
    """The last ones, newest first."""


def stand(pipeline: PipelineState, topics: Iterable[TopicInfo], now: int) -> list[JobInfo]:
    """Every job, by what it makes. `now` is the node's time, microseconds."""
    known = {info.name: info for info in topics}
    return [_stand(name, job, known, now) for name, job in sorted(pipeline.jobs.items())]


async def known_jobs(broker: TopicCalls, infos: list[JobInfo], now: int, caller: Caller) -> list[JobInfo]:
    """Without those that were never anything: whose every run has failed, of topics of which this node has none, and
    that nobody has tried for STRAY_KEPT_US. A name was misspelt, or a topic is gone that nothing was made of."""
    strays = [info for info in infos if _may_be_stray(info, now)]
    if not strays:
        return infos
    there = {info.name for info in await broker.list_topics("", internal=True, caller=caller)}
    gone = {info.job for info in strays if there.isdisjoint(info.topics)}
    return [info for info in infos if info.job not in gone]


def _may_be_stray(info: JobInfo, now: int) -> bool:
    is_barren = info.state == "failed" and info.result is None and info.succeeded is None
    return is_barren and bool(info.topics) and now - info.runs[0].ended > STRAY_KEPT_US


def _stand(name: str, job: PipelineJob, topics: Mapping[str, TopicInfo], now: int) -> JobInfo:
    lease = job.lease
    error = job.runs[-1].error if job.runs else None
    state: State = "idle" if error is None else "failed"
    if lease is not None:
        state = "silent" if now - lease.heard > 1000 * lease.lease_ms else "running"
    return JobInfo(
        name,
        job.kind,
        job.topics,
        state,
        running=None if lease is None else RunningInfo.of(lease),
        result=job.result,
        lag=None if job.result is None else _lag(job.result, topics),
        succeeded=job.succeeded,
        error=error,
        runs=job.runs[::-1],
    )


def _lag(result: Result, topics: Mapping[str, TopicInfo]) -> int | None:
    """Of topics that are there still; None where none is."""
    known = [(topics[name], covered) for name, covered in result.covers.items() if name in topics]
    return sum(_behind(info, covered) for info, covered in known) if known else None


def _behind(info: TopicInfo, covered: Covered) -> int:
    """A topic that was made anew is not covered at all."""
    spans = covered.spans if covered.topic_id == info.id else {}
    ends = ((partition, spans.get(partition.partition, (0, 0))[1]) for partition in info.partitions)
    return sum(max(0, partition.committed - max(until, partition.first)) for partition, until in ends)
