"""Checkpoints whose runners are killed, paused and started twice: one result, a right one, and nothing beside it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logboom import Reader, Writer
from logboom.broker.caller import EVERYBODY
from logboom.client.remote import connect
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import PipelineState
from spark.checkpoint_job import LOST, STEPS
from spark.cluster import environment
from support.brokers.any_broker import AnyBroker
from support.nodes.process import NodeProcess

JOB = "checkpoint/events/key"
LEASE_S = 2.0
END_S = 180.0
PARTITIONS = 2


class Pipeline:
    """A node with a topic, a Spark Connect server, and runners that make the checkpoint."""

    def __init__(self, root: Path, node: NodeProcess, remote: str) -> None:
        self.root = root
        self.node = node
        self.results = root / "results"
        self._remote = remote
        self._chance = random.Random(9)
        self._state: list[dict[bytes, bytes]] = [{} for _ in range(PARTITIONS)]

    def write(self, records: int) -> None:
        for partition, state in enumerate(self._state):
            with Writer("events", self.node.address, partition=partition) as writer:
                for _ in range(records):
                    key, value = b"%d" % self._chance.randrange(500), self._chance.randbytes(20)
                    kept = self._chance.random() < 0.8
                    writer.write(value if kept else None, key=key)
                    state.pop(key, None)
                    if kept:
                        state[key] = value

    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """In a process group of its own."""
        script = str(Path(__file__).with_name("checkpoint_job.py"))
        command = [sys.executable, script, self._remote, self.node.address, str(self.results), str(LEASE_S), *options]
        runner = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        try:
            yield runner
        finally:
            if runner.poll() is None:
                os.killpg(runner.pid, signal.SIGKILL)
            runner.communicate()

    def run(self, *options: str) -> int:
        with self.started(*options) as runner:
            runner.communicate(timeout=END_S)
            return runner.returncode

    def read(self) -> PipelineState:
        async def look() -> PipelineState:
            async with connect(self.node.address) as broker:

                async def connected() -> AnyBroker:
                    return broker

                return await PipelineLedger(connected, EVERYBODY).refresh()

        return asyncio.run(look())

    def check(self) -> None:
        """The checkpoint has all that was written, and its files and those of the one before are all there are."""
        for partition, expected in enumerate(self._state):
            with Reader("events", self.node.address, partition, from_checkpoint=True) as reader:
                found = [(record.key, record.value) for record in reader]
                assert reader.first == 0
            assert len(found) == len(expected)
            assert dict(found) == expected
        job = self.read().jobs[JOB]
        assert job.lease is None
        used = {name for result in job.results for name in result.facts["runs"]}
        used |= {result.place.rpartition("/")[2] for result in job.results}
        assert {path.name for path in (self.results / JOB / "runs").iterdir()} == used


@pytest.fixture
def pipeline(tmp_path: Path, remote: str) -> Iterator[Pipeline]:
    with NodeProcess(tmp_path) as node:

        async def create() -> None:
            async with connect(node.address) as broker:
                await broker.create_topic("events", PARTITIONS)

        asyncio.run(create())
        made = Pipeline(tmp_path, node, remote)
        made.write(1000)
        yield made


def kill_and_finish(pipeline: Pipeline, step: str) -> None:
    assert pipeline.run("--die", step) == -signal.SIGKILL
    pipeline.write(20)
    assert pipeline.run() == 0
    pipeline.check()
    pipeline.write(20)


@pytest.mark.timeout(600)
def test_a_runner_that_is_killed_leaves_a_checkpoint_that_is_whole(pipeline: Pipeline) -> None:
    kill_and_finish(pipeline, "after-layer")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_runner_may_be_killed_at_any_step(pipeline: Pipeline) -> None:
    for step in (*STEPS, *STEPS):
        kill_and_finish(pipeline, step)


@pytest.mark.timeout(600)
def test_a_paused_runner_that_wakes_after_another_took_over_publishes_nothing(pipeline: Pipeline) -> None:
    gate = pipeline.root / "gate"
    with pipeline.started("--wait", "before-manifest", str(gate)) as paused:
        assert paused.stdout is not None
        assert paused.stdout.readline() == "waiting\n"
        os.killpg(paused.pid, signal.SIGSTOP)
        pipeline.write(20)
        assert pipeline.run() == 0
        before = pipeline.read().jobs[JOB]
        gate.touch()
        os.killpg(paused.pid, signal.SIGCONT)
        paused.communicate(timeout=END_S)
        assert paused.returncode == LOST
    after = pipeline.read().jobs[JOB]
    assert (after.epoch, after.results) == (before.epoch, before.results)
    pipeline.check()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_runners_at_once_and_a_worker_that_dies_change_nothing_of_the_result(pipeline: Pipeline) -> None:
    assert pipeline.run("--harm", str(pipeline.root / "harmed")) == 1
    job = pipeline.read().jobs[JOB]
    assert (job.results, job.lease) == ([], None)
    assert "crash" in (job.runs[-1].error or "").lower() or "died" in (job.runs[-1].error or "")
    assert list((pipeline.results / JOB / "runs").iterdir()) == []
    with pipeline.started() as one, pipeline.started() as other:
        for runner in (one, other):
            runner.communicate(timeout=END_S)
            assert runner.returncode == 0
    pipeline.check()
    assert [run.has_result for run in pipeline.read().jobs[JOB].runs[-2:]] == [True, False], "the other had no news"
