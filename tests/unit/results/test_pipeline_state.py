from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from logboom.batch import Record
from logboom.errors import LeaseLost, ResultsUnreadable
from logboom.results.pipeline_state import (
    RESULTS_KEPT,
    RUNS_KEPT,
    TAKEN_OVER,
    UNREAD,
    Beat,
    Covered,
    Ended,
    Event,
    Leased,
    PipelineState,
    Result,
    ResultFile,
    encode,
)

JOB = "archive/events"


def leased(epoch: int, run: str = "one", runner: str = "here:1") -> Leased:
    return Leased(JOB, "archive", epoch, run, runner, 30_000, ("events",))


def ended(epoch: int, run: str = "one", error: str | None = None, has_result: bool = True) -> Ended:
    result = Result(run, f"/results/{run}") if has_result and error is None else None
    return Ended(JOB, epoch, run, result, error)


def records(events: list[Event], seqno: int = 0) -> Iterator[Record]:
    for number, event in enumerate(events, seqno):
        yield Record(encode(event), timestamp=1000 * (number + 1), seqno=number)


def fold(*events: Event) -> PipelineState:
    pipeline = PipelineState()
    pipeline.fold(records(list(events)))
    return pipeline


def test_a_job_is_run_by_who_has_leased_it_until_he_has_ended() -> None:
    pipeline = fold(leased(1), Beat(JOB, 1, 3, 8, "reading"))
    lease = pipeline.jobs[JOB].lease
    assert lease is not None
    assert (lease.runner, lease.since, lease.heard, lease.seqno) == ("here:1", 1000, 2000, 1)
    assert (lease.done, lease.total, lease.doing) == (3, 8, "reading")
    pipeline.fold(records([ended(1)], 2))
    assert pipeline.jobs[JOB].lease is None
    assert pipeline.next == 3


def test_a_result_counts_from_the_end_of_its_run_and_has_the_time_of_that() -> None:
    covers = {"events": Covered("ab" * 16, {0: (0, 5), 7: (3, 3)})}
    result = Result("one", "s3://b/one", covers, ResultFile("m.json", 3, 9), 5, 50, {"of": "all"})
    pipeline = fold(leased(1), Beat(JOB, 1))
    assert pipeline.result(JOB) is None
    pipeline.fold(records([Ended(JOB, 1, "one", result, None, {"records": 5})], 2))
    assert pipeline.result(JOB) == msgspec.structs.replace(result, at=3000)
    (run,) = pipeline.jobs[JOB].runs
    assert (run.began, run.ended, run.error, run.summary, run.has_result) == (1000, 3000, None, {"records": 5}, True)


def test_a_run_without_news_leaves_the_result_that_was() -> None:
    pipeline = fold(leased(1), ended(1), leased(2, "two"), ended(2, "two", has_result=False))
    result = pipeline.result(JOB)
    assert result is not None
    assert result.run == "one"
    assert [run.has_result for run in pipeline.jobs[JOB].runs] == [True, False]


def test_a_run_that_failed_leaves_the_result_that_was_and_says_why() -> None:
    pipeline = fold(leased(1), ended(1), leased(2, "two"), ended(2, "two", "no room"), leased(3, "three"))
    job = pipeline.jobs[JOB]
    assert job.result is not None
    assert job.result.run == "one"
    assert [run.error for run in job.runs] == [None, "no room"]
    assert (job.succeeded, job.failures) == (2000, 1)


def test_who_takes_over_ends_the_run_that_was_not_heard_of() -> None:
    pipeline = fold(leased(1), leased(2, "two", "there:2"))
    job = pipeline.jobs[JOB]
    assert job.lease is not None
    assert (job.lease.runner, job.epoch) == ("there:2", 2)
    assert [(run.run, run.error) for run in job.runs] == [("one", TAKEN_OVER)]


@pytest.mark.parametrize("late", [Beat(JOB, 1, 99), ended(1), leased(1, "again"), leased(2, "again")])
def test_what_an_old_epoch_says_counts_for_nothing(late: Event) -> None:
    before = fold(leased(1), leased(2, "two"))
    after = fold(leased(1), leased(2, "two"), late)
    assert after.jobs == before.jobs
    assert after.next == before.next + 1


@pytest.mark.parametrize("stray", [Beat(JOB, 1), ended(1)])
def test_what_is_said_of_a_job_that_nobody_runs_counts_for_nothing(stray: Event) -> None:
    assert fold(stray).jobs == {}
    assert fold(leased(1), ended(1), stray).jobs == fold(leased(1), ended(1)).jobs


