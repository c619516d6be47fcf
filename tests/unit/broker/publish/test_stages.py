"""Stages in the broker: who may put what where, how much of it, for how long."""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import suppress

import pytest

from logboom.batch import Batch, Producer, build
from logboom.batch.header import STAGED_IDS
from logboom.broker.api import Appended, Part, PublishKey, Receipt
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.publish import stages
from logboom.errors import (
    BatchTooLarge,
    LimitExceeded,
    LogboomError,
    LowSpace,
    MalformedBatch,
    Overloaded,
    PartitionNotFound,
    SequenceGap,
    ShuttingDown,
    StageFailed,
    StageIncomplete,
    StageNotFound,
    TopicNotAllowed,
    TopicNotFound,
    WritesRefused,
)
from support.brokers.any_broker import AnyBroker
from support.disks.simulated import Call, SimulatedDisk
from support.simulation.staged import ROOT, fill, killed, publish_values, put, read_log, staged_batch, tell

STAGING = f"{ROOT}/staging"
KEY = PublishKey("k")


@pytest.fixture
def disk() -> SimulatedDisk:
    found = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("a", 2)
        await broker.create_topic("b", 1)

    tell(found, story)
    return killed(found)


@pytest.fixture
def _quick_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "TEND_S", 0.01)


def limited(**limits: int) -> BrokerConfig:
    return BrokerConfig(Limits(**limits))


async def refusal(
    broker: AnyBroker, stage: str, *batches: Batch, topic: str = "a", partition: int | None = 0
) -> object:
    answers = await broker.stage(stage, [Part(topic, batches, partition)])
    return answers[-1]


def stage_files(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.names if path.startswith(STAGING)]


