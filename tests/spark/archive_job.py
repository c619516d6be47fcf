"""A process that archives a topic, to be killed or paused on its way.

    archive_job.py JOB

JOB is a JSON file: `address` of the node, `topic`, `place`, `lease_s`, `settings` of Spark; `step`, where the process
makes the file `mark` and waits until there is one with `.go`; and `mark`. The steps are
    some          a task has written a file, and others have not
    all           all tasks are done, and the manifest is not written
    written       it is, and the run has not ended
    ended         the result is published, and what it has made superfluous is still there
or none, to run through. What went wrong is the last line that it prints, by the name of the error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logboom.errors import LogboomError
from logboom.results.places import ResultPlace
from logboom.spark import session
from logboom.spark.jobs import archive, archive_spans, job_run
from logboom.spark.jobs.lease import Lease
from logboom.spark.jobs.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 600.0


def reach(job: dict[str, Any], step: str) -> None:
    """Whoever comes here first waits."""
    if step != job["step"]:
        return
    with suppress(FileExistsError):
        os.close(os.open(job["mark"], os.O_CREAT | os.O_EXCL))
        deadline = time.monotonic() + WAIT_S
        while not os.path.exists(f"{job['mark']}.go") and time.monotonic() < deadline:
            time.sleep(0.01)


def run_stepping(
    job: dict[str, Any], spark: SparkSession, function: Callable[[bytes], bytes], pieces: Sequence[bytes], *more: Any
) -> list[bytes]:
    def work(piece: bytes) -> bytes:
        answer = function(piece)
        reach(job, "some")
        return answer

    answers = run_tasks(spark, work, pieces, *more)
    reach(job, "all")
    return answers


def between(job: dict[str, Any], step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        answer = function(*arguments)
        reach(job, step)
        return answer

    return call


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    archive_spans.TASK_BYTES = 1  # type: ignore[misc]
    archive.run_tasks = partial(run_stepping, job)  # type: ignore[attr-defined]
    ResultPlace.write = between(job, "written", ResultPlace.write)  # type: ignore[method-assign]
    Lease.end = between(job, "ended", Lease.end)  # type: ignore[method-assign]
    spark = partial(session, "job", "local[2]", config=job["settings"])
    work = archive.ArchiveWork(topic=job["topic"])
    try:
        job_run.run_job(work, job["address"], spark, job["place"], lease_s=job["lease_s"])
    except LogboomError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
