"""Verifications whose runners are killed, paused, started twice or cannot look: one result, a right one, no litter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from logboom.results.pipeline_state import Result
from logboom.results.places import ResultPlace
from logboom.spark.jobs.verify import PROBLEMS, Problems
from logboom.storage import DataDirectory
from spark.job_runs import Jobs
from support.nodes.process import NodeProcess
from support.spark.content import make_topic

TOPIC = "events"
STEPS = (
    *("before-leased", "after-leased", "task", f"before-{PROBLEMS}", f"after-{PROBLEMS}"),
    *("before-ended", "after-ended", "before-sweep", "after-sweep"),
)


class Verifications(Jobs):
    """Of a directory that nobody writes to, with a batch that is damaged."""

    def __init__(self, root: Path, node: NodeProcess, remote: str) -> None:
        self.directory = root / "kept"
        super().__init__(root, node, remote, "verify", name="kept", directories=[str(self.directory)])
        with DataDirectory.open(str(self.directory)) as data:
            make_topic(data, TOPIC, 5, 300, 2)
        self._records = 0
        self.damaged = sorted(self.directory.glob(f"topics/{TOPIC}~*/0/*.log"))[1]
        content = bytearray(self.damaged.read_bytes())
        content[100] ^= 0x41
        self.damaged.write_bytes(content)

    def check(self, result: Result) -> None:
        """It tells of the damage, of nothing else, and of as many records as there are beside it."""
        assert result.manifest is not None
        found = msgspec.json.decode(ResultPlace(result.place).read(result.manifest), type=Problems)
        assert found.directories == (str(self.directory),)
        assert [(problem.file, problem.position) for problem in found.listed] == [(str(self.damaged), 0)]
        assert found.problems == result.facts["problems"] == 1
        self._records = self._records or result.records
        assert result.records == self._records > 500
        self.check_files()


@pytest.fixture
def verifications(tmp_path: Path, remote: str) -> Iterator[Verifications]:
    with NodeProcess(tmp_path) as node:
        yield Verifications(tmp_path, node, remote)


def kill_and_finish(verifications: Verifications, step: str) -> None:
    left, result = verifications.kill_and_finish(step)
    assert result != left


@pytest.mark.timeout(600)
def test_a_runner_that_is_killed_is_made_up_for_by_the_next(verifications: Verifications) -> None:
    kill_and_finish(verifications, f"after-{PROBLEMS}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_runner_may_be_killed_at_any_step(verifications: Verifications) -> None:
    for step in (*STEPS, *STEPS):
        kill_and_finish(verifications, step)


PAUSES = "task", f"before-{PROBLEMS}", f"after-{PROBLEMS}", "before-ended"


@pytest.mark.soak
@pytest.mark.parametrize("step", PAUSES)
@pytest.mark.timeout(600)
def test_a_paused_runner_that_wakes_after_another_took_over_publishes_nothing(
    verifications: Verifications, step: str
) -> None:
    verifications.take_over(step)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_runners_at_once_verify_one_after_the_other(verifications: Verifications) -> None:
    for _ in range(3):
        with verifications.started() as one, verifications.started() as other:
            assert (one.end(), other.end()) == ((0, ""), (0, ""))
        job = verifications.read()
        assert [run.has_result for run in job.runs[-2:]] == [True, True]
        for result in job.results:
            verifications.check(result)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_worker_that_dies_while_it_reads_is_told_and_nothing_is_published(verifications: Verifications) -> None:
    verifications.run("task", "die")
    job = verifications.read()
    assert job.results == []
    assert "crash" in (job.runs[-1].error or "").lower()
    verifications.check_files()
    verifications.check(verifications.run_well())


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_node_that_goes_away_meanwhile_is_told_and_nothing_is_published(verifications: Verifications) -> None:
    """It is waited for when there is a result to tell."""
    said = verifications.lose_node("task")
    assert said.startswith("ConnectionLost: ")
    assert verifications.node.address in said


@pytest.mark.timeout(600)
def test_a_verification_that_finds_no_room_says_so_and_publishes_nothing(verifications: Verifications) -> None:
    assert "No space left on device" in verifications.fill_volume()
