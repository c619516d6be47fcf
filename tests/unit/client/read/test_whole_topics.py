"""Readers of several logs: all partitions of a topic, several topics, patterns of topics that come and go."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from logboom import AsyncReader, Reader, Record
from logboom.batch import build
from logboom.broker.api import Filter, Part, ReadRequest, Settings, Start
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.errors import (
    InvalidBookmark,
    InvalidPattern,
    LimitExceeded,
    LocalProtocolError,
    PartitionNotFound,
    SeqnoOutOfRange,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.storage.bookmark import Bookmark, BookmarkSet
from logboom.storage.data.topic import SegmentSettings
from support.brokers.places import served
from support.nodes.process import NodeProcess

Story = Callable[[LocalBroker, str], Awaitable[None]]
SMALL = Settings(segment=SegmentSettings(bytes=4096))


def with_node(tmp_path: Path, story: Story) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), served(tmp_path, "tcp") as (broker, address):
            await story(broker, address)

    asyncio.run(run())


async def fill(broker: LocalBroker, topic: str, partitions: int, count: int = 100) -> None:
    """So many records in each partition, whose values say where they are."""
    if not await broker.list_topics(topic):
        await broker.create_topic(topic, partitions, SMALL)
    for partition in range(partitions):
        begin = (await broker.describe_topic(topic)).partitions[partition].next
        for start in range(begin, begin + count, 10):
            numbers = range(start, start + 10)
            values = [f"{topic}/{partition}/{number}".encode() for number in numbers]
            tags = [["even"] if number % 2 == 0 else [] for number in numbers]
            times = [1_000_000 * number for number in numbers]
            await broker.append([Part(topic, [build(values, timestamps=times, tags=tags)], partition)], "durable")


def by_log(records: Iterable[Record]) -> dict[str, list[int]]:
    """The seqnos of each log, in the order in which they came. Each record is what was written there."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in records:
        assert record.value == f"{record.topic}/{record.partition}/{record.seqno}".encode()
        found[f"{record.topic}/{record.partition}"].append(record.seqno or 0)
    return dict(found)


def test_all_partitions_of_a_topic_are_read_in_every_form(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 3)
        everything = {f"rooms/{number}": list(range(100)) for number in range(3)}

        def read() -> None:
            with Reader("rooms", address) as reader:
                assert by_log(reader) == everything
                assert reader.at_end
                assert by_log(reader) == {}, "it stands at the end"
                assert [(log.topic, log.partition, log.seqno, log.committed) for log in reader.logs] == [
                    ("rooms", number, 100, 100) for number in range(3)
                ]
            with Reader("rooms", address) as reader:
                rows = [
                    row for lists in reader.lists(["topic", "partition", "seqno"]) for row in zip(*lists, strict=True)
                ]
                assert sorted(rows) == [("rooms", number, seqno) for number in range(3) for seqno in range(100)]
            with Reader("rooms", address) as reader:
                table = reader.table()
                assert table.column_names[:3] == ["topic", "partition", "seqno"]
                assert table.num_rows == 300
                assert set(table.column("partition").to_pylist()) == {0, 1, 2}
            with Reader("rooms", address) as reader:
                assert reader.table(["topic"]).column("topic").to_pylist() == ["rooms"] * 300
            with Reader("rooms", address) as reader, pytest.raises(ValueError, match="read one partition"):
                next(reader.batches())

        await asyncio.to_thread(read)
        async with AsyncReader("rooms", address) as reader:
            assert by_log([record async for record in reader]) == everything

    with_node(tmp_path, story)


def test_a_reader_of_one_log_says_topic_and_partition_too(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 2)
        await fill(broker, "one", 1)
        async with AsyncReader("rooms", address, 1) as reader:
            assert by_log([record async for record in reader]) == {"rooms/1": list(range(100))}
        async with AsyncReader("one", address) as reader:
            assert by_log([record async for record in reader]) == {"one/0": list(range(100))}
        async with AsyncReader("one", address) as reader:
            lists = [part async for part in reader.lists(["topic", "partition", "seqno"])]
            assert (lists[0][0][0], lists[0][1][0]) == ("one", 0)

    with_node(tmp_path, story)


