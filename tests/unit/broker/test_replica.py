"""A broker as a copy: what it takes from a source, and what it does not believe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from logboom.batch import build
from logboom.broker.api import FeedOrigin, Part, Settings
from logboom.broker.local import LocalBroker
from logboom.broker.replica import LogCopy, Replica
from logboom.errors import (
    ConfigError,
    DirectoryUnusable,
    InvalidTopicName,
    LogboomError,
    RemoteProtocolError,
    ReplicaDiverged,
)
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from logboom.storage.data.role import Role
from logboom.storage.data.topic import SegmentSettings
from support.replicas.stored import are_equal, stored

Story = Callable[[LocalBroker, LocalBroker], Awaitable[None]]


def tell(path: Path, story: Story) -> None:
    async def run() -> None:
        async with asyncio.timeout(300):
            source = await LocalBroker.open(str(path / "source"))
            node = source.node
            role = Role("elsewhere:1774", node.node_id, node.cluster_id)
            copy = await LocalBroker.open(str(path / "copy"), cluster_id=node.cluster_id, replicate=role)
            try:
                await source.create_topic("t")
                await source.append([Part("t", [build([b"%d" % number]) for number in range(3)])])
                await story(source, copy)
            finally:
                await copy.close()
                await source.close()

    asyncio.run(run())


def replica_of(broker: LocalBroker) -> Replica:
    assert broker.replica is not None
    return broker.replica


async def begin(source: LocalBroker, copy: LocalBroker, index: int = 1) -> tuple[FeedOrigin, LogCopy, bytes]:
    feed = await source.feed("t", 0, index)
    return feed.origin, await replica_of(copy).begin(feed.origin), bytes((await feed.next(wait_ms=0)).data)


async def take(log: LogCopy, data: bytes) -> list[LogboomError]:
    answers = await (await log.take(memoryview(data)))
    return [answer for answer in answers if isinstance(answer, LogboomError)]


def test_what_is_taken_is_synced_and_equal_when_it_is_answered(tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        _, log, data = await begin(source, copy)
        assert await take(log, data) == []
        assert are_equal(await stored(source, "t"), await stored(copy, "t"))
        info = await copy.describe_topic("t")
        assert (info.id, info.partitions[0].committed) == ((await source.describe_topic("t")).id, 3)

    tell(tmp_path, story)


def test_the_last_batch_that_both_have_is_compared_before_anything_is_added(tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        _, log, data = await begin(source, copy)
        await take(log, data)
        await source.append([Part("t", [build([b"more"])])])
        _, log, data = await begin(source, copy, 3)
        assert await take(log, data) == []
        await source.append([Part("t", [build([b"and more"])])])
        _, log, data = await begin(source, copy, 4)
        other = bytearray(data)
        size = int.from_bytes(data[4:8], "little")
        swapped = bytes((await begin_elsewhere(tmp_path))[:size]) + bytes(other[size:])
        with pytest.raises(ReplicaDiverged):
            await log.take(memoryview(swapped))
        assert (await copy.describe_topic("t")).partitions[0].committed == 4

    tell(tmp_path, story)


async def begin_elsewhere(path: Path) -> bytes:
    """Batch 4 of a log with another history."""
    other = await LocalBroker.open(str(path / "other"))
    await other.append([Part("t", [build([b"else"]) for _ in range(4)])])
    found = await stored(other, "t")
    await other.close()
    return bytes(found[4].data)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", "x" * 300])
def test_a_topic_name_that_is_none_never_reaches_the_disk(name: str, tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        origin = (await source.feed("t", 0, 0)).origin
        with pytest.raises(InvalidTopicName):
            await replica_of(copy).begin(msgspec.structs.replace(origin, topic=name))
        with pytest.raises(ConfigError):
            await replica_of(copy).begin(msgspec.structs.replace(origin, topic_id="../x"))
        assert await copy.list_topics() == []

    tell(tmp_path, story)


def test_an_origin_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        origin = (await source.feed("t", 0, 0)).origin
        replica = replica_of(copy)
        for wrong in (
            msgspec.structs.replace(origin, topic="_cursors"),
            msgspec.structs.replace(origin, snapshot=b"nonsense"),
            msgspec.structs.replace(origin, index=7),
        ):
            with pytest.raises(RemoteProtocolError):
                await replica.begin(wrong)
        await replica.begin(origin)
        with pytest.raises(ReplicaDiverged):
            await replica.begin(msgspec.structs.replace(origin, partitions=2))

    tell(tmp_path, story)


def test_bytes_that_are_no_batches_or_not_the_next_ones_are_not_taken(tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        origin, _, data = await begin(source, copy)
        size = int.from_bytes(data[4:8], "little")
        for wrong in (b"x" * 200, data[size:], data[: size + 50], data[:size] * 2):
            log = await replica_of(copy).begin(origin)
            with pytest.raises(RemoteProtocolError):
                await log.take(memoryview(wrong))
        damaged = bytearray(data)
        damaged[size + 100] ^= 1
        log = await replica_of(copy).begin(origin)
        assert await take(log, bytes(damaged))
        assert (await copy.describe_topic("t")).partitions[0].committed <= 1
        _, log, data = await begin(source, copy)
        assert await take(log, data) == []

    tell(tmp_path, story)


def test_what_the_copy_has_dropped_is_compared_by_what_its_log_knows(tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        _, log, data = await begin(source, copy)
        await take(log, data)
        await replica_of(copy).drop({("t", 0): 3})
        assert (await copy.describe_topic("t")).partitions[0].first == 3
        await source.append([Part("t", [build([b"more"])])])
        _, log, data = await begin(source, copy, 3)
        assert await take(log, data) == []
        assert (await copy.describe_topic("t")).partitions[0].committed == 4
        await replica_of(copy).drop({("t", 0): 4})
        _, log, _ = await begin(source, copy, 4)
        with pytest.raises(ReplicaDiverged):
            await log.take(memoryview(await begin_elsewhere(tmp_path)))

    tell(tmp_path, story)


def same(_topic: str, _partition: int) -> bool:
    return True


def test_a_cursor_stays_where_it_is_until_the_copy_has_what_lies_before_it(tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        feed = await source.feed("t", 0, 1)
        log = await replica_of(copy).begin(feed.origin)
        topic_id = feed.origin.topic_id
        early = str(Bookmark(bytes.fromhex(topic_id), 0, 0, TERM_UNKNOWN))
        late = str(Bookmark(bytes.fromhex(topic_id), 0, 3, 0))
        replica = replica_of(copy)
        assert await replica.set_cursors({("c", "t", 0): early}, 1, same)
        assert not await replica.set_cursors({("c", "t", 0): late}, 2, same)
        assert await copy.fetch_cursor("c", "t") == early
        await take(log, bytes((await feed.next(wait_ms=0)).data))
        assert await replica.set_cursors({("c", "t", 0): late}, 3, same)
        assert await copy.fetch_cursor("c", "t") == late
        assert await replica.set_cursors({}, 4, same)
        assert await copy.list_cursors() == []

    tell(tmp_path, story)


def test_settings_of_the_source_are_kept_and_counted_from_the_take_over_on(tmp_path: Path) -> None:
    async def story(source: LocalBroker, copy: LocalBroker) -> None:
        _, log, data = await begin(source, copy)
        await take(log, data)
        settings = Settings(segment=SegmentSettings(bytes=8192))
        await source.configure_topic("t", settings)
        await begin(source, copy, 3)
        assert (await copy.describe_topic("t")).settings == settings
        await copy.promote()
        await copy.promote()
        assert (await copy.configure_topic("t", Settings())).settings == Settings()

    tell(tmp_path, story)


def test_a_role_that_cannot_be_read_keeps_the_node_from_starting(tmp_path: Path) -> None:
    async def story(_: LocalBroker, copy: LocalBroker) -> None:
        await copy.close()
        (tmp_path / "copy" / "internal" / "replica.json").write_bytes(b"{")
        with pytest.raises(DirectoryUnusable, match="the node cannot tell whether it is a replica"):
            await LocalBroker.open(str(tmp_path / "copy"))

    tell(tmp_path, story)