def test_only_the_run_that_has_the_job_passes_the_check() -> None:
    pipeline = fold(leased(1), leased(2, "two", "there:2"))
    assert pipeline.check(JOB, 2, "two").epoch == 2
    with pytest.raises(LeaseLost, match="there:2 has it since, with epoch 2"):
        pipeline.check(JOB, 1, "one")
    with pytest.raises(LeaseLost, match="there:2 has it since, with epoch 2"):
        pipeline.check(JOB, 2, "another")
    pipeline.fold(records([ended(2, "another")], 2))
    assert pipeline.result(JOB) is None
    with pytest.raises(LeaseLost, match="it has ended"):
        fold(leased(1), ended(1)).check(JOB, 1, "one")
    with pytest.raises(LeaseLost):
        pipeline.check("archive/other", 1, "one")


def test_a_whole_stands_for_all_before_it() -> None:
    events: list[Event] = [leased(1), ended(1), leased(2, "two"), Beat(JOB, 2, 1, 2, "x")]
    told = fold(*events)
    whole = told.whole()
    assert fold(*events, whole).jobs == told.jobs
    fresh = PipelineState()
    fresh.fold(records([whole, ended(2, "two")], len(events)))
    told.fold(records([whole, ended(2, "two")], len(events)))
    assert fresh.jobs == told.jobs
    assert (fresh.next, fresh.since_whole) == (6, 1)


def test_of_runs_and_results_the_last_are_kept() -> None:
    events: list[Event] = []
    for epoch in range(1, RUNS_KEPT + 6):
        events += [leased(epoch, str(epoch)), ended(epoch, str(epoch))]
    job = fold(*events).jobs[JOB]
    assert [run.epoch for run in job.runs] == list(range(6, RUNS_KEPT + 6))
    assert [result.run for result in job.results] == [str(RUNS_KEPT + 6 - back) for back in range(RESULTS_KEPT, 0, -1)]


def test_failures_are_counted_since_the_last_success() -> None:
    events: list[Event] = []
    for epoch in range(1, 4):
        events += [leased(epoch, str(epoch)), ended(epoch, str(epoch), "broken")]
    job = fold(*events).jobs[JOB]
    assert (job.failures, job.succeeded) == (3, None)


NO_EVENTS = [b"", b"null", b"{}", b'{"event":"moved"}', b'{"event":"beat","job":7}', b"\xff"]


@pytest.mark.parametrize("value", NO_EVENTS)
def test_a_record_that_is_no_event_is_passed_over_and_named(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = fold(leased(1))
    pipeline.fold([Record(value, timestamp=5, seqno=1)])
    assert "_pipeline, partition 0, seqno 1 cannot be read" in caplog.text
    pipeline.fold(records([ended(1)], 2))
    assert (pipeline.next, pipeline.jobs) == (3, fold(leased(1), Beat("other", 1), ended(1)).jobs)
    assert pipeline.may_have_more(JOB)


def test_what_cannot_be_read_of_a_job_may_be_a_lease_so_nobody_has_it_who_had_it_before() -> None:
    pipeline = fold(leased(1), ended(1), leased(2, "two"))
    pipeline.fold([Record(b"?", key=JOB.encode(), timestamp=5000, seqno=3)])
    job = pipeline.jobs[JOB]
    assert job.lease is not None
    assert (job.epoch, job.lease.epoch, job.lease.seqno, job.lease.heard) == (3, 3, 3, 5000)
    assert "seqno 3 cannot be read" in job.lease.doing
    with pytest.raises(LeaseLost, match="an unknown runner has it since"):
        pipeline.check(JOB, 2, "two")
    assert job.runs[-1].error == UNREAD
    assert job.result is not None, "what was published counts still"
    pipeline.fold(records([leased(4, "four"), ended(4, "four")], 4))
    assert pipeline.jobs[JOB].result == msgspec.structs.replace(Result("four", "/results/four"), at=6000)


def test_until_all_is_said_anew_a_job_of_which_something_cannot_be_read_may_have_more() -> None:
    pipeline = fold(leased(1), ended(1))
    pipeline.fold([Record(b"?", key=b"archive/other", timestamp=5, seqno=2)])
    assert (pipeline.may_have_more("archive/other"), pipeline.may_have_more(JOB)) == (True, False)
    assert pipeline.since_whole == 0
    pipeline.fold(records([pipeline.whole()], 3))
    assert not pipeline.may_have_more("archive/other")


def test_what_a_trimmed_log_begins_with_is_never_passed_over() -> None:
    pipeline = PipelineState()
    for _ in range(2):
        with pytest.raises(ResultsUnreadable, match="_pipeline, partition 0, seqno 7 cannot be read"):
            pipeline.fold([Record(b'{"event":"everything"}', timestamp=5, seqno=7)])
    assert pipeline.next == 0


def test_events_that_are_lost_are_noticed_and_any_job_may_have_more(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = fold(leased(1))
    pipeline.fold(records([ended(1)], 4))
    assert "seqnos 1 to 3 are lost" in caplog.text
    assert pipeline.next == 5
    assert pipeline.may_have_more(JOB)
