"""A node that watches itself: what a sample says, what is remembered, and what never holds it up."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from logboom.batch import build
from logboom.broker.api import ActivityRequest, Part, ReadRequest, Settings, Start
from logboom.broker.local import LocalBroker
from logboom.broker.monitor import watcher
from logboom.broker.monitor.measures import Meter
from logboom.broker.monitor.pulses import RECENT
from logboom.broker.monitor.watcher import HISTORY, DiskVolume, SystemProbe
from logboom.errors import TopicNotAllowed, TopicNotFound
from logboom.storage.data.topic import FlushSettings, SegmentSettings
from logboom.storage.files.disk import OsDisk, OsFile
from support.brokers.places import PLACES, Place
from support.brokers.places import opened as opened_at
from support.brokers.watched import Watched, tell


def test_rates_are_what_came_and_went_by_the_time_that_really_passed(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        batch = build([b"v"] * 10)
        await watched.broker.append([Part("t", [batch]), Part("u", [batch])])
        await watched.broker.read(ReadRequest("t"))
        await watched.sample(after_s=5)
        await watched.sample()
        history = await watched.broker.history()
        assert history.records_in[-2:] == [20 / 5, 0]
        assert history.bytes_in[-2:] == [2 * len(batch.data) / 5, 0]
        assert history.records_out[-2:] == [10 / 5, 0]
        assert history.bytes_out[-2] > 0
        assert history.interval_ms == 2000

    tell(tmp_path, story)


def test_what_the_node_writes_for_itself_is_in_no_rate(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.broker.create_topic("t")
        await watched.put_cursor("c", 0)
        await watched.sample()
        assert (await watched.broker.history()).records_in[-1] == 0
        (internal,) = (await watched.broker.activity(ActivityRequest(search="_cursors", internal=True))).topics
        assert internal.records_in == 1 / 2

    tell(tmp_path, story)


def test_percentiles_are_of_the_durations_of_one_sample_over_all_protocols(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        meters = watched.broker.meters
        meters["a"], meters["b"] = Meter(), Meter()
        meters["a"].note_append(1, 1, 1, 10.0)
        await watched.sample()
        for seconds in (0.0001, 0.0001, 0.0001):
            meters["a"].note_append(1, 1, 1, seconds)
        meters["b"].note_append(1, 1, 1, 0.1)
        await watched.sample()
        history = await watched.broker.history()
        p50, p99 = history.append.p50[-2:], history.append.p99[-2:]
        assert p50[0] is not None
        assert 8.3 < p50[0] < 16.8
        assert p50[1] is not None
        assert 64e-6 < p50[1] <= 128e-6
        assert p99[1] is not None
        assert 0.065 < p99[1] <= 0.132
        assert (history.read.p50[-1], history.read.p99[-1]) == (None, None)

    tell(tmp_path, story)


def test_syncs_rejections_and_connections_are_in_a_sample(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        broker = watched.broker
        broker.connections["a"], broker.connections["b"] = lambda: 2, lambda: 3
        await broker.create_topic("t", settings=Settings(flush=FlushSettings("each")))
        await watched.send(1)
        for _ in range(3):
            with pytest.raises(TopicNotAllowed):
                await broker.create_topic("_mine")
        await watched.sample()
        await watched.sample()
        history = await broker.history()
        assert history.rejections[-2:] == [3, 0]
        assert history.connections[-1] == 5
        assert history.sync.p50[-2] is not None
        assert history.memory_bytes[-1] > 1_000_000
        assert history.open_files[-1] > 3

    tell(tmp_path, story)


def test_who_asks_again_gets_only_what_came_since(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.sample()
        await watched.sample()
        all_at = (await watched.broker.history()).at
        assert len(all_at) == 3
        assert (await watched.broker.history(all_at[0])).at == all_at[1:]
        assert (await watched.broker.history(all_at[-1])).at == []

    tell(tmp_path, story)


def test_no_more_samples_are_kept_than_there_is_room_for(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.send(1)
        for _ in range(HISTORY + 5):
            await watched.sample()
        history = await watched.broker.history()
        assert len(history.at) == len(history.records_in) == len(history.append.p50) == HISTORY
        assert history.at[-1] == int(watched.time_s * 1e6)
        assert len((await watched.broker.topic_history("t")).at) == RECENT

    tell(tmp_path, story)


def test_samples_stay_in_order_where_the_clock_goes_back(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        watched.broker.watcher.now = lambda: 1
        await watched.sample()
        await watched.sample()
        at = (await watched.broker.history()).at
        assert at == sorted(set(at))

    tell(tmp_path, story)


def test_a_topic_shows_records_in_and_out_of_each_sample_and_zeros_where_it_did_nothing(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.broker.create_topic("quiet")
        await watched.send(3)
        await watched.sample()
        await watched.broker.read(ReadRequest("t", Start(seqno=1)))
        await watched.sample()
        busy, quiet = await watched.broker.topic_history("t"), await watched.broker.topic_history("quiet")
        assert (busy.records_in, busy.records_out) == ([0, 3, 0], [0, 0, 2])
        assert (quiet.records_in, quiet.records_out, quiet.cursors) == ([0] * 3, [0] * 3, [])
        assert busy.at == quiet.at == (await watched.broker.history()).at
        with pytest.raises(TopicNotFound):
            await watched.broker.topic_history("nothing")

    tell(tmp_path, story)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_remembered_of_a_topic_is_what_a_list_remembers(seed: int, tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        choice, came, went = random.Random(seed), [0], [0]
        await watched.broker.create_topic("t")
        meter = watched.broker.counters.catalog.find("t").meter
        for _ in range(12):
            busy = choice.random() < 0.5
            for _ in range(choice.choice((1, 2, RECENT // 2, RECENT - 1, RECENT, RECENT + 1))):
                came.append(choice.choice((0, 1, 2**33)) if busy else 0)
                went.append(choice.choice((0, 5)) if busy else 0)
                meter.records_in += came[-1]
                meter.records_out += went[-1]
                await watched.sample()
            shown = await watched.broker.topic_history("t")
            assert shown.records_in == [min(count, 2**32 - 1) for count in came[-RECENT:]]
            assert shown.records_out == went[-RECENT:]

    tell(tmp_path, story)


def test_a_topic_that_is_made_again_begins_anew(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.send(3)
        await watched.put_cursor("c", 1)
        await watched.sample()
        await watched.broker.delete_topic("t")
        await watched.send(2)
        assert sum((await watched.broker.topic_history("t")).records_in) == 0
        await watched.sample()
        shown = await watched.broker.topic_history("t")
        assert (shown.records_in, shown.cursors) == ([0, 0, 2], [])
        assert (await watched.broker.history()).records_in[-1] == 2 / 2

    tell(tmp_path, story)


def test_others_have_their_turn_while_a_sample_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "SLICE", 2)

    async def story(watched: Watched) -> None:
        for number in range(20):
            await watched.broker.create_topic(f"t{number}")
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(take_turns())
        await watched.sample()
        assert turns >= 10
        others.cancel()

    tell(tmp_path, story)


def test_the_disk_is_told_of_as_it_was_when_it_last_answered(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        answers, asked = threading.Semaphore(0), threading.Semaphore(0)
        free = iter((70, 60))

        def ask() -> DiskVolume:
            asked.release()
            answers.acquire()
            return DiskVolume(100, next(free))

        async def answered(free_bytes: int) -> None:
            answers.release()
            while (disk := watched.broker.watcher.disk) is None or disk.free_bytes != free_bytes:
                await asyncio.sleep(0.001)

        watched.broker.watcher.volume = SystemProbe(ask)
        for _ in range(3):
            await watched.sample()
        assert (await watched.broker.stats()).disk is None
        await answered(70)
        await watched.sample()
        assert (await watched.broker.history()).disk_free_bytes[-2:] == [0, 70]
        disk = (await watched.broker.stats()).disk
        assert disk is not None
        assert (disk.total_bytes, disk.free_bytes, disk.reserve_bytes) == (100, 70, watched.broker.config.reserve_bytes)
        for _ in range(3):
            await watched.sample()
        assert (await watched.broker.history()).disk_free_bytes[-1] == 70
        await answered(60)

    tell(tmp_path, story)


def test_a_disk_that_never_answers_holds_up_neither_samples_nor_the_end(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        never = threading.Event()
        watched.broker.watcher.volume = SystemProbe(lambda: DiskVolume(int(never.wait()), 0))
        for _ in range(3):
            await watched.sample()
        assert len((await watched.broker.history()).at) == 4

    tell(tmp_path, story)


def test_a_disk_that_cannot_be_asked_says_nothing(tmp_path: Path) -> None:
    look = SystemProbe(lambda: watcher.look_at_volume(str(tmp_path / "nowhere")))
    look.renew()
    assert look.answer is None


def test_the_size_of_all_logs_follows_what_is_written_and_deleted(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        async def logs_bytes() -> int:
            await watched.sample()
            while (disk := watched.broker.watcher.disk) is None:
                await asyncio.sleep(0.001)
            return disk.logs_bytes

        async def described() -> int:
            topics = await watched.broker.list_topics(internal=True)
            return sum(log.size_bytes for topic in topics for log in topic.partitions)

        await watched.send(10)
        await watched.send(10, "u")
        assert await logs_bytes() == await described() > 0
        await watched.broker.delete_topic("t")
        assert await logs_bytes() == await described() > 0

    tell(tmp_path, story)


def test_a_pass_that_fails_is_told_once_and_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watcher, "SAMPLE_MS", 1)
    tries = 0

    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path / "data"))

        def fail() -> int:
            nonlocal tries
            tries += 1
            raise ValueError("no connections today")

        broker.connections["a"] = fail
        while tries < 3:
            await asyncio.sleep(0.001)
        del broker.connections["a"]
        seen = len((await broker.history()).at)
        while len((await broker.history()).at) < seen + 2:
            await asyncio.sleep(0.001)
        await broker.close()

    asyncio.run(story())
    told = [record for record in caplog.records if "look at itself" in record.getMessage()]
    assert len(told) == 1


@pytest.mark.parametrize("stop_at_once", [True, False])
def test_the_end_of_a_broker_is_the_end_of_watching(stop_at_once: bool, tmp_path: Path) -> None:
    async def story() -> None:
        broker = await LocalBroker.open(str(tmp_path / "data"))
        if not stop_at_once:
            await asyncio.sleep(0.01)
        await broker.close()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(story())


@pytest.mark.parametrize("place", PLACES)
def test_a_broker_tells_of_itself_wherever_it_is(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "SAMPLE_MS", 20)

    async def story() -> None:
        async with asyncio.timeout(300), opened_at(place, tmp_path) as broker:
            await broker.append([Part("t", [build([b"v"] * 7)])])
            while sum((await broker.topic_history("t")).records_in) < 7:
                await asyncio.sleep(0.01)
            history = await broker.history()
            assert max(history.records_in) > 0
            assert (await broker.history(history.at[-1])).at != history.at
            found = await broker.activity(ActivityRequest(search="t", sort="size", limit=5))
            assert [(topic.name, topic.records) for topic in found.topics] == [("t", 7)]
            (segment,) = await broker.segments("t")
            assert (segment.first_seqno, segment.next_seqno) == (0, 7)
            assert await broker.incidents() == []
            with pytest.raises(TopicNotFound):
                await broker.topic_history("nothing")

    asyncio.run(story())


def test_samples_have_dates_that_go_on_where_the_clock_was_set_back(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        hour = 3_600_000_000
        watched.broker.watcher.now = lambda: int(watched.time_s * 1e6) + hour
        await watched.sample()
        before = (await watched.broker.history()).at[-1]
        watched.broker.watcher.now = lambda: int(watched.time_s * 1e6)
        await watched.sample()
        await watched.sample()
        assert (await watched.broker.history()).at[-2:] == [before + 1_000_000, before + 2_000_000]
        await watched.sample(after_s=2 * 3600)
        assert (await watched.broker.history()).at[-1] == int(watched.time_s * 1e6)

    tell(tmp_path, story)


def test_what_a_pass_that_failed_had_counted_is_in_the_next_one(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        def fail() -> int:
            raise ValueError("no connections today")

        await watched.send(10)
        watched.broker.connections["a"] = fail
        with pytest.raises(ValueError, match="today"):
            await watched.sample()
        del watched.broker.connections["a"]
        await watched.send(20)
        await watched.sample()
        await watched.sample()
        assert (await watched.broker.history()).records_in[-2:] == [30 / 4, 0]

    tell(tmp_path, story)


class ForbiddingDisk(OsDisk):
    """Lets nobody open one of its files."""

    forbidden = ""

    def open(self, path: str) -> OsFile:
        if path == self.forbidden:
            raise PermissionError(13, "not for you")
        return super().open(path)


def test_a_file_that_cannot_be_asked_for_its_size_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    path = str(tmp_path / "data")

    async def fill() -> None:
        broker = await LocalBroker.open(path)
        await broker.create_topic("t", settings=Settings(segment=SegmentSettings(bytes=4096)))
        for _ in range(5):
            await broker.append([Part("t", [build([b"%d" % number for number in range(900)])])], "durable")
        await broker.close()

    async def look() -> None:
        disk = ForbiddingDisk(path)
        broker = await LocalBroker.open(path, disk=disk)
        try:
            watched = Watched(broker)
            segments = broker._catalog.find("t").open_writers[0].log.segments
            disk.forbidden = segments[1].log_path
            await watched.sample()
            (topic,) = (await broker.activity(ActivityRequest())).topics
            size = sum(Path(segment.log_path).stat().st_size for segment in segments if segment is not segments[1])
            assert topic.size_bytes == (await broker.describe_topic("t")).partitions[0].size_bytes == size > 0
        finally:
            await broker.close()

    asyncio.run(fill())
    asyncio.run(look())
