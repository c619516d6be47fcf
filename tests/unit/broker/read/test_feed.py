"""What a node gives to those who copy it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Feeds, Part, Settings
from logboom.broker.caller import EVERYBODY
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.errors import FeedEnded, IndexOutOfRange, ShuttingDown, TopicDeleted, TopicNotAllowed, TopicNotFound
from logboom.storage.data.topic import FlushSettings, RetentionSettings, SegmentSettings
from logboom.storage.tail import Snapshot
from support.disks.gated import GatedDisk
from support.replicas.stored import split, stored
from support.waiting import until

Story = Callable[[LocalBroker, GatedDisk], Awaitable[None]]
SMALL = Settings(segment=SegmentSettings(bytes=4096))
OFTEN = BrokerConfig(upkeep=UpkeepSettings(retention_every_ms=10))


def tell(path: Path, story: Story, config: BrokerConfig | None = None) -> None:
    async def run() -> None:
        async with asyncio.timeout(300):
            data = path / "data"
            data.mkdir()
            disk = GatedDisk(str(data))
            broker = await LocalBroker.open(str(data), config, disk=disk)
            try:
                await story(broker, disk)
            finally:
                disk.gate.set()
                await broker.close()

    asyncio.run(run())


async def append(broker: LocalBroker, *values: bytes) -> None:
    await broker.append([Part("t", [build([value]) for value in values])])


def test_a_feed_has_every_committed_batch_as_it_is_stored_control_batches_too(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, _: GatedDisk) -> None:
        await broker.create_topic("t")
        await append(broker, b"a", b"b")
        await broker.trim("t", 0, 1)
        await append(broker, b"c")
        feeds: Feeds = broker
        feed = await feeds.feed("t", 0, 1, caller=EVERYBODY)
        piece = await feed.next()
        batches = split(bytes(piece.data))
        assert [(batch.header.index, batch.header.kind) for batch in batches] == [(1, 0), (2, 0), (3, 1), (4, 0)]
        assert (piece.next_index, piece.first, piece.committed, piece.committed_index) == (5, 1, 3, 4)
        assert feed.origin.index == 1
        assert feed.origin.topic_id == (await broker.describe_topic("t")).id
        assert Snapshot.decode(feed.origin.snapshot) == Snapshot(0, 1)

    tell(tmp_path, story)


def test_a_feed_that_begins_at_a_batch_the_asker_has_needs_no_snapshot(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, _: GatedDisk) -> None:
        await broker.create_topic("t")
        await append(broker, b"a", b"b", b"c")
        feed = await broker.feed("t", None, 2)
        assert (feed.origin.index, feed.origin.snapshot) == (2, b"")
        assert [batch.header.index for batch in split(bytes((await feed.next()).data))] == [2, 3]
        assert (await broker.feed("t", None, 4)).origin.index == 4
        with pytest.raises(IndexOutOfRange):
            await broker.feed("t", None, 5)

    tell(tmp_path, story)


def test_a_feed_waits_for_news_and_gives_nothing_before_it_is_synced(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t")
        await append(broker, b"a")
        feed = await broker.feed("t", 0, 2)
        coming = asyncio.create_task(feed.next(wait_ms=60_000))
        disk.close_gate()
        answer = broker.append([Part("t", [build([b"b"])])])
        await until(disk.entered.is_set)
        assert not coming.done()
        disk.gate.set()
        await answer
        assert [batch.values() for batch in split(bytes((await coming).data))] == [[b"b"]]

    tell(tmp_path, story)


def test_with_flush_os_readers_see_what_is_written_and_copies_only_what_is_synced(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", settings=Settings(flush=FlushSettings("os")))
        disk.close_gate()
        await broker.append([Part("t", [build([b"a"])])], "leader")
        assert (await broker.describe_topic("t")).partitions[0].committed == 1
        feed = await broker.feed("t", 0, 1)
        piece = await feed.next(wait_ms=0)
        assert (len(piece.data), piece.next_index, piece.committed) == (0, 1, 1)
        coming = asyncio.create_task(feed.next(wait_ms=60_000))
        disk.gate.set()
        assert (await coming).next_index == 2

    tell(tmp_path, story)


def test_where_the_wanted_batch_is_gone_a_feed_begins_with_the_first_there_is(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, _: GatedDisk) -> None:
        settings = Settings(segment=SegmentSettings(bytes=4096), retention=RetentionSettings(records=5))
        await broker.create_topic("t", settings=settings)
        behind = await broker.feed("t", 0, 1)
        for number in range(40):
            await append(broker, b"%d" % number * 500)
        while not (await broker.describe_topic("t")).partitions[0].first:
            await asyncio.sleep(0.01)
        with pytest.raises(IndexOutOfRange):
            await behind.next()
        await broker.configure_topic("t", SMALL)  # from now on nothing goes any more
        feed = await broker.feed("t", 0, 2)
        snapshot = Snapshot.decode(feed.origin.snapshot)
        first = (await broker.describe_topic("t")).partitions[0].first
        assert snapshot is not None
        assert (snapshot.next_seqno, snapshot.next_index) == (first, feed.origin.index) == (first, first + 1)
        assert min(await stored(broker, "t")) == first + 1

    tell(tmp_path, story, OFTEN)


def test_a_feed_ends_when_its_topic_is_deleted_or_has_other_settings_or_the_node_stops(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, _: GatedDisk) -> None:
        await broker.create_topic("t")
        coming = asyncio.create_task((await broker.feed("t", 0, 0)).next(wait_ms=60_000))
        await asyncio.sleep(0)
        await broker.configure_topic("t", SMALL)
        with pytest.raises(FeedEnded):
            await coming
        feed = await broker.feed("t", 0, 0)
        assert feed.origin.settings == SMALL
        coming = asyncio.create_task(feed.next(wait_ms=60_000))
        await asyncio.sleep(0)
        await broker.delete_topic("t")
        with pytest.raises(TopicDeleted):
            await coming
        with pytest.raises(TopicNotFound):
            await broker.feed("t", 0, 0)
        await broker.create_topic("t")
        coming = asyncio.create_task((await broker.feed("t", 0, 0)).next(wait_ms=60_000))
        await asyncio.sleep(0)
        await broker.close()
        with pytest.raises(ShuttingDown):
            await coming

    tell(tmp_path, story)


def test_pieces_are_no_larger_than_asked_for_but_for_a_single_batch(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, _: GatedDisk) -> None:
        await broker.create_topic("t")
        await append(broker, *[b"x" * 1000] * 10)
        feed = await broker.feed("t", 0, 1)
        sizes = [len(split(bytes((await feed.next(2500)).data))) for _ in range(4)]
        assert sizes == [2, 2, 2, 2]
        assert len(split(bytes((await feed.next(1)).data))) == 1

    tell(tmp_path, story)


def test_internal_topics_are_not_fed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, _: GatedDisk) -> None:
        with pytest.raises(TopicNotAllowed):
            await broker.feed("_cursors", 0, 0)

    tell(tmp_path, story)
