"""A repeat of what is in the log is told where it is, whatever keeps new records out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from logboom.batch import Batch, Producer, build
from logboom.broker.api import Answer, Appended, Part, Settings
from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.errors import LogReadOnly, LowSpace, ReadOnlyReplica, SyncFailed, WritesRefused
from logboom.storage import DataDirectory
from logboom.storage.data.role import Role
from logboom.storage.data.topic import FlushSettings
from support.disks.gated import GatedDisk

Story = Callable[[LocalBroker, GatedDisk], Awaitable[None]]
NOW = 1_700_000_000_000_000


def batch(seq: int) -> Batch:
    return build([b"%d" % seq], producer=Producer(7, 0, seq))


async def send(broker: LocalBroker, *sequence: int) -> list[Answer]:
    return await broker.append([Part("t", [batch(seq) for seq in sequence])])


def tell(path: Path, story: Story, config: BrokerConfig | None = None, replicate: Role | None = None) -> None:
    async def run() -> None:
        path.mkdir(exist_ok=True)
        disk = GatedDisk(str(path))
        broker = await LocalBroker.open(str(path), config, disk=disk, replicate=replicate)
        try:
            async with asyncio.timeout(60):
                await story(broker, disk)
        finally:
            disk.gate.set()
            with suppress(SyncFailed):
                await broker.close()

    asyncio.run(run())


async def begin(broker: LocalBroker) -> None:
    await broker.create_topic("t", 1, Settings())
    (answer,) = await send(broker, 0)
    assert isinstance(answer, Appended)


def assert_first(answer: Answer) -> None:
    assert isinstance(answer, Appended)
    assert (answer.base_seqno, answer.record_count, answer.repeat) == (0, 1, True)


@pytest.mark.parametrize("topic", ["t", None])
def test_a_repeat_gets_its_first_answer_where_an_operator_refuses_writes(tmp_path: Path, topic: str | None) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await begin(broker)
        await broker.refuse(topic, "maintenance")
        first, new = await send(broker, 0, 1)
        assert_first(first)
        assert isinstance(new, WritesRefused)
        await broker.accept(topic)
        (answer,) = await send(broker, 1)
        assert isinstance(answer, Appended)
        assert answer.base_seqno == 1

    tell(tmp_path / "data", story)


def test_a_repeat_waits_for_the_same_promise_where_an_operator_refuses_writes(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, Settings(flush=FlushSettings("interval", 3_600_000)))
        await broker.append([Part("t", [batch(0)])], "leader")
        disk.close_gate()
        await broker.refuse("t", "maintenance")
        repeat = broker.append([Part("t", [batch(0)])], "durable")
        while not disk.entered.is_set():
            await asyncio.sleep(0.001)
        assert not repeat.done()
        disk.gate.set()
        assert_first((await repeat)[0])

    tell(tmp_path / "data", story)


def test_a_repeat_gets_its_first_answer_where_the_volume_is_full(tmp_path: Path) -> None:
    async def before(broker: LocalBroker, disk: GatedDisk) -> None:
        await begin(broker)

    async def after(broker: LocalBroker, disk: GatedDisk) -> None:
        new, first = await send(broker, 1, 0)
        assert isinstance(new, LowSpace)
        assert_first(first)

    tell(tmp_path / "data", before)
    tell(tmp_path / "data", after, BrokerConfig(reserve_bytes=1 << 60))


def test_after_a_failed_sync_only_what_was_synced_before_is_confirmed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await begin(broker)
        disk.failing = True
        (lost,) = await send(broker, 1)
        assert isinstance(lost, SyncFailed)
        first, unknown, new = await send(broker, 0, 1, 2)
        assert_first(first)
        assert isinstance(unknown, SyncFailed)  # and not that it was not appended
        assert isinstance(new, LogReadOnly)

    tell(tmp_path / "data", story)


def test_a_damaged_log_confirms_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "data"

    async def before(broker: LocalBroker, disk: GatedDisk) -> None:
        await begin(broker)
        await send(broker, 1)

    async def after(broker: LocalBroker, disk: GatedDisk) -> None:
        first, damaged, new = await send(broker, 0, 1, 2)
        assert_first(first)
        assert isinstance(damaged, LogReadOnly)
        assert isinstance(new, LogReadOnly)

    tell(path, before)
    (log,) = path.glob("topics/t~*/0/*.log")
    with log.open("r+b") as file:
        file.seek(len(batch(0).data) + 50)
        file.write(b"XXXXXXXX")
    tell(path, after)


def test_a_copy_confirms_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "data"

    async def before(broker: LocalBroker, disk: GatedDisk) -> None:
        pass

    async def after(broker: LocalBroker, disk: GatedDisk) -> None:
        first, new = await send(broker, 0, 1)
        assert_first(first)
        assert isinstance(new, ReadOnlyReplica)

    tell(path, before, replicate=Role("localhost:1", "source", "cluster"))
    with DataDirectory.open(str(path)) as data:
        data.create_topic("t")
        (log,) = data.open_topic("t")
        log.append_one(batch(0), NOW)
        log.commit(log.sync())
    tell(path, after)
