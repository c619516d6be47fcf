"""What a report counts, counted record by record; and whether sums say the same."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from logboom.batch import HEADER_SIZE, NO_TIMESTAMP, Batch
from logboom.batch.columns import ABSENT
from logboom.client import FileReader
from logboom.results.report.sums import Codec, ProducerSums, ReportSums, Spread, Weights, bucket_of

LATE_US = 1000
SECOND = 1_000_000


class Model(NamedTuple):
    """What records are, counted one by one; under each key and channel their records and bytes."""

    sums: ReportSums
    keys: dict[bytes, tuple[int, int]]
    channels: dict[bytes, tuple[int, int]]


def model(batches: list[Batch], seqno_from: int, seqno_until: int, cell: int) -> Model:
    sums, keys, channels, sizes, late = ReportSums(), Counter[bytes](), Counter[bytes](), [], []
    key_bytes, channel_bytes = Counter[bytes](), Counter[bytes]()
    times, rates, growth = [], dict[int, tuple[int, int]](), dict[int, tuple[int, int]]()
    newest: int | None = None
    for batch in batches:
        header = batch.header
        count = 0
        for offset, record in enumerate(batch.records()):
            assert record.seqno is not None
            assert record.timestamp is not None
            if not seqno_from <= record.seqno < seqno_until:
                continue
            count += 1
            if record.seqno % cell == 0:
                newest = None
            size, time = len(record.key or b"") + len(record.value or b""), record.timestamp
            sizes.append(size)
            times.append(time)
            sums.tombstones += record.value is None
            sums.untimed += is_untimed(batch, offset)
            before = rates.get(time // SECOND, (0, 0))
            rates[time // SECOND] = before[0] + 1, before[1] + size
            for name, weights, counts, counted in (
                (record.key, sums.keys, keys, key_bytes),
                (None if record.channel is None else record.channel.encode(), sums.channels, channels, channel_bytes),
            ):
                if name is None:
                    weights.absent_records += 1
                    weights.absent_bytes += size
                else:
                    counts[name] += 1
                    counted[name] += size
            if newest is not None and time < newest:
                sums.behind += 1
                if newest - time > LATE_US:
                    late.append(newest - time)
            newest = time if newest is None else max(newest, time)
        if not count:
            continue
        is_counted = header.next_seqno <= seqno_until
        stored = header.size if is_counted else 0
        before = growth.get(header.append_time // SECOND, (0, 0))
        growth[header.append_time // SECOND] = before[0] + count, before[1] + stored
        producer = sums.producers.setdefault(header.producer_id, ProducerSums(0, 0, 0, (2**16, 0)))
        producer.records += count
        producer.batches += is_counted
        producer.size_bytes += stored
        low, high = producer.epochs
        producer.epochs = min(low, header.producer_epoch), max(high, header.producer_epoch)
        codec = sums.codecs.setdefault(["none", "lz4", "zstd"][header.codec], Codec())
        codec.batches += is_counted
        codec.records += count
        codec.stored += stored
        codec.plain += (HEADER_SIZE + -(-header.body_size // 8) * 8) if is_counted else 0
        sums.appended = span([*(sums.appended or ()), header.append_time])
    counted_batches = [batch.header for batch in batches if seqno_from < batch.header.next_seqno <= seqno_until]
    sums.records, sums.size_bytes, sums.times = len(times), sum(sizes), span(times)
    sums.sizes, sums.late = spread(sizes), spread(late)
    sums.batch_records = spread([header.record_count for header in counted_batches])
    sums.batch_bytes = spread([header.size for header in counted_batches])
    sums.rates.buckets, sums.growth.buckets = rates, growth
    sums.keys.records, sums.keys.size_bytes = keys.total(), key_bytes.total()
    sums.channels.records, sums.channels.size_bytes = channels.total(), channel_bytes.total()
    sums.presence.spans = [(time, time) for time in sorted(set(times))]
    return Model(
        sums,
        {name: (keys[name], key_bytes[name]) for name in keys},
        {name: (channels[name], channel_bytes[name]) for name in channels},
    )


def is_untimed(batch: Batch, offset: int) -> bool:
    if batch.columns.timestamp == ABSENT:
        return batch.header.min_timestamp == NO_TIMESTAMP
    return bool(batch.body[: 8 * len(batch)].cast("q")[offset] == NO_TIMESTAMP)


def span(numbers: list[int]) -> tuple[int, int] | None:
    return (min(numbers), max(numbers)) if numbers else None


def spread(numbers: list[int]) -> Spread:
    if not numbers:
        return Spread()
    return Spread(len(numbers), sum(numbers), min(numbers), max(numbers), dict(Counter(map(bucket_of, numbers))))


def check(found: ReportSums, counted: Model) -> None:
    expected = counted.sums
    for name in ("records", "size_bytes", "tombstones", "untimed", "times", "appended", "behind", "sizes", "late"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("producers", "codecs", "batch_records", "batch_bytes"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("rates", "growth"):
        rates = getattr(expected, name).widened(getattr(found, name).rung)
        assert getattr(found, name) == rates, name
    check_weights(found.keys, expected.keys, counted.keys)
    check_weights(found.channels, expected.channels, counted.channels)
    check_presence(found, expected)


def check_weights(found: Weights, expected: Weights, names: dict[bytes, tuple[int, int]]) -> None:
    """Every name has as much as is said; what is not named has no more than was left out."""
    for field in ("records", "size_bytes", "absent_records", "absent_bytes"):
        assert getattr(found, field) == getattr(expected, field), field
    for name, (records, size) in names.items():
        weight = found.names.get(name)
        if weight is None:
            assert records <= found.missed_records
            assert size <= found.missed_bytes
        else:
            assert weight.records <= records <= weight.records + found.missed_records - weight.known_records
            assert weight.size_bytes <= size <= weight.size_bytes + found.missed_bytes - weight.known_bytes
    assert found.names.keys() <= names.keys()
    if found.distinct.level == 0:
        assert found.distinct.distinct == len(names)


def check_presence(found: ReportSums, expected: ReportSums) -> None:
    assert set(found.presence.silences()) == {
        (before[1], after[0])
        for before, after in pairwise(expected.presence.spans)
        if after[0] - before[1] > found.presence.missed
    }


def read(directory: Path, topic: str, partition: int) -> tuple[list[Batch], int, int]:
    with FileReader(directory, topic, partition) as reader:
        return list(reader.batches()), reader.first, reader.committed
