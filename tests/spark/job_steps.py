"""A process that runs a job of the pipeline over Spark Connect, to be killed, paused or harmed at a step of its way.

    job_steps.py JOB

JOB is a JSON file: `remote`, `address` of the node, `place`, `lease_s`, `kind` and `options` of the job; `step`, what
happens there, `action`, and `mark`, a file that is made when it does. The steps are
    before-leased  after-leased  before-ended  after-ended    an event in the pipeline's state
    before-NAME    after-NAME                                 a file of the result
    before-sweep   after-sweep                                what earlier runs have left goes, when it has ended
    task                                                      the first task of Spark that has made its answer
and the actions `die`, of the process that comes there, and `wait`, until there is a file `mark`.go. What went wrong is
the last line that it prints, by the name of the error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logboom.errors import LogboomError
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Ended, Event
from logboom.results.places import ResultPlace
from logboom.spark import session
from logboom.spark.jobs import job_run, report, verify
from logboom.spark.jobs.kinds import make_work
from logboom.spark.jobs.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CELL = 256
WAIT_S = 600.0


def reach(job: dict[str, Any], step: str) -> None:
    """Whoever comes here first is who it happens to."""
    if step != job["step"]:
        return
    try:
        os.close(os.open(job["mark"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if job["action"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while not os.path.exists(f"{job['mark']}.go") and time.monotonic() < deadline:
        time.sleep(0.01)


def watch(job: dict[str, Any]) -> None:
    ledgers: Any = PipelineLedger
    places: Any = ResultPlace
    runs: Any = job_run
    append, sweep, write = ledgers._append, runs._sweep, places.write
    ended: list[Event] = []

    async def watched_append(ledger: PipelineLedger, event: Event) -> bool:
        name = type(event).__name__.lower()
        reach(job, f"before-{name}")
        appended: bool = await append(ledger, event)
        if appended and isinstance(event, Ended):
            ended.append(event)
        reach(job, f"after-{name}")
        return appended

    def watched_sweep(*arguments: Any) -> None:
        if ended:
            reach(job, "before-sweep")
        sweep(*arguments)
        if ended:
            reach(job, "after-sweep")

    def watched_write(place: ResultPlace, path: str, data: bytes) -> Any:
        reach(job, f"before-{path}")
        stored = write(place, path, data)
        reach(job, f"after-{path}")
        return stored

    ledgers._append, places.write, runs._sweep = watched_append, watched_write, watched_sweep
    report.run_tasks = verify.run_tasks = partial(run_watched, job)  # type: ignore[attr-defined]


def run_watched(
    job: dict[str, Any], spark: SparkSession, function: Callable[[bytes], bytes], pieces: Sequence[bytes], *more: Any
) -> list[bytes]:
    def work(piece: bytes) -> bytes:
        answer = function(piece)
        reach(job, "task")
        return answer

    return run_tasks(spark, work, pieces, *more)


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text())
    report.CELL = CELL  # type: ignore[attr-defined]
    watch(job)
    work = make_work(job["kind"], job["options"])
    spark = session(remote=job["remote"])
    try:
        job_run.run_job(work, job["address"], lambda: spark, job["place"], lease_s=job["lease_s"])
    except (LogboomError, OSError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    finally:
        spark.stop()  # else it listens for streams, for ever
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
