"""Publishing: keys, what may stand in the way of it, and what is answered then."""

from __future__ import annotations

import asyncio
import errno
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from logboom.batch import build
from logboom.broker import chores
from logboom.broker.api import (
    Appended,
    Part,
    Publication,
    PublishedPart,
    PublishKey,
    ReadRequest,
    Receipt,
    Settings,
    Start,
)
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.publish import finisher, intent, publisher
from logboom.errors import (
    InvalidKey,
    KeyBusy,
    KeyMismatch,
    LimitExceeded,
    LogboomError,
    LowSpace,
    OutcomeUnknown,
    StageBusy,
    StageNotFound,
    TopicBusy,
    TopicDeleted,
    TopicRecreated,
    WritesRefused,
)
from logboom.storage.data.topic import RetentionSettings, SegmentSettings
from support.disks.simulated import Call, SimulatedDisk, SimulatedFile
from support.simulation.broken import overwrite
from support.simulation.staged import (
    ROOT,
    Log,
    Machine,
    append,
    fill,
    killed,
    publish_values,
    put,
    read_log,
    read_logs,
    tell,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
KEY = PublishKey("k", 1)
CONFIG = BrokerConfig(reserve_bytes=0, upkeep=UpkeepSettings(retention_every_ms=10))
VALUES = {A0: [b"1", b"2", b"3"], B0: [b"4"]}


def prepared(settings: Settings | None = None) -> SimulatedDisk:
    found = SimulatedDisk()

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("a", 2, settings)
        await broker.create_topic("b", 1, settings)

    tell(found, story, CONFIG)
    return killed(found)


@pytest.fixture
def disk() -> SimulatedDisk:
    return prepared()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "RETRY_S", 0.005)
    monkeypatch.setattr(finisher, "RETRY_MAX_S", 0.02)
    monkeypatch.setattr(publisher, "RECOVERY_S", 0.1)


async def is_open(broker: LocalBroker, name: str = "k") -> bool:
    return any(info.is_open for info in await broker.list_keys(name))


def full_after_the_intent(disk: SimulatedDisk, appends: int = 0) -> None:
    """From the moment an intent is written the volume has room for so many writes to topics, and no more."""
    intents: list[Call] = []
    others: list[Call] = []
    before = disk.fault

    def fault(call: Call) -> int | None:
        if call.name == "write" and call.path.endswith(".log"):
            if "/_publish~" in call.path:
                intents.append(call)
            elif intents:
                others.append(call)
                if len(others) == appends + 1:
                    disk.free = 0
                if not disk.free:
                    raise OSError(errno.ENOSPC, "injected", call.path)
        return None if before is None else before(call)

    disk.fault = fault


async def begin_stuck(
    broker: LocalBroker, disk: SimulatedDisk, values: dict[Log, list[bytes]] | None = None, appends: int = 0
) -> asyncio.Task[Publication]:
    """A publish whose intent is durable, and that waits for room."""
    _, receipt = await fill(broker, values or VALUES, size=1)
    full_after_the_intent(disk, appends)
    task = asyncio.create_task(broker.publish(KEY, [receipt]))
    while not await is_open(broker) or disk.free:
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.02)
    assert not task.done()
    return task


def stuck(disk: SimulatedDisk, values: dict[Log, list[bytes]] | None = None, appends: int = 0) -> SimulatedDisk:
    """The disk that a node leaves which is stopped in such a state."""

    async def story(broker: LocalBroker) -> None:
        task = await begin_stuck(broker, disk, values, appends)
        await broker.close()
        with pytest.raises(OutcomeUnknown):
            await task

    tell(disk, story, CONFIG)
    return killed(disk)


