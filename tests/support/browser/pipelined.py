"""A node whose pipeline has jobs in every state that somebody may find: their runners say so, and do nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from logboom import Writer
from logboom.broker.caller import EVERYBODY
from logboom.client import connect
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Beat, Covered, Ended, Event, Leased, Result
from logboom.results.places import ResultPlace
from support.brokers.any_broker import AnyBroker
from support.browser.scenes import Scene
from support.nodes.console import ConsoleNode

HOUR_MS: Final = 3_600_000
COVERED, LAG = 700, 50
PAGE: Final = "<!doctype html><title>A report</title><h1>Orders</h1><script>window.injected=8</script>"
FAILURE: Final = (
    "PipelineError: archive/audit, in s3://bucket/logs: no room\n\tat <img src=x onerror=window.injected=9>"
)


@contextmanager
def works(directory: Path, failure: str = FAILURE) -> Iterator[Scene]:
    with ConsoleNode(directory) as node:
        with Writer("orders", servers=node.address) as writer:
            for number in range(COVERED + LAG):
                writer.write(b"%d" % number)
        with ThreadPoolExecutor(1) as thread:  # Playwright holds the event loop of this one
            thread.submit(asyncio.run, _tell(node.address, ResultPlace(str(directory / "results")), failure)).result()
        yield Scene(node)


async def _tell(address: str, place: ResultPlace, failure: str) -> None:
    async with connect(address) as broker:

        async def connected() -> AnyBroker:
            return broker

        ledger, topic = PipelineLedger(connected, EVERYBODY), (await broker.describe_topic("orders")).id
        for event in _events(place, topic, failure):
            await ledger.put(lambda _, event=event: event)  # type: ignore[misc]


def _events(place: ResultPlace, topic_id: str, failure: str) -> Iterator[Event]:
    covers = {"orders": Covered(topic_id, {0: (0, COVERED)})}
    page = place.write("report.html", PAGE.encode())

    def begin(job: str, epoch: int, topic: str = "orders", lease_ms: int = HOUR_MS) -> Leased:
        run = f"20260131T12000{epoch}-9b2e7c40"
        return Leased(job, job.partition("/")[0], epoch, run, "mill-2:4711", lease_ms, (topic,))

    def end(job: str, epoch: int, result: Result | None = None, error: str | None = None) -> Ended:
        summary = {"records": COVERED, "files": 3} if error is None else {}
        return Ended(job, epoch, f"20260131T12000{epoch}-9b2e7c40", result, error, summary, 12.5)

    made = Result("one", place.below("archive/orders").uri, covers, None, COVERED, 9_437_184)
    for job in ("archive/orders", "checkpoint/orders/key"):
        yield begin(job, 1)
        yield end(job, 1, made)
    yield begin("archive/orders", 2)
    yield Beat("archive/orders", 2, 3, 12, "writes segments")
    yield begin("checkpoint/orders/key", 2)
    yield end("checkpoint/orders/key", 2)
    yield begin("archive/audit", 1, "audit")
    yield end("archive/audit", 1, None, failure)
    yield begin("report/all", 1)
    yield end("report/all", 1, Result("one", place.uri, covers, None, COVERED, 1, {"page": msgspec.to_builtins(page)}))
    yield begin("verify/nightly", 1, lease_ms=1)
