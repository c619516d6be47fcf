"""A source that comes back from an older backup takes nothing away from its replica."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from msgspec import to_builtins

from logboom.broker.api import ReadRequest, Settings
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.monitor.checkup import examine
from logboom.errors import ReadOnlyReplica, TopicNotFound
from logboom.storage.data.topic import SegmentSettings
from support.replicas.pair import Pair, tell

SMALL = Settings(segment=SegmentSettings(bytes=4096))


async def back_up(pair: Pair) -> None:
    await pair.stop_source()
    shutil.copytree(pair.root / "source", pair.root / "backup")
    await pair.start_source()


async def restore(pair: Pair) -> None:
    await pair.stop_source()
    shutil.rmtree(pair.root / "source")
    shutil.copytree(pair.root / "backup", pair.root / "source")
    await pair.start_source()


async def reconciled(pair: Pair, name: str) -> None:
    """Until the replica has heard of a topic that is made now, and so of all others."""
    await pair.source.create_topic(name)
    while name not in await names(pair):
        await asyncio.sleep(0.02)


async def names(pair: Pair) -> list[str]:
    return [topic.name for topic in await pair.replica.list_topics()]


async def values(pair: Pair, topic: str) -> list[bytes | None]:
    return [record.value for record in (await pair.replica.read(ReadRequest(topic))).records()]


async def commit_end(pair: Pair, cursor: str, topic: str) -> None:
    chunk = await pair.source.read(ReadRequest(topic))
    await pair.source.commit_cursor(cursor, topic, 0, chunk.bookmark)


def test_what_is_not_in_the_sources_backup_stays_on_the_replica(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("old")
        await pair.write("old", b"1")
        await back_up(pair)
        await pair.write("old", b"2", b"3", b"4")
        await pair.source.create_topic("new")
        await pair.write("new", *(b"%d" % number for number in range(100)))
        await commit_end(pair, "mill", "old")
        await commit_end(pair, "mill", "new")
        await pair.caught_up()
        while len(await pair.replica.list_cursors()) < 2:
            await asyncio.sleep(0.02)
        await restore(pair)
        await reconciled(pair, "later")
        await reconciled(pair, "latest")
        assert await names(pair) == ["later", "latest", "new", "old"]
        assert len(await values(pair, "new")) == 100
        assert await values(pair, "old") == [b"1", b"2", b"3", b"4"]
        assert [(cursor.topic, cursor.seqno) for cursor in await pair.replica.list_cursors()] == [
            ("new", 100),
            ("old", 4),
        ]

    tell(tmp_path, story)


def test_a_topic_that_only_the_replica_has_is_named_and_an_operator_can_remove_it_there(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("old")
        await back_up(pair)
        await pair.source.create_topic("new")
        await pair.write("new", b"1")
        await pair.caught_up()
        await restore(pair)
        while (await pair.stats()).kept != ["new"]:
            await asyncio.sleep(0.02)
        assert (await pair.stats()).kept_topics == 1
        assert any("topic delete" in complaint.advice for complaint in await examine(pair.replica, EVERYBODY))
        with pytest.raises(ReadOnlyReplica):
            await pair.replica.delete_topic("old")
        await pair.replica.delete_topic("new")
        with pytest.raises(TopicNotFound):
            await pair.replica.describe_topic("new")
        while (await pair.stats()).kept_topics:
            await asyncio.sleep(0.02)

    tell(tmp_path, story)


def test_a_name_that_the_source_has_given_to_another_topic_since_is_not_taken_from_the_replicas(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await back_up(pair)
        await pair.source.create_topic("news")
        await pair.write("news", b"of the first life")
        await pair.caught_up()
        await restore(pair)
        await pair.source.create_topic("news")
        await pair.write("news", b"of the second")
        while "another one of that name" not in str((await pair.stats()).error):
            await asyncio.sleep(0.02)
        assert await values(pair, "news") == [b"of the first life"]
        await pair.replica.delete_topic("news")
        await pair.caught_up()
        assert await values(pair, "news") == [b"of the second"]
        while (await pair.stats()).error is not None:
            await asyncio.sleep(0.02)

    tell(tmp_path, story)


def test_a_source_that_is_one_batch_short_is_not_taken_for_the_same(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t")
        await pair.write("t", b"1")
        await back_up(pair)
        await pair.write("t", b"2")
        await commit_end(pair, "mill", "t")
        await pair.caught_up()
        while not await pair.replica.list_cursors():
            await asyncio.sleep(0.02)
        await restore(pair)
        while "the log ends before it there" not in str((await pair.stats()).error):
            await asyncio.sleep(0.02)
        await reconciled(pair, "later")
        assert await values(pair, "t") == [b"1", b"2"]
        assert [cursor.seqno for cursor in await pair.replica.list_cursors()] == [2]

    tell(tmp_path, story)


def test_a_log_that_differs_loses_no_segment_when_the_source_or_the_replica_is_started_again(tmp_path: Path) -> None:
    """The restored source goes on, and what it trims later is not what the replica has."""

    async def story(pair: Pair) -> None:
        await pair.source.create_topic("t", 1, SMALL)
        await pair.write("t", b"1")
        await back_up(pair)
        for number in range(10):
            await pair.write("t", b"%d" % number * 1000)
        await pair.caught_up()
        before = await values(pair, "t")
        await restore(pair)
        for number in range(20):
            await pair.write("t", b"%d" % (number + 100) * 1000)
        await pair.source.trim("t", 0, 8)
        for step in (pair.stop_replica, pair.start_replica):
            await step()
        while "t/0: batch" not in str((await pair.stats()).error):
            await asyncio.sleep(0.02)
        await reconciled(pair, "later")
        await reconciled(pair, "latest")
        assert await values(pair, "t") == before

    tell(tmp_path, story)


def test_a_deletion_reaches_a_replica_that_was_away_and_the_replicas_of_that_replica(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        await pair.source.create_topic("kept")
        await pair.source.create_topic("gone")
        await pair.write("gone", b"1")
        await pair.caught_up()
        further = Pair(tmp_path)
        further.borrow_source(pair.replica)
        await further.listen()
        await further.start_replica(name="further")
        try:
            await further.caught_up()
            await pair.hang_up()
            await pair.source.delete_topic("gone")
            await pair.stop_source()
            await pair.start_source()  # it is remembered
            await further.caught_up()
            while await names(further) != ["kept"]:
                await asyncio.sleep(0.02)
        finally:
            await further.stop_replica()
            await further.hang_up()

    tell(tmp_path, story)


def test_a_source_that_cannot_tell_of_deletions_deletes_nothing(tmp_path: Path) -> None:
    """As earlier releases: the key is not in their STATS, and DELETED ends the conversation."""

    async def story(pair: Pair) -> None:
        stats = pair.source.stats

        async def older(*, caller: Caller) -> object:
            told = to_builtins(await stats(caller=caller))
            return {key: value for key, value in told.items() if key != "deletions"}

        pair.source.stats = older  # type: ignore[assignment,method-assign]
        for name in ("kept", "gone"):
            await pair.source.create_topic(name)
        await pair.hang_up()
        await pair.listen()
        await pair.caught_up()
        await pair.source.delete_topic("gone")
        while (await pair.stats()).kept != ["gone"]:
            await asyncio.sleep(0.02)
        await reconciled(pair, "later")
        assert await names(pair) == ["gone", "kept", "later"]
        assert (await pair.stats()).connected

    tell(tmp_path, story)
