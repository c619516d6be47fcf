"""Large stages: they become segments of their logs, and nobody notices but by the time it takes."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from logboom.batch import Batch, build
from logboom.broker.api import Acks, Answer, Part, PublishKey, Receipt, Settings
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher
from logboom.broker.publish.intent import Intent
from logboom.errors import LogboomError, LogReadOnly, StageNotFound
from logboom.storage import Appended, File, Log
from logboom.storage.data.topic import FlushSettings, SegmentSettings
from logboom.storage.staged import stage
from support.disks.gated import GatedDisk
from support.disks.simulated import Call, PowerLoss, SimulatedDisk
from support.simulation.staged import ROOT, Machine, append, fill, killed, read_log, staged_batches, tell
from unit.broker.test_local import sync_begun

A0, A1 = ("a", 0), ("a", 1)
SMALL = SegmentSettings(8192)
EACH = Settings(segment=SMALL)
CONFIG = BrokerConfig(reserve_bytes=0)


@pytest.fixture(autouse=True)
def _soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "LARGE_BYTES", 2000)
    monkeypatch.setattr(finisher, "RETRY_S", 0.005)


def values(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}:{n}".encode().ljust(1000) for n in range(count)]


@asynccontextmanager
async def opened(path: Path, settings: Settings = EACH) -> AsyncIterator[tuple[LocalBroker, GatedDisk]]:
    disk = GatedDisk(str(path))
    broker = await LocalBroker.open(str(path), disk=disk)
    try:
        await broker.create_topic("a", 2, settings)
        yield broker, disk
    finally:
        disk.gate.set()
        await broker.close()


def send(broker: LocalBroker, value: bytes, acks: Acks | None = None) -> asyncio.Future[list[Answer]]:
    return broker.append([Part("a", [build([value])], 0)], acks)


def inodes(path: Path, pattern: str) -> set[int]:
    return {os.stat(found).st_ino for found in path.rglob(pattern)}


@pytest.mark.parametrize(
    "settings", [EACH, Settings(SMALL, flush=FlushSettings("interval")), Settings(SMALL, flush=FlushSettings("os"))]
)
def test_what_is_published_is_in_the_files_it_was_staged_in_and_readable_at_once(
    tmp_path: Path, settings: Settings
) -> None:
    async def story() -> None:
        async with opened(tmp_path, settings) as (broker, _):
            first, second = values("x", 40), values("y", 23)
            await append(broker, b"before", "a", 0)
            receipts = [
                (await fill(broker, {A0: first, A1: values("z", 1)}))[1],
                (await fill(broker, {A0: second}))[1],
            ]
            pieces = inodes(tmp_path, "*.piece")
            assert len(pieces) > 6
            publication = await broker.publish(PublishKey("k", 1), receipts)
            assert [(part.first, part.next) for part in publication.parts or ()] == [(1, 64), (0, 1)]
            assert await read_log(broker, A0) == [b"before", *first, *second]
            assert await read_log(broker, A1) == values("z", 1)
            await append(broker, b"behind", "a", 0)
            assert (await read_log(broker, A0))[-1] == b"behind"
            assert pieces - inodes(tmp_path / "topics", "*.log") == set()
            assert await broker.list_stages() == []
            while list((tmp_path / "staging").iterdir()):
                await asyncio.sleep(0.005)

    asyncio.run(story())


def test_what_is_little_or_in_many_batches_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adopt, adopted = Log.adopt, list[str]()

    def note(log: Log, file: File, batches: Sequence[Batch], now: int, term: int | None = None) -> list[Appended]:
        adopted.append(file.path)
        return adopt(log, file, batches, now, term)

    monkeypatch.setattr(Log, "adopt", note)

    async def publish(broker: LocalBroker, number: int, count: int) -> bool:
        receipt = (await fill(broker, {A0: values(str(number), count)}))[1]
        await broker.publish(PublishKey("k", number), [receipt])
        return any(receipt.stage in path for path in adopted)

    async def story() -> None:
        async with opened(tmp_path) as (broker, _):
            monkeypatch.setattr(finisher, "ADOPTED_PART", 1)
            assert not await publish(broker, 1, 4)
            monkeypatch.setattr(finisher, "ADOPTED_PART", 4)
            assert await publish(broker, 2, 4)
            monkeypatch.setattr(finisher, "ADOPTED_BATCHES", 1)
            assert not await publish(broker, 3, 4)
            assert await read_log(broker, A0) == [*values("1", 4), *values("2", 4), *values("3", 4)]

    asyncio.run(story())


def test_a_sync_that_is_under_way_is_waited_for_and_others_write_meanwhile(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as (broker, disk):
            receipt = (await fill(broker, {A0: values("x", 20)}))[1]
            disk.close_gate()
            waiting = send(broker, b"first", acks="durable")
            await sync_begun(disk)
            publishing = asyncio.create_task(broker.publish(PublishKey("k", 1), [receipt]))
            eager = []
            for n in range(20):
                eager.append(send(broker, f"o:{n}".encode(), acks="leader"))
                await asyncio.sleep(0.002)
            disk.gate.set()
            await waiting
            for answers in eager:
                assert not any(isinstance(answer, LogboomError) for answer in await answers)
            await publishing
            while len(found := await read_log(broker, A0) + await read_log(broker, A1)) < 41:
                await asyncio.sleep(0.002)
            assert [value for value in found if value.startswith(b"x")] == values("x", 20)
            assert sorted(found) == sorted([b"first", *values("x", 20), *(f"o:{n}".encode() for n in range(20))])

    asyncio.run(story())


def test_others_append_all_the_time_and_everything_is_there_once_in_its_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as (broker, _):
            done = asyncio.Event()

            async def others(name: str, acks: Acks) -> int:
                count = 0
                while not done.is_set():
                    await send(broker, f"{name}:{count}".encode(), acks=acks)
                    count += 1
                    await asyncio.sleep(0.001)
                return count

            tasks = {"e": asyncio.create_task(others("e", "leader")), "d": asyncio.create_task(others("d", "durable"))}
            for number in range(1, 9):
                receipt = (await fill(broker, {A0: values(f"x{number}", 20), A1: values(f"y{number}", 9)}))[1]
                await broker.publish(PublishKey("k", number), [receipt])
            done.set()
            counts = {name: await task for name, task in tasks.items()}
            await append(broker, b"last", "a", 0)
            found = await read_log(broker, A0), await read_log(broker, A1)
            for log, prefix, count in ((found[0], "x", 20), (found[1], "y", 9)):
                mine = [value for value in log if value.startswith(prefix.encode())]
                assert mine == [value for n in range(1, 9) for value in values(f"{prefix}{n}", count)]
            for name, count in counts.items():
                theirs = [value for log in found for value in log if value.startswith(f"{name}:".encode())]
                assert sorted(theirs) == sorted(f"{name}:{n}".encode() for n in range(count))

    asyncio.run(story())


def test_where_files_cannot_have_two_names_everything_is_written_again() -> None:
    disk = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("a", 1, EACH)

        def fault(call: Call) -> None:
            if call.name == "link":
                raise OSError(errno.EPERM, "Operation not permitted", call.path)

        disk.fault = fault
        receipt = (await fill(broker, {A0: values("x", 20)}))[1]
        await broker.publish(PublishKey("k", 1), [receipt])
        disk.fault = None
        assert await read_log(broker, A0) == values("x", 20)

    tell(disk, story, CONFIG)


def test_pieces_without_a_stage_are_removed_by_the_next_start_and_the_others_count_as_staged() -> None:
    disk = SimulatedDisk()
    receipts: list[Receipt] = []

    async def before(broker: LocalBroker) -> None:
        await broker.create_topic("a", 1, EACH)
        receipts.append((await fill(broker, {A0: values("x", 20)}))[1])
        receipts.append((await fill(broker, {A0: values("y", 20)}))[1])

    async def after(broker: LocalBroker) -> None:
        (info,) = await broker.list_stages()
        assert info.size_bytes == sum(len(left.names[path].cached) for path in left.names if "/staging/" in path)
        assert all(receipts[1].stage in path for path in left.names if path.endswith(".piece"))
        await broker.publish(PublishKey("k", 1), [receipts[1]])
        assert await read_log(broker, A0) == values("y", 20)

    tell(disk, before, CONFIG)
    left = killed(disk)
    left.unlink(f"{ROOT}/staging/{receipts[0].stage}.stage")
    tell(left, after, CONFIG)
    assert not [path for path in left.names if "/staging/" in path]


def test_a_log_whose_readers_cannot_be_told_stops_the_node_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with opened(tmp_path) as (broker, disk):
            log = broker._catalog.find("a").writer(0).log
            disk.close_gate()
            first = send(broker, b"x", acks="durable")
            await sync_begun(disk)
            second = send(broker, b"x", acks="leader")
            await asyncio.sleep(0.02)
            commit = log.commit

            def fail(index: int, tell: bool = True) -> None:
                commit(index, tell)
                log._store.fail("the state file cannot be written")

            monkeypatch.setattr(log, "commit", fail)
            third = send(broker, b"x", acks="durable")
            disk.gate.set()
            assert not isinstance((await first)[0], LogboomError)
            await second
            assert isinstance((await third)[0], LogboomError)
            assert isinstance((await send(broker, b"x"))[0], LogReadOnly)

    with pytest.raises(LogboomError):
        asyncio.run(story())


def test_a_lower_limit_of_a_batch_keeps_a_publish_open_until_it_is_raised() -> None:
    disk = SimulatedDisk()
    receipts: list[Receipt] = []

    def fault(call: Call) -> None:
        if receipts and call.name == "write" and call.path.endswith(".piece"):
            raise PowerLoss

    async def before(broker: LocalBroker) -> None:
        await broker.create_topic("a", 1, EACH)
        receipts.append((await fill(broker, {A0: values("x", 20)}, size=6))[1])
        await broker.publish(PublishKey("k", 1), receipts)

    async def refused(broker: LocalBroker) -> None:
        assert await read_log(broker, A0) == []

    async def raised(broker: LocalBroker) -> None:
        assert await read_log(broker, A0) == values("x", 20)

    Machine(disk, fault).run(before, CONFIG)
    left = killed(disk)
    said = tell(left, refused, BrokerConfig(Limits(batch_bytes=4096), reserve_bytes=0))
    assert any("over limits.batch_bytes" in line for line in said)
    assert any("was finished" in line for line in tell(killed(left), raised, CONFIG))


@pytest.mark.parametrize("is_known", [False, True], ids=["of an earlier release", "of this one"])
def test_a_stage_that_was_published_and_comes_back_harms_nothing_when_it_is_published_again(is_known: bool) -> None:
    disk = SimulatedDisk()
    receipts: list[Receipt] = []

    def fault(call: Call) -> None:
        if call.name == "unlink" and "/staging/" in call.path:
            raise OSError(errno.EIO, "injected", call.path)

    async def before(broker: LocalBroker) -> None:
        await broker.create_topic("a", 1, EACH)
        receipts.append((await fill(broker, {A0: values("x", 20)}))[1])
        await broker.publish(PublishKey("k", 1), receipts)
        if not is_known:  # it did not keep many stages, whether they were gone or not
            assert broker._publishing is not None
            await broker._publishing.keys._state.put({b"k": msgspec.msgpack.encode(Intent(1, 0, True, False))})

    async def after(broker: LocalBroker) -> None:
        if is_known:
            with pytest.raises(StageNotFound):
                await broker.publish(PublishKey("other", 1), receipts)
        else:
            await broker.publish(PublishKey("other", 1), receipts)
        assert await read_log(broker, A0) == values("x", 20) * (1 if is_known else 2)

    Machine(disk, fault).run(before, CONFIG)
    left = killed(disk)
    tell(left, after, CONFIG)

    async def later(broker: LocalBroker) -> None:
        assert await read_log(broker, A0) == values("x", 20) * (1 if is_known else 2)

    tell(killed(left), later, CONFIG)


def test_a_stage_that_is_discarded_while_it_is_written_leaves_no_files(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as (broker, _):
            info = await broker.open_stage()
            waiting = [
                asyncio.ensure_future(broker.stage(info.id, [part]))
                for part in staged_batches(info, {A0: values("x", 40), A1: values("y", 40)})
            ]
            assert await broker.discard([info.id]) == 1
            await asyncio.gather(*waiting)
            while list((tmp_path / "staging").iterdir()):
                await asyncio.sleep(0.005)

    asyncio.run(story())
