"""The end of a log has gone back: a new term tells whoever stood behind it, however late it can begin."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Acks, Appended, Part, ReadRequest, Settings, Start
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.broker.upkeep.upkeep import Upkeep
from logboom.client.files.file_reader import FileReader
from logboom.errors import AppendRefused, BookmarkLost, SyncFailed
from logboom.storage import DataDirectory, OsDisk
from logboom.storage.data.topic import FlushSettings
from logboom.storage.health.repair import hold, plan_repair
from logboom.storage.moving.dump import dump as write_dump
from logboom.storage.moving.dump import plan_dump
from logboom.storage.moving.load import load
from logboom.storage.moving.origin import DumpOrigin, recover_all
from logboom.storage.moving.outline import Request
from logboom.storage.moving.reappend import AppendLoader
from support.disks.gated import GatedDisk

OS = Settings(flush=FlushSettings("os"))
EACH = Settings(flush=FlushSettings("each"))
NOW = 1_800_000_000_000_000
Story = Callable[[LocalBroker, GatedDisk], Awaitable[None]]


def tell(path: Path, story: Story, config: BrokerConfig | None = None) -> None:
    async def run() -> None:
        path.mkdir(exist_ok=True)
        disk = GatedDisk(str(path))
        broker = await LocalBroker.open(str(path), config, disk=disk)
        try:
            async with asyncio.timeout(60):
                await story(broker, disk)
        finally:
            disk.gate.set()
            with suppress(SyncFailed):
                await broker.close()

    asyncio.run(run())


async def write(broker: LocalBroker, value: bytes, acks: Acks = "leader") -> None:
    (answer,) = await broker.append([Part("t", [build([value])])], acks)
    assert isinstance(answer, Appended)


async def end_uncleanly(broker: LocalBroker, disk: GatedDisk) -> None:
    disk.failing = True
    (answer,) = await broker.append([Part("t", [build([b"x"])])], "durable")
    assert isinstance(answer, SyncFailed)


def cut(path: Path, batches: int) -> None:
    """What a power loss may leave of the log."""
    (log,) = path.glob("topics/t~*/0/*.log")
    with log.open("r+b") as file:
        file.truncate(batches * len(build([b"a"]).data))


def lose_tail(path: Path) -> str:
    """The bookmark of a reader that has read two records, of which one is left."""
    bookmarks = []

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, OS)
        for value in (b"a", b"b"):
            await write(broker, value)
        bookmarks.append((await broker.read(ReadRequest("t"))).bookmark)
        await end_uncleanly(broker, disk)

    tell(path, story)
    cut(path, 1)
    return bookmarks[0]


def assert_noticed(path: Path, bookmark: str) -> None:
    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        for _ in range(3):
            await write(broker, b"new", "durable")
        with pytest.raises(BookmarkLost):
            await broker.read(ReadRequest("t", Start(bookmark=bookmark)))
        with pytest.raises(BookmarkLost):
            FileReader(str(path), "t", bookmark=bookmark)

    tell(path, story)


def dump(path: Path) -> bytes:
    content = io.BytesIO()
    with DumpOrigin.open(str(path)) as origin:
        write_dump(origin, plan_dump(origin, Request(), NOW), content)
    return content.getvalue()


def keep_up(path: Path) -> None:
    with DataDirectory.open(str(path)) as data:
        work = Upkeep(data, UpkeepSettings())
        work.step(NOW)
        work.close()


def load_nothing(path: Path) -> None:
    with DataDirectory.open(str(path)) as data:
        recover_all(data)


def repair(path: Path) -> int:
    disk = OsDisk(str(path))
    with hold(disk, str(path)):
        steps = plan_repair(disk, str(path)).steps
        for step in steps:
            step.run()
    return len(steps)


@pytest.mark.parametrize("tool", [keep_up, dump, load_nothing, repair], ids=lambda tool: tool.__name__)
@pytest.mark.parametrize("times", [1, 2])
def test_an_unclean_end_is_remembered_whoever_opens_the_directory_next(
    tmp_path: Path, tool: Callable[[Path], object], times: int
) -> None:
    bookmark = lose_tail(tmp_path / "data")
    for _ in range(times):
        tool(tmp_path / "data")
    assert_noticed(tmp_path / "data", bookmark)


def test_an_unclean_end_is_remembered_where_the_next_start_finds_no_room(tmp_path: Path) -> None:
    path = tmp_path / "data"
    bookmark = lose_tail(path)

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        (answer,) = await broker.append([Part("t", [build([b"x"])])])
        assert isinstance(answer, AppendRefused)

    tell(path, story, BrokerConfig(reserve_bytes=1 << 60))
    assert_noticed(path, bookmark)


def test_a_term_is_owed_no_longer_when_every_log_has_it(tmp_path: Path) -> None:
    path = tmp_path / "data"
    lose_tail(path)
    terms = []

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await write(broker, b"c", "durable")
        terms.append((await broker.read(ReadRequest("t"))).term)

    for _ in range(3):
        tell(path, story)
    assert terms == [1, 1, 1]


def test_records_loaded_behind_a_lost_tail_are_of_a_new_term(tmp_path: Path) -> None:
    path, other = tmp_path / "data", tmp_path / "other"
    bookmark = lose_tail(path)

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, OS)
        for _ in range(3):
            await write(broker, b"n")

    tell(other, story)
    with DataDirectory.open(str(path)) as data:
        load(io.BytesIO(dump(other)), AppendLoader(data, NOW))
    assert_noticed(path, bookmark)


def test_what_was_shown_unsynced_is_synced_before_a_topic_no_longer_says_so(tmp_path: Path) -> None:
    path = tmp_path / "data"
    said: list[str] = []

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, OS)
        disk.close_gate()
        await write(broker, b"a")
        changed = asyncio.create_task(broker.configure_topic("t", EACH))
        while not disk.entered.is_set():
            await asyncio.sleep(0.001)
        (file,) = path.glob("topics/t~*/topic.json")
        said.append(file.read_text())
        await write(broker, b"b")
        assert (await broker.read(ReadRequest("t"))).committed == 1  # what is written meanwhile is not shown
        disk.gate.set()
        await changed
        said.append(file.read_text())

    tell(path, story)
    assert ['"os"' in text for text in said] == [True, False]


def test_a_topic_whose_tail_cannot_be_synced_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "data"

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await broker.create_topic("t", 1, OS)
        await write(broker, b"a")
        disk.failing = True
        with pytest.raises(SyncFailed):
            await broker.configure_topic("t", EACH)
        assert (await broker.describe_topic("t")).settings == OS

    tell(path, story)
    (file,) = path.glob("topics/t~*/topic.json")
    assert '"os"' in file.read_text()


async def write_two(broker: LocalBroker, bookmarks: list[str]) -> None:
    await broker.create_topic("t", 1, EACH)
    for value in (b"a", b"b"):
        await write(broker, value, "durable")
    bookmarks.append((await broker.read(ReadRequest("t"))).bookmark)


def damage_last(path: Path) -> None:
    (log,) = path.glob("topics/t~*/0/*.log")
    with log.open("r+b") as file:
        file.seek(len(build([b"a"]).data) + 50)
        file.write(b"XXXXXXXX")


def test_a_repair_that_takes_records_away_and_does_not_know_how_many_begins_a_term(tmp_path: Path) -> None:
    path, bookmarks = tmp_path / "data", list[str]()
    tell(path, lambda broker, disk: write_two(broker, bookmarks))
    damage_last(path)
    (path / "state").unlink()
    assert repair(path)
    assert repair(path) == 0
    assert_noticed(path, bookmarks[0])


def test_records_that_a_repair_counts_as_lost_keep_their_bookmarks(tmp_path: Path) -> None:
    path, bookmarks = tmp_path / "data", list[str]()
    tell(path, lambda broker, disk: write_two(broker, bookmarks))
    damage_last(path)
    assert repair(path)
    assert repair(path) == 0

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        await write(broker, b"new", "durable")
        chunk = await broker.read(ReadRequest("t", Start(bookmark=bookmarks[0])))
        assert [record.value for record in chunk.records()] == [b"new"]
        assert chunk.term == 1

    tell(path, story)


def test_a_term_that_waits_for_room_is_durable_before_anything_of_it_is_shown(tmp_path: Path) -> None:
    """Else it could be lost with the records that it was to tell of, and begin twice."""
    path = tmp_path / "data"
    lose_tail(path)

    async def story(broker: LocalBroker, disk: GatedDisk) -> None:
        broker._data.files.space.reserve_bytes = 0
        disk.close_gate()
        await write(broker, b"b")
        assert (await broker.read(ReadRequest("t"))).committed == 1
        disk.gate.set()
        while (await broker.read(ReadRequest("t", Start(seqno=1), wait_ms=1000))).committed == 1:
            pass
        disk.close_gate()
        await write(broker, b"c")  # from now on as the topic says
        assert (await broker.read(ReadRequest("t"))).committed == 3

    tell(path, story, BrokerConfig(reserve_bytes=1 << 60))
