"""Reports whose runners are killed, paused, started twice or find no room: one result, a right one, and no litter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from logboom.results.pipeline_state import Result, ResultFile
from logboom.results.places import ResultPlace
from logboom.results.report.report import CELLS, NUMBERS, PAGE, decode_report
from logboom.results.report.sums import Cells, add
from spark.job_runs import Jobs
from spark.job_steps import CELL
from support.nodes.process import NodeProcess
from support.spark.queries import Topics
from support.spark.report_model import LATE_US, check, model, read

PARTITIONS = 2
STEPS = (
    *("before-leased", "after-leased", "task"),
    *(f"{when}-{file}" for file in (CELLS, PAGE, NUMBERS) for when in ("before", "after")),
    *("before-ended", "after-ended", "before-sweep", "after-sweep"),
)


class Reports(Jobs):
    """On a topic that grows."""

    def __init__(self, root: Path, node: NodeProcess, remote: str) -> None:
        super().__init__(root, node, remote, "report", name="visits", topics=["visits"], late_ms=LATE_US // 1000)
        self._topics = Topics(node)
        self._topics.create("visits", PARTITIONS)
        self._written = 0
        self.write(600)

    def write(self, records: int) -> None:
        for partition in range(PARTITIONS):
            for number in range(self._written, self._written + records, 40):
                values = [b"%d" % (number % 90 + more) for more in range(min(40, records))]
                self._topics.write("visits", values, partition, key=b"%d" % (number % 7), timestamp=number % 150)
        self._written += records

    def check(self, result: Result) -> None:
        """It has counted all that was written, once; its page and its numbers are what was published."""
        assert result.manifest is not None
        files = ResultPlace(result.place)
        report = decode_report(files.read(result.manifest))
        assert report.whole.records == result.records == PARTITIONS * self._written
        assert files.read(msgspec.convert(result.facts["page"], ResultFile)).startswith(b"<!DOCTYPE html>")
        stored = files.read(msgspec.convert(result.facts["cells"], ResultFile))
        kept = pa.decompress(stored, result.facts["cells_bytes"], codec="zstd", asbytes=True)
        cells = msgspec.msgpack.decode(kept, type=Cells).cells
        for partition in range(PARTITIONS):
            its = [cell.sums for cell in cells if cell.partition == partition]
            check(add(its), model(*read(self.node.directory, "visits", partition), CELL))
        self.check_files()


@pytest.fixture
def reports(tmp_path: Path, remote: str) -> Iterator[Reports]:
    with NodeProcess(tmp_path) as node:
        yield Reports(tmp_path, node, remote)


def kill_and_finish(reports: Reports, step: str) -> None:
    left, result = reports.kill_and_finish(step)
    assert step not in STEPS[-3:] or result == left, "there was nothing left to do"
    reports.write(40)


@pytest.mark.timeout(600)
def test_a_runner_that_is_killed_is_made_up_for_by_the_next(reports: Reports) -> None:
    kill_and_finish(reports, "task")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_runner_may_be_killed_at_any_step(reports: Reports) -> None:
    for step in (*STEPS, *STEPS):
        kill_and_finish(reports, step)


PAUSES = "task", f"before-{CELLS}", f"before-{NUMBERS}", f"after-{NUMBERS}", "before-ended"


@pytest.mark.soak
@pytest.mark.parametrize("step", PAUSES)
@pytest.mark.timeout(600)
def test_a_paused_runner_that_wakes_after_another_took_over_publishes_nothing(reports: Reports, step: str) -> None:
    reports.take_over(step, lambda: reports.write(40))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_runners_at_once_make_one_report(reports: Reports) -> None:
    for _ in range(3):
        with reports.started() as one, reports.started() as other:
            assert (one.end(), other.end()) == ((0, ""), (0, ""))
        job = reports.read()
        assert [run.has_result for run in job.runs[-2:]] == [True, False], "the other had no news"
        assert job.result is not None
        reports.check(job.result)
        reports.write(40)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_worker_that_dies_while_it_counts_is_told_and_nothing_is_published(reports: Reports) -> None:
    reports.run("task", "die")
    job = reports.read()
    assert job.results == []
    assert "crash" in (job.runs[-1].error or "").lower()
    reports.check_files()
    reports.check(reports.run_well())


@pytest.mark.timeout(600)
def test_a_node_that_goes_away_while_it_is_counted_is_told_and_nothing_is_published(reports: Reports) -> None:
    said = reports.lose_node("task")
    assert said.startswith("ConnectionLost: ")
    assert reports.node.address in said


@pytest.mark.timeout(600)
def test_a_report_that_finds_no_room_says_so_and_publishes_nothing(reports: Reports) -> None:
    reports.run_well()
    reports.write(40)
    assert "No space left on device" in reports.fill_volume()
