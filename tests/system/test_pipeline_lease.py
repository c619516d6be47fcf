"""Real runners of one job against a real node: killed, paused, started twice; and a node that goes away."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from logboom import Writer
from logboom.batch import build
from logboom.broker.api import PIPELINE_TOPIC, Part
from logboom.broker.caller import EVERYBODY
from logboom.client.remote import connect
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import TAKEN_OVER, PastRun, PipelineState
from logboom.results.places import ResultPlace
from logboom.spark.jobs.lease import BEATS
from support.brokers.any_broker import AnyBroker
from support.nodes.process import NodeProcess
from support.nodes.warm import WarmProcess
from support.waiting import wait_until
from system.pipeline_runner import HELD, INTERRUPT, LOST, STEPS

RECORDS = 100
LEASE_S = 1.0
SLOW_S = 6.0
"""Longer than a busy machine keeps a runner from its work: nobody takes over from one that lives."""
LONG_S = 60.0
END_S = 300.0


class Pipeline:
    """A node with a topic, and runners of a job that counts it."""

    def __init__(self, root: Path, node: NodeProcess) -> None:
        self.node = node
        self.topic = uuid.uuid4().hex
        self.job = f"count/{self.topic}"
        self.results = root / "results"
        self.gate = root / "gate"
        self._runners: list[WarmProcess] = []

    def start(self, *options: str, lease_s: float = LEASE_S) -> WarmProcess:
        script = str(Path(__file__).with_name("pipeline_runner.py"))
        command = [script, self.node.address, str(self.results), self.topic, str(lease_s), *options]
        runner = WarmProcess(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._runners.append(runner)
        return runner

    def start_gated(self, lease_s: float = LEASE_S) -> WarmProcess:
        """One that is in the middle of its work."""
        runner = self.start("--gate", str(self.gate), lease_s=lease_s)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "working\n"
        return runner

    def run(self, *options: str) -> int:
        return self.start(*options).wait(END_S)

    def read(self) -> PipelineState:
        async def look() -> PipelineState:
            async with connect(self.node.address) as broker:

                async def connected() -> AnyBroker:
                    return broker

                return await PipelineLedger(connected, EVERYBODY).refresh()

        return asyncio.run(look())

    def append(self, value: bytes, key: str) -> None:
        """A record, whatever it is, to the log of the pipeline."""

        async def append() -> None:
            async with connect(self.node.address) as broker:
                (log,) = (await broker.describe_topic(PIPELINE_TOPIC)).partitions
                batch = build([value], keys=[key.encode()])
                (answer,) = await broker.append([Part(PIPELINE_TOPIC, [batch], 0, log.committed)], "durable")
                assert not isinstance(answer, Exception), answer

        asyncio.run(append())

    def check(self, records: int = RECORDS) -> None:
        """The result that counts is there, and right."""
        result = self.read().result(self.job)
        assert result is not None
        assert result.manifest is not None
        assert msgspec.json.decode(ResultPlace(result.place).read(result.manifest)) == {"records": records}
        assert result.records == records

    def directories(self) -> set[str]:
        return {str(path) for path in (self.results / self.job / "runs").iterdir()}

    def close(self) -> None:
        for runner in self._runners:
            if runner.poll() is None:
                runner.kill()
            runner.wait(END_S)
            if runner.stdout is not None:
                runner.stdout.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture
def pipeline(tmp_path: Path, node: NodeProcess) -> Iterator[Pipeline]:
    found = Pipeline(tmp_path, node)
    with Writer(found.topic, servers=node.address) as writer:
        for number in range(RECORDS):
            writer.write(b"%d" % number)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("step", STEPS)
def test_a_runner_killed_at_any_step_leaves_a_job_that_the_next_one_does(pipeline: Pipeline, step: str) -> None:
    assert pipeline.run("--die", step) == -signal.SIGKILL
    has_published = step in ("after-ended", "before-sweep", "after-sweep")
    job = pipeline.read().jobs.get(pipeline.job)
    assert (job is not None and job.result is not None) == has_published
    if has_published:
        pipeline.check()
    assert pipeline.run() == 0
    pipeline.check()
    job = pipeline.read().jobs[pipeline.job]
    assert job.lease is None
    assert len(job.results) == 1 + has_published
    assert pipeline.directories() == {result.place for result in job.results}


def test_runs_that_are_killed_one_after_another_leave_no_more_than_one_directory(pipeline: Pipeline) -> None:
    for _ in range(3):
        assert pipeline.run("--die", "after-write") == -signal.SIGKILL
        assert len(pipeline.directories()) == 1
    assert pipeline.run() == 0
    pipeline.check()
    assert pipeline.directories() == {result.place for result in pipeline.read().jobs[pipeline.job].results}


@pytest.mark.parametrize("step", STEPS)
def test_a_runner_interrupted_at_any_step_gives_its_job_back_at_once(pipeline: Pipeline, step: str) -> None:
    runner = pipeline.start("--die", INTERRUPT + step, lease_s=LONG_S)
    assert runner.wait(END_S) == 130
    job = pipeline.read().jobs[pipeline.job]
    assert job.lease is None
    assert (job.result is not None) == (step.partition("-")[2] in ("ended", "sweep"))
    assert pipeline.run("--no-wait") == 0
    pipeline.check()
    job = pipeline.read().jobs[pipeline.job]
    assert pipeline.directories() == {result.place for result in job.results}


def test_a_runner_that_is_interrupted_while_it_waits_leaves_the_job_to_who_has_it(pipeline: Pipeline) -> None:
    first = pipeline.start_gated(LONG_S)
    second = pipeline.start()
    assert second.stdout is not None
    assert second.stdout.readline() == "waiting\n"
    second.send_signal(signal.SIGINT)
    assert second.wait(END_S) == 130
    pipeline.gate.touch()
    assert first.wait(END_S) == 0
    assert [run.error for run in pipeline.read().jobs[pipeline.job].runs] == [None]


def test_two_runners_at_once_run_one_after_the_other(pipeline: Pipeline) -> None:
    runners = [pipeline.start(lease_s=LONG_S) for _ in range(3)]
    assert [runner.wait(END_S) for runner in runners] == [0, 0, 0]
    pipeline.check()
    runs = pipeline.read().jobs[pipeline.job].runs
    assert [run.epoch for run in runs] == [1, 2, 3]
    assert [run.error for run in runs] == [None, None, None]
    assert all(before.ended <= after.began for before, after in pairwise(runs))


def test_who_will_not_wait_is_told_who_runs_the_job(pipeline: Pipeline) -> None:
    first = pipeline.start_gated(LONG_S)
    second = pipeline.start("--no-wait")
    said, _ = second.communicate(timeout=END_S)
    assert (second.returncode, f":{first.pid}" in said) == (HELD, True)
    pipeline.gate.touch()
    assert first.wait(END_S) == 0
    pipeline.check()


def test_nobody_takes_over_from_a_runner_that_is_heard_of(pipeline: Pipeline) -> None:
    first = pipeline.start_gated(SLOW_S)
    second = pipeline.start(lease_s=SLOW_S)
    beats: set[int] = set()
    while len(beats) < 2 + BEATS:
        job = pipeline.read().jobs[pipeline.job]
        assert job.lease is not None
        assert job.epoch == 1
        beats.add(job.lease.seqno)
        time.sleep(0.1)
    pipeline.gate.touch()
    assert [first.wait(END_S), second.wait(END_S)] == [0, 0]
    assert [run.error for run in pipeline.read().jobs[pipeline.job].runs] == [None, None]


def test_a_runner_that_wakes_after_take_over_publishes_nothing(pipeline: Pipeline) -> None:
    first = pipeline.start_gated()
    first.send_signal(signal.SIGSTOP)
    assert pipeline.run() == 0
    pipeline.check()
    before = pipeline.read().result(pipeline.job)
    pipeline.gate.touch()
    first.send_signal(signal.SIGCONT)
    assert first.wait(END_S) == LOST
    job = pipeline.read().jobs[pipeline.job]
    assert job.result == before
    assert [(run.epoch, run.error) for run in job.runs] == [(1, TAKEN_OVER), (2, None)]
    assert pipeline.directories() == {result.place for result in job.results}


def test_a_runner_that_is_interrupted_gives_its_job_back_at_once(pipeline: Pipeline) -> None:
    first = pipeline.start_gated(LONG_S)
    first.send_signal(signal.SIGINT)
    assert first.wait(END_S) == 130
    job = pipeline.read().jobs[pipeline.job]
    assert job.lease is None
    assert [run.error for run in job.runs] == ["interrupted"]
    assert pipeline.run("--no-wait") == 0
    pipeline.check()


def test_a_run_outlives_its_node(pipeline: Pipeline) -> None:
    runner = pipeline.start_gated()
    pipeline.node.kill()
    time.sleep(2 * LEASE_S)  # its lease is over, and nobody else wants the job
    pipeline.node.start()
    pipeline.gate.touch()
    assert runner.wait(END_S) == 0
    pipeline.check()
    assert [run.error for run in pipeline.read().jobs[pipeline.job].runs] == [None]


def test_no_node_is_an_error_and_leaves_nothing(pipeline: Pipeline) -> None:
    pipeline.node.kill()
    runner = pipeline.start()
    said, _ = runner.communicate(timeout=END_S)
    pipeline.node.start()
    assert runner.returncode == 1
    assert "ConnectionLost" in said
    assert not pipeline.results.exists()


def wait_for_runs(pipeline: Pipeline, wanted: int) -> list[PastRun]:
    def runs() -> list[PastRun]:
        job = pipeline.read().jobs.get(pipeline.job)
        return [] if job is None or len(job.runs) < wanted else job.runs

    return wait_until(runs, f"{wanted} runs", limit_s=END_S, every_s=0.1)


def test_two_that_serve_share_the_work_and_outlive_each_other_and_the_node(pipeline: Pipeline) -> None:
    every_ms = 500
    first, second = (pipeline.start("--every", str(every_ms), lease_s=SLOW_S) for _ in range(2))
    runs = wait_for_runs(pipeline, 5)
    assert all(after.began >= before.ended + 1000 * every_ms for before, after in pairwise(runs))
    assert all(run.error is None for run in runs)
    first.kill()
    first.wait(END_S)
    pipeline.node.kill()
    pipeline.node.start()
    runs = wait_for_runs(pipeline, len(runs) + 4)
    assert runs[-1].runner.endswith(f":{second.pid}")
    second.send_signal(signal.SIGINT)
    assert second.wait(END_S) == 130
    assert pipeline.read().jobs[pipeline.job].lease is None
    pipeline.check()


def test_nothing_is_removed_that_a_record_may_refer_to_which_cannot_be_read(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, closing(Pipeline(tmp_path, node)) as pipeline:
        with Writer(pipeline.topic, servers=node.address) as writer:
            writer.write(b"a")
        assert pipeline.run("--die", "after-write") == -signal.SIGKILL
        left = pipeline.directories()
        pipeline.append(b'{"event":"ended","job":"of another release"', pipeline.job)
        assert pipeline.run("--no-wait") == HELD, "it may be somebody's"
        assert pipeline.run() == 0
        pipeline.check(1)
        assert left < pipeline.directories()
