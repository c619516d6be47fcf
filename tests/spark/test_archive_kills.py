"""Runs of the archive that are killed, paused, or find no room: one result, right, and nothing of them stays."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logboom.batch import Record
from logboom.storage import DataDirectory, Log
from logboom.storage.data.topic import SegmentSettings, Settings
from spark.archives import TOPIC, World
from spark.cluster import environment
from spark.sink_runs import LOCAL, Run, kill_session
from support.faults import own_volume
from support.spark.content import NOW, append, make_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(__file__).with_name("archive_job.py")
JOB = f"archive/{TOPIC}"
STEPS = ("some", "all", "written", "ended")


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    made = World(tmp_path, spark)
    with made.node.ended():
        yield made


class Archiver(Run):
    def __init__(self, process: subprocess.Popen[bytes], mark: Path, log: Path) -> None:
        super().__init__(process, mark.parent, log)
        self.pid = process.pid
        self._mark = mark

    def arrive(self) -> None:
        self.wait_until(self._mark.exists)

    def leave(self) -> None:
        Path(f"{self._mark}.go").touch()

    def fail(self) -> str:
        """The error that it names in the end; Spark may have more to say."""
        assert self._process.wait(180) == 1, self._tail()
        errors: list[str] = re.findall(r"^\w+: .+$", self._tail(), re.MULTILINE)
        return errors[-1]


@contextmanager
def archiving(world: World, root: Path, step: str | None = None, under: Sequence[str] = ()) -> Iterator[Archiver]:
    """In a process; all that it has started is killed when the block ends."""
    root.mkdir(exist_ok=True)
    mark, log, file = root / "mark", root / "job.log", root / "job.json"
    for path in (mark, Path(f"{mark}.go")):
        path.unlink(missing_ok=True)
    directories = {"spark.local.dir": str(root / "local"), "spark.sql.warehouse.dir": str(root / "warehouse")}
    job = {"address": world.topics.address, "topic": TOPIC, "place": str(world.place), "lease_s": 2.0}
    file.write_text(json.dumps({**job, "settings": {**LOCAL, **directories}, "step": step, "mark": str(mark)}))
    with open(log, "ab") as out:
        command = [*under, sys.executable, str(PROGRAM), str(file)]
        process = subprocess.Popen(
            command, cwd=root, stdout=out, stderr=subprocess.STDOUT, env=environment(), start_new_session=True
        )
    try:
        yield Archiver(process, mark, log)
    finally:
        kill_session(process.pid)
        process.wait()


def tell_session(leader: int, sent: signal.Signals) -> None:
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            if os.getsid(int(entry)) == leader:
                os.kill(int(entry), sent)


def grow(world: World, seed: int) -> None:
    """More to archive, and a floor that rises through what is archived."""
    rng = random.Random(seed)
    archived = [world.sealed(partition) for partition in range(len(world.firsts))]

    def change(logs: list[Log]) -> None:
        for log, end in zip(logs, archived, strict=True):
            log.trim(rng.randint(log.floor, max(log.floor, end)), NOW + 10**7, first=0)
            append(log, make_batches(rng, 200), NOW + 10**7 * seed)

    world.change(change)


@pytest.mark.parametrize(
    "steps",
    [("some",), *(pytest.param([step] * 3, marks=pytest.mark.soak, id=step) for step in STEPS)],
)
def test_a_run_that_is_killed_anywhere_is_made_up_for_by_the_next(
    world: World, tmp_path: Path, steps: Sequence[str]
) -> None:
    world.make(1, 300, 2)
    world.run()
    for number, step in enumerate(steps):
        grow(world, number + 2)
        before = world.jobs()[JOB].result
        with archiving(world, tmp_path / "job", step) as run:
            run.arrive()
            assert (world.jobs()[JOB].result == before) == (step != "ended"), "it counts when the run has ended"
        report = world.run()
        world.result = world.jobs()[JOB].result
        assert (report.result is None) == (step == "ended"), "there is something to do, unless all was done"
        world.check()
        assert {f"{path}" for path in (world.home / "runs").iterdir()} == {
            result.place for result in world.jobs()[JOB].results
        }


def test_a_run_that_wakes_up_after_another_took_over_changes_nothing(world: World, tmp_path: Path) -> None:
    world.make(3, 300, 2)
    with archiving(world, tmp_path / "job", "all") as run:
        run.arrive()
        tell_session(run.pid, signal.SIGSTOP)
        world.run()
        files = {path: path.stat().st_mtime_ns for path in world.home.rglob("*.parquet")}
        run.leave()
        tell_session(run.pid, signal.SIGCONT)
        assert run.fail().startswith(f"LeaseLost: {JOB} is no longer this runner's, which has epoch 1")
    assert [result.run for result in world.jobs()[JOB].results] == [world.result.run if world.result else None]
    assert {path: path.stat().st_mtime_ns for path in world.home.rglob("*.parquet")} == files
    world.check()
    assert world.run().result is None
    assert len(list((world.home / "runs").iterdir())) == 1


def test_a_run_that_wakes_up_after_another_took_over_does_not_wait_for_its_tasks(world: World, tmp_path: Path) -> None:
    """One of them would never end."""
    world.make(5, 300, 2)
    with archiving(world, tmp_path / "job", "some") as run:
        run.arrive()
        tell_session(run.pid, signal.SIGSTOP)
        world.run()
        tell_session(run.pid, signal.SIGCONT)
        assert run.fail().startswith(f"LeaseLost: {JOB} is no longer this runner's, which has epoch 1")
    world.check()
    assert world.run().result is None
    assert len(list((world.home / "runs").iterdir())) == 1


def test_a_run_that_finds_no_room_says_so_and_publishes_nothing(world: World, tmp_path: Path) -> None:
    values = random.Random(4)
    with DataDirectory.open(str(world.node.directory)) as data:
        data.create_topic(TOPIC, 1, Settings(segment=SegmentSettings(bytes=1 << 20)))
        append(data.open_topic(TOPIC)[0], [[Record(values.randbytes(700_000))] for _ in range(10)])
    world.node.start()
    with archiving(world, tmp_path / "job", under=own_volume(world.place)) as run:
        said = run.fail()
    assert said.startswith(f"PipelineError: nothing is published: {TOPIC}/0 from seqno")
    assert "No space left on device" in said
    job = world.jobs()[JOB]
    assert (job.lease, job.results, job.runs[0].error) == (None, [], said)
