"""Sums of a report against loops over records, however the log is cut and in whatever order they are put together."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from logboom.batch import HEADER_SIZE, Batch, Producer, Record, build, build_records, stamp
from logboom.results.report.sums import (
    COPIES_KEPT,
    DISTINCT_KEPT,
    NAMES_KEPT,
    PRODUCERS_KEPT,
    SILENCES_KEPT,
    TIMES_KEPT,
    WIDTHS,
    ReportSums,
    add,
    bounds_of,
    bucket_of,
)
from logboom.spark.jobs.report_count import count_cell
from logboom.storage import DataDirectory, Log
from support.spark.content import NOW, append, make_batches, make_topic, store_anew
from support.spark.report_model import LATE_US, check, check_weights, model, read, spread

TOPIC_ID = "00" * 16


def count(batches: list[Batch], seqno_from: int, seqno_until: int, cell: int) -> list[ReportSums]:
    """Each cell by itself."""
    starts = range(seqno_from // cell * cell, seqno_until, cell)
    spans = [(max(start, seqno_from), min(start + cell, seqno_until)) for start in starts]
    return [count_cell(batches, *span, TOPIC_ID, 0, LATE_US) for span in spans]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("data")
    with DataDirectory.open(str(path)) as data:
        make_topic(data, "mixed", 7, 1500, 3)
        yield path


@pytest.mark.parametrize("partition", range(3))
@pytest.mark.parametrize("cell", [64, 1000, 10**6])
def test_sums_are_those_of_a_loop_over_records(directory: Path, partition: int, cell: int) -> None:
    batches, first, committed = read(directory, "mixed", partition)
    cells = count(batches, first, committed, cell)
    assert sum(sums.records for sums in cells) == committed - first
    check(add(cells), model(batches, first, committed, cell))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(30))
def test_sums_of_any_records_are_those_of_a_loop(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with DataDirectory.open(str(tmp_path)) as data:
        make_topic(data, "t", seed, rng.randrange(300, 3000), 3, rng.choice([4096, 10**6]))
        for partition in range(3):
            cell = rng.randrange(1, 2000)
            batches, first, committed = read(tmp_path, "t", partition)
            cells = count(batches, first, committed, cell)
            rng.shuffle(cells)
            check(add(cells), model(batches, first, committed, cell))


def test_a_trim_within_a_batch_leaves_out_its_records_and_counts_the_batch(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t")
        (log,) = data.open_topic("t")
        append(log, make_batches(random.Random(1), 500))
        log.trim(123, NOW)
        log.commit(log.sync())
        batches, first, committed = read(tmp_path, "t", 0)
    assert (first, committed) == (123, 500)
    check(add(count(batches, first, committed, 100)), model(batches, first, committed, 100))


def test_producers_and_codecs_are_told_apart(tmp_path: Path) -> None:
    with DataDirectory.open(str(tmp_path)) as data:
        data.create_topic("t")
        (log,) = data.open_topic("t")
        for number in range(60):
            producer = Producer(
                number % 3, number // 40 if number % 3 else 0, number // 3 * 5 % 65 if number % 3 else 0
            )
            _append(log, [Record(b"v" * 50, key=b"k%d" % (number % 2))] * 5, producer, ["none", "lz4"][number % 2])
        store_anew(data, log)
        batches, first, committed = read(tmp_path, "t", 0)
    found = add(count(batches, first, committed, 17))
    assert {(number, producer.epochs) for number, producer in found.producers.items()} == {
        (0, (0, 0)),
        (1, (0, 1)),
        (2, (0, 1)),
    }
    check(found, model(batches, first, committed, 17))


def _append(log: Log, records: list[Record], producer: Producer, codec: str) -> None:
    log.append_one(build_records(records, codec=codec, producer=producer), NOW)
    log.commit(log.sync())


def made(*batches: Batch) -> list[Batch]:
    """As a log would number them."""
    found, seqno = [], 0
    for index, batch in enumerate(batches, 1):
        data = bytes(batch.data)
        found.append(Batch.parse(stamp(data, seqno, index, NOW + index, 1, 1) + data[HEADER_SIZE:]))
        seqno += len(batch)
    return found


def test_each_order_of_putting_together_gives_the_same(directory: Path) -> None:
    rng = random.Random(3)
    cells = [
        sums
        for partition in range(3)
        for batches, first, committed in [read(directory, "mixed", partition)]
        for sums in count(batches, first, committed, 50)
    ]
    # So little is kept that the limits are reached on the way.
    expected = add(cells, keep=1)
    assert expected.copies.level
    assert expected.rates.rung
    for _ in range(10):
        parts = list(cells)
        while len(parts) > 1:
            rng.shuffle(parts)
            size = rng.randrange(2, 5)
            parts = [*parts[size:], add(parts[:size], keep=1)]
        assert parts == [expected]


def test_records_that_were_there_before_are_counted_exactly_while_they_are_few() -> None:
    rng = random.Random(5)
    records = [
        Record(rng.choice([None, b"", b"\0", b"v"]), key=rng.choice([None, b"", b"v"]), timestamp=rng.randrange(20))
        for _ in range(900)
    ]
    batches = made(*(build_records(records[at : at + 90]) for at in range(0, 900, 90)))
    different = {(record.key, record.timestamp, record.value) for record in records}
    for cell in (70, 10**6):
        found = add(count(batches, 0, 900, cell))
        assert (found.copies.level, found.copies.distinct) == (0, len(different))
        assert found.repeats + found.copies.repeats == 900 - len(different)


def test_values_of_all_lengths_have_hashes_of_their_own() -> None:
    rng = random.Random(6)
    values = [bytes(size) for size in range(70)] + [rng.randbytes(rng.randrange(40)) for _ in range(400)]
    values += [value + b"\0" for value in values] + [b"\0" + value for value in values]
    batch = build(values, timestamps=0)
    assert count(made(batch), 0, len(values), 10**6)[0].repeats == len(values) - len(set(values))


def test_records_of_two_logs_are_never_duplicates_of_each_other() -> None:
    batches = made(build([b"a", b"a"], timestamps=1))
    both = add([count_cell(batches, 0, 2, TOPIC_ID, partition, LATE_US) for partition in range(2)])
    assert (both.repeats, both.copies.repeats) == (2, 0)


def test_a_sample_of_many_records_is_near_the_truth() -> None:
    values = [b"%d" % (number % 30_000) for number in range(40_000)]
    copies = add(count(made(build(values, timestamps=5)), 0, 40_000, 8192), keep=4).copies
    assert len(copies.counts) <= 4 * COPIES_KEPT
    assert copies.level > 0
    assert copies.repeats == pytest.approx(10_000, rel=0.15)
    assert copies.distinct == pytest.approx(30_000, rel=0.15)


def test_more_names_than_are_kept_are_bounded() -> None:
    rng = random.Random(8)
    names = [b"common"] * 500 + [b"%d" % int(rng.paretovariate(0.6)) for _ in range(5000)]
    rng.shuffle(names)
    batches = made(build([b"x" * rng.randrange(30) for _ in names], keys=names, timestamps=1))
    found, expected = add(count(batches, 0, len(names), 700)), model(batches, 0, len(names), 700)
    assert len(expected.keys) > 4 * NAMES_KEPT
    assert found.keys.missed_records
    check_weights(found.keys, expected.sums.keys, expected.keys)
    heaviest = max(expected.keys, key=lambda name: expected.keys[name][0])
    assert max(found.keys.names, key=lambda name: found.keys.names[name].records) == heaviest
    distinct = found.keys.distinct
    assert len(distinct.counts) <= 64 * DISTINCT_KEPT
    assert distinct.distinct == pytest.approx(len(expected.keys), rel=0.2)


def test_a_long_name_is_cut_and_stays_another_than_those_that_begin_like_it() -> None:
    names = [b"n" * 10_000, b"n" * 10_001, b"n" * 10_000]
    weights = count(made(build([b""] * 3, keys=names, timestamps=1)), 0, 3, 10)[0].keys
    assert sorted(weight.records for weight in weights.names.values()) == [1, 2]
    assert all(len(name) <= 200 for name in weights.names)


def test_timestamps_may_be_as_far_apart_as_numbers_go() -> None:
    moments = [2**63 - 1, -(2**63) + 1, 0, 5, 2**62, -(2**62)]
    batches = made(build([b"v"] * 6, timestamps=moments))
    found = add(count(batches, 0, 6, 10))
    check(found, model(batches, 0, 6, 10))
    assert found.late.most == 2**64 - 2


def test_more_times_than_are_kept_become_wider() -> None:
    rng = random.Random(9)
    moments = [rng.randrange(10**15) for _ in range(5000)]
    batches = made(build([b"v"] * 5000, timestamps=moments))
    (found,) = count(batches, 0, 5000, 5000)
    assert len(found.rates.buckets) <= TIMES_KEPT
    finer = {moment // WIDTHS[found.rates.rung - 1] for moment in moments}
    assert len(finer) > TIMES_KEPT
    assert len(found.presence.spans) == SILENCES_KEPT + 1
    check(found, model(batches, 0, 5000, 5000))


def test_more_producers_than_are_kept_are_counted_together() -> None:
    batches = made(*(build([b"v"] * (1 + number % 3), producer=Producer(number + 1)) for number in range(400)))
    (found,) = count(batches, 0, sum(map(len, batches)), 10**6)
    assert len(found.producers) == PRODUCERS_KEPT
    assert found.other_producers is not None
    every = [*found.producers.values(), found.other_producers]
    assert sum(producer.records for producer in every) == found.records
    assert sum(producer.batches for producer in every) == 400


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_a_percentile_is_never_too_small_and_at_most_a_sixteenth_too_great(share: float) -> None:
    rng = random.Random(10)
    numbers = sorted(int(rng.lognormvariate(6, 3)) for _ in range(3000))
    found = spread(numbers).at(share)
    exact = numbers[max(0, bisect_left(range(1, 3001), share * 3000))] if share < 1 else numbers[-1]
    assert found is not None
    assert exact <= found <= exact * 17 / 16


def test_buckets_follow_each_other_without_a_gap() -> None:
    edges = [bounds_of(bucket) for bucket in range(961)]
    assert edges[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    assert all(bucket_of(low) == bucket_of(high - 1) == bucket for bucket, (low, high) in enumerate(edges))