def test_all_of_a_publish_is_in_its_logs_in_the_order_of_its_stages(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        await append(broker, b"0")
        published = await publish_values(broker, KEY, {A0: [b"1", b"2"], A1: [b"3"]}, {A0: [b"4"], B0: [b"5"]})
        assert published.parts is not None
        parts = {(part.topic, part.partition): (part.first, part.next, part.records) for part in published.parts}
        assert parts == {A0: (1, 4, 3), A1: (0, 1, 1), B0: (0, 1, 1)}
        assert await read_logs(broker, [A0, A1, B0]) == {A0: [b"0", b"1", b"2", b"4"], A1: [b"3"], B0: [b"5"]}
        (info,) = await broker.list_keys()
        assert (info.name, info.number, info.records, info.is_open, info.expires) == ("k", 1, 5, False, None)
        assert await broker.list_stages() == []

    tell(disk, story, CONFIG)


def test_a_key_that_was_published_is_answered_as_the_first_time_and_publishes_nothing(disk: SimulatedDisk) -> None:
    said: list[Publication] = []

    async def story(broker: LocalBroker) -> None:
        said.append(await publish_values(broker, PublishKey("k", 5), VALUES))
        await check(broker)

    async def check(broker: LocalBroker) -> None:
        again = await publish_values(broker, PublishKey("k", 5), VALUES)
        assert again == Publication("k", 5, True, said[0].parts)
        assert await publish_values(broker, PublishKey("k", 4), VALUES) == Publication("k", 4, True, None)
        assert await broker.publish(PublishKey("k", 5), []) == again
        assert await broker.publish(PublishKey("k", 5), [Receipt("f" * 32)]) == again
        assert await broker.list_stages() == []
        assert await read_logs(broker, [A0, B0]) == VALUES

    tell(disk, story, CONFIG)
    tell(killed(disk), check, CONFIG)


def test_what_has_another_digest_or_an_older_number_is_no_repeat(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        await publish_values(broker, PublishKey("k", 5, digest="one"), VALUES)
        await check(broker)

    async def check(broker: LocalBroker) -> None:
        for other in (
            PublishKey("k", 5, digest="two"),
            PublishKey("k", 4, digest="one"),
            PublishKey("k", 0, digest="two"),
        ):
            with pytest.raises(KeyMismatch, match=f"number {other.number} with digest {other.digest} .* number 5 with"):
                await publish_values(broker, other, VALUES)
        stages = [stage.id for stage in await broker.list_stages()]
        assert len(stages) == 3, "what is refused stays as it was"
        await broker.discard(stages)
        assert (await publish_values(broker, PublishKey("k", 5, digest="one"), VALUES)).repeat
        assert (await publish_values(broker, PublishKey("k", 5), VALUES)).repeat, "who gives none is not compared"
        assert (await publish_values(broker, PublishKey("k", 2), VALUES)).repeat
        assert await read_logs(broker, [A0, B0]) == VALUES
        assert [(info.number, info.digest) for info in await broker.list_keys()] == [(5, "one")]

    tell(disk, story, CONFIG)
    tell(killed(disk), check, CONFIG)


def test_a_digest_that_comes_later_is_not_compared_with_none(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        await publish_values(broker, PublishKey("k", 5), VALUES)
        assert (await publish_values(broker, PublishKey("k", 5, digest="one"), VALUES)).repeat
        assert not (await publish_values(broker, PublishKey("k", 6, digest="one"), VALUES)).repeat
        with pytest.raises(InvalidKey, match="digest"):
            await broker.publish(PublishKey("k", 7, digest="a b"), [])

    tell(disk, story, CONFIG)


def test_a_lasting_name_knows_the_topics_of_all_its_numbers(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: LocalBroker) -> None:
        ids = {name: (await broker.describe_topic(name)).id for name in ("a", "b")}
        await publish_values(broker, PublishKey("k", 1), {A0: [b"1"]})
        await publish_values(broker, PublishKey("k", 2), {B0: [b"2"]})
        await broker.publish(PublishKey("k", 3), [])
        await publish_values(broker, PublishKey("once", lasting=False), {A0: [b"3"]})
        assert {info.name: info.topics for info in await broker.list_keys()} == {"k": ids, "once": {"a": ids["a"]}}
        await broker.delete_topic("a")
        ids["a"] = (await broker.create_topic("a", 1)).id
        await publish_values(broker, PublishKey("k", 4), {A0: [b"1"]})
        assert (await broker.list_keys("k"))[0].topics == ids
        monkeypatch.setattr(intent, "TOPICS_KEPT", 1)
        await publish_values(broker, PublishKey("k", 5), {B0: [b"1"]})
        assert (await broker.list_keys("k"))[0].topics == {"b": ids["b"]}

    tell(disk, story, CONFIG)


def test_what_was_published_before_there_were_digests_is_still_known() -> None:
    old = msgspec.msgpack.encode([7, 1, True, False, [], [], 3, [PublishedPart("a", "0" * 32, 0, 0, 3, 3)]])
    kept = msgspec.msgpack.decode(old, type=intent.Intent)
    assert (kept.number, kept.digest, kept.known_topics) == (7, "", {"a": "0" * 32})


def test_a_publish_without_stages_only_raises_the_number(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        assert await broker.publish(PublishKey("k", 7), []) == Publication("k", 7, False, [])
        assert (await publish_values(broker, PublishKey("k", 6), VALUES)).repeat
        assert not (await publish_values(broker, PublishKey("k", 8), VALUES)).repeat

    tell(disk, story, CONFIG)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 250, "a\n", "\0"])
def test_names_that_cannot_be_are_refused(disk: SimulatedDisk, name: str) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, VALUES)
        for key in (PublishKey(name), PublishKey("k", -1), PublishKey("k", 2**63)):
            with pytest.raises(InvalidKey):
                await broker.publish(key, [receipt])
        assert not (await broker.publish(PublishKey("x" * 249, 2**63 - 1), [receipt])).repeat

    tell(disk, story, CONFIG)


def test_of_publishers_with_the_same_key_at_once_one_publishes_and_all_are_told_the_same(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        receipts = [(await fill(broker, VALUES))[1] for _ in range(5)]
        said = await asyncio.gather(*(broker.publish(KEY, [receipt]) for receipt in receipts))
        assert sorted(publication.repeat for publication in said) == [False, True, True, True, True]
        assert len({str(publication.parts) for publication in said}) == 1
        assert await read_logs(broker, [A0, B0]) == VALUES
        assert await broker.list_stages() == []

    tell(disk, story, CONFIG)


def test_neighbouring_numbers_at_once_are_published_or_said_to_be_old(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        order = [3, 1, 2, 5, 4, 7, 6]
        receipts = [(await fill(broker, {A0: [str(number).encode()]}))[1] for number in order]
        asked = [
            broker.publish(PublishKey("k", number), [receipt]) for number, receipt in zip(order, receipts, strict=True)
        ]
        said = await asyncio.gather(*asked)
        published = [publication.number for publication in said if not publication.repeat]
        assert published == sorted(published)
        assert await read_log(broker, A0) == [str(number).encode() for number in published]
        assert max(published) == 7

    tell(disk, story, CONFIG)


def test_many_names_are_published_at_once(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        await asyncio.gather(
            *(publish_values(broker, PublishKey(f"k{n}"), {A0: [b"%d" % n], B0: [b"%d" % n]}) for n in range(50))
        )
        found = await read_logs(broker, [A0, B0])
        assert sorted(found[A0]) == sorted(found[B0]) == sorted(b"%d" % n for n in range(50))
        assert len(await broker.list_keys("k4")) == 11

    tell(disk, story, CONFIG)


def test_a_stage_is_published_once_however_many_ask(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, VALUES)
        with pytest.raises(StageBusy):
            await broker.publish(KEY, [receipt, receipt])
        said = await asyncio.gather(
            *(broker.publish(PublishKey(f"k{n}"), [receipt]) for n in range(5)), return_exceptions=True
        )
        assert sum(isinstance(answer, Publication) for answer in said) == 1
        assert all(isinstance(answer, Publication | StageBusy | StageNotFound) for answer in said)
        assert await read_logs(broker, [A0, B0]) == VALUES
        assert len(await broker.list_keys()) == 1

    tell(disk, story, CONFIG)


def test_one_stage_that_is_not_there_leaves_the_others_as_they_were(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, VALUES)
        with pytest.raises(StageNotFound):
            await broker.publish(KEY, [receipt, Receipt("f" * 32)])
        assert [info.state for info in await broker.list_stages()] == ["open"]
        assert not (await broker.publish(KEY, [receipt])).repeat

    tell(disk, story, CONFIG)


def test_a_topic_deleted_or_made_anew_after_staging_gets_nothing_and_neither_do_the_others(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        stage, receipt = await fill(broker, VALUES)
        await broker.delete_topic("b")
        with pytest.raises(TopicDeleted):
            await broker.publish(KEY, [receipt])
        await broker.create_topic("b", 1)
        with pytest.raises(TopicRecreated):
            await broker.publish(KEY, [receipt])
        await put(broker, stage, {B0: [b"new"]})
        with pytest.raises(TopicRecreated):
            await broker.publish(KEY, [Receipt(stage.id, 5)])
        assert await read_logs(broker, [A0, B0]) == {A0: [], B0: []}
        assert await broker.list_keys() == []
        await broker.delete_topic("a")

    tell(disk, story, CONFIG)


def test_a_topic_that_refuses_writes_refuses_the_whole_publish_for_now(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, VALUES)
        await broker.refuse("b")
        with pytest.raises(WritesRefused):
            await broker.publish(KEY, [receipt])
        await broker.accept("b")
        await broker.refuse()
        with pytest.raises(WritesRefused):
            await broker.publish(KEY, [receipt])
        await broker.accept()
        assert not (await broker.publish(KEY, [receipt])).repeat

    tell(disk, story, CONFIG)


def test_a_full_volume_after_the_commit_is_waited_out_and_the_topics_stay_meanwhile(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        task = await begin_stuck(broker, disk)
        for topic in ("a", "b"):
            with pytest.raises(TopicBusy):
                await broker.delete_topic(topic)
        with pytest.raises(KeyBusy):
            await broker.forget_key("k")
        (info,) = await broker.list_stages()
        assert info.state == "publishing"
        assert await broker.discard([info.id]) == 0
        with pytest.raises(StageBusy):
            await broker.publish(PublishKey("other"), [Receipt(info.id)])
        with pytest.raises(LowSpace):
            await append(broker, b"x", "a", 1)
        again = asyncio.create_task(broker.publish(KEY, []))
        disk.free = 1 << 40
        assert not (await task).repeat
        assert (await again).repeat
        assert await read_logs(broker, [A0, B0]) == VALUES
        await broker.delete_topic("a")
        await broker.delete_topic("b")

    tell(disk, story, CONFIG)


def test_a_volume_that_is_full_across_a_restart_is_waited_out_too(disk: SimulatedDisk) -> None:
    left = stuck(disk)
    assert left.free == 0

    async def still_full(broker: LocalBroker) -> None:
        assert any("is being finished" in line for line in broker.recovered)
        with pytest.raises(TopicBusy):
            await broker.delete_topic("a")

    async def story(broker: LocalBroker) -> None:
        again = asyncio.create_task(broker.publish(KEY, []))
        await asyncio.sleep(0.05)
        assert not again.done()
        left.free = 1 << 40
        assert (await again).repeat
        assert await read_logs(broker, [A0, B0]) == VALUES
        await broker.delete_topic("a")

    tell(left, still_full, CONFIG)
    left = killed(left)
    tell(left, story, CONFIG)


def test_a_caller_who_goes_away_ends_nothing(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        for number in range(1, 40):
            _, receipt = await fill(broker, {A0: [b"%d" % number]})
            task = asyncio.create_task(broker.publish(PublishKey("k", number), [receipt]))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            publication = await broker.publish(PublishKey("k", number), [])
            assert publication.repeat or number == 1
            assert await read_log(broker, A0) == [b"%d" % n for n in range(1, number + 1)]

    tell(disk, story, CONFIG)


def test_what_is_trimmed_or_dropped_during_a_publish_is_not_published_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "SLICE_BATCHES", 4)
    values = {A0: [b"%03d" % n + b"x" * 1000 for n in range(40)], B0: [b"end"]}
    retained = Settings(retention=RetentionSettings(bytes=1), segment=SegmentSettings(bytes=4096))
    disk = prepared(retained)

    async def before(broker: LocalBroker) -> None:
        await begin_stuck(broker, disk, values, appends=6)
        assert 4 <= await grown(broker) < 40

    async def grown(broker: LocalBroker) -> int:
        return (await broker.describe_topic("a")).partitions[0].committed

    async def trimmed(broker: LocalBroker) -> None:
        left.free = 1 << 30  # which the publish does not notice for a while
        await broker.trim("a", 0, await grown(broker))
        await asyncio.sleep(0.1)

    async def after(broker: LocalBroker) -> None:
        assert (await broker.publish(KEY, [])).repeat
        found = [value[:3] for value in await read_log(broker, A0)]
        assert found == [b"%03d" % n for n in range(40)][40 - len(found) :]
        assert await grown(broker) == 40

    Machine(disk).run(before, CONFIG, cut=True)
    left = killed(disk)
    monkeypatch.setattr(finisher, "RETRY_S", 100.0)
    monkeypatch.setattr(finisher, "RETRY_MAX_S", 100.0)
    Machine(left).run(trimmed, CONFIG, cut=True)
    left = killed(left)
    tell(left, after, CONFIG)


def log_paths(disk: SimulatedDisk, topic: str, partition: int = 0) -> list[str]:
    found = f"{ROOT}/topics/{topic}~"
    return sorted(
        path for path in disk.names if path.startswith(found) and f"/{partition}/" in path and path.endswith(".log")
    )


def test_a_log_that_is_damaged_before_a_publish_is_finished_keeps_it_open_until_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finisher, "SLICE_BATCHES", 2)
    left = stuck(prepared(), {A0: [b"%d" % n for n in range(10)], B0: [b"end"]}, appends=4)
    left.free = 1 << 40
    (path,) = log_paths(left, "a")
    assert left.open(path).size() > 200
    overwrite(left, path, 100, b"????")

    async def story(broker: LocalBroker) -> None:
        assert any("cannot be finished" in line for line in broker.recovered)
        with pytest.raises(OutcomeUnknown):
            await broker.publish(PublishKey("k", 9), [])
        with pytest.raises(TopicBusy):
            await broker.delete_topic("a")
        assert await read_log(broker, B0) == []
        assert not (await publish_values(broker, PublishKey("other"), {B0: [b"x"]})).repeat
        assert await broker.forget_key("k")
        assert not await broker.forget_key("k")
        await broker.delete_topic("a")
        assert await broker.list_stages() == []

    tell(left, story, CONFIG)


def test_a_lower_limit_of_a_batch_keeps_a_publish_open_until_it_is_raised(disk: SimulatedDisk) -> None:
    values = {A0: [b"x" * 10_000, b"y"], B0: [b"end"]}
    left = stuck(disk, values)
    left.free = 1 << 40

    async def story(broker: LocalBroker) -> None:
        assert any("cannot be finished" in line and "limits.batch_bytes" in line for line in broker.recovered)
        with pytest.raises(OutcomeUnknown):
            await broker.publish(KEY, [])
        with pytest.raises(TopicBusy):
            await broker.delete_topic("b")

    async def after(broker: LocalBroker) -> None:
        assert (await broker.publish(KEY, [])).repeat
        assert await read_logs(broker, [A0, B0]) == values

    tell(left, story, BrokerConfig(Limits(batch_bytes=4096), reserve_bytes=0))
    tell(killed(left), after, CONFIG)


@pytest.mark.parametrize("what", ["damaged", "cut", "gone"])
def test_a_stage_that_is_lost_before_its_publish_is_finished_is_never_published_in_part(
    disk: SimulatedDisk, what: str
) -> None:
    left = stuck(disk)
    left.free = 1 << 40
    (path,) = [name for name in left.names if name.endswith(".stage")]
    size = left.open(path).size()
    content = bytes(left.names[path].cached)
    if what == "damaged":
        overwrite(left, path, size - 20, b"\1")
    elif what == "cut":
        left.open(path).truncate(size - 20)
    else:
        left.unlink(path)

    async def story(broker: LocalBroker) -> None:
        assert any("cannot be finished" in line for line in broker.recovered)
        with pytest.raises(OutcomeUnknown):
            await broker.publish(KEY, [])
        assert await read_logs(broker, [A0, B0]) == {A0: [], B0: []}
        await broker.discard([info.id for info in await broker.list_stages()])

    async def restored(broker: LocalBroker) -> None:
        assert (await broker.publish(KEY, [])).repeat
        assert await read_logs(broker, [A0, B0]) == VALUES

    tell(left, story, CONFIG)
    left = killed(left)
    if path in left.names:
        left.unlink(path)
    left.create(path).write([content], 0)
    tell(left, restored, CONFIG)


def test_whatever_goes_wrong_after_the_commit_the_stages_are_kept_for_the_next_start(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, VALUES)
        mapped = SimulatedFile.map

        def fail(file: SimulatedFile, end: int) -> memoryview:
            if file.path.endswith(".stage") and broker._publishing is not None and len(broker._publishing.keys._state):
                raise OSError(errno.EIO, "injected", file.path)
            return mapped(file, end)

        monkeypatch.setattr(SimulatedFile, "map", fail)
        with pytest.raises(OutcomeUnknown):
            await broker.publish(KEY, [receipt])
        monkeypatch.undo()
        assert await broker.discard([receipt.stage]) == 0
        with pytest.raises(StageBusy):
            await broker.publish(PublishKey("other"), [receipt])
        with pytest.raises(TopicBusy):
            await broker.delete_topic("a")

    async def after(broker: LocalBroker) -> None:
        assert (await broker.publish(KEY, [])).repeat
        assert await read_logs(broker, [A0, B0]) == VALUES

    tell(disk, story, CONFIG)
    tell(killed(disk), after, CONFIG)


def test_a_failed_sync_of_a_log_after_the_commit_is_said_to_be_unknown_and_made_good(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, VALUES)

        def fault(call: Call) -> int | None:
            if call.name == "sync" and "/topics/b~" in call.path:
                raise OSError(errno.EIO, "injected", call.path)
            return None

        disk.fault = fault
        with pytest.raises(OutcomeUnknown):
            await broker.publish(KEY, [receipt])
        with pytest.raises(OutcomeUnknown):
            await broker.publish(KEY, [receipt])
        disk.fault = None

    async def after(broker: LocalBroker) -> None:
        assert (await broker.publish(KEY, [])).repeat
        assert await read_logs(broker, [A0, B0]) == VALUES

    tell(disk, story, CONFIG)
    tell(killed(disk), after, CONFIG)


def test_a_node_that_has_stopped_writing_answers_every_publish(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, VALUES)

        def fault(call: Call) -> int | None:
            if call.name == "sync" and call.path.endswith(".log"):
                raise OSError(errno.EIO, "injected", call.path)
            return None

        disk.fault = fault
        with pytest.raises(LogboomError):
            await append(broker, b"x", "a", 1)
        with pytest.raises(LogboomError):
            await broker.publish(KEY, [receipt])
        with pytest.raises(LogboomError):
            await broker.publish(PublishKey("k", 2), [])

    tell(disk, story, CONFIG)


def test_names_that_do_not_last_are_forgotten_and_the_others_are_not(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "EXPIRE_S", 0.01)

    async def story(broker: LocalBroker) -> None:
        for n in range(5):
            await publish_values(broker, PublishKey(f"random{n}", 0, False), {A0: [b"x"]})
        await publish_values(broker, KEY, {A0: [b"x"]})
        assert all((info.expires is None) == (info.name == "k") for info in await broker.list_keys())
        monkeypatch.setattr(intent, "KEY_EXPIRY_US", 0)
        while len(await broker.list_keys()) > 1:
            await asyncio.sleep(0.01)
        assert [info.name for info in await broker.list_keys()] == ["k"]

    tell(disk, story, CONFIG)


def test_a_name_that_is_published_under_again_while_it_expires_is_kept(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: LocalBroker) -> None:
        keeper = broker._publishing
        assert keeper is not None
        await publish_values(broker, PublishKey("k", 1, False), {A0: [b"1"]})
        _, receipt = await fill(broker, {A0: [b"2"], B0: [b"2"]})
        full_after_the_intent(disk)
        loop, full, expiring = asyncio.get_running_loop(), disk.fault, list[asyncio.Task[None]]()

        def fault(call: Call) -> int | None:
            if "/_publish~" in call.path and call.name == "write":  # the intent is on its way, and not known yet
                loop.call_soon_threadsafe(lambda: expiring.append(loop.create_task(keeper.expire())))
            return None if full is None else full(call)

        disk.fault = fault
        monkeypatch.setattr(intent, "KEY_EXPIRY_US", 0)
        task = asyncio.create_task(broker.publish(PublishKey("k", 2, False), [receipt]))
        while disk.free:
            await asyncio.sleep(0.002)
        await asyncio.gather(*expiring)
        assert await is_open(broker)
        disk.fault, disk.free = full, 1 << 40
        await task

    tell(disk, story, CONFIG)


def test_a_name_that_is_forgotten_is_as_one_that_never_was(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        assert not await broker.forget_key("k")
        await publish_values(broker, KEY, {A0: [b"1"]})
        assert await broker.forget_key("k")
        assert not (await publish_values(broker, KEY, {A0: [b"1"]})).repeat
        assert await read_log(broker, A0) == [b"1", b"1"]

    tell(disk, story, CONFIG)


def test_there_are_so_many_names_and_no_more(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        for n in range(3):
            await publish_values(broker, PublishKey(f"k{n}"), {A0: [b"x"]})
        _, receipt = await fill(broker, {A0: [b"y"]})
        with pytest.raises(LimitExceeded):
            await broker.publish(PublishKey("k3"), [receipt])
        assert (await broker.list_stages())[0].state == "open"
        assert not (await broker.publish(PublishKey("k2", 1), [receipt])).repeat
        await broker.delete_topic("a")

    tell(disk, story, BrokerConfig(Limits(publish_keys=3)))


def test_room_that_was_promised_is_given_back_whatever_becomes_of_a_publish(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        disk.free = 40_000
        for n in range(1, 200):
            await publish_values(broker, PublishKey("k", n), {A0: [b"x"], A1: [b"x"], B0: [b"x"]})
        for n in range(20):
            _, receipt = await fill(broker, {A0: [b"x" * 9_000]})
            with pytest.raises(LimitExceeded):
                await broker.publish(PublishKey("one-too-many", n), [receipt])
            await broker.discard([receipt.stage])
        _, receipt = await fill(broker, {A0: [b"x" * 30_000]})
        assert not (await broker.publish(PublishKey("k", 1000), [receipt])).repeat

    tell(disk, story, BrokerConfig(Limits(publish_keys=1), reserve_bytes=0))


def test_a_publish_that_does_not_fit_is_refused_before_anything_is_written(disk: SimulatedDisk) -> None:
    async def story(broker: LocalBroker) -> None:
        _, receipt = await fill(broker, {A0: [b"x" * 50_000]})
        disk.free = 20_000
        with pytest.raises(LowSpace):
            await broker.publish(KEY, [receipt])
        assert await broker.list_keys() == []
        assert await read_log(broker, A0) == []
        disk.free = 1 << 40
        assert not (await broker.publish(KEY, [receipt])).repeat

    tell(disk, story, CONFIG)


def test_others_write_between_the_slices_of_a_publish_and_readers_see_it_grow_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finisher, "SLICE_BYTES", 100_000)
    asyncio.run(publish_among_others(tmp_path, 400, 10_000, 40))


@pytest.mark.soak
@pytest.mark.parametrize(("batches_in_a_segment", "slices"), [(0, 95), (finisher.ADOPTED_BATCHES, 4)])
def test_others_write_between_the_slices_of_a_publish_of_hundreds_of_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches_in_a_segment: int, slices: int
) -> None:
    monkeypatch.setattr(finisher, "ADOPTED_BATCHES", batches_in_a_segment)
    asyncio.run(publish_among_others(tmp_path, 400, 1_000_000, slices))


async def publish_among_others(path: Path, batches: int, size: int, slices: int) -> None:
    async with asyncio.timeout(300):
        broker = await LocalBroker.open(str(path))
        await broker.create_topic("a", 2)
        _, receipt = await fill(broker, {A0: [b"p%06d" % n + b"x" * size for n in range(batches)]}, size=1)
        task = asyncio.create_task(broker.publish(KEY, [receipt]))
        reading = asyncio.create_task(follow(broker))
        between = 0
        while not task.done():
            (answer,) = await broker.append([Part("a", [build([b"o%06d" % between])], 0)], "leader")
            assert isinstance(answer, Appended)
            between += 1
            await asyncio.sleep(0)
        assert not (await task).repeat
        await append(broker, b"end")
        found = await reading
        await broker.close()
    for prefix, count in ((b"p", batches), (b"o", between)):
        assert [value for value in found if value.startswith(prefix)] == [prefix + b"%06d" % n for n in range(count)]
    places = [place for place, value in enumerate(found) if value.startswith(b"o")]
    runs = sum(later > earlier + 1 for earlier, later in pairwise(places))
    assert runs >= slices // 2, "others write between the slices"


async def follow(broker: LocalBroker) -> list[bytes]:
    """All that a reader sees, as it comes."""
    found: list[bytes] = []
    while b"end" not in found[-1:]:
        chunk = await broker.read(ReadRequest("a", Start(seqno=len(found)), 0, wait_ms=100))
        found += [(record.value or b"")[:7] for record in chunk.records()]
    return found


def test_many_tiny_batches_do_not_keep_the_node_from_anything_else(disk: SimulatedDisk) -> None:
    count = 6_000

    async def story(broker: LocalBroker) -> None:
        stage = await broker.open_stage()
        for start in range(0, count, 1000):
            await put(broker, stage, {A0: [b"%d" % n for n in range(start, start + 1000)]}, 1, {A0: start})
        task = asyncio.create_task(broker.publish(KEY, [Receipt(stage.id, count)]))
        between = 0
        while not task.done():
            await append(broker, b"o")
            between += 1
        assert between >= 4
        found = [value for value in await read_log(broker, A0) if value != b"o"]
        assert found == [b"%d" % n for n in range(count)]

    tell(disk, story, CONFIG)


def test_a_publish_may_have_records_for_many_logs() -> None:
    disk = SimulatedDisk()
    logs = [("wide", n) for n in range(150)]

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("wide", 150)
        first = await publish_values(broker, KEY, {log: [b"1", b"2"] for log in logs}, {logs[7]: [b"3"]})
        assert first.parts is not None
        assert len(first.parts) == 150
        assert await broker.publish(KEY, []) == Publication("k", 1, True, None)
        assert (await broker.list_keys())[0].records == 301
        assert await read_log(broker, logs[7]) == [b"1", b"2", b"3"]
        assert await read_log(broker, logs[149]) == [b"1", b"2"]

    tell(disk, story, CONFIG)
