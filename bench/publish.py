"""How fast is what was staged published, what does it cost others, and what does a small transaction cost?

A gibibyte in batches of 256 KiB is staged, which is not timed, and published: into one log, and into three of one
topic. Next to it the same bytes are copied from one file to another, a mebibyte at a time, and synced once: what is
published is synced too. Each finds as much memory freshly freed. Then, while a gibibyte is being published into a log,
another writer appends to that log, one durable record after the other; and at last a transaction of one record beside a
durable append of one: in one call, and with a stage, from opening it to the answer of its publish.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from harness import QUICK, Row, Timing, compare, free_memory, rate, report, summarise, time_prepared
from logboom.batch import Producer, build
from logboom.broker.api import Part, PublishKey, Receipt
from logboom.client.remote import RemoteBroker, connect
from node import DURABLE, Node, running_node
from spark_data import Records, as_values

BYTES = (64 if QUICK else 1024) * 1024 * 1024
ROUNDS = 3 if QUICK else 5
SMALL = 50 if QUICK else 300
IN_FLIGHT = 16
COPY_BYTES = 1024 * 1024
SIZE = 1024


class Published:
    """A gibibyte on its way into a topic."""

    def __init__(self, node: Node, directory: str, topic: str, partitions: int) -> None:
        self._node = node
        self._directory = directory
        self._topic = topic
        self._partitions = partitions
        self._numbers = count()
        self._receipt: Receipt | None = None

    def prepare(self) -> None:
        async def fill(broker: RemoteBroker) -> None:
            if await broker.list_topics(self._topic):
                await broker.delete_topic(self._topic)
            await broker.create_topic(self._topic, self._partitions, DURABLE)
            self._receipt = await stage(broker, self._topic, self._partitions)

        self._node.call(fill)
        free_memory(self._directory, BYTES)

    def publish(self) -> None:
        receipt = self._receipt
        assert receipt is not None
        key = PublishKey(self._topic, next(self._numbers))
        self._node.call(lambda broker: broker.publish(key, [receipt]))


async def stage(broker: RemoteBroker, topic: str, partitions: int) -> Receipt:
    opened = await broker.open_stage("bench")
    seqs = [0] * partitions
    waiting = []
    records = 0
    for number, (_, lines) in enumerate(Records(SIZE, BYTES // SIZE).pieces()):
        partition = number % partitions
        batch = build(as_values(lines), producer=Producer(opened.producer_id, 0, seqs[partition]))
        seqs[partition] += len(lines)
        records += len(lines)
        waiting.append(broker.stage(opened.id, [Part(topic, [batch], partition)]))
        if len(waiting) >= IN_FLIGHT:
            await waiting.pop(0)
    await asyncio.gather(*waiting)
    return Receipt(opened.id, records)


class Copied:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._source, self._copy = Path(directory, "source"), Path(directory, "copy")
        with open(self._source, "wb") as file:
            file.writelines(lines for _, lines in Records(SIZE, BYTES // SIZE).pieces())

    def prepare(self) -> None:
        self._copy.unlink(missing_ok=True)
        free_memory(self._directory, BYTES)

    def copy(self) -> None:
        with open(self._source, "rb", buffering=0) as source, open(self._copy, "wb", buffering=0) as copy:
            while data := source.read(COPY_BYTES):
                copy.write(data)
            os.fdatasync(copy.fileno())


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory:
        copied = Copied(directory)
        with running_node(f"{directory}/node") as node:
            one, three = Published(node, directory, "one", 1), Published(node, directory, "three", 3)
            timings = time_prepared(
                {
                    "copy and one sync": (copied.prepare, copied.copy),
                    "publish into one log": (one.prepare, one.publish),
                    "publish into three logs": (three.prepare, three.publish),
                },
                ROUNDS,
            )
            against = "copy and one sync"
            rows = [rate(against, timings, BYTES)]
            rows += [rate(name, timings, BYTES, against, 0.5) for name in timings if name != against]
            rows += asyncio.run(measure_others(node))
            rows += asyncio.run(measure_small(node))
    report("publish", rows)


async def measure_others(node: Node) -> list[Row]:
    """A record at a time to the log that is being published to."""
    quiet: list[float] = []
    meanwhile: list[float] = []
    async with connect(node.address) as publisher, connect(node.address) as writer:
        for number in range(ROUNDS):
            topic = f"shared-{number}"
            await publisher.create_topic(topic, 1, DURABLE)
            receipt = await stage(publisher, topic, 1)
            quiet.append(await _append_for(writer, topic, asyncio.create_task(asyncio.sleep(0.5))))
            publish = asyncio.create_task(publisher.publish(PublishKey(topic), [receipt]))
            meanwhile.append(await _append_for(writer, topic, publish))
            await publisher.delete_topic(topic)
    timings = {
        "a durable append, nothing beside it": summarise(quiet),
        "a durable append while a gibibyte is published into its log": summarise(meanwhile),
    }
    first, second = timings
    return [compare(first, timings, unit="ms"), compare(second, timings, first, unit="ms")]


async def _append_for(broker: RemoteBroker, topic: str, task: asyncio.Task[object]) -> float:
    """Microseconds of an append, the median of those until the task has ended."""
    batch = build([b"x" * 100])
    times = []
    while not task.done():
        began = time.perf_counter()
        await broker.append([Part(topic, [batch], 0)], "durable")
        times.append((time.perf_counter() - began) * 1e6)
        await asyncio.sleep(0)
    await task
    return sorted(times)[len(times) // 2]


async def measure_small(node: Node) -> list[Row]:
    async with connect(node.address) as broker:
        await broker.create_topic("small", 1, DURABLE)
        numbers = count()

        async def append() -> None:
            await broker.append([Part("small", [build([b"x" * 100])])], "durable")

        async def publish() -> None:
            await broker.publish_batches(PublishKey("small", next(numbers)), [Part("small", [build([b"x" * 100])], 0)])

        async def stage_and_publish() -> None:
            opened = await broker.open_stage()
            batch = build([b"x" * 100], producer=Producer(opened.producer_id, 0, 0))
            await broker.stage(opened.id, [Part("small", [batch], 0)])
            await broker.publish(PublishKey("small", next(numbers)), [Receipt(opened.id, 1)])

        works: dict[str, Callable[[], Awaitable[None]]] = {
            "an append of one record": append,
            "a transaction of one record": publish,
            "a transaction of one record with a stage": stage_and_publish,
        }
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(SMALL):
            for name, work in works.items():
                began = time.perf_counter()
                await work()
                times[name].append((time.perf_counter() - began) * 1e6)
    timings: dict[str, Timing] = {name: summarise(samples) for name, samples in times.items()}
    first, in_one, staged = timings
    return [
        compare(first, timings, unit="ms"),
        compare(in_one, timings, first, 2.0, unit="ms"),
        compare(staged, timings, first, unit="ms"),
    ]


if __name__ == "__main__":
    main()
