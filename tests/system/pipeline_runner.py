"""Runs one job of the pipeline, without Spark: counts the records of a topic and publishes the number.

    python pipeline_runner.py ADDRESS DIRECTORY TOPIC LEASE_S [--gate FILE] [--no-wait] [--die STEP] [--every MS]

With a gate it waits in the middle of its work until the file is there, and says `working` first. Where another has the
job it says `waiting`. STEP is where it kills itself: before or after an event is appended (`before-leased`), or
anything is written, published, swept. With an interval it runs the job again and again, as `logboom pipeline serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from logboom.broker.api import TopicInfo
from logboom.client.remote import connect
from logboom.errors import LeaseHeld, LeaseLost
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Covered, Event, PipelineJob
from logboom.results.places import ResultPlace
from logboom.spark.jobs import job_run
from logboom.spark.jobs.config import JobConfig, PipelineConfig
from logboom.spark.jobs.job_run import JobOutcome, JobRun, run_job
from logboom.spark.jobs.job_server import Server
from logboom.spark.jobs.lease import Lease

HELD, LOST = 3, 4
INTERRUPT = "int:"
EVENTS = ("leased", "ended")
STEPS = (*(f"{when}-{event}" for event in EVENTS for when in ("before", "after")), "before-write", "after-write")
STEPS = (*STEPS, "before-sweep", "after-sweep")


@dataclass(frozen=True)
class CountWork:
    topic: str
    gate: Path | None = None
    die: str = ""

    kind = "count"

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic,)

    @property
    def id(self) -> str:
        return f"count/{self.topic}"

    def do(self, run: JobRun) -> JobOutcome:
        info = asyncio.run(describe(str(run.servers), self.topic))
        if self.gate is not None:
            print("working", flush=True)
            while not self.gate.exists():
                run.check()
                run.progress.done += 1
                time.sleep(0.02)
        spans = {log.partition: (log.first, log.committed) for log in info.partitions}
        records = sum(until - start for start, until in spans.values())
        die_at(self.die, "before-write")
        manifest = run.place.write("count.json", msgspec.json.encode({"records": records}))
        die_at(self.die, "after-write")
        covers = {self.topic: Covered(info.id, spans)}
        return JobOutcome(covers, manifest, records, manifest.size, summary={"records": records})


async def describe(address: str, topic: str) -> TopicInfo:
    async with connect(address) as broker:
        return await broker.describe_topic(topic)


def die_at(wanted: str, step: str) -> None:
    """Of `int:after-write` it is only interrupted, there."""
    if wanted.removeprefix(INTERRUPT) == step:
        os.kill(os.getpid(), signal.SIGINT if wanted.startswith(INTERRUPT) else signal.SIGKILL)


def die_in_ledger(wanted: str) -> None:
    """Wherever an event is appended, and before and after the sweep at the end."""
    append, sweep = PipelineLedger._append, job_run._sweep

    async def dying_append(self: PipelineLedger, event: Event) -> bool:
        name = type(event).__name__.lower()
        die_at(wanted, f"before-{name}")
        appended = await append(self, event)
        die_at(wanted, f"after-{name}")
        return appended

    def dying_sweep(home: ResultPlace, lease: Lease, job: PipelineJob) -> None:
        at_end = job.lease is None
        die_at(wanted if at_end else "", "before-sweep")
        sweep(home, lease, job)
        die_at(wanted if at_end else "", "after-sweep")

    PipelineLedger._append = dying_append  # type: ignore[method-assign]
    job_run._sweep = dying_sweep


def serve(work: CountWork, address: str, directory: str, lease_ms: int, every_ms: int) -> None:
    jobs = {"count": JobConfig("count", work, every_ms)}
    server = Server(PipelineConfig(directory=directory, server=address, lease_ms=lease_ms, jobs=jobs), no_spark)
    try:
        server.run()
    finally:
        server.close()


def no_spark() -> NoReturn:
    raise AssertionError("this job needs no Spark")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("directory")
    parser.add_argument("topic")
    parser.add_argument("lease_s", type=float)
    parser.add_argument("--gate", type=Path)
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--die", default="", choices=["", *STEPS, *(INTERRUPT + step for step in STEPS)])
    parser.add_argument("--every", type=int)
    given = parser.parse_args()
    die_in_ledger(given.die)
    work = CountWork(given.topic, given.gate, given.die)
    try:
        if given.every is not None:
            serve(work, given.address, given.directory, int(1000 * given.lease_s), given.every)
        run_job(
            work,
            given.address,
            no_spark,
            given.directory,
            wait=not given.no_wait,
            lease_s=given.lease_s,
            on_wait=lambda runner, rest_s: print("waiting", flush=True),
        )
    except LeaseHeld as error:
        print(error)
        return HELD
    except LeaseLost as error:
        print(error)
        return LOST
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
