"""What a broker promises, told as scenarios: the same in the process, through TCP and through a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop

from logboom.batch import Batch, Producer, build
from logboom.broker.api import (
    Acks,
    Answer,
    Appended,
    Chunk,
    Filter,
    Part,
    ReadRequest,
    Settings,
    Start,
)
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import TopicRules
from logboom.errors import (
    BodyCorrupt,
    BookmarkLost,
    CursorMovedBack,
    InvalidBookmark,
    InvalidPattern,
    InvalidTopicName,
    LogboomError,
    PartitionNotFound,
    ProducerFenced,
    SeqnoOutOfRange,
    SequenceGap,
    TopicDeleted,
    TopicExists,
    TopicNotAllowed,
    TopicNotFound,
    TopicRecreated,
    UnexpectedCursor,
    UnexpectedSeqno,
    UnknownProducer,
    WritesRefused,
)
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.topic import AcksSettings, FlushSettings, SegmentSettings
from support.brokers.any_broker import AnyBroker
from support.brokers.places import PLACES, Place, opened
from support.waiting import until


class Ground(NamedTuple):
    """What a scenario runs on: how topics are set, how writers write."""

    settings: Settings = Settings()
    acks: Acks | None = None
    codec: str = "none"


GROUNDS = {
    "plain": Ground(),
    "tiny segments": Ground(Settings(segment=SegmentSettings(bytes=4096))),
    "leader, interval": Ground(Settings(flush=FlushSettings("interval", 5)), "leader"),
    "leader, os": Ground(Settings(flush=FlushSettings("os")), "leader"),
    "durable, os, lz4": Ground(Settings(flush=FlushSettings("os")), "durable", "lz4"),
    "durable, interval, tiny, zstd": Ground(
        Settings(segment=SegmentSettings(bytes=4096), flush=FlushSettings("interval", 5)), "durable", "zstd"
    ),
    "none raised to durable": Ground(Settings(acks=AcksSettings(least="durable")), "leader", "zstd"),
}

Scenario = Callable[[AnyBroker, Ground], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(story: Scenario) -> Scenario:
    SCENARIOS[story.__name__.replace("_", " ")] = story
    return story


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("place", PLACES)
def test_every_scenario_holds_wherever_the_broker_is(place: Place, ground: str, tmp_path: Path) -> None:
    asyncio.run(play(place, ground, tmp_path))


@pytest.mark.parametrize("place", PLACES)
def test_every_scenario_holds_on_the_event_loop_of_a_node(place: Place, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play(place, "leader, os", tmp_path))


async def play(place: Place, ground: str, tmp_path: Path) -> None:
    config = BrokerConfig(topics=TopicRules(denied=("secret*",), settings=GROUNDS[ground].settings))
    async with asyncio.timeout(300), opened(place, tmp_path, config) as broker:
        for name, story in SCENARIOS.items():
            try:
                await story(broker, GROUNDS[ground])
            except BaseException as error:
                error.add_note(f"in the scenario: {name}")
                raise


def records_of(ground: Ground, count: int, start: int = 0, producer: Producer = Producer()) -> Batch:  # noqa: B008
    numbers = range(start, start + count)
    return build(
        [b"value %d " % n * 8 for n in numbers],
        keys=[b"key %d" % (n % 7) for n in numbers],
        channels=[f"site/{n % 3}/temp" for n in numbers],
        tags=[["third"] if n % 3 == 0 else ["other", "odd"][: 1 + n % 2] for n in numbers],
        codec=ground.codec,
        producer=producer,
    )


async def append(broker: AnyBroker, ground: Ground, topic: str, *batches: Batch, **place: object) -> list[Answer]:
    return await broker.append([Part(topic, batches, **place)], ground.acks)  # type: ignore[arg-type]


async def appended(broker: AnyBroker, ground: Ground, topic: str, *batches: Batch) -> list[Appended]:
    answers = await append(broker, ground, topic, *batches)
    for answer in answers:
        assert isinstance(answer, Appended), answer
    return [answer for answer in answers if isinstance(answer, Appended)]


async def read_all(broker: AnyBroker, request: ReadRequest, until: int) -> list[int]:
    """The seqnos of everything up to `until`, chunk by chunk."""
    seqnos: list[int] = []
    while True:
        chunk = await broker.read(request)
        seqnos += [record.seqno or 0 for record in chunk.records()]
        if chunk.next_seqno >= until:
            return seqnos
        request = ReadRequest(
            request.topic,
            Start(bookmark=chunk.bookmark),
            None,
            chunk.topic_id,
            request.max_bytes,
            None,
            5000,
            request.filter,
        )


@scenario
async def what_was_appended_is_read_back(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("back", 1, ground.settings)
    batches = [records_of(ground, 50, 50 * n) for n in range(20)]
    answers = await appended(broker, ground, "back", *batches)
    assert [answer.base_seqno for answer in answers] == [50 * n for n in range(20)]
    assert [answer.index for answer in answers] == list(range(1, 21))
    assert await read_all(broker, ReadRequest("back", max_bytes=20_000, wait_ms=5000), 1000) == list(range(1000))
    chunk = await broker.read(ReadRequest("back", Start(seqno=333), wait_ms=5000))
    assert next(chunk.records()).value == b"value 333 " * 8
    await broker.delete_topic("back")


@scenario
async def answers_come_in_the_order_of_the_calls(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("order", 3, ground.settings)
    futures = [
        broker.append([Part("order", [records_of(ground, 1 + n % 3, n)], n % 3)], ground.acks) for n in range(60)
    ]
    answers = [await future for future in futures]
    for partition in range(3):
        mine = [answer for (answer,) in answers[partition::3]]
        seqnos = [answer.base_seqno for answer in mine if isinstance(answer, Appended)]
        assert seqnos == sorted(seqnos)
        assert len(seqnos) == 20
    await broker.delete_topic("order")


@scenario
async def one_call_appends_to_several_logs(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("one", 2, ground.settings)
    await broker.create_topic("two", 1, ground.settings)
    parts = [
        Part("one", [records_of(ground, 3), records_of(ground, 4)], 1),
        Part("nowhere/at/all", [records_of(ground, 1)]),
        Part("two", [records_of(ground, 5)], 0),
        Part("one", [records_of(ground, 1)], 7),
    ]
    first, second, wrong, third, missing = await broker.append(parts, ground.acks)
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert isinstance(third, Appended)
    assert (first.base_seqno, second.base_seqno, third.base_seqno) == (0, 3, 0)
    assert isinstance(wrong, InvalidTopicName)
    assert isinstance(missing, PartitionNotFound)
    assert missing.partitions == 2
    with pytest.raises(PartitionNotFound):
        await broker.read(ReadRequest("one"))
    await broker.delete_topic("one")
    await broker.delete_topic("two")


@scenario
async def a_write_makes_a_topic_where_the_rules_let_it(broker: AnyBroker, ground: Ground) -> None:
    await appended(broker, ground, "made.by.write", records_of(ground, 2))
    assert (await broker.describe_topic("made.by.write")).settings == ground.settings
    (answer,) = await append(broker, ground, "secret-topic", records_of(ground, 1))
    assert isinstance(answer, TopicNotAllowed)
    with pytest.raises(TopicNotAllowed):
        await broker.describe_topic("secret-topic", create=True)
    assert (await broker.describe_topic("made.by.asking", create=True)).partitions[0].next == 0
    names = {topic.name for topic in await broker.list_topics("made.")}
    assert names == {"made.by.write", "made.by.asking"}
    for name in names:
        await broker.delete_topic(name)


@scenario
async def topics_are_created_described_set_and_deleted(broker: AnyBroker, ground: Ground) -> None:
    made = await broker.create_topic("life", 2, ground.settings)
    assert (made.name, len(made.partitions), made.settings) == ("life", 2, ground.settings)
    with pytest.raises(TopicExists) as exists:
        await broker.create_topic("life")
    assert exists.value.topic_id == made.id
    other = Settings(segment=SegmentSettings(bytes=8192), flush=ground.settings.flush, acks=ground.settings.acks)
    assert (await broker.configure_topic("life", other)).settings == other
    assert (await broker.describe_topic("life")).id == made.id
    with pytest.raises(TopicRecreated):
        await broker.delete_topic("life", "0" * 32)
    await broker.delete_topic("life", made.id)
    with pytest.raises(TopicNotFound) as missing:
        await broker.describe_topic("life")
    assert missing.value.name == "life"


@scenario
async def expect_seqno_lets_one_of_many_win(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("cas", 1, ground.settings)
    for turn in range(5):
        futures = [
            broker.append([Part("cas", [records_of(ground, 1)], expect_seqno=turn)], ground.acks) for _ in range(4)
        ]
        answers = [answer for future in futures for answer in await future]
        assert sum(isinstance(answer, Appended) for answer in answers) == 1
        refused = [answer for answer in answers if isinstance(answer, UnexpectedSeqno)]
        assert [(error.expected, error.next_seqno) for error in refused] == [(turn, turn + 1)] * 3
    await broker.delete_topic("cas")


@scenario
async def a_repeat_gets_the_answer_of_the_first_time(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("again", 1, ground.settings)
    batches = [records_of(ground, 10, 10 * n, Producer(99, 1, 10 * n)) for n in range(3)]
    answers = await appended(broker, ground, "again", *batches)
    repeats = await appended(broker, ground, "again", *batches)
    assert [repeat.base_seqno for repeat in repeats] == [answer.base_seqno for answer in answers]
    assert all(repeat.repeat for repeat in repeats)
    (gap,) = await append(broker, ground, "again", records_of(ground, 1, producer=Producer(99, 1, 40)))
    (fenced,) = await append(broker, ground, "again", records_of(ground, 1, producer=Producer(99, 0, 30)))
    (unknown,) = await append(broker, ground, "again", records_of(ground, 1, producer=Producer(5, 0, 30)))
    assert isinstance(gap, SequenceGap)
    assert (gap.expected, gap.sequence) == (30, 40)
    assert isinstance(fenced, ProducerFenced)
    assert isinstance(unknown, UnknownProducer)
    assert (await broker.describe_topic("again")).partitions[0].next == 30
    await broker.delete_topic("again")


@scenario
async def a_bad_batch_is_refused_and_its_neighbours_are_not(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("bad", 1, ground.settings)
    broken = bytearray(records_of(ground, 3).data)
    broken[-9] ^= 1
    answers = await append(broker, ground, "bad", records_of(ground, 1), Batch.parse(broken), records_of(ground, 1))
    assert isinstance(answers[0], Appended)
    assert isinstance(answers[1], BodyCorrupt)
    assert isinstance(answers[2], Appended)
    await broker.delete_topic("bad")


@scenario
async def reads_begin_where_they_are_told(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("start", 1, ground.settings)
    batches = [build([b"x"] * 10, timestamps=[1000 * (10 * n + k) for k in range(10)]) for n in range(5)]
    await appended(broker, ground, "start", *batches)
    await settled(broker, "start", 50)

    async def first(**start: object) -> int:
        chunk = await broker.read(ReadRequest("start", Start(**start)))  # type: ignore[arg-type]
        return next((record.seqno or 0 for record in chunk.records()), -1)

    assert await first() == 0
    assert await first(at="latest") == -1
    assert await first(seqno=33) == 33
    assert await first(time=17_001) == 18
    chunk = await broker.read(ReadRequest("start", Start(seqno=7), max_bytes=1))
    assert (chunk.seqno, chunk.next_seqno, chunk.first, chunk.committed, chunk.at_end) == (7, 10, 0, 50, False)
    assert await first(bookmark=chunk.bookmark) == 10
    limited = await broker.read(ReadRequest("start", max_records=15))
    assert limited.next_seqno == 20
    with pytest.raises(SeqnoOutOfRange) as outside:
        await broker.read(ReadRequest("start", Start(seqno=51)))
    assert (outside.value.seqno, outside.value.first, outside.value.next) == (51, 0, 50)
    with pytest.raises(InvalidBookmark):
        await first(bookmark="nonsense")
    await broker.delete_topic("start")


async def settled(broker: AnyBroker, topic: str, committed: int) -> None:
    """Wait until so much can be read."""

    async def can_be_read() -> bool:
        return (await broker.describe_topic(topic)).partitions[0].committed >= committed

    await until(can_be_read, f"{committed} records of {topic}", every_s=0.001)


@scenario
async def a_read_waits_for_news_and_no_longer(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("wait", 1, ground.settings)
    nothing = await broker.read(ReadRequest("wait", wait_ms=1))
    assert (len(nothing.data), nothing.next_seqno, nothing.at_end) == (0, 0, True)
    waiting = asyncio.ensure_future(broker.read(ReadRequest("wait", wait_ms=60_000)))
    await asyncio.sleep(0.01)
    await appended(broker, ground, "wait", records_of(ground, 2))
    assert len(list((await waiting).records())) == 2
    await broker.delete_topic("wait")


@scenario
async def a_filter_leaves_what_is_wanted_with_its_own_seqnos(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("filter", 1, ground.settings)
    await appended(broker, ground, "filter", *(records_of(ground, 30, 30 * n) for n in range(10)))
    await settled(broker, "filter", 300)

    async def left(**wanted: object) -> list[int]:
        return await read_all(broker, ReadRequest("filter", filter=Filter(**wanted)), 300)  # type: ignore[arg-type]

    assert await left(tags_any=("third",)) == list(range(0, 300, 3))
    assert await left(tags_all=("other", "odd")) == [n for n in range(300) if n % 3 and n % 2]
    assert await left(channel="site/1/+") == list(range(1, 300, 3))
    assert await left(channel="site/#", key=b"key 4") == list(range(4, 300, 7))
    assert await left(key=b"nobody's") == []
    nothing = await broker.read(ReadRequest("filter", Start(seqno=40), filter=Filter(key=b"nobody's")))
    assert (nothing.next_seqno, nothing.at_end) == (300, True)
    with pytest.raises(InvalidPattern):
        await left(channel="a/#/b")
    await broker.delete_topic("filter")


@scenario
async def a_subscription_goes_on(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("push", 1, ground.settings)
    await appended(broker, ground, "push", records_of(ground, 10))
    await settled(broker, "push", 10)
    subscription = await broker.subscribe(ReadRequest("push", Start(seqno=5)))
    seqnos: list[int] = []

    async def receive(count: int) -> None:
        while len(seqnos) < count:
            seqnos.extend(record.seqno or 0 for record in (await subscription.next()).records())

    await receive(5)
    for n in range(5):
        await appended(broker, ground, "push", records_of(ground, 2, 10 + 2 * n))
        await receive(5 + 2 * (n + 1))
    assert seqnos == list(range(5, 20))
    await subscription.close()
    await broker.delete_topic("push")


@scenario
async def a_subscription_with_a_filter_says_how_far_it_came(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("pushed", 1, ground.settings)
    subscription = await broker.subscribe(ReadRequest("pushed", filter=Filter(key=b"nobody's")))
    await appended(broker, ground, "pushed", records_of(ground, 10))
    reached = 0
    while reached < 10:
        chunk = await subscription.next()
        assert not list(chunk.records())
        reached = chunk.next_seqno
    await subscription.close()
    await broker.delete_topic("pushed")


@scenario
async def a_subscription_ends_with_its_topic(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("gone", 1, ground.settings)
    subscription = await broker.subscribe(ReadRequest("gone"))
    waiting = asyncio.ensure_future(subscription.next())
    await asyncio.sleep(0.01)
    await broker.delete_topic("gone")
    with pytest.raises(TopicDeleted):
        await waiting
    with pytest.raises(TopicNotFound):
        await (await broker.subscribe(ReadRequest("gone"))).next()


@scenario
async def what_is_trimmed_is_never_served_again(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("trim", 1, ground.settings)
    await appended(broker, ground, "trim", *(records_of(ground, 30, 30 * n) for n in range(10)))
    await settled(broker, "trim", 300)
    info = await broker.trim("trim", None, 105)
    assert (info.first, info.floor) == (105, 105)
    with pytest.raises(SeqnoOutOfRange) as gone:
        await broker.read(ReadRequest("trim", Start(seqno=104)))
    assert gone.value.first == 105
    assert await read_all(broker, ReadRequest("trim", wait_ms=5000), 300) == list(range(105, 300))
    skipping = await broker.read(ReadRequest("trim", Start(seqno=3), gaps="skip"))
    assert skipping.seqno == 105
    await broker.delete_topic("trim")


@scenario
async def cursors_keep_where_readers_stand(broker: AnyBroker, ground: Ground) -> None:
    topic = await broker.create_topic("cursor", 2, ground.settings)
    await broker.append([Part("cursor", [records_of(ground, 20)], 1)], "durable")
    assert await broker.fetch_cursor("billing", "cursor", 1) is None
    chunk = await broker.read(ReadRequest("cursor", Start(seqno=10), 1, wait_ms=5000))
    mark = str(Bookmark.parse(chunk.bookmark)._replace(seqno=15))
    await broker.commit_cursor("billing", "cursor", 1, mark)
    assert await broker.fetch_cursor("billing", "cursor", 1) == mark
    found = await broker.read(ReadRequest("cursor", Start(cursor="billing"), 1))
    assert next(found.records()).seqno == 15
    unknown = await broker.read(ReadRequest("cursor", Start(cursor="nobody", at="latest"), 1))
    assert unknown.seqno == 20
    (info,) = await broker.list_cursors("cursor")
    assert (info.cursor, info.topic_id, info.partition, info.seqno, info.lag) == ("billing", topic.id, 1, 15, 5)
    with pytest.raises(BookmarkLost):
        await broker.commit_cursor("billing", "cursor", 1, str(Bookmark.parse(mark)._replace(seqno=21)))
    early, late = (str(Bookmark.parse(mark)._replace(seqno=seqno)) for seqno in (3, 16))
    with pytest.raises(CursorMovedBack) as back:
        await broker.commit_cursor("billing", "cursor", 1, early)
    assert (back.value.seqno, back.value.at) == (3, 15)
    with pytest.raises(UnexpectedCursor):
        await broker.commit_cursor("billing", "cursor", 1, late, expect=early)
    await broker.commit_cursor("billing", "cursor", 1, late, expect=mark)
    await broker.commit_cursor("billing", "cursor", 1, early, force=True, expect=late)
    assert await broker.fetch_cursor("billing", "cursor", 1) == early
    assert await broker.delete_cursor("billing", "cursor") == 1
    assert await broker.list_cursors("cursor") == []
    await broker.delete_topic("cursor")


@scenario
async def a_bookmark_of_another_life_is_refused(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("twice", 1, ground.settings)
    await appended(broker, ground, "twice", records_of(ground, 5))
    chunk = await broker.read(ReadRequest("twice", wait_ms=5000))
    await broker.delete_topic("twice")
    again = await broker.create_topic("twice", 1, ground.settings)
    with pytest.raises(TopicRecreated) as recreated:
        await broker.read(ReadRequest("twice", Start(bookmark=chunk.bookmark)))
    assert (recreated.value.topic_id, recreated.value.new_id) == (chunk.topic_id, again.id)
    (refused,) = await append(broker, ground, "twice", records_of(ground, 1), topic_id=chunk.topic_id)
    assert isinstance(refused, TopicRecreated)
    await broker.delete_topic("twice")


@scenario
async def writes_are_refused_and_taken_again(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("closed", 1, ground.settings)
    for target in ("closed", None):
        await broker.refuse(target, "backup")
        (refused,) = await append(broker, ground, "closed", records_of(ground, 1))
        assert isinstance(refused, WritesRefused)
        assert refused.reason == "backup"
        await broker.accept(target)
        await appended(broker, ground, "closed", records_of(ground, 1))
    await broker.delete_topic("closed")


@scenario
async def the_node_counts_what_it_does(broker: AnyBroker, ground: Ground) -> None:
    before = await broker.stats()
    await appended(broker, ground, "counted", records_of(ground, 7))
    (refused,) = await append(broker, ground, "secret", records_of(ground, 1))
    assert isinstance(refused, LogboomError)
    after = await broker.stats()
    assert after.node_id == before.node_id
    assert after.writes["records"] - before.writes["records"] == 7
    assert after.rejections["TopicNotAllowed"] > before.rejections.get("TopicNotAllowed", 0)
    await broker.delete_topic("counted")


@scenario
async def a_slow_subscriber_gets_everything_in_the_end(broker: AnyBroker, ground: Ground) -> None:
    await broker.create_topic("slow", 1, ground.settings)
    subscription = await broker.subscribe(ReadRequest("slow"))
    large = build([b"%d" % n * 2000 for n in range(100)], codec=ground.codec)
    for _ in range(40):
        await appended(broker, ground, "slow", large)
    seqnos: list[int] = []
    chunks: list[Chunk] = []
    while len(seqnos) < 4000:
        chunk = await subscription.next()
        chunks.append(chunk)
        seqnos += [record.seqno or 0 for record in chunk.records()]
    assert seqnos == list(range(4000))
    assert [record.seqno for chunk in chunks for record in chunk.records()] == seqnos, "memory was not used again"
    await subscription.close()
    await broker.delete_topic("slow")
