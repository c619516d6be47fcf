from __future__ import annotations

import asyncio
from typing import cast

from logboom.broker.api import Broker, PartitionInfo, Settings, TopicInfo
from logboom.broker.caller import EVERYBODY, Caller
from logboom.results.job_standings import STRAY_KEPT_US, JobInfo, known_jobs, stand
from logboom.results.pipeline_state import Covered, LeaseHolder, PastRun, PipelineJob, PipelineState, Result

ID, OTHER = "a" * 32, "b" * 32


def topic(topic_id: str = ID, first: int = 0) -> TopicInfo:
    logs = [PartitionInfo(number, first, 100, 100) for number in range(2)]
    return TopicInfo("events", topic_id, logs, Settings())


def only(job: PipelineJob, topics: list[TopicInfo] | None = None, now: int = 0) -> JobInfo:
    pipeline = PipelineState()
    pipeline.jobs["archive/events"] = job
    (found,) = stand(pipeline, [topic()] if topics is None else topics, now)
    return found


def job(
    spans: dict[int, tuple[int, int]] | None = None, error: str | None = None, lease: LeaseHolder | None = None
) -> PipelineJob:
    results = [] if spans is None else [Result("one", "/one", {"events": Covered(ID, spans)})]
    runs = [PastRun("one", 1, "x", 0, 5), PastRun("two", 2, "x", 6, 9, error)]
    return PipelineJob("archive", ("events",), 2, lease, results, runs)


def test_a_job_is_idle_failed_running_or_silent() -> None:
    lease = LeaseHolder(3, "three", "x", 1000, 0, 7, 5_000_000, 1, 2, "reads")
    assert only(job()).state == "idle"
    failed = only(job(error="no room"))
    assert (failed.state, failed.error, failed.succeeded) == ("failed", "no room", 5)
    running = only(job(lease=lease), now=6_000_000)
    assert (running.state, running.running and running.running.doing) == ("running", "reads")
    assert only(job(lease=lease), now=6_000_001).state == "silent"


def test_the_last_run_is_shown_first() -> None:
    assert [run.run for run in only(job()).runs] == ["two", "one"]


def test_the_lag_is_what_came_after_what_the_result_covers() -> None:
    assert only(job()).lag is None
    assert only(job({0: (0, 100), 1: (0, 100)})).lag == 0
    assert only(job({0: (0, 90), 1: (10, 100)})).lag == 10
    assert only(job({0: (0, 100)})).lag == 100


def test_what_is_gone_is_no_lag() -> None:
    assert only(job({0: (0, 10), 1: (0, 100)}), [topic(first=80)]).lag == 20


def test_a_topic_that_was_made_anew_is_not_covered_and_one_that_is_gone_has_no_lag() -> None:
    assert only(job({0: (0, 100), 1: (0, 100)}), [topic(OTHER)]).lag == 200
    assert only(job({0: (0, 100)}), []).lag is None


class Topics:
    """A node that has these topics."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def list_topics(self, prefix: str, internal: bool, *, caller: Caller) -> list[TopicInfo]:
        return [TopicInfo(name, ID, [], Settings()) for name in self.names]


def listed(job: PipelineJob, now: int, *names: str) -> bool:
    return bool(asyncio.run(known_jobs(cast(Broker, Topics(*names)), [only(job, now=now)], now, EVERYBODY)))


def test_a_job_of_a_topic_that_never_was_is_not_listed_for_ever() -> None:
    failed = PipelineJob(
        "archive", ("evnets",), 1, None, [], [PastRun("one", 1, "x", 0, 9, "there is no topic 'evnets'")]
    )
    late = 10 + STRAY_KEPT_US
    assert listed(failed, late - 1)
    assert not listed(failed, late)
    assert not listed(failed, late, "events")
    assert listed(failed, late, "evnets")
    made = PipelineJob("archive", ("evnets",), 2, None, [Result("one", "/one", {})], failed.runs)
    assert listed(made, late)
    worked = PipelineJob("archive", ("evnets",), 2, None, [], [PastRun("one", 1, "x", 0, 5), *failed.runs])
    assert listed(worked, late)
    everything = PipelineJob("report", (), 1, None, [], failed.runs)
    assert listed(everything, late)
    running = PipelineJob("archive", ("evnets",), 2, LeaseHolder(2, "two", "x", 1000, 0, 7, late), [], failed.runs)
    assert listed(running, late)
