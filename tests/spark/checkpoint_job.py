"""Makes a checkpoint by key of the topic `events` over Spark Connect; to be killed, to be paused, and to fail.

    checkpoint_job.py REMOTE ADDRESS DIRECTORY LEASE_S [--die STEP] [--wait STEP FILE] [--harm FILE]

At STEP it kills itself, or says `waiting` until there is a FILE. With --harm a Python of Spark's dies when it has
written a file of the checkpoint and before it has said so; once, by whoever makes FILE first.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

from logboom.errors import LeaseLost
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Event, PipelineJob
from logboom.results.places import ResultPlace
from logboom.spark import session
from logboom.spark.jobs import checkpoint, job_run
from logboom.spark.jobs.checkpoint import CheckpointWork
from logboom.spark.jobs.job_run import run_job
from logboom.spark.jobs.lease import Lease

LOST = 4
STEPS = (
    "before-leased",
    "after-leased",
    "before-layer",
    "after-layer",
    "before-manifest",
    "after-manifest",
    "before-ended",
    "after-ended",
    "before-sweep",
    "after-sweep",
)


class Watch:
    """Stands at every step, and does what is wanted there."""

    def __init__(self, die: str, wait: tuple[str, str]) -> None:
        self._die = die
        self._wait = wait

    def at(self, step: str) -> None:
        if step == self._die:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == self._wait[0]:
            print("waiting", flush=True)
            while not Path(self._wait[1]).exists():
                time.sleep(0.02)

    def install(self) -> None:
        ledgers: Any = PipelineLedger
        places: Any = ResultPlace
        makings: Any = checkpoint._Making
        append, sweep, write, layer = ledgers._append, job_run._sweep, places.write, makings._write_layer

        async def watched_append(ledger: PipelineLedger, event: Event) -> bool:
            name = type(event).__name__.lower()
            self.at(f"before-{name}")
            appended: bool = await append(ledger, event)
            self.at(f"after-{name}")
            return appended

        def watched_sweep(home: ResultPlace, lease: Lease, job: PipelineJob) -> None:
            if job.lease is not None:  # what is swept before anything is done
                sweep(home, lease, job)
                return
            self.at("before-sweep")
            sweep(home, lease, job)
            self.at("after-sweep")

        def watched_write(place: ResultPlace, path: str, data: bytes) -> Any:
            self.at("before-manifest")
            stored = write(place, path, data)
            self.at("after-manifest")
            return stored

        def watched_layer(making: Any, *arguments: Any) -> Any:
            self.at("before-layer")
            made = layer(making, *arguments)
            self.at("after-layer")
            return made

        ledgers._append, places.write, makings._write_layer = watched_append, watched_write, watched_layer
        job_run._sweep = watched_sweep


def harm(mark: str) -> None:
    """This script is sent to where the tasks run, and what it says of the class with it."""
    write = checkpoint._Write

    class Dying:
        def __init__(self, *arguments: Any) -> None:
            self._write = write(*arguments)

        def __call__(self, batches: Any) -> Any:
            for batch in self._write(batches):
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    yield batch
                else:
                    os.kill(os.getpid(), signal.SIGKILL)

    checkpoint._Write = Dying  # type: ignore[assignment,misc]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("remote")
    parser.add_argument("address")
    parser.add_argument("directory")
    parser.add_argument("lease_s", type=float)
    parser.add_argument("--die", default="", choices=["", *STEPS])
    parser.add_argument("--wait", nargs=2, default=("", ""))
    parser.add_argument("--harm")
    given = parser.parse_args()
    Watch(given.die, tuple(given.wait)).install()
    if given.harm:
        harm(given.harm)
    work = CheckpointWork(topic="events")
    spark = session(remote=given.remote)
    try:
        run_job(work, given.address, lambda: spark, given.directory, lease_s=given.lease_s)
    except LeaseLost as error:
        print(error)
        return LOST
    finally:
        spark.stop()  # else it listens for streams, for ever
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