def test_what_is_staged_is_listed_and_seen_by_nobody(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage = await broker.open_stage("mine")
        assert stage.producer_id >= STAGED_IDS
        await put(broker, stage, {("a", 1): [b"1", b"2", b"3"], ("b", 0): [b"4"]})
        (info,) = await broker.list_stages()
        assert (info.id, info.records, info.logs, info.state, info.note) == (
            stage.id,
            4,
            ["a/1", "b/0"],
            "open",
            "mine",
        )
        assert info.size_bytes == disk.open(stage_files(disk)[0]).size()
        assert await read_log(broker, ("a", 1)) == []

    tell(disk, story)


def test_hostile_batches_are_refused_and_leave_the_stage_as_it_was(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage, receipt = await fill(broker, {("a", 0): [b"1", b"2"]})
        other = await broker.open_stage()
        for batch, error in (
            (staged_batch(other, [b"x"], 2), MalformedBatch),
            (staged_batch(stage, [b"x"], 2, epoch=1), MalformedBatch),
            (Batch.parse(bytes(build([b"x"]).data)), MalformedBatch),
            (Batch.parse(bytes(build([b"x"], producer=Producer(7, 0, 2)).data)), MalformedBatch),
            (staged_batch(stage, [b"x"], 3), SequenceGap),
            (staged_batch(stage, [b"y", b"z"], 1), SequenceGap),
            (staged_batch(stage, [b"x" * 5000], 2), BatchTooLarge),
        ):
            assert isinstance(await refusal(broker, stage.id, batch), error)
        answer = await refusal(broker, stage.id, staged_batch(stage, [b"1", b"2"], 0))
        assert isinstance(answer, Appended)
        assert answer.repeat
        await broker.publish(KEY, [receipt])
        assert await read_log(broker, ("a", 0)) == [b"1", b"2"]

    tell(disk, story, limited(batch_bytes=4096))


def test_where_nothing_may_be_written_nothing_is_staged(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage = await broker.open_stage()
        batch = staged_batch(stage, [b"x"], 0)
        assert isinstance(await refusal(broker, stage.id, batch, topic="c"), TopicNotFound)
        assert isinstance(await refusal(broker, stage.id, batch, topic="_publish"), TopicNotAllowed)
        assert isinstance(await refusal(broker, stage.id, batch, partition=2), PartitionNotFound)
        assert isinstance(await refusal(broker, stage.id, batch, partition=None), PartitionNotFound)
        assert isinstance(await refusal(broker, "f" * 32, batch), StageNotFound)
        assert isinstance(await refusal(broker, "../../lock", batch), StageNotFound)
        await broker.refuse("a")
        assert isinstance(await refusal(broker, stage.id, batch), WritesRefused)
        await broker.accept("a")
        await broker.refuse()
        with pytest.raises(WritesRefused):
            await broker.open_stage()
        await broker.accept()
        assert await broker.stage(stage.id, []) == []
        assert await broker.stage(stage.id, [Part("a", [], 0)]) == []
        assert (await broker.list_stages())[0].records == 0

    tell(disk, story)


def test_producer_ids_of_stages_are_of_no_use_for_an_append(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage = await broker.open_stage()
        (answer,) = await broker.append([Part("a", [staged_batch(stage, [b"x"], 0)], 0)])
        assert isinstance(answer, MalformedBatch)

    tell(disk, story)


def test_a_stage_goes_on_after_a_restart(disk: SimulatedDisk) -> None:
    stages = []

    async def before(broker: LocalBroker) -> None:
        stage, _ = await fill(broker, {("a", 0): [b"1", b"2"]})
        stages.append(stage)

    async def after(broker: LocalBroker) -> None:
        await put(broker, stages[0], {("a", 0): [b"2", b"3"]}, size=1, before={("a", 0): 1})
        await broker.publish(KEY, [Receipt(stages[0].id, 3)])
        assert await read_log(broker, ("a", 0)) == [b"1", b"2", b"3"]

    tell(disk, before)
    left = killed(disk)
    tell(left, after)
    assert stage_files(left) == []


def test_a_stage_that_holds_more_or_less_than_its_writer_says_is_not_published(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage, receipt = await fill(broker, {("a", 0): [b"1", b"2"]})
        for records in (1, 3, 0):
            with pytest.raises(StageIncomplete):
                await broker.publish(KEY, [Receipt(stage.id, records)])
        assert await read_log(broker, ("a", 0)) == []
        assert not (await broker.publish(KEY, [receipt])).repeat

    tell(disk, story)


def test_there_are_so_many_stages_and_no_more(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        opened = await asyncio.gather(*(broker.open_stage() for _ in range(5)), return_exceptions=True)
        stages = [stage for stage in opened if not isinstance(stage, BaseException)]
        assert len(stages) == 3
        assert all(isinstance(error, LimitExceeded) for error in opened if isinstance(error, BaseException))
        assert await broker.discard([stages[0].id, stages[0].id, "f" * 32]) == 1
        await broker.open_stage()

    tell(disk, story, limited(stages=3))


def test_all_stages_together_hold_so_much_and_no_more(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stages = [await broker.open_stage() for _ in range(4)]
        asked = [broker.stage(stage.id, [Part("a", [staged_batch(stage, [b"x" * 3000], 0)], 0)]) for stage in stages]
        answers = [answer for future in asked for answer in await future]
        assert sum(isinstance(answer, Appended) for answer in answers) == 2
        assert sum(isinstance(answer, LimitExceeded) for answer in answers) == 2
        assert sum(info.size_bytes for info in await broker.list_stages()) < 9000
        await broker.discard([stage.id for stage in stages])
        await fill(broker, {("a", 0): [b"x" * 3000, b"y" * 3000]}, size=1)

    tell(disk, story, limited(staged_bytes=9000))


def test_what_waits_for_stages_is_bounded(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "QUEUED_BYTES", 60_000)

    async def story(broker: LocalBroker) -> None:
        stages = [await broker.open_stage() for _ in range(6)]
        first = [staged_batch(stages[0], [b"x" * 20_000], seq) for seq in range(4)]
        asked = [broker.stage(stages[0].id, [Part("a", [batch], 0)]) for batch in first]
        asked += [
            broker.stage(stage.id, [Part("a", [staged_batch(stage, [b"x" * 30_000], 0)], 0)]) for stage in stages[1:]
        ]
        answers = [answer for future in asked for answer in await future]
        kinds = [isinstance(answer, Overloaded) for answer in answers]
        assert kinds[:4] == [False, False, True, True]
        assert kinds[4:] == [False] * 4 + [True]
        await put(broker, stages[0], {("a", 0): [b"x" * 20_000, b"x" * 20_000]}, size=1, before={("a", 0): 2})

    tell(disk, story, limited(unsynced_bytes=180_000, unsynced_bytes_per_log=180_000))


@pytest.mark.usefixtures("_quick_upkeep")
def test_a_stage_that_nobody_uses_expires_and_its_file_goes(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage, receipt = await fill(broker, {("a", 0): [b"1"]})
        while await broker.list_stages():
            await asyncio.sleep(0.02)
        with pytest.raises(StageNotFound):
            await broker.publish(KEY, [receipt])
        assert isinstance(await refusal(broker, stage.id, staged_batch(stage, [b"2"], 1)), StageNotFound)
        while stage_files(disk):
            await asyncio.sleep(0.01)

    tell(disk, story, limited(stage_idle_ms=1000))


@pytest.mark.usefixtures("_quick_upkeep")
def test_a_stage_that_is_left_alone_is_synced_and_can_be_used_again(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "IDLE_US", 0)

    async def story(broker: LocalBroker) -> None:
        stage, _ = await fill(broker, {("a", 0): [b"1"]})
        inode = disk.names[stage_files(disk)[0]]
        while inode.unsynced:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        await put(broker, stage, {("a", 0): [b"2"]}, before={("a", 0): 1})
        await broker.publish(KEY, [Receipt(stage.id, 2)])
        assert await read_log(broker, ("a", 0)) == [b"1", b"2"]

    tell(disk, story)


def test_a_note_of_any_length_is_kept_in_part(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        assert (await broker.open_stage("ä" * 1_000_000)).note == "ä" * stages.NOTE_CHARACTERS

    tell(disk, story)


def test_what_is_no_stage_in_the_directory_of_stages_is_left_alone(disk: SimulatedDisk) -> None:
    empty, other, directory = "0" * 32, "1" * 32, "2" * 32

    async def before(broker: LocalBroker) -> None:
        await broker.open_stage()

    async def story(broker: LocalBroker) -> None:
        assert len(await broker.list_stages()) == 3
        for found in (empty, other):
            with pytest.raises(StageFailed):
                await broker.publish(KEY, [Receipt(found)])
        states = {info.id: info.state for info in await broker.list_stages()}
        assert (states[empty], states[other]) == ("failed", "failed")
        with pytest.raises(StageNotFound):
            await broker.publish(KEY, [Receipt(directory)])
        assert await broker.discard([empty, other]) == 2
        assert not (await publish_values(broker, KEY, {("a", 0): [b"1"]})).repeat

    tell(disk, before)
    left = killed(disk)
    content = bytes(left.names[stage_files(left)[0]].cached)
    for name, data in ((f"{empty}.stage", b""), (f"{other}.stage", content), ("readme", b"?"), (".stage", b"?")):
        left.create(f"{STAGING}/{name}").write([data], 0)
    left.make_directory(f"{STAGING}/{directory}.stage")
    tell(left, story)
    assert left.exists(f"{STAGING}/readme")


@pytest.mark.parametrize(("name", "error"), [("create", errno.EMFILE), ("write", errno.ENOSPC), ("write", errno.EIO)])
def test_a_stage_that_cannot_be_opened_leaves_nothing(disk: SimulatedDisk, name: str, error: int) -> None:
    async def story(broker: LocalBroker) -> None:
        def fault(call: Call) -> int | None:
            if call.name == name and call.path.startswith(STAGING):
                raise OSError(error, "injected", call.path)
            return None

        disk.fault = fault
        with pytest.raises(LogboomError):
            await broker.open_stage()
        disk.fault = None
        while stage_files(disk):
            await asyncio.sleep(0.01)
        assert await broker.list_stages() == []
        await broker.open_stage()

    tell(disk, story)


def test_a_stage_whose_opener_has_gone_away_counts_as_one_and_can_be_discarded(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        opening = asyncio.create_task(broker.open_stage())
        await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await opening
        while not stage_files(disk):
            await asyncio.sleep(0.01)
        (info,) = await broker.list_stages()
        assert await broker.discard([info.id]) == 1
        while stage_files(disk):
            await asyncio.sleep(0.01)

    tell(disk, story)


def test_discarding_while_batches_are_on_their_way_answers_all_of_them(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        for turns in range(8):
            stage = await broker.open_stage()
            asked = []
            for seq in range(20):
                asked.append(broker.stage(stage.id, [Part("a", [staged_batch(stage, [b"x"], seq)], 0)]))
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            assert await broker.discard([stage.id]) == 1
            for future in asked:
                await future
            with pytest.raises(StageNotFound):
                await broker.publish(KEY, [Receipt(stage.id)])
        while stage_files(disk):
            await asyncio.sleep(0.01)
        assert broker._stages.staged_bytes == 0
        assert broker._stages._queued_bytes == 0

    tell(disk, story)


def test_a_sync_that_failed_behind_the_back_of_a_publish_refuses_it(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "SYNC_BYTES", 1)

    async def story(broker: LocalBroker) -> None:
        for _ in range(4):
            left = [1]

            def fault(call: Call, left: list[int] = left) -> int | None:
                if call.name == "sync" and call.path.startswith(STAGING) and left:
                    left.pop()
                    time.sleep(0.03)  # so that another one could overtake it
                    raise OSError(errno.EIO, "injected", call.path)
                return None

            stage = await broker.open_stage()
            disk.fault = fault
            staged = broker.stage(stage.id, [Part("a", [staged_batch(stage, [b"x"], 0)], 0)])
            with pytest.raises(StageFailed):
                await broker.publish(KEY, [Receipt(stage.id, 1)])
            await staged
            disk.fault = None
            with pytest.raises(StageFailed):
                await broker.publish(KEY, [Receipt(stage.id, 1)])
            assert isinstance(await refusal(broker, stage.id, staged_batch(stage, [b"x"], 1)), StageFailed)
        assert await read_log(broker, ("a", 0)) == []

    tell(disk, story)


def test_when_names_cannot_be_synced_no_stage_of_that_time_is_published(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stages = [(await fill(broker, {("a", 0): [b"1"]}))[1] for _ in range(2)]

        def fault(call: Call) -> int | None:
            if call.name == "sync_directory" and call.path == STAGING:
                raise OSError(errno.EIO, "injected", call.path)
            return None

        disk.fault = fault
        with pytest.raises(StageFailed):
            await broker.publish(KEY, stages[:1])
        disk.fault = None
        for stage in stages:
            with pytest.raises(StageFailed):
                await broker.publish(KEY, [stage])
        assert not (await publish_values(broker, KEY, {("a", 0): [b"2"]})).repeat
        assert await read_log(broker, ("a", 0)) == [b"2"]

    tell(disk, story)


def test_a_node_that_is_closing_takes_nothing_and_answers_what_it_has_taken(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage = await broker.open_stage()
        asked = broker.stage(stage.id, [Part("a", [staged_batch(stage, [b"x"], 0)], 0)])
        closing = asyncio.create_task(broker.close())
        await asyncio.sleep(0)
        assert isinstance(await refusal(broker, stage.id, staged_batch(stage, [b"x"], 1)), ShuttingDown)
        with pytest.raises(ShuttingDown):
            await broker.open_stage()
        with pytest.raises(ShuttingDown):
            await broker.discard([stage.id])
        await closing
        assert isinstance((await asked)[0], Appended)

    tell(disk, story)


def test_a_full_volume_refuses_and_the_stage_goes_on_when_there_is_room(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage, records = await broker.open_stage(), 0
        disk.free = 0
        while True:
            answer = await refusal(broker, stage.id, staged_batch(stage, [b"x" * 200_000], records))
            if not isinstance(answer, Appended):
                break
            records += 1
        assert isinstance(answer, LowSpace)
        with pytest.raises(LowSpace):
            await broker.open_stage()
        with pytest.raises(LowSpace):
            await broker.publish(KEY, [Receipt(stage.id, records)])
        disk.free = 1 << 40
        await put(broker, stage, {("a", 0): [b"end"]}, before={("a", 0): records})
        await broker.publish(KEY, [Receipt(stage.id, records + 1)])
        assert len(await read_log(broker, ("a", 0))) == records + 1

    tell(disk, story)
