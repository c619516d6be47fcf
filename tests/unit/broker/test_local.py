"""The broker in the process: what an append waits for, what a failure says, what readers see."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import pytest

from logboom.batch import Batch, Producer, build
from logboom.broker.api import Acks, Answer, Appended, Filter, Part, ReadRequest, Settings, Start
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits, TopicRules
from logboom.broker.local import LocalBroker
from logboom.errors import (
    BookmarkLost,
    LimitExceeded,
    LogboomError,
    LogReadOnly,
    Overloaded,
    PartitionNotFound,
    SeqnoOutOfRange,
    ShuttingDown,
    SyncFailed,
    TopicDeleted,
    TopicNotAllowed,
    TopicRecreated,
    UnexpectedSeqno,
    WritesRefused,
)
from logboom.storage.data.topic import AcksSettings, FlushSettings, SegmentSettings
from support.brokers.any_broker import AnyBroker
from support.disks.gated import GatedDisk

Story = Callable[[LocalBroker, GatedDisk], Awaitable[None]]
OS = Settings(flush=FlushSettings("os"))
TINY = Settings(segment=SegmentSettings(bytes=4096))


@asynccontextmanager
async def opened(path: Path, config: BrokerConfig | None = None) -> AsyncIterator[tuple[LocalBroker, GatedDisk]]:
    path.mkdir(exist_ok=True)
    disk = GatedDisk(str(path))
    broker = await LocalBroker.open(str(path), config, disk=disk)
    try:
        yield broker, disk
    finally:
        disk.gate.set()
        with suppress(SyncFailed):
            await broker.close()


def tell(path: Path, story: Story, config: BrokerConfig | None = None) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), opened(path / "data", config) as (broker, disk):
            await story(broker, disk)

    asyncio.run(run())


def send(broker: AnyBroker, *values: bytes, topic: str = "t", acks: Acks | None = None) -> asyncio.Future[list[Answer]]:
    return broker.append([Part(topic, [build([value]) for value in values])], acks)


async def sync_begun(disk: GatedDisk) -> None:
    while not disk.entered.is_set():
        await asyncio.sleep(0.001)


async def values_of(broker: AnyBroker, topic: str = "t", partition: int | None = None) -> list[bytes | None]:
    values: list[bytes | None] = []
    seqno = 0
    while True:
        chunk = await broker.read(ReadRequest(topic, Start(seqno=seqno), partition))
        values += [record.value for record in chunk.records()]
        seqno = chunk.next_seqno
        if chunk.at_end:
            return values


def seqno_of(answers: list[Answer]) -> int:
    (answer,) = answers
    assert isinstance(answer, Appended), answer
    return answer.base_seqno


def test_a_durable_append_is_answered_by_the_sync_and_shown_to_readers_no_sooner(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        disk.close_gate()
        answer = send(broker, b"a")
        await sync_begun(disk)
        assert not answer.done()
        assert (await broker.read(ReadRequest("t"))).next_seqno == 0
        disk.gate.set()
        assert seqno_of(await answer) == 0
        assert await values_of(broker) == [b"a"]

    tell(tmp_path, story)


def test_acks_leader_waits_for_no_sync(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        disk.close_gate()
        await send(broker, b"a", acks="leader")
        await sync_begun(disk)
        durable = send(broker, b"b")
        assert seqno_of(await send(broker, b"c", acks="leader")) == 2
        assert not durable.done()
        disk.gate.set()
        assert seqno_of(await durable) == 1

    tell(tmp_path, story)


def test_one_sync_carries_everything_that_came_while_the_last_one_ran(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        for topic in "abc":
            await broker.create_topic(topic)
        await asyncio.gather(*[send(broker, b"before", topic=topic) for topic in "abc"])
        disk.rounds.clear()
        disk.close_gate()
        answers = [send(broker, b"first", topic="a")]
        await sync_begun(disk)
        answers += [send(broker, b"%d" % number, topic=topic) for number in range(20) for topic in "abc"]
        await asyncio.sleep(0.01)
        disk.gate.set()
        await asyncio.gather(*answers)
        assert disk.rounds == [1, 3]

    tell(tmp_path, story)


def test_a_repeat_waits_for_the_promise_of_its_original(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        batch = build([b"once"], producer=Producer(7, 0, 0))
        disk.close_gate()
        first = broker.append([Part("t", [batch])])
        await sync_begun(disk)
        repeat = broker.append([Part("t", [batch])])
        early = await broker.append([Part("t", [batch])], "leader")
        assert isinstance(early[0], Appended)
        assert early[0].repeat
        assert not first.done()
        assert not repeat.done()
        disk.gate.set()
        assert seqno_of(await first) == seqno_of(await repeat) == 0
        assert await values_of(broker) == [b"once"]

    tell(tmp_path, story)


def test_a_failed_sync_stops_the_writes_of_the_node_and_no_reads(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        await broker.create_topic("other")
        await send(broker, b"kept")
        disk.failing = True
        disk.close_gate()
        unknown = send(broker, b"unknown")
        await sync_begun(disk)
        queued = send(broker, b"never written")
        disk.gate.set()
        assert isinstance((await unknown)[0], SyncFailed)
        assert isinstance((await queued)[0], LogReadOnly)
        assert isinstance((await send(broker, b"x", topic="other"))[0], LogReadOnly)
        assert await values_of(broker) == [b"kept"]
        stats = await broker.stats()
        assert stats.rejections["LogReadOnly"] == 2
        assert stats.writes["refused"] == 2
        assert "restart" in ((await broker.stats()).refused or "")
        with pytest.raises(SyncFailed):
            await broker.close()

    tell(tmp_path, story)
    values: list[bytes | None] = []

    async def after(broker: LocalBroker, disk: GatedDisk) -> None:
        assert "not clean" in broker.recovered[0]
        values.extend(await values_of(broker))

    tell(tmp_path, after)
    assert values in ([b"kept"], [b"kept", b"unknown"])


def test_what_waits_too_long_for_room_is_not_appended(tmp_path: Path) -> None:
    limits = Limits(unsynced_bytes_per_log=256 * 1024, append_wait_ms=50)

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        disk.close_gate()
        answers = [send(broker, bytes(100_000), acks="leader") for _ in range(12)]
        done = [(await answer)[0] for answer in answers]
        refused = [answer for answer in done if isinstance(answer, Overloaded)]
        assert refused
        disk.gate.set()
        await send(broker, b"end")
        assert len(await values_of(broker)) == 12 - len(refused) + 1
        assert (await broker.stats()).rejections["Overloaded"] == len(refused)
        assert (await broker.stats()).writes["waiting_bytes"] == 0

    tell(tmp_path, story, BrokerConfig(limits))


def test_with_flush_os_what_is_written_is_committed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, OS)
        disk.close_gate()
        await send(broker, b"a", acks="leader")
        await send(broker, b"b", acks="leader")
        assert await values_of(broker) == [b"a", b"b"]
        durable = send(broker, b"b", acks="durable")
        await sync_begun(disk)
        assert not durable.done()
        disk.gate.set()
        await durable

    tell(tmp_path, story)


def test_after_an_unclean_end_flush_os_begins_a_new_term_and_bookmarks_notice(tmp_path: Path) -> None:
    bookmarks: list[str] = []

    async def before(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, OS)
        await send(broker, b"a", acks="durable")
        bookmarks.append((await broker.read(ReadRequest("t"))).bookmark)
        await send(broker, b"lost", acks="leader")
        bookmarks.append((await broker.read(ReadRequest("t"))).bookmark)
        await send(broker, b"also seen", acks="leader")
        disk.failing = True
        assert isinstance((await send(broker, b"x", acks="durable"))[0], SyncFailed)

    tell(tmp_path, before)
    (log,) = (tmp_path / "data" / "topics").glob("t~*/0/*.log")
    with log.open("r+b") as file:  # what a power loss may leave: the first batch
        file.truncate(len(build([b"a"]).data))

    async def after(broker: LocalBroker, disk: GatedDisk) -> None:
        with pytest.raises(BookmarkLost):
            await broker.read(ReadRequest("t", Start(bookmark=bookmarks[1])))
        await send(broker, b"new", acks="leader")
        with pytest.raises(BookmarkLost):
            await broker.read(ReadRequest("t", Start(bookmark=bookmarks[1])))
        chunk = await broker.read(ReadRequest("t", Start(bookmark=bookmarks[0])))
        assert [record.value for record in chunk.records()] == [b"new"]
        skipping = await broker.read(ReadRequest("t", Start(bookmark=bookmarks[1]), gaps="skip"))
        assert skipping.next_seqno == 2

    tell(tmp_path, after)


def test_flush_interval_syncs_by_itself_and_at_once_for_durable(tmp_path: Path) -> None:
    settings = Settings(flush=FlushSettings("interval", 30))

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, settings)
        await send(broker, b"a", acks="leader")
        assert not (await broker.read(ReadRequest("t"))).data
        chunk = await broker.read(ReadRequest("t", wait_ms=20_000))
        assert chunk.next_seqno == 1
        await send(broker, b"b", acks="durable")
        assert await values_of(broker) == [b"a", b"b"]

    tell(tmp_path, story)


def test_the_least_acks_of_a_topic_raise_a_weaker_wish(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, Settings(acks=AcksSettings("leader", "durable")))
        disk.close_gate()
        answer = send(broker, b"a", acks="none")
        await sync_begun(disk)
        assert not answer.done()
        disk.gate.set()
        await answer

    tell(tmp_path, story)


def test_expect_seqno_lets_one_of_many_writers_win(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        tries = [broker.append([Part("t", [build([b"%d" % number])], expect_seqno=0)]) for number in range(10)]
        answers = [(await answer)[0] for answer in tries]
        assert sum(isinstance(answer, Appended) for answer in answers) == 1
        assert sum(isinstance(answer, UnexpectedSeqno) for answer in answers) == 9

    tell(tmp_path, story)


def test_where_the_first_batch_does_not_get_its_seqno_none_of_its_part_is_appended(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await send(broker, *(b"%d" % number for number in range(12)))
        two = [build([b"a", b"b"]), build([b"c", b"d"])]
        for wrong in (10, 14):
            answers = await broker.append([Part("t", two, expect_seqno=wrong)])
            assert all(isinstance(answer, UnexpectedSeqno) for answer in answers)
        right = broker.append([Part("t", two, expect_seqno=12), Part("t", [build([b"e"])])])
        assert [answer.base_seqno for answer in await right if isinstance(answer, Appended)] == [12, 14, 16]
        assert len(await values_of(broker)) == 17

    tell(tmp_path, story)


def test_a_sync_that_fails_outside_of_a_round_stops_the_node_too(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        await broker.create_topic("other")
        await send(broker, b"a")
        async with broker._rounds.pause():
            writer = broker._catalog.find("t").writer(None)
            writer.log.append_one(build([b"b"]), 0)
            disk.failing = True
            with pytest.raises(SyncFailed):
                writer.log.roll()
        disk.failing = False
        assert isinstance((await send(broker, b"c", topic="other"))[0], LogReadOnly)
        with pytest.raises(SyncFailed):
            await broker.close()

    tell(tmp_path, story)


def test_a_write_makes_its_topic_and_keeps_its_order(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        answers = [send(broker, b"%d" % number, topic="fresh") for number in range(50)]
        await asyncio.gather(*answers)
        assert await values_of(broker, "fresh") == [b"%d" % number for number in range(50)]

    tell(tmp_path, story)


def test_rules_say_which_topics_there_may_be(tmp_path: Path) -> None:
    config = BrokerConfig(Limits(topics=2), TopicRules(allowed=("a*", "b"), denied=("*-secret",)))

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("a1")
        for name in ("c", "a-secret", "_a"):
            with pytest.raises(TopicNotAllowed):
                await broker.create_topic(name)
            assert isinstance((await send(broker, b"x", topic=name))[0], TopicNotAllowed)
        await send(broker, b"x", topic="b")
        with pytest.raises(LimitExceeded):
            await broker.create_topic("a2")
        rejections = (await broker.stats()).rejections
        assert rejections["TopicNotAllowed"] == 6
        assert rejections["limits.topics"] == 1

    tell(tmp_path, story, config)


def test_without_auto_create_a_write_makes_nothing(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        assert isinstance((await send(broker, b"x"))[0], TopicNotAllowed)
        with pytest.raises(TopicNotAllowed):
            await broker.describe_topic("t", create=True)

    tell(tmp_path, story, BrokerConfig(topics=TopicRules(auto_create=False)))


def test_refuse_and_accept_switch_a_topic_or_the_node(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await send(broker, b"a")
        await send(broker, b"a", topic="u")
        await broker.refuse("t", "moving")
        assert isinstance((await send(broker, b"b"))[0], WritesRefused)
        await send(broker, b"b", topic="u")
        assert (await broker.describe_topic("t")).refused == "moving"
        await broker.refuse()
        assert isinstance((await send(broker, b"c", topic="u"))[0], WritesRefused)
        await broker.accept()
        await broker.accept("t")
        assert seqno_of(await send(broker, b"c")) == 1
        assert await values_of(broker, "u") == [b"a", b"b"]

    tell(tmp_path, story)


def test_deleting_a_topic_tells_everybody_who_waits_for_it(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        info = await broker.create_topic("t")
        await send(broker, b"a")
        subscription = await broker.subscribe(ReadRequest("t", Start(at="latest")))
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0.01)
        await broker.delete_topic("t")
        with pytest.raises(TopicDeleted):
            await waiting
        again = await broker.create_topic("t")
        with pytest.raises(TopicRecreated):
            await broker.read(ReadRequest("t", topic_id=info.id))
        refused = (await broker.append([Part("t", [build([b"x"])], topic_id=info.id)]))[0]
        assert isinstance(refused, TopicRecreated)
        assert again.partitions[0].next == 0

    tell(tmp_path, story)


def test_a_bare_name_reads_only_where_there_is_one_partition(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 3)
        with pytest.raises(PartitionNotFound):
            await broker.read(ReadRequest("t"))
        assert isinstance((await send(broker, b"x"))[0], PartitionNotFound)
        await broker.append([Part("t", [build([b"x"])], 2)])
        assert await values_of(broker, "t", 2) == [b"x"]

    tell(tmp_path, story)


def test_a_start_below_the_first_record_is_an_error_or_skips(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await send(broker, *(b"%d" % number for number in range(10)))
        await broker.trim("t", None, 6)
        with pytest.raises(SeqnoOutOfRange) as caught:
            await broker.read(ReadRequest("t", Start(seqno=2)))
        assert caught.value.first == 6
        chunk = await broker.read(ReadRequest("t", Start(seqno=2), gaps="skip"))
        assert [record.seqno for record in chunk.records()] == [6, 7, 8, 9]
        with pytest.raises(SeqnoOutOfRange):
            await broker.read(ReadRequest("t", Start(seqno=11), gaps="skip"))

    tell(tmp_path, story)


def test_a_filtered_reader_learns_how_far_it_came_though_nothing_matched(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, TINY)
        for number in range(100):
            await send(broker, b"%d" % number)
        request = ReadRequest("t", filter=Filter(tags_any=("none",)))
        chunk = await broker.read(request)
        assert not chunk.data
        assert chunk.next_seqno == 100
        assert chunk.at_end
        subscription = await broker.subscribe(request)
        assert (await subscription.next()).next_seqno == 100
        waiting = asyncio.create_task(subscription.next())
        await send(broker, b"more")
        assert (await waiting).next_seqno == 101

    tell(tmp_path, story)


def test_reads_wait_for_news_as_long_as_they_are_told(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        reading = asyncio.create_task(broker.read(ReadRequest("t", wait_ms=30_000)))
        await asyncio.sleep(0.01)
        await send(broker, b"a")
        assert [record.value for record in (await reading).records()] == [b"a"]
        nothing = await broker.read(ReadRequest("t", Start(at="latest"), wait_ms=20))
        assert (nothing.next_seqno, nothing.at_end, len(nothing.data)) == (1, True, 0)
        gone = asyncio.create_task(broker.read(ReadRequest("t", Start(at="latest"), wait_ms=30_000)))
        await asyncio.sleep(0.01)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        assert (await broker.stats()).reads["waiting"] == 0

    tell(tmp_path, story)


def test_a_read_of_what_is_written_and_not_committed_yet_waits_for_it(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        disk.close_gate()
        for value in (b"a", b"b"):
            await send(broker, value, acks="leader")
        assert not (await broker.read(ReadRequest("t", Start(seqno=1)))).data
        reading = asyncio.create_task(broker.read(ReadRequest("t", Start(seqno=1), wait_ms=30_000)))
        await asyncio.sleep(0.01)
        disk.gate.set()
        assert [record.value for record in (await reading).records()] == [b"b"]
        with pytest.raises(SeqnoOutOfRange):
            await broker.read(ReadRequest("t", Start(seqno=3)))

    tell(tmp_path, story)


def test_closing_finishes_what_was_promised_and_takes_nothing_new(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        subscription = await broker.subscribe(ReadRequest("t"))
        waiting = asyncio.create_task(subscription.next())
        disk.close_gate()
        promised = send(broker, b"a")
        await sync_begun(disk)
        closing = asyncio.create_task(broker.close())
        await asyncio.sleep(0.01)
        assert isinstance((await send(broker, b"late"))[0], ShuttingDown)
        with pytest.raises(ShuttingDown):
            await waiting
        assert not promised.done()
        disk.gate.set()
        await closing
        assert seqno_of(await promised) == 0

    tell(tmp_path, story)

    async def after(broker: LocalBroker, disk: GatedDisk) -> None:
        assert "not clean" not in broker.recovered[0]
        assert await values_of(broker) == [b"a"]

    tell(tmp_path, after)


def test_settings_that_change_count_for_the_next_append(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        await send(broker, bytes(3000))
        await broker.configure_topic("t", Settings(SegmentSettings(bytes=4096)))
        await send(broker, bytes(3000))
        assert len(list(tmp_path.glob("data/topics/t~*/0/*.log"))) == 2

    tell(tmp_path, story)


def test_an_append_that_begins_another_segment_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    """The full segment is synced before its successor takes a byte: that is a thread's work."""

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, Settings(SegmentSettings(bytes=4096), flush=FlushSettings("os")))
        await send(broker, bytes(3000), acks="leader")
        disk.close_gate()
        second = send(broker, bytes(3000), acks="leader")
        await sync_begun(disk)
        assert not second.done()
        disk.gate.set()
        assert seqno_of(await second) == 1

    tell(tmp_path, story)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_mix_each_writer_keeps_its_order_and_seqnos_are_dense(tmp_path: Path, seed: int) -> None:
    """Several writers, logs, acks, sizes and topic settings at once, with trims and slow syncs in between."""
    choose = random.Random(seed)
    topics = {"os": OS, "each": TINY, "interval": Settings(SegmentSettings(8192), flush=FlushSettings("interval", 5))}
    sent: dict[tuple[str, int], list[int]] = {}
    limits = Limits(unsynced_bytes_per_log=choose.choice((64 * 1024, 2**28)))

    async def write(broker: LocalBroker, writer: int, topic: str) -> None:
        answers = []
        for number in range(60):
            acks: Acks | None = choose.choice(("leader", "durable", None))
            padding = bytes(choose.choice((0, 10, 1000, 20_000)))
            answers.append(send(broker, b"%d:%d:" % (writer, number) + padding, topic=topic, acks=acks))
            if choose.random() < 0.3:
                await asyncio.sleep(choose.random() * 0.002)
        for number, answer in enumerate(answers):
            (where,) = await answer
            assert isinstance(where, Appended | Overloaded), where
            if isinstance(where, Appended):
                sent.setdefault((topic, writer), []).append(number)

    async def disturb(broker: LocalBroker, disk: GatedDisk) -> None:
        for _ in range(20):
            await asyncio.sleep(choose.random() * 0.005)
            disk.close_gate() if choose.random() < 0.5 else disk.gate.set()
            if choose.random() < 0.2:
                disk.gate.set()
                await broker.trim("each", None, (await broker.describe_topic("each")).partitions[0].first)
        disk.gate.set()

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        for name, settings in topics.items():
            await broker.create_topic(name, 1, settings)
        async with asyncio.TaskGroup() as group:
            group.create_task(disturb(broker, disk))
            for writer in range(3):
                for topic in topics:
                    group.create_task(write(broker, writer, topic))
        for topic in topics:
            await send(broker, b"9:0:", topic=topic, acks="durable")
            found: dict[int, list[int]] = {}
            for value in await values_of(broker, topic):
                origin, number, _ = (value or b"").split(b":", 2)
                found.setdefault(int(origin), []).append(int(number))
            assert {key: found[key] for key in range(3)} == {key: sent[topic, key] for key in range(3)}

    tell(tmp_path, story, BrokerConfig(limits))


