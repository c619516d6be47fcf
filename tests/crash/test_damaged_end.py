"""The last batch of a log was acknowledged and synced, and is damaged after a power loss: who says that it was whole?

No later batch does; only the state file can. What it says must be on the disk by then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from logboom.batch import build
from logboom.broker import chores
from logboom.broker.api import Appended, Part
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.errors import SyncFailed
from logboom.storage import DataDirectory
from support.disks.simulated import Call, SimulatedDisk

CONFIG = BrokerConfig(reserve_bytes=0)
ROOT = "/data"


def after_power_loss(disk: SimulatedDisk) -> SimulatedDisk:
    """Nothing that was not synced is there, and the end of the log is damaged."""
    left = disk._after(lambda operation: None, lambda change: False)
    (path,) = (path for path in left.names if "/t~" in path and path.endswith(".log"))
    for content in (left.names[path].cached, left.names[path].durable):
        content[-8] ^= 1
    return left


async def append(broker: LocalBroker) -> None:
    (answer,) = await broker.append([Part("t", [build([b"acknowledged"])])], "durable")
    assert isinstance(answer, Appended)


def run(disk: SimulatedDisk, idle: bool) -> SimulatedDisk:
    """A node appends one record, durably, and loses its power then; or a while after that."""

    async def story() -> SimulatedDisk:
        broker = await LocalBroker.open(ROOT, CONFIG, disk=disk)
        await append(broker)
        if idle:
            async with asyncio.timeout(60):
                while disk.names[f"{ROOT}/state"].unsynced:
                    await asyncio.sleep(0.005)
        left = after_power_loss(disk)
        await broker.close()
        return left

    return asyncio.run(story())


def test_a_log_that_is_idle_says_what_was_synced_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "STATE_SYNC_S", 0.01)
    left = run(SimulatedDisk(), idle=True)
    with DataDirectory.open(ROOT, left, reserve_bytes=0) as data:
        (log,) = data.open_topic("t")
        assert log.refusal is not None
        assert "the state file says that batches up to 1 were synced" in log.refusal


def test_in_between_a_damaged_end_cannot_be_told_from_a_torn_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What remains, and is documented: a batch that was synced last, a moment ago."""
    monkeypatch.setattr(chores, "STATE_SYNC_S", 3600.0)
    left = run(SimulatedDisk(), idle=False)
    with DataDirectory.open(ROOT, left, reserve_bytes=0) as data:
        (log,) = data.open_topic("t")
        assert (log.refusal, log.next) == (None, 0)
        assert log.recovered.cut_bytes


def test_a_state_file_that_cannot_be_synced_stops_the_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "STATE_SYNC_S", 0.01)
    disk = SimulatedDisk()

    def fail(call: Call) -> None:
        if call.name == "sync" and call.path == f"{ROOT}/state":
            raise OSError(5, "injected")

    async def story() -> None:
        broker = await LocalBroker.open(ROOT, CONFIG, disk=disk)
        await append(broker)
        disk.fault = fail
        async with asyncio.timeout(60):
            while True:
                (answer,) = await broker.append([Part("t", [build([b"x"])])], "durable")
                if not isinstance(answer, Appended):
                    break
                await asyncio.sleep(0.005)
        disk.fault = None
        with suppress(SyncFailed):
            await broker.close()

    asyncio.run(story())
    with DataDirectory.open(ROOT, disk, reserve_bytes=0) as data:
        assert not data.was_clean
