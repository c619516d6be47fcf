"""Runs of job_steps.py on a node, and what they have left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logboom.broker.caller import EVERYBODY
from logboom.client.remote import connect
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import PipelineJob, PipelineState, Result
from spark.cluster import environment
from spark.sink_runs import Run
from support.brokers.any_broker import AnyBroker
from support.faults import own_volume
from support.nodes.process import NodeProcess

PROGRAM = Path(__file__).with_name("job_steps.py")
LEASE_S = 2.0
END_S = 180.0


class Runner(Run):
    """In a process group of its own."""

    def __init__(self, process: subprocess.Popen[bytes], root: Path) -> None:
        super().__init__(process, root, root / "log")
        self._mark = root / "mark"
        self._said = root / "said"

    def arrive(self) -> None:
        self.wait_until(self._mark.exists)

    def leave(self) -> None:
        Path(f"{self._mark}.go").touch()

    def tell(self, sent: signal.Signals) -> None:
        os.killpg(self._process.pid, sent)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what went wrong."""
        status = self._process.wait(END_S)
        return status, self._said.read_text().strip()

    def close(self) -> None:
        """What waits in a task of its does so no longer."""
        self.leave()
        if self._process.poll() is None:
            self.tell(signal.SIGKILL)
        self._process.wait()


class Jobs(ABC):
    """One job of the pipeline, and as many runners of it as are wanted."""

    def __init__(self, root: Path, node: NodeProcess, remote: str, kind: str, **options: Any) -> None:
        self.node = node
        self.place = root / "place"
        self.name = f"{kind}/{options['name']}"
        self.runs = self.place / self.name / "runs"
        self._root = root
        self._job = {"remote": remote, "address": node.address, "place": str(self.place), "lease_s": LEASE_S}
        self._job |= {"kind": kind, "options": options}
        self._kind = kind
        self._count = 0

    @abstractmethod
    def check(self, result: Result) -> None:
        """It is right, and its files and those of the one before are all there are."""

    @contextmanager
    def started(self, step: str | None = None, action: str = "wait", under: Sequence[str] = ()) -> Iterator[Runner]:
        self._count += 1
        root = self._root / f"runner-{self._count}"
        root.mkdir()
        file = root / "job.json"
        job = {**self._job, "step": step, "action": action, "mark": str(root / "mark")}
        file.write_text(json.dumps(job))
        with open(root / "said", "wb") as out, open(root / "log", "wb") as log:
            process = subprocess.Popen(
                [*under, sys.executable, str(PROGRAM), str(file)],
                cwd=root,
                stdout=out,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )
        runner = Runner(process, root)
        try:
            yield runner
        finally:
            runner.close()

    def run(self, step: str | None = None, action: str = "wait", under: Sequence[str] = ()) -> tuple[int, str]:
        with self.started(step, action, under) as runner:
            return runner.end()

    def run_well(self) -> Result:
        """The result that counts then."""
        assert self.run() == (0, "")
        result = self.read().result
        assert result is not None
        return result

    def kill(self, step: str) -> None:
        """A run, at this step; its tasks go on for a moment."""
        if step != "task":
            assert self.run(step, "die")[0] == -signal.SIGKILL
            return
        with self.started(step) as runner:
            runner.arrive()
            runner.tell(signal.SIGKILL)

    def kill_and_finish(self, step: str) -> tuple[Result | None, Result]:
        """The result that counts when a run was killed at this step, and that of the next run."""
        before = self.read().result
        self.kill(step)
        left = self.read().result
        is_published = step in ("after-ended", "before-sweep", "after-sweep")
        assert (left != before) == is_published, "it counts when the run has ended"
        result = self.run_well()
        self.check(result)
        return left, result

    def take_over(self, step: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """From a run that is paused at this step, and wakes up when that is done."""
        with self.started(step) as paused:
            paused.arrive()
            paused.tell(signal.SIGSTOP)
            meanwhile()
            result = self.run_well()
            before = self.read()
            paused.leave()
            paused.tell(signal.SIGCONT)
            status, said = paused.end()
        assert (status, said.partition(":")[0]) == (1, "LeaseLost")
        after = self.read()
        assert (after.epoch, after.results, after.runs) == (before.epoch, before.results, before.runs)
        self.check(result)

    def lose_node(self, step: str) -> str:
        """What a run says whose node goes away at this step. It has published nothing, and the next one does."""
        before = self.read().results
        with self.started(step) as run:
            run.arrive()
            self.node.kill()
            run.leave()
            status, said = run.end()
        self.node.start()
        assert (status, self.read().results) == (1, before)
        self.check(self.run_well())
        return said

    def fill_volume(self) -> str:
        """What a run says that finds no room. It has published nothing, and the next one does."""
        before = self.read().results
        fill = ["sh", "-c", 'head -c 9000000 /dev/zero > "$0/full" 2>/dev/null; exec "$@"', str(self.place)]
        status, said = self.run(under=[*own_volume(self.place), *fill])
        job = self.read()
        assert (status, job.results, job.runs[-1].error) == (1, before, said)
        self.check(self.run_well())
        return said

    def read(self) -> PipelineJob:
        async def look() -> PipelineState:
            async with connect(self.node.address) as broker:

                async def connected() -> AnyBroker:
                    return broker

                return await PipelineLedger(connected, EVERYBODY).refresh()

        return asyncio.run(look()).jobs.get(self.name) or PipelineJob(self._kind)

    def check_files(self) -> None:
        """Directories of results are there, and no others; nobody has the job."""
        job = self.read()
        assert job.lease is None
        kept = {Path(result.place) for result in job.results}
        assert (set(self.runs.iterdir()) if self.runs.exists() else set()) == kept
        assert not list(self.place.rglob(".unfinished-*"))