def test_several_topics_patterns_and_single_partitions_are_named(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        for topic, partitions in (("orders.eu", 2), ("orders.us", 1), ("rooms", 3)):
            await fill(broker, topic, partitions, 20)

        async def logs(*topics: str) -> list[str]:
            async with AsyncReader(topics[0] if len(topics) == 1 else topics, address) as reader:
                found = by_log([record async for record in reader])
                assert all(seqnos == list(range(20)) for seqnos in found.values())
                return sorted(found)

        assert await logs("orders.eu", "orders.us") == ["orders.eu/0", "orders.eu/1", "orders.us/0"]
        assert await logs("orders.*") == ["orders.eu/0", "orders.eu/1", "orders.us/0"]
        assert await logs("rooms/2", "orders.us") == ["orders.us/0", "rooms/2"]
        assert await logs("rooms/1") == ["rooms/1"]
        assert len(await logs("*")) == 6, "and none of the node's own"
        assert await logs("nothing.*") == []
        with pytest.raises(TopicNotFound, match="romos"):
            await logs("rooms", "romos")
        with pytest.raises(PartitionNotFound):
            await logs("rooms/3")
        for wrong in ("", "rooms/", "rooms/x", "a,,b"):
            with pytest.raises(InvalidPattern):
                await logs(wrong)
        with pytest.raises(ValueError, match="write a partition behind each"):
            AsyncReader("orders.*", address, 1)

    with_node(tmp_path, story)


def test_a_bookmark_stands_for_all_partitions_to_the_record(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 3)
        taken: list[Record] = []
        bookmark: str | None = None
        while True:
            async with AsyncReader("rooms", address, bookmark=bookmark) as reader:
                before = len(taken)
                async for record in reader:
                    taken.append(record)
                    if len(taken) == before + 37:
                        break
                bookmark = reader.bookmark
            if len(taken) == before:
                break
        assert by_log(taken) == {f"rooms/{number}": list(range(100)) for number in range(3)}
        await fill(broker, "rooms", 3, 10)
        async with AsyncReader("rooms", address, bookmark=bookmark) as reader:
            found = by_log([record async for record in reader])
            assert found == {f"rooms/{number}": list(range(100, 110)) for number in range(3)}
        await broker.delete_topic("rooms")
        await fill(broker, "rooms", 3, 10)
        with pytest.raises(TopicRecreated):
            await AsyncReader("rooms", address, bookmark=bookmark).open()
        async with AsyncReader("rooms", address, bookmark=bookmark, gaps="skip") as reader:
            assert len([record async for record in reader]) == 30

    with_node(tmp_path, story)


def test_it_starts_by_time_cursor_and_at_the_end(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 2)

        async def read(**how: object) -> dict[str, list[int]]:
            async with AsyncReader("rooms", address, **how) as reader:  # type: ignore[arg-type]
                return by_log([record async for record in reader])

        assert await read(timestamp=90_000_000) == {f"rooms/{number}": list(range(90, 100)) for number in range(2)}
        assert await read(at="latest") == {}
        with pytest.raises(InvalidBookmark, match="place in one log"):
            await read(seqno=5)
        async with AsyncReader("rooms", address, cursor="billing") as reader:
            seen = 0
            async for _ in reader:
                seen += 1
                if seen == 150:
                    break
            await reader.commit()
        rest = await read(cursor="billing")
        assert sum(map(len, rest.values())) == 50
        assert all(seqnos == list(range(seqnos[0], 100)) for seqnos in rest.values())

    with_node(tmp_path, story)


def test_a_filter_holds_for_all_logs(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 2)
        async with AsyncReader("rooms", address, tags_any=["even"]) as reader:
            found = by_log([record async for record in reader])
        assert found == {f"rooms/{number}": list(range(0, 100, 2)) for number in range(2)}

    with_node(tmp_path, story)


def test_topics_that_fit_a_pattern_join_and_leave_while_it_runs(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "orders.eu", 2, 10)
        records: list[Record] = []
        news = asyncio.Event()

        async def follow() -> None:
            async with AsyncReader("orders.*", address, at="latest") as reader:
                news.set()
                async for record in reader.records(follow=True):
                    records.append(record)
                    news.set()

        async def until(count: int) -> None:
            while len(records) < count:
                news.clear()
                await news.wait()

        following = asyncio.create_task(follow())
        await news.wait()
        await asyncio.sleep(0.1)
        await fill(broker, "orders.us", 1, 20)
        await until(20)
        await broker.delete_topic("orders.eu")
        await fill(broker, "orders.us", 1, 10)
        await until(30)
        await fill(broker, "orders.eu", 1, 10)
        await until(40)
        following.cancel()
        assert by_log(records) == {"orders.us/0": list(range(30)), "orders.eu/0": list(range(10))}

    with_node(tmp_path, story)


def test_a_topic_that_was_named_and_is_deleted_is_an_error_or_waited_for(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 2, 10)
        await fill(broker, "one", 1, 10)

        async def follow(gaps: str, until: int) -> list[Record]:
            records = []
            async with AsyncReader(["rooms", "one"], address, gaps=gaps) as reader:  # type: ignore[arg-type]
                async for record in reader.records(follow=True):
                    records.append(record)
                    if len(records) == until:
                        break
            return records

        strict = asyncio.create_task(follow("raise", 100))
        patient = asyncio.create_task(follow("skip", 60))
        await asyncio.sleep(0.2)
        await broker.delete_topic("rooms")
        with pytest.raises(TopicDeleted, match="rooms"):
            await strict
        await fill(broker, "rooms", 3, 10)
        assert len(await patient) == 60

    with_node(tmp_path, story)


def test_what_is_gone_is_an_error_with_the_name_of_its_log_or_passed_over(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 2)
        async with AsyncReader("rooms", address) as reader:
            bookmark = reader.bookmark
        await broker.trim("rooms", 1, 60)
        with pytest.raises(SeqnoOutOfRange, match="rooms/1"):
            async with AsyncReader("rooms", address, bookmark=bookmark) as reader:
                assert [record async for record in reader]
        async with AsyncReader("rooms", address, bookmark=bookmark, gaps="skip") as reader:
            found = by_log([record async for record in reader])
            assert found == {"rooms/0": list(range(100)), "rooms/1": list(range(60, 100))}
            assert reader.skipped == 60
        async with AsyncReader("rooms", address) as reader:
            assert by_log([record async for record in reader])["rooms/1"] == list(range(60, 100))

    with_node(tmp_path, story)


def test_a_log_on_which_nothing_happens_holds_up_no_other(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await broker.create_topic("rooms", 50)

        def follow() -> list[int]:
            found = []
            with Reader("rooms", address) as reader:
                ready.set()
                for record in reader.records(follow=True):
                    found.append(record.partition or 0)
                    if len(found) == 30:
                        return found
            return found

        ready = threading.Event()
        following = asyncio.create_task(asyncio.to_thread(follow))
        await asyncio.to_thread(ready.wait)
        for number in range(30):
            await broker.append([Part("rooms", [build([b"x"])], number % 7)], "durable")
        assert sorted(await following) == sorted(number % 7 for number in range(30))

    with_node(tmp_path, story)


def test_a_loop_that_does_not_follow_ends_where_a_topic_has_left(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "orders.eu", 1, 10)
        await fill(broker, "orders.us", 1, 10)
        async with AsyncReader("orders.*", address) as reader:
            loop = reader.records()
            first = await anext(loop)
            gone = {"orders.eu", "orders.us"} - {first.topic}
            for topic in gone:
                await broker.delete_topic(topic)
            async for record in loop:
                assert record.value

    with_node(tmp_path, story)


def test_a_reader_goes_on_exactly_where_it_was_after_the_node_was_killed(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        from logboom import Writer

        with Writer("rooms", node.address) as writer:
            writer.write(b"first", key=b"0")
        records: list[Record] = []
        ready = threading.Event()

        def follow() -> None:
            with Reader(["rooms", "more*"], node.address) as reader:
                for record in reader.records(follow=True):
                    records.append(record)
                    ready.set()
                    if len(records) == 41:
                        return

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert ready.wait(100)
        for number in range(4):
            node.kill()
            node.start()
            with Writer(f"more{number % 2}", node.address) as writer:
                for value in range(10):
                    writer.write(b"%d" % value)
        thread.join(200)
        assert not thread.is_alive()
        seen = [(record.topic, record.seqno) for record in records]
        assert sorted(seen[1:]) == [(f"more{number}", seqno) for number in range(2) for seqno in range(20)]


def test_what_a_reader_of_several_cannot_say_is_an_error_with_the_way(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 2, 10)
        reader = AsyncReader("rooms", address)
        with pytest.raises(LocalProtocolError, match="not been opened"):
            _ = reader.bookmark
        await reader.open()
        assert reader.seqno is None
        with pytest.raises(LocalProtocolError, match="reads 2 logs: `logs` has committed of each"):
            _ = reader.committed
        with pytest.raises(LocalProtocolError, match="2 logs"):
            await reader.seek(3)
        assert "2 logs" in repr(reader)
        await reader.close()

    with_node(tmp_path, story)


def test_so_many_logs_and_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        limits = Limits(logs_per_subscription=5, subscribed_logs=8)
        broker = await LocalBroker.open(str(tmp_path), BrokerConfig(limits=limits))
        await broker.create_topic("six", 6)
        await broker.create_topic("four", 4)
        with pytest.raises(LimitExceeded, match="logs_per_subscription"):
            await broker.subscribe(ReadRequest("six", whole=True))
        with pytest.raises(LimitExceeded, match="logs_per_subscription"):
            await broker.locate(ReadRequest("six", whole=True))
        one = await broker.subscribe(ReadRequest("four", whole=True))
        two = await broker.subscribe(ReadRequest("four", whole=True))
        with pytest.raises(LimitExceeded, match="subscribed_logs"):
            await broker.subscribe(ReadRequest("four", whole=True))
        await one.close()
        await one.close()
        three = await broker.subscribe(ReadRequest("four", whole=True))
        for subscription in (two, three):
            await subscription.close()
        assert (await broker.stats()).reads["subscriptions"] == 0
        await broker.close()

    asyncio.run(story())


def test_bookmarks_of_several_logs_are_one_text() -> None:
    some = BookmarkSet(
        Bookmark(bytes([number % 3] * 16), number, 2**40 + number, number, number) for number in range(9)
    )
    assert BookmarkSet.parse(str(some)) == some
    assert BookmarkSet.parse(str(BookmarkSet())) == ()
    one = Bookmark(bytes(16), 1, 2, 3)
    assert str(BookmarkSet((one,))) == str(one)
    with pytest.raises(InvalidBookmark, match="several logs"):
        Bookmark.parse(str(some))
    text = str(some)
    for wrong in (
        text[:-1],
        text[:20] + ("B" if text[20] == "A" else "A") + text[21:],
        "3",
        "3AAAA",
        "3" + "A" * 10_000,
    ):
        with pytest.raises(InvalidBookmark):
            BookmarkSet.parse(wrong)


def test_locating_says_where_each_log_begins(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        await fill(broker, "rooms", 2, 20)
        await broker.trim("rooms", 1, 10)
        request = ReadRequest("rooms", Start(), filter=Filter(tags_any=("even",)), whole=True)
        places = await broker.locate(request)
        assert [(place.topic, place.partition, place.seqno, place.committed) for place in places] == [
            ("rooms", 0, 0, 20),
            ("rooms", 1, 10, 20),
        ]

    with_node(tmp_path, story)


def test_records_of_all_logs_come_by_time_where_that_is_asked_for(tmp_path: Path) -> None:
    async def story(broker: LocalBroker, address: str) -> None:
        dice = random.Random(3)
        await broker.create_topic("rooms", 3, SMALL)
        await broker.create_topic("empty", 2)
        moments = sorted(dice.randrange(10**9) for _ in range(900))
        parts: dict[int, list[int]] = {number: [] for number in range(3)}
        for moment in moments:
            parts[dice.randrange(3)].append(moment)
        for partition, times in parts.items():
            for start in range(0, len(times), 25):
                some = times[start : start + 25]
                batch = build([b"%d" % moment for moment in some], timestamps=some)
                await broker.append([Part("rooms", [batch], partition)], "durable")
        taken: list[int] = []
        bookmark: str | None = None
        while len(taken) < 900:
            async with AsyncReader(["rooms", "empty"], address, bookmark=bookmark, order="time") as reader:
                before = len(taken)
                async for record in reader:
                    taken.append(int(record.value or b""))
                    if len(taken) == before + 70:
                        break
                bookmark = reader.bookmark
                assert len(taken) > before
        assert taken == moments, "each once, whenever a reader stopped"

        def follow() -> list[int]:
            with Reader("rooms", address, bookmark=bookmark, order="time") as reader:
                return [record.timestamp or 0 for record in reader.records(follow=True, timeout_s=3)]

        following = asyncio.create_task(asyncio.to_thread(follow))
        await asyncio.sleep(0.3)
        for number in range(5):
            await broker.append([Part("rooms", [build([b"x"], timestamps=[number])], number % 3)], "durable")
        assert sorted(await following) == list(range(5))
        with pytest.raises(ValueError, match="records, one by one"):
            async with AsyncReader("rooms", address, order="time") as reader:
                assert [table async for table in reader.tables()]
        with pytest.raises(ValueError, match="name no partition"):
            AsyncReader("rooms", address, 1, order="time")

    with_node(tmp_path, story)