def test_an_error_of_one_part_is_no_trouble_for_the_others(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 2)
        broken = bytearray(build([b"x" * 100]).data)
        broken[150] ^= 1
        answers = await broker.append(
            [
                Part("t", [build([b"a"]), Batch.parse(bytes(broken)), build([b"b"])], 0),
                Part("nowhere/", [build([b"c"])]),
                Part("t", [], 1),
                Part("t", [build([b"d"])], 1),
            ]
        )
        kinds = [isinstance(answer, LogboomError) for answer in answers]
        assert kinds == [False, True, False, True, False]

    tell(tmp_path, story)


def test_a_cursor_outlives_a_restart_and_is_where_a_read_begins(tmp_path: Path) -> None:
    async def before(broker: LocalBroker, disk: GatedDisk) -> None:
        await send(broker, *(b"%d" % number for number in range(5)))
        chunk = await broker.read(ReadRequest("t", max_records=3))
        await broker.commit_cursor("me", "t", None, chunk.bookmark)
        assert (await broker.list_cursors())[0].lag == 2

    async def after(broker: LocalBroker, disk: GatedDisk) -> None:
        chunk = await broker.read(ReadRequest("t", Start(cursor="me")))
        assert [record.value for record in chunk.records()] == [b"3", b"4"]
        new = await broker.read(ReadRequest("t", Start(cursor="other", at="latest")))
        assert new.seqno == 5
        assert await broker.delete_cursor("me") == 1
        assert await broker.fetch_cursor("me", "t") is None
        await broker.delete_topic("t")

    tell(tmp_path, before)
    tell(tmp_path, after)


@pytest.mark.parametrize("policy", ["each", "interval", "os"])
def test_no_more_logs_are_written_and_not_synced_than_there_are_files_for(
    tmp_path: Path, policy: Literal["each", "interval", "os"]
) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        names = [f"t{number}" for number in range(20)]
        for name in names:
            await broker.create_topic(name, 1, Settings(flush=FlushSettings(policy, 3_600_000)))
        disk.rounds.clear()
        for acks in ("leader", "durable", "none"):
            waiting = [send(broker, b"x", topic=name, acks=acks) for name in names]
            answers = [answer for answers in await asyncio.gather(*waiting) for answer in answers]
            assert all(isinstance(answer, Appended) for answer in answers), answers
            assert len(broker._rounds.dirty) <= 3
        assert max(disk.rounds) <= 3 + 1, "one may go ahead, so that there is always progress"

    tell(tmp_path, story, BrokerConfig(dirty_logs_max=3))
