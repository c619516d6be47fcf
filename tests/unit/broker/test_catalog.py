"""Topics come, change and go, whoever asked for it goes away meanwhile, and whatever the disk says."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logboom.batch import build
from logboom.broker.api import Acks, Appended, Part, ReadRequest, Settings, Start
from logboom.broker.local import LocalBroker
from logboom.errors import BookmarkLost, StorageError, SyncFailed, TopicExists, TopicNotAllowed, TopicNotFound
from logboom.storage.data.topic import FlushSettings, RetentionSettings, Topic
from support.disks.gated import GatedDisk

OS = Settings(flush=FlushSettings("os"))


class HeldDisk(GatedDisk):
    """Renames wait for the test, or fail when it says so; those of the node's own files do not."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.renames = threading.Event()
        self.renames.set()
        self.renaming = threading.Event()
        self.keeps_names = False

    def rename(self, old: str, new: str) -> None:
        if "/internal/" in new:
            super().rename(old, new)
            return
        self.renaming.set()
        assert self.renames.wait(300)
        if self.keeps_names:
            raise OSError(errno.EROFS, "the disk keeps its names")
        super().rename(old, new)

    def hold(self) -> None:
        self.renaming.clear()
        self.renames.clear()


def tell(path: Path, story: Callable[[LocalBroker, HeldDisk], Awaitable[None]]) -> None:
    async def run() -> None:
        path.mkdir(exist_ok=True)
        disk = HeldDisk(str(path))
        broker = await LocalBroker.open(str(path), disk=disk)
        try:
            async with asyncio.timeout(300):
                await story(broker, disk)
        finally:
            disk.renames.set()
            with suppress(SyncFailed):
                await broker.close()

    asyncio.run(run())


async def ask_and_go_away(disk: HeldDisk, request: Coroutine[Any, Any, Any]) -> None:
    """Whoever asked waits no longer while the thread is at work; then it is done with it."""
    disk.hold()
    task = asyncio.create_task(request)
    while not disk.renaming.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    disk.renames.set()


async def write(broker: LocalBroker, value: bytes, acks: Acks = "durable") -> Appended:
    (answer,) = await broker.append([Part("t", [build([value])])], acks)
    assert isinstance(answer, Appended)
    return answer


@pytest.mark.parametrize("create", [True, False])
def test_a_topic_whose_maker_goes_away_is_there_all_the_same(tmp_path: Path, create: bool) -> None:
    async def story(broker: LocalBroker, disk: HeldDisk) -> None:
        await ask_and_go_away(disk, broker.describe_topic("t", create=True) if create else broker.create_topic("t"))
        await write(broker, b"a")
        assert (await broker.describe_topic("t")).partitions[0].committed == 1
        assert len(list(tmp_path.glob("data/topics/t~*"))) == 1

    tell(tmp_path / "data", story)


def test_settings_count_though_who_gave_them_goes_away(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: HeldDisk) -> None:
        await broker.create_topic("t")
        await ask_and_go_away(disk, broker.configure_topic("t", OS))
        await broker.create_topic("other")  # behind the change
        assert (await broker.describe_topic("t")).settings == OS

    tell(tmp_path / "data", story)


def test_a_topic_whose_deleter_goes_away_is_deleted_and_can_be_made_anew(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: HeldDisk) -> None:
        before = await broker.create_topic("t")
        await write(broker, b"a")
        await ask_and_go_away(disk, broker.delete_topic("t"))
        with pytest.raises(TopicNotFound):
            await broker.describe_topic("t")
        assert (await broker.create_topic("t")).id != before.id
        assert (await write(broker, b"b")).base_seqno == 0

    tell(tmp_path / "data", story)


