from __future__ import annotations

from logboom.results.pipeline_state import LeaseHolder, PastRun, PipelineJob, PipelineState
from logboom.spark.jobs.lease import Seen
from logboom.spark.jobs.schedule import RunnerWatch, due_at, seen

MINUTE_MS = 60_000
SECOND = 1_000_000


def runs(*errors: str | None) -> list[PastRun]:
    """Each ends a second after the one before."""
    return [PastRun(str(at), at, "x", 0, at * SECOND, error) for at, error in enumerate(errors, 1)]


def test_a_job_that_was_never_run_is_due() -> None:
    assert due_at(None, MINUTE_MS) == 0
    assert due_at(PipelineJob("count"), MINUTE_MS) == 0


def test_an_interval_is_counted_from_the_last_success_of_anybody() -> None:
    assert due_at(PipelineJob("count", runs=runs(None, None)), MINUTE_MS) == 62 * SECOND


def test_what_failed_is_tried_again_later_each_time_and_never_later_than_its_interval() -> None:
    waits = [due_at(PipelineJob("count", runs=runs(None, *["no"] * times)), MINUTE_MS) for times in range(1, 7)]
    assert [wait // SECOND - at for at, wait in enumerate(waits, 2)] == [5, 10, 20, 40, 60, 60]
    assert due_at(PipelineJob("count", runs=runs("no")), 1000) == 2 * SECOND
    assert due_at(PipelineJob("count", runs=runs(*["no"] * 20)), MINUTE_MS) == 80 * SECOND


def pipeline(seqno: int | None) -> PipelineState:
    found = PipelineState()
    lease = None if seqno is None else LeaseHolder(4, "run", "x", 10_000, 0, seqno, 0)
    found.jobs["count/x"] = PipelineJob("count", epoch=4, lease=lease)
    return found


def free_in_s(watch: RunnerWatch, found: PipelineState, now_s: float) -> float:
    watch.look(found, now_s)
    return watch.free_in_s("count/x", found.jobs["count/x"], now_s)


def test_a_runner_is_silent_when_nothing_new_was_seen_of_it_for_its_lease() -> None:
    watch = RunnerWatch()
    assert free_in_s(watch, pipeline(7), 100) == 10
    assert free_in_s(watch, pipeline(7), 109) == 1
    assert free_in_s(watch, pipeline(8), 109) == 10
    assert free_in_s(watch, pipeline(8), 119) == 0
    assert free_in_s(watch, pipeline(None), 120) == 0
    assert free_in_s(watch, pipeline(9), 121) == 10
    assert watch.free_in_s("count/y", None) == 0


def test_a_job_is_taken_as_it_was_seen() -> None:
    assert seen(None) == Seen(0, None)
    assert seen(pipeline(None).jobs["count/x"]) == Seen(4, None)
    assert seen(pipeline(9).jobs["count/x"]) == Seen(4, 9)
