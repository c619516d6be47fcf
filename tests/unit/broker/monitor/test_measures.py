"""What is counted of topics and protocols: what came, what went, and how long it took."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from logboom.batch import Producer, build
from logboom.broker.api import Filter, Part, ReadRequest, Start
from logboom.broker.local import LocalBroker
from logboom.broker.monitor.measures import BOUNDS_S, Histogram, Meter, add_up
from logboom.client.remote import connect
from support.brokers.places import PLACES, Place, opened
from support.peers.binary import serve
from support.peers.served import run


@pytest.mark.parametrize("number", range(len(BOUNDS_S)))
def test_a_bucket_holds_what_is_not_above_its_bound(number: int) -> None:
    histogram = Histogram()
    bound = BOUNDS_S[number]
    for seconds in (math.nextafter(bound, 0), bound, math.nextafter(bound, math.inf)):
        histogram.note(seconds)
    assert histogram.counts[number : number + 2] == [2, 1]


def test_durations_of_nothing_and_of_ages_have_a_bucket_too() -> None:
    histogram = Histogram()
    for seconds in (-1.0, 0.0, 1e9):
        histogram.note(seconds)
    shown = histogram.shown()
    assert (shown.counts[0], shown.counts[-1], shown.count) == (2, 1, 3)


def test_what_is_shown_does_not_change_afterwards() -> None:
    meter = Meter()
    before = meter.shown()
    meter.note_append(1, 10, 100, 0.001)
    assert (before.records_in, before.append.count) == (0, 0)
    assert (meter.shown().records_in, meter.shown().append.count) == (10, 1)


def note_all(*durations: float) -> Histogram:
    histogram = Histogram()
    for seconds in durations:
        histogram.note(seconds)
    return histogram


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.75, 0.99, 1.0])
def test_a_percentile_lies_in_the_bucket_of_the_duration_it_stands_for(share: float) -> None:
    durations = sorted(0.0001 * 1.05**number for number in range(200))
    found = note_all(*durations).shown().percentile(share)
    exact = durations[math.ceil(share * len(durations)) - 1]
    assert found is not None
    assert exact / 2 <= found <= exact * 2


def test_a_percentile_of_one_bucket_moves_through_it_evenly() -> None:
    shown = note_all(*[100e-6] * 10).shown()
    assert [shown.percentile(share) for share in (0.5, 1.0)] == pytest.approx([96e-6, 128e-6])


def test_there_is_no_percentile_of_nothing_and_none_above_the_last_bound() -> None:
    assert Histogram().shown().percentile(0.5) is None
    assert note_all(1e6).shown().percentile(0.99) == BOUNDS_S[-1]


def test_durations_since_a_moment_are_those_that_came_after_it() -> None:
    histogram = note_all(1.0, 2.0)
    before = histogram.shown()
    histogram.note(0.001)
    since = histogram.shown().since(before)
    assert since.counts == note_all(0.001).counts
    assert since.sum_s == pytest.approx(0.001)
    assert add_up([before, since]).counts == histogram.counts


@pytest.mark.parametrize("place", PLACES)
def test_a_broker_says_what_came_and_went_of_each_topic_wherever_it_is(place: Place, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(place, tmp_path) as broker:
            batches = [build([b"a", b"b"], tags=[["x"], []]), build([b"c"])]
            await broker.append([Part("t", batches)])
            await broker.append([Part("t", [build([b"d"])])])
            await broker.read(ReadRequest("t", Start(seqno=1)))
            measured = (await broker.measures()).topics["t"]
            assert (measured.batches_in, measured.records_in) == (3, 4)
            assert measured.bytes_in == sum(len(batch.data) for batch in [*batches, build([b"d"])])
            assert measured.append.count == 2
            assert measured.append.sum_s > 0
            assert (measured.records_out, measured.read.count) == (3, 1)
            assert measured.bytes_out > 0
            assert (await broker.measures()).sync.count >= 1

    run(story())


def test_refused_batches_and_repeats_were_not_appended(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened("process", tmp_path) as broker:
            numbered = build([b"a"], producer=Producer(7, 0, 0))
            await broker.append([Part("t", [numbered])])
            await broker.append([Part("t", [numbered])])
            await broker.append([Part("t", [build([b"b"])], expect_seqno=7)])
            measured = (await broker.measures()).topics["t"]
            assert (measured.batches_in, measured.append.count) == (1, 1)

    run(story())


def test_a_filtered_read_counts_what_it_found_and_an_empty_one_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened("process", tmp_path) as broker:
            await broker.append([Part("t", [build([b"a"] * 10, tags=[["x"]] * 3 + [[]] * 7)])])
            await broker.read(ReadRequest("t", filter=Filter(tags_any=("x",))))
            await broker.read(ReadRequest("t", filter=Filter(tags_any=("y",))))
            await broker.read(ReadRequest("t", Start(at="latest")))
            measured = (await broker.measures()).topics["t"]
            assert (measured.records_out, measured.read.count) == (3, 1)

    run(story())


def test_the_wait_for_news_is_no_part_of_a_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened("process", tmp_path) as broker:
            await broker.create_topic("t")
            reading = asyncio.create_task(broker.read(ReadRequest("t", wait_ms=60_000)))
            while not (await broker.stats()).reads["waiting"]:
                await asyncio.sleep(0.001)
            waited_from = asyncio.get_running_loop().time()
            await asyncio.sleep(0.2)
            await broker.append([Part("t", [build([b"a"])])])
            await reading
            waited_s = asyncio.get_running_loop().time() - waited_from
            assert (await broker.measures()).topics["t"].read.sum_s < waited_s

    run(story())


def test_the_binary_front_end_counts_what_passes_through_it(tmp_path: Path) -> None:
    async def story() -> None:
        local = await LocalBroker.open(str(tmp_path))
        async with serve(local) as node, connect(f"127.0.0.1:{node.port}") as broker:
            local.meters["binary"] = node.front_end.meter
            batch = build([b"a", b"b"])
            await broker.append([Part("t", [batch, batch])])
            await broker.append([Part("t", [build([b"c"]), batch], expect_seqno=9)])
            await local.append([Part("t", [batch])])
            await broker.read(ReadRequest("t"))
            await broker.read(ReadRequest("t", wait_ms=1000))
            subscription = await broker.subscribe(ReadRequest("t", Start(seqno=4)))
            await subscription.next()
            await subscription.close()
            measured = (await broker.measures()).protocols["binary"]
            assert (measured.batches_in, measured.records_in) == (2, 4)
            assert measured.bytes_in == 2 * len(batch.data)
            assert (measured.records_out, measured.read.count) == (6 + 6 + 2, 3)
            assert (await local.measures()).topics["t"].records_in == 6
        await local.close()

    run(story())


def test_of_a_run_only_what_was_appended_counts(tmp_path: Path) -> None:
    async def story() -> None:
        local = await LocalBroker.open(str(tmp_path))
        async with serve(local) as node, connect(f"127.0.0.1:{node.port}") as broker:
            numbered = build([b"a"], producer=Producer(7, 0, 0))
            fresh = build([b"b", b"c"])
            await broker.append([Part("t", [numbered])])
            await broker.append([Part("t", [numbered, fresh])])
            measured = node.front_end.meter.shown()
            assert (measured.batches_in, measured.records_in) == (2, 3)
            assert measured.bytes_in == len(numbered.data) + len(fresh.data)
        await local.close()

    run(story())