def test_a_topic_that_cannot_be_deleted_is_as_it_was(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: HeldDisk) -> None:
        await write(broker, b"a")
        disk.keeps_names = True
        with pytest.raises(StorageError, match=r"could not be deleted: .*the disk keeps its names"):
            await broker.delete_topic("t")
        disk.keeps_names = False
        assert (await write(broker, b"b")).base_seqno == 1
        chunk = await broker.read(ReadRequest("t"))
        assert [record.value for record in chunk.records()] == [b"a", b"b"]
        await broker.delete_topic("t")
        with pytest.raises(TopicNotFound):
            await broker.describe_topic("t")

    tell(tmp_path / "data", story)


def test_a_topic_never_makes_room_for_another_one_of_its_name(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: HeldDisk) -> None:
        made = await broker.create_topic("t")
        await write(broker, b"kept")
        with pytest.raises(TopicExists):
            await broker._catalog.adopt(Topic.make("t", 1, Settings()))
        assert (await broker.describe_topic("t")).id == made.id
        assert [record.value for record in (await broker.read(ReadRequest("t"))).records()] == [b"kept"]

    tell(tmp_path / "data", story)


def test_the_nodes_own_topics_keep_their_settings(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: HeldDisk) -> None:
        with pytest.raises(TopicNotAllowed, match="kept by the node itself"):
            await broker.configure_topic("_cursors", Settings(retention=RetentionSettings(age_ms=0)))

    tell(tmp_path / "data", story)


def test_what_waits_for_a_long_interval_is_synced_when_that_is_changed(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, disk: HeldDisk) -> None:
        await broker.create_topic("t", 1, Settings(flush=FlushSettings("interval", 3_600_000)))
        await write(broker, b"a", "leader")
        assert (await broker.read(ReadRequest("t"))).committed == 0
        await broker.configure_topic("t", Settings())
        assert (await broker.read(ReadRequest("t", wait_ms=30_000))).committed == 1

    tell(tmp_path / "data", story)


async def end_uncleanly(broker: LocalBroker, disk: HeldDisk) -> None:
    disk.failing = True
    (answer,) = await broker.append([Part("t", [build([b"x"])])], "durable")
    assert isinstance(answer, SyncFailed)


def cut(path: Path, size: int) -> None:
    """What a power loss may leave of the log."""
    (log,) = path.glob("topics/t~*/0/*.log")
    with log.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_term_begun_after_an_unclean_end_outlives_a_clean_one(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "data"
    bookmarks: list[str] = []

    async def before(broker: LocalBroker, disk: HeldDisk) -> None:
        await broker.create_topic("t", 1, OS)
        for value in (b"a", b"lost"):
            await write(broker, value, "leader")
        bookmarks.append((await broker.read(ReadRequest("t"))).bookmark)
        await end_uncleanly(broker, disk)

    async def nothing(broker: LocalBroker, disk: HeldDisk) -> None:
        pass

    async def after(broker: LocalBroker, disk: HeldDisk) -> None:
        for _ in range(3):
            await write(broker, b"new", "leader")
        with pytest.raises(BookmarkLost):
            await broker.read(ReadRequest("t", Start(bookmark=bookmarks[0])))

    tell(path, before)
    cut(path, kept * len(build([b"a"]).data))
    tell(path, nothing)
    tell(path, after)


def test_no_term_is_used_twice_where_all_its_records_were_lost(tmp_path: Path) -> None:
    path = tmp_path / "data"
    bookmarks: list[str] = []
    sizes: list[int] = []

    async def crash(broker: LocalBroker, disk: HeldDisk) -> None:
        if not sizes:
            await broker.create_topic("t", 1, OS)
        (info,) = (await broker.describe_topic("t")).partitions
        sizes.append(info.size_bytes)
        await write(broker, b"%d" % len(sizes), "leader")
        bookmarks.append((await broker.read(ReadRequest("t"))).bookmark)
        await end_uncleanly(broker, disk)

    async def after(broker: LocalBroker, disk: HeldDisk) -> None:
        await write(broker, b"new", "leader")
        for bookmark in bookmarks:
            with pytest.raises(BookmarkLost):
                await broker.read(ReadRequest("t", Start(bookmark=bookmark)))

    for _ in range(2):
        tell(path, crash)
        cut(path, sizes[-1])
    tell(path, after)
