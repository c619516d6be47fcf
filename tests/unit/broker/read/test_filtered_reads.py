"""Filtered reads of a node against a look at every record; and readers always learn how far they came."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from logboom.access.rule import Rule
from logboom.access.rule_book import Subject
from logboom.batch import Record, build, build_records
from logboom.broker.api import Appended, Chunk, Filter, Part, ReadRequest, Settings, Start
from logboom.broker.caller import Caller
from logboom.broker.local import LocalBroker
from logboom.errors import InvalidPattern
from logboom.storage.data.topic import SegmentSettings
from logboom.storage.upkeep.scrub import scrub
from support.brokers.any_broker import AnyBroker
from unit.batch.test_selection import wants

NAMES = ["a", "b", "ab", "x1", "x2"]
FILTERS = [
    Filter(tags_any=("a",)),
    Filter(tags_any=("ab", "nowhere")),
    Filter(tags_all=("a", "b")),
    Filter(channel="a/b"),
    Filter(channel="a/+"),
    Filter(channel="+/x1"),
    Filter(channel="x1/#"),
    Filter(channel="x*"),
    Filter(key=b"k1"),
    Filter(tags_any=("x2",), channel="#", key=b"k2"),
    Filter(tags_any=("rare",)),
    Filter(channel="nowhere/#"),
]


def tell(path: Path, story: Callable[[LocalBroker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(300):
            broker = await LocalBroker.open(str(path))
            try:
                await story(broker)
            finally:
                await broker.close()

    asyncio.run(run())


def make_rows(dice: random.Random, count: int) -> list[Record]:
    """Mostly of one sort at a time, so that there are segments without some of them."""
    sort = dice.randrange(8)
    return [
        Record(
            dice.randbytes(dice.randrange(40)),
            timestamp=dice.choice([None, 5]),
            key=dice.choice([None, b"k1", b"k2"]) if sort & 1 else None,
            channel="/".join(dice.choices(NAMES, k=dice.randint(1, 3))) if sort & 2 else None,
            tags=tuple(dice.sample(NAMES, dice.randrange(3))) if sort & 4 else (),
        )
        for _ in range(count)
    ]


async def fill(broker: AnyBroker, dice: random.Random, batches: int) -> None:
    await broker.create_topic("t", 1, Settings(segment=SegmentSettings(bytes=4096)))
    for number in range(batches):
        rows = make_rows(dice, dice.choice([1, 1, 2, 20, 60]))
        if number == batches // 2:
            rows.append(Record(b"once", tags=("rare",)))
        batch = build_records(rows, codec=dice.choice(["none", "lz4"]))
        (answer,) = await broker.append([Part("t", [batch])], "durable")
        assert isinstance(answer, Appended)


async def everything(broker: AnyBroker) -> list[Record]:
    rows: list[Record] = []
    while True:
        chunk = await broker.read(ReadRequest("t", Start(seqno=len(rows))))
        rows += chunk.records()
        if chunk.at_end:
            return rows


async def filtered(broker: AnyBroker, wanted: Filter, start: int, max_bytes: int) -> tuple[list[Record], int]:
    """All that matches, and how many chunks it took."""
    rows: list[Record] = []
    seqno, chunks = start, 0
    while True:
        chunk = await broker.read(ReadRequest("t", Start(seqno=seqno), max_bytes=max_bytes, filter=wanted))
        assert chunk.seqno == seqno <= chunk.next_seqno <= chunk.committed
        found = list(chunk.records())
        assert all(record.seqno is not None and seqno <= record.seqno < chunk.next_seqno for record in found)
        assert chunk.next_seqno > seqno or chunk.at_end
        rows, chunks, seqno = rows + found, chunks + 1, chunk.next_seqno
        if chunk.at_end:
            return rows, chunks


def label_everything(broker: LocalBroker) -> None:
    """What upkeep does in its own time."""
    for segment in broker._data.open_partition("t", 0).cold_segments():
        if scrub(segment, lambda size: None).has_labels:
            segment.publish_labels()


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_filtered_read_gives_what_a_look_at_every_record_does(tmp_path: Path, seed: int, labelled: bool) -> None:
    async def story(broker: LocalBroker) -> None:
        dice = random.Random(seed)
        await fill(broker, dice, 60)
        rows = await everything(broker)
        if labelled:
            label_everything(broker)
        for wanted in FILTERS:
            for start in (0, dice.randrange(len(rows)), len(rows)):
                expected = [row for row in rows if wants(wanted.selection(start), row)]
                max_bytes = dice.choice([1_000, 2**20])
                got, _ = await filtered(broker, wanted, start, max_bytes)
                assert got == expected

    tell(tmp_path, story)


def test_whole_segments_are_passed_by_where_their_labels_say_so(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await fill(broker, random.Random(1), 120)
        label_everything(broker)
        got, chunks = await filtered(broker, Filter(tags_any=("rare",)), 0, 2**20)
        assert ([row.value for row in got], chunks) == ([b"once"], 2)
        reads = (await broker.stats()).reads
        assert reads["skips"] > 0
        assert reads["filtered"] < len(broker._data.open_partition("t", 0).segments) // 2

    tell(tmp_path, story)


def test_rules_pass_whole_segments_by_and_leave_what_a_look_at_every_record_does(tmp_path: Path) -> None:
    ann = Caller("ann", by="certificate")
    choices = (
        ("allow channel x1", "allow channel x2/#"),
        ("allow channel nowhere/#",),
        ("allow tag rare",),
        ("deny tag x1", "deny channel x2/+"),
        ("allow channel #", "allow tag x*", "deny tag x2"),
    )

    async def story(broker: LocalBroker) -> None:
        await broker.add_rule(Rule("allow", "ann", ("read",), "topic"))
        await fill(broker, random.Random(1), 120)
        label_everything(broker)
        rows = await everything(broker)
        for texts in choices:
            numbers = []
            for effect, kind, name in map(str.split, texts):
                rule = Rule(effect, "ann", ("read",), kind, name)  # type: ignore[arg-type]
                numbers.append((await broker.add_rule(rule)).number)
            book = broker._access.book
            for wanted in (None, Filter(tags_any=("x1", "rare")), Filter(channel="x2/#")):
                got: list[Record] = []
                seqno = 0
                while True:
                    request = ReadRequest("t", Start(seqno=seqno), max_bytes=4000, max_records=7, filter=wanted)
                    chunk = await broker.read(request, caller=ann)
                    got += chunk.records()
                    seqno = chunk.next_seqno
                    if chunk.at_end:
                        break
                assert got == [
                    row
                    for row in rows
                    if book.decide_record(Subject("ann"), "read", row.channel, row.tags).allowed
                    and (wanted is None or wants(wanted.selection(0), row))
                ]
            for number in numbers:
                await broker.remove_rule(number)
        assert (await broker.stats()).reads["skips"] > 0

    tell(tmp_path, story)


def test_a_follower_learns_how_far_it_came_when_nothing_matches(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t")
        subscription = await broker.subscribe(ReadRequest("t", filter=Filter(tags_any=("red",))))
        seen: list[Chunk] = []
        for number in range(6):
            tags = [["red"]] if number == 4 else [["blue"]]
            await broker.append([Part("t", [build([b"%d" % number], tags=tags)])], "durable")
            while not seen or seen[-1].next_seqno <= number:
                seen.append(await subscription.next())
        assert [record.value for chunk in seen for record in chunk.records()] == [b"4"]
        assert seen[-1].next_seqno == 6
        assert seen[-1].at_end
        await subscription.close()

    tell(tmp_path, story)


def test_a_reader_resumes_at_the_bookmark_of_an_empty_chunk(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t")
        await broker.append([Part("t", [build([b"x"] * 10, tags=[["blue"]] * 10)])], "durable")
        wanted = Filter(tags_any=("red",))
        chunk = await broker.read(ReadRequest("t", filter=wanted))
        assert (len(chunk.data), chunk.next_seqno, chunk.at_end) == (0, 10, True)
        assert list(chunk.records()) == []
        await broker.append([Part("t", [build([b"y"], tags=[["red"]])])], "durable")
        again = await broker.read(ReadRequest("t", Start(bookmark=chunk.bookmark), filter=wanted))
        assert [(record.seqno, record.value) for record in again.records()] == [(10, b"y")]

    tell(tmp_path, story)


def test_a_filter_that_means_nothing_is_refused_at_once(tmp_path: Path) -> None:
    async def story(broker: LocalBroker) -> None:
        await broker.create_topic("t")
        with pytest.raises(InvalidPattern):
            await broker.read(ReadRequest("t", filter=Filter(channel="a/#/b")))
        with pytest.raises(InvalidPattern):
            await broker.subscribe(ReadRequest("t", filter=Filter(channel="a+")))

    tell(tmp_path, story)
