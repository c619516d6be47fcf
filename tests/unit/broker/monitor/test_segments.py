"""The segments of a log as people see them: where each begins and ends, how old it is, what is wrong with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import Appended, Part, ReadRequest, SegmentInfo, Settings
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.broker.monitor.segments import SegmentLists
from logboom.errors import PartitionNotFound, TopicDeleted, TopicNotFound
from logboom.storage.data.topic import RecompressionSettings, RetentionSettings, SegmentSettings
from logboom.storage.log import Log
from logboom.storage.upkeep.scrub import ScrubFinding

Story = Callable[[LocalBroker], Awaitable[None]]
TINY = Settings(segment=SegmentSettings(bytes=4096))
CONFIG = BrokerConfig(
    upkeep=UpkeepSettings(retention_every_ms=50, recompress_bytes_per_second=None, scrub_bytes_per_second=None)
)


def tell(path: Path, story: Story, config: BrokerConfig | None = None) -> None:
    async def run() -> None:
        broker = await LocalBroker.open(str(path / "data"), config)
        try:
            async with asyncio.timeout(300):
                await story(broker)
        finally:
            await broker.close()

    asyncio.run(run())


async def fill(broker: LocalBroker, count: int, topic: str = "t", partition: int | None = None) -> list[int]:
    """So many batches that each fill most of a segment; when each was appended."""
    times = []
    for number in range(count):
        (answer,) = await broker.append([Part(topic, [build([b"%04d" % number * 700])], partition)], "durable")
        assert isinstance(answer, Appended)
        times.append((await broker.describe_topic(topic)).partitions[partition or 0].newest or 0)
    return times


def files_of(path: Path, topic: str = "t") -> list[Path]:
    return sorted((path / "data" / "topics").glob(f"{topic}~*/0/*.log"))


def test_segments_follow_each_other_and_have_their_sizes_and_ages(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        times = await fill(broker, 5)
        found = await broker.segments("t")
        assert [(info.first_seqno, info.next_seqno) for info in found] == [(number, number + 1) for number in range(5)]
        assert [info.first_index for info in found] == [1, 2, 3, 4, 5]
        assert [info.sealed for info in found] == [True] * 4 + [False]
        assert [info.size_bytes for info in found] == [file.stat().st_size for file in files_of(tmp_path)]
        assert [info.oldest for info in found] == [info.newest for info in found] == times
        assert {info.damage for info in found} == {None}

    tell(tmp_path, story)


def test_a_segment_of_several_batches_is_as_old_as_its_first_and_as_new_as_its_last(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=Settings(segment=SegmentSettings(bytes=7000)))
        times = await fill(broker, 5)
        found = await broker.segments("t")
        assert [(info.oldest, info.newest) for info in found] == [
            (times[0], times[1]),
            (times[2], times[3]),
            (times[4], times[4]),
        ]

    tell(tmp_path, story)


def test_they_are_the_same_after_a_restart(tmp_path: Path) -> None:
    before: list[SegmentInfo] = []

    async def write(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 4)
        before.extend(await broker.segments("t"))

    async def look(broker: LocalBroker) -> None:
        assert await broker.segments("t") == before
        assert await broker.segments("t") == before

    tell(tmp_path, write)
    tell(tmp_path, look)


def test_a_limit_gives_the_newest_oldest_first(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 4)
        assert [info.first_seqno for info in await broker.segments("t", limit=2)] == [2, 3]
        assert [info.first_seqno for info in await broker.segments("t", limit=1)] == [3]
        assert len(await broker.segments("t", limit=2**62)) == 4
        for nonsense in (0, -3):
            assert [info.first_seqno for info in await broker.segments("t", limit=nonsense)] == [3]

    tell(tmp_path, story)


def test_an_empty_log_has_one_segment_without_an_age(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t")
        assert await broker.segments("t") == [SegmentInfo(0, 0, 1, 0, 0, False, None, None, None)]

    tell(tmp_path, story)


def test_a_partition_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", 2, TINY)
        await fill(broker, 3, partition=1)
        assert len(await broker.segments("t", 1)) == 3
        assert len(await broker.segments("t", 0)) == 1
        with pytest.raises(PartitionNotFound):
            await broker.segments("t")
        with pytest.raises(PartitionNotFound):
            await broker.segments("t", 2)
        with pytest.raises(TopicNotFound):
            await broker.segments("nobody")

    tell(tmp_path, story)


def test_a_file_that_is_missing_is_damage_of_its_segment_alone(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 4)
        files_of(tmp_path)[1].unlink()
        first, lost, *others = await broker.segments("t")
        assert lost.damage == "its file is missing"
        assert lost.oldest is None
        assert [info.damage for info in (first, *others)] == [None] * 3

    tell(tmp_path, story)


def test_a_first_batch_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 3)
        flip(files_of(tmp_path)[0], 20)
        first, *others = await broker.segments("t")
        assert first.damage is not None
        assert first.damage.startswith("its first batch cannot be read: ")
        assert [info.damage for info in others] == [None, None]

    tell(tmp_path, story)


def test_what_a_scrub_found_is_damage_of_its_segment(tmp_path: Path) -> None:
    async def write(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 3)

    async def look(broker: LocalBroker) -> None:
        while not (await broker.stats()).upkeep["scrub"]["findings"]:
            await asyncio.sleep(0.01)
        damaged = [info for info in await broker.segments("t") if info.damage is not None]
        assert [info.first_seqno for info in damaged] == [1]
        assert (damaged[0].damage or "").startswith("seqnos 1 to 1: ")

    tell(tmp_path, write)
    flip(files_of(tmp_path)[1], 500)
    tell(tmp_path, look, CONFIG)


def test_what_opening_the_log_found_is_damage_of_the_last_segment(tmp_path: Path) -> None:
    async def write(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 3)

    async def look(broker: LocalBroker) -> None:
        *others, last = await broker.segments("t")
        assert last.damage is not None
        assert "the state file says" in last.damage
        assert [info.damage for info in others] == [None, None]

    tell(tmp_path, write)
    flip(files_of(tmp_path)[2], 500)
    tell(tmp_path, look)


def test_segments_that_are_missing_before_the_first_one_are_told_with_it(tmp_path: Path) -> None:
    async def write(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 3)

    async def look(broker: LocalBroker) -> None:
        first, second = await broker.segments("t")
        assert first.first_seqno == 1
        assert (first.damage or "").startswith("seqnos 0 to 0: segments before it are missing")
        assert second.damage is None

    tell(tmp_path, write)
    for path in sorted((tmp_path / "data" / "topics").glob("t~*/0/00000000000000000000-*")):
        path.unlink()
    tell(tmp_path, look)


def test_what_is_dropped_or_stored_anew_meanwhile_is_shown_as_it_is(tmp_path: Path) -> None:
    settings = Settings(
        segment=SegmentSettings(bytes=4096),
        retention=RetentionSettings(records=20),
        recompression=RecompressionSettings(codec="zstd"),
    )

    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=settings)
        for _ in range(30):
            await fill(broker, 5)
            found = await broker.segments("t")
            for info, following in pairwise(found):
                assert info.next_seqno == following.first_seqno
            assert {info.damage for info in found} == {None}
        while not any(info.generation for info in await broker.segments("t")):
            await asyncio.sleep(0.01)
        assert (await broker.read(ReadRequest("t", gaps="skip"))).record_count

    tell(tmp_path, story, CONFIG)


def test_the_files_of_a_topic_that_is_deleted_meanwhile_are_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t", settings=TINY)
        await fill(broker, 3)
        show = SegmentLists.show

        async def hesitate(
            lists: SegmentLists, log: Log, findings: list[ScrubFinding], limit: int
        ) -> list[SegmentInfo]:
            await broker.delete_topic("t")
            return await show(lists, log, findings, limit)

        monkeypatch.setattr(SegmentLists, "show", hesitate)
        with pytest.raises(TopicDeleted):
            await broker.segments("t")

    tell(tmp_path, story)


def flip(path: Path, position: int) -> None:
    with open(path, "r+b") as file:
        byte = os.pread(file.fileno(), 1, position)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 0xFF]), position)
