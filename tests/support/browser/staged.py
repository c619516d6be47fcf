"""Nodes with stages and keys, in every state that somebody may find them in."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from logboom import Client
from logboom.batch import Producer
from logboom.batch.builder import build_records
from logboom.batch.header import Buffer
from logboom.broker.api import Part, PublishKey, Receipt
from logboom.broker.local import LocalBroker
from logboom.client.publish.stage_writer import StageWriter
from logboom.errors import OutcomeUnknown
from logboom.storage.files.disk import OsFile
from support.browser import records
from support.browser.scenes import Scene
from support.disks.hasty import HastyDisk, HastyFile
from support.nodes.console import ConsoleNode

STUCK: Final = PublishKey("nightly/import", 41)
TOPIC: Final = "orders"


class FullFile(HastyFile):
    __slots__ = ()

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        if f"/topics/{TOPIC}~" in self.path and self.path.endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(buffers, position)


class FullDisk(HastyDisk):
    """It has no room for records of one topic."""

    def open(self, path: str) -> OsFile:
        return FullFile(path, os.O_RDWR)

    def create(self, path: str) -> OsFile:
        return FullFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def stage(address: str, note: str, logs: dict[str, int], size: int = 100) -> str:
    """So many records for each topic, and nobody who publishes them; its id."""
    writer = StageWriter(address, note=note)
    for topic, count in logs.items():
        writer.write_many(topic, [b"x" * size] * count)
    writer.finish()
    return writer.stage


def publish(address: str, name: str | None, number: int = 0, count: int = 3) -> None:
    with Client(address) as client, client.transaction(name, number) as transaction:
        transaction.write_many(TOPIC, [b"published"] * count)


@contextmanager
def workshop(root: Path, http_port: int = 0) -> Iterator[Scene]:
    """Stages of several programs, and what was published before."""
    with ConsoleNode(root, http_port=http_port) as node:
        for name, number, count in (("import/prices", 2_881_024, 1_204), ("nightly/stock", 17, 880), (None, 0, 42)):
            publish(node.address, name, number, count)
        for batch in (240, 241):
            publish(node.address, "spark/8f6c1a52-33b0-4f5e-9d0e-7e1b2a94c0d1", batch, 2_500)
        stage(node.address, "import/prices 2,951,168", {"prices": 1_840}, 400)
        stage(node.address, "spark batch 242, task 0", {TOPIC: 1_250, "alerts": 3})
        stage(node.address, "spark batch 242, task 1", {TOPIC: 1_190})
        stage(node.address, "", {})
        yield Scene(node)


@contextmanager
def unfinished(root: Path, http_port: int = 0) -> Iterator[Scene]:
    """A publish whose volume was full, and whose first stage is gone since: the node can never finish it."""
    node = ConsoleNode(root, http_port=http_port)
    with ThreadPoolExecutor(1) as thread:  # Playwright may have the loop of this one
        lost = thread.submit(asyncio.run, _publish_into_nowhere(str(node.directory))).result()
    (node.directory / "staging" / f"{lost}.stage").unlink()
    with node:
        yield Scene(node)


async def _publish_into_nowhere(path: str) -> str:
    broker = await LocalBroker.open(path, disk=FullDisk.at(path))
    try:
        await broker.create_topic(TOPIC)
        receipts = []
        for number in range(2):
            opened = await broker.open_stage(f"task {number}")
            made = records.make(records.order, number, 20)
            batch = build_records(made, producer=Producer(opened.producer_id, 0, 0))
            (answer,) = await broker.stage(opened.id, [Part(TOPIC, [batch], 0)])
            assert not isinstance(answer, Exception), answer
            receipts.append(Receipt(opened.id, len(made)))
        publishing = asyncio.create_task(broker.publish(STUCK, receipts))
        while not any(key.is_open for key in await broker.list_keys()):
            assert not publishing.done(), publishing
            await asyncio.sleep(0.01)
    finally:
        await broker.close()
    with suppress(OutcomeUnknown):
        raise AssertionError(f"it was published: {await publishing}")
    return receipts[0].stage
