"""Publishes in one call: the same as through a stage, without one, and only where they are small."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.batch import Batch, Producer, build
from logboom.broker.api import Part, Publication, PublishKey
from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.broker.publish import key_book
from logboom.broker.publish.publication import BUNDLE_BATCHES_MAX, BUNDLE_BYTES_MAX
from logboom.client.remote import connect
from logboom.errors import (
    BatchError,
    InvalidKey,
    KeyMismatch,
    LimitExceeded,
    LogboomError,
    MalformedBatch,
    Overloaded,
    TopicNotFound,
    TopicRecreated,
    WritesRefused,
)
from logboom.protocols.binary import front_end
from support.brokers.any_broker import AnyBroker
from support.brokers.places import PLACES, Place, opened, served
from support.disks.simulated import SimulatedDisk
from support.simulation.staged import Log, killed, plain_parts, publish_values, read_log, read_logs, tell

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
LOGS: list[Log] = [A0, A1, B0]
KEY = PublishKey("k", 1)
VALUES = {A1: [b"1", b"2", b"3"], B0: [b"4"]}
CONFIG = BrokerConfig(reserve_bytes=0)


async def make_topics(broker: AnyBroker) -> None:
    await broker.create_topic("a", 2)
    await broker.create_topic("b", 1)


def prepared(config: BrokerConfig = CONFIG) -> SimulatedDisk:
    disk = SimulatedDisk()
    tell(disk, make_topics, config)
    return killed(disk)


def where(publication: Publication) -> list[tuple[str, int, int, int, int]]:
    return [(part.topic, part.partition, part.first, part.next, part.records) for part in publication.parts or ()]


@pytest.mark.parametrize("place", PLACES)
def test_everything_is_in_its_logs_and_a_repeat_is_answered_as_the_first_was(place: Place, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(place, tmp_path) as broker:
            await make_topics(broker)
            first = await broker.publish_batches(KEY, plain_parts(VALUES))
            assert not first.repeat
            assert where(first) == [("a", 1, 0, 3, 3), ("b", 0, 0, 1, 1)]
            again = await broker.publish_batches(KEY, plain_parts(VALUES))
            assert (again.repeat, again.parts) == (True, first.parts)
            assert (await broker.publish(KEY, [])).parts == first.parts
            assert await read_logs(broker, LOGS) == {A0: [], **VALUES}
            assert await broker.list_stages() == []
            (info,) = await broker.list_keys()
            assert (info.name, info.number, info.records, info.is_open) == ("k", 1, 4, False)
            older = await broker.publish_batches(PublishKey("k", 0), plain_parts(VALUES))
            assert (older.repeat, older.parts) == (True, None)
            await broker.delete_topic("a")
            assert await broker.forget_key("k")

    asyncio.run(story())


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(LOGS), st.lists(st.binary(max_size=20), min_size=1, max_size=5), max_size=3),
        max_size=4,
    ),
    st.integers(1, 3),
)
def test_what_is_in_the_logs_and_said_of_it_is_the_same_as_through_stages(
    transactions: list[dict[Log, list[bytes]]], size: int
) -> None:
    found: list[tuple[list[list[tuple[str, int, int, int, int]]], dict[Log, list[bytes]]]] = []
    for in_one in (True, False):
        disk = prepared()

        async def story(broker: LocalBroker, in_one: bool = in_one) -> None:
            said = []
            for number, values in enumerate(transactions):
                key = PublishKey("k", number)
                if in_one:
                    said.append(where(await broker.publish_batches(key, plain_parts(values, size))))
                else:
                    said.append(where(await publish_values(broker, key, values, size=size)))
            found.append((said, await read_logs(broker, LOGS)))

        tell(disk, story, CONFIG)
    assert found[0] == found[1]


def test_publishes_at_once_are_each_there_once_and_hold_nothing_when_they_are_done() -> None:
    disk = prepared()

    async def story(broker: LocalBroker) -> None:
        keys = [PublishKey(f"k{number % 5}", number) for number in range(50)]
        said = await asyncio.gather(*(broker.publish_batches(key, plain_parts({A0: [b"x"]})) for key in keys))
        assert len(await read_log(broker, A0)) == sum(not one.repeat for one in said)
        assert broker._publishing is not None
        await broker._publishing.keys.settle()
        assert (broker._catalog.busy, broker._publishing.under_way) == ({}, 0)
        assert broker._publishing._bundled_bytes == 0

    tell(disk, story, CONFIG)


def test_a_name_goes_from_one_call_to_stages_and_back() -> None:
    disk = prepared()

    async def story(broker: LocalBroker) -> None:
        for number in range(6):
            key = PublishKey("k", number)
            if number % 2:
                await publish_values(broker, key, {A0: [b"%d" % number]})
            else:
                await broker.publish_batches(key, plain_parts({A0: [b"%d" % number]}))
        assert await read_log(broker, A0) == [b"%d" % number for number in range(6)]
        await broker.publish_batches(PublishKey("d", 1, digest="x"), [])
        with pytest.raises(KeyMismatch):
            await broker.publish_batches(PublishKey("d", 1, digest="y"), [])

    tell(disk, story, CONFIG)


def broken(batch: Batch) -> Batch:
    data = bytearray(batch.data)
    data[-1] ^= 1
    return Batch.parse(bytes(data))


REFUSED: list[tuple[type[LogboomError], list[Part]]] = [
    (LimitExceeded, [Part("a", [build([b"x" * (BUNDLE_BYTES_MAX + 1)])], 0)]),
    (LimitExceeded, [Part("a", [build([b"x"])] * (BUNDLE_BATCHES_MAX + 1), 0)]),
    (MalformedBatch, [Part("a", [build([b"x"], producer=Producer(7, 0, 0))], 0)]),
    (MalformedBatch, [Part("a", [build([b"x"])], 0, 0)]),
    (BatchError, [Part("b", [build([b"x"])]), Part("a", [broken(build([b"xxxxxxxx"]))], 0)]),
    (TopicNotFound, [Part("b", [build([b"x"])]), Part("c", [build([b"x"])])]),
    (TopicRecreated, [Part("b", [build([b"x"])]), Part("a", [build([b"x"])], 0, None, "0" * 32)]),
    (LogboomError, [Part("b", [build([b"x"])]), Part("a", [build([b"x"])])]),
    (LogboomError, [Part("b", [build([b"x"])]), Part("_publish", [build([b"x"])])]),
]


@pytest.mark.parametrize("place", ["process", "tcp"])
def test_of_what_is_refused_nothing_is_published(place: Place, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(place, tmp_path) as broker:
            await make_topics(broker)
            for error, parts in REFUSED:
                with pytest.raises(error):
                    await broker.publish_batches(KEY, parts)
            await broker.refuse("a", "closed")
            with pytest.raises(WritesRefused):
                await broker.publish_batches(KEY, plain_parts(VALUES))
            await broker.accept("a")
            assert await read_logs(broker, LOGS) == {A0: [], A1: [], B0: []}
            assert await broker.list_keys() == []
            assert not (await broker.publish_batches(KEY, plain_parts(VALUES))).repeat

    asyncio.run(story())


def test_what_is_under_way_at_once_is_bounded() -> None:
    config = BrokerConfig(Limits(unsynced_bytes=64 * 1024), reserve_bytes=0)
    disk = prepared(config)

    async def story(broker: LocalBroker) -> None:
        parts = plain_parts({A0: [b"x" * 40_000]})
        tasks = [asyncio.create_task(broker.publish_batches(PublishKey(f"k{n}"), parts)) for n in range(3)]
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in said] == [Publication, Overloaded, Overloaded]
        assert broker._publishing is not None
        await broker._publishing.keys.settle()
        assert not (await broker.publish_batches(PublishKey("k1"), parts)).repeat

    tell(disk, story, config)


def test_a_small_limit_of_batches_does_not_keep_the_node_from_writing_its_intents() -> None:
    config = BrokerConfig(Limits(batch_bytes=4096), reserve_bytes=0)
    disk = prepared(config)

    async def story(broker: LocalBroker) -> None:
        parts = [Part("a", [build([b"x" * 3000]) for _ in range(20)], 0)]
        await asyncio.gather(*(broker.publish_batches(PublishKey(f"k{n}"), parts) for n in range(20)))
        assert len(await read_log(broker, A0)) == 400

    tell(disk, story, config)


def test_a_name_that_does_not_last_and_was_forgotten_is_not_published_again() -> None:
    config = BrokerConfig(Limits(publish_keys=8), reserve_bytes=0)
    disk = prepared(config)
    keys: list[PublishKey] = []

    async def publish(broker: LocalBroker) -> None:
        for number in range(30):
            keys.append(PublishKey(f"{number:032x}", broker.world.now_us(), False))
            await broker.publish_batches(keys[-1], plain_parts({A0: [b"%d" % number]}))
        assert broker._publishing is not None
        await broker._publishing.keys.settle()
        while broker._publishing.keys._chores:
            await asyncio.wait(broker._publishing.keys._chores)
        await repeat(broker)

    async def repeat(broker: LocalBroker) -> None:
        before, repeats = await read_log(broker, A0), 0
        for key in keys:
            try:
                assert (await broker.publish_batches(key, plain_parts({A0: [b"again"]}))).repeat
                repeats += 1
            except InvalidKey:
                assert not repeats  # the oldest are forgotten first
        assert 0 < repeats < 30
        assert await read_log(broker, A0) == before
        fresh = PublishKey("f", broker.world.now_us(), False)
        assert key_book.FORGOTTEN not in {info.name for info in await broker.list_keys()}
        with pytest.raises(InvalidKey):
            await broker.publish_batches(PublishKey("g", fresh.number + 3_600_000_000, False), [])

    tell(disk, publish, config)
    tell(killed(disk), repeat, config)


def test_what_may_have_been_published_elsewhere_is_not_published_here() -> None:
    disk = prepared()

    async def story(broker: LocalBroker) -> None:
        assert broker._publishing is not None
        before = broker.world.now_us()
        await broker._publishing.keys.forget_until(broker.world.now_us())
        with pytest.raises(InvalidKey):
            await broker.publish_batches(PublishKey("u", before, False), plain_parts(VALUES))
        await broker.publish_batches(PublishKey("u", broker.world.now_us(), False), plain_parts(VALUES))
        disk.free = 0
        await broker._publishing.keys.forget_until(mark)
        disk.free = 2**40
        await broker.publish_batches(KEY, plain_parts(VALUES))

    async def later(broker: LocalBroker) -> None:
        with pytest.raises(InvalidKey):
            await broker.publish_batches(PublishKey("v", mark - 1, False), plain_parts(VALUES))

    mark = 4_000_000_000_000_000
    tell(disk, story, CONFIG)
    tell(killed(disk), later, CONFIG)


def test_a_node_without_the_call_gets_it_through_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end, "BUNDLE_BYTES_MAX", 0)

    async def story() -> None:
        async with served(tmp_path) as (local, address), connect(address) as broker:
            await make_topics(broker)
            assert where(await broker.publish_batches(KEY, plain_parts(VALUES))) == [
                ("a", 1, 0, 3, 3),
                ("b", 0, 0, 1, 1),
            ]
            assert (await broker.publish_batches(KEY, plain_parts(VALUES))).repeat
            assert local._stages.opened == 2
            assert await broker.list_stages() == []
            with pytest.raises(InvalidKey):
                await broker.publish_batches(PublishKey("u", 1, False), plain_parts(VALUES))
            assert await read_logs(broker, LOGS) == {A0: [], **VALUES}

    asyncio.run(story())
