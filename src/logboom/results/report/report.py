"""What a report says: numbers of each log, of each topic and of all together, made of sums.

Where a number is not exact, another one beside it says how far it can be off: `records` and `records_most` of a key,
`one_in` of duplicates and of distinct names. Times are microseconds since 1970, sizes are bytes, of keys and values
where it says nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Final

import msgspec

from logboom.broker.wording import printable
from logboom.results.report.sums import Codec, Rates, ReportSums, Spread, Weights, add, bounds_of

FORMAT: Final = 1
PAGE: Final = "report.html"
NUMBERS: Final = "report.json"
CELLS: Final = "cells.msgpack.zst"

POINTS_MAX: Final = 240
"""Of a rate over time: what a plot can show."""
SILENCES: Final = 10
PRODUCERS: Final = 20
DAY_US: Final = 86_400_000_000
WIDTHS: Final = (
    *(second * 1_000_000 for second in (1, 10, 60, 600, 3_600, 6 * 3_600)),
    *(day * DAY_US for day in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)),
)


class Point(msgspec.Struct, frozen=True):
    at: int
    records: int
    size_bytes: int


class Series(msgspec.Struct, frozen=True):
    """Records over time. Times without any have no point."""

    width_us: int
    points: list[Point]
    before: int = 0
    """Records from before the first point, or behind the last: so few, so far away, that they would hide the rest."""
    behind: int = 0


class Distribution(msgspec.Struct, frozen=True):
    """Percentiles are at most a sixteenth too great, and never too small."""

    count: int
    mean: float
    least: int | None
    most: int | None
    p50: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    buckets: list[tuple[int, int, int]]
    """From a number, until before another: how many."""


class Named(msgspec.Struct, frozen=True):
    """A key or a channel. It has at least so many records, and no more than the most."""

    text: str
    """In letters that can be printed; a long name is cut, and ends with a hash of all of it."""
    base64: str
    records: int
    records_most: int
    size_bytes: int
    size_bytes_most: int


class Names(msgspec.Struct, frozen=True):
    distinct: int
    distinct_one_in: int
    """How many names stand for all of them: 1 is exact."""
    records: int
    """With a name."""
    size_bytes: int
    absent_records: int
    absent_bytes: int
    by_records: list[Named]
    by_bytes: list[Named]
    missed_records: int
    """A name that is in neither list has no more than this, or than the last in the list."""
    missed_bytes: int


class Silences(msgspec.Struct, frozen=True):
    longest: list[tuple[int, int]]
    """From the last record before until the first after it."""
    missed_us: int
    """Those that are not longer may be left out."""


class Late(msgspec.Struct, frozen=True):
    threshold_us: int
    records: int
    """Behind the newest record before them by more than that."""
    behind: int
    """By anything at all."""
    by_us: Distribution


class Duplicates(msgspec.Struct, frozen=True):
    """Records that were in their log before: same key, timestamp and value."""

    records: int
    near: int
    """Of these, those with their like in the same cell: exactly."""
    one_in: int
    """For the others one record in so many was looked at, and all that equal it; 1 is all of them, and exact."""
    deviation: int
    """Where it is not: how far the number is off, as a rule (one standard deviation)."""


class ProducerAccount(msgspec.Struct, frozen=True):
    id: str
    """In hexadecimal; empty for batches without a producer."""
    records: int
    batches: int
    size_bytes: int
    epochs: tuple[int, int]


class ProducersAccount(msgspec.Struct, frozen=True):
    most: list[ProducerAccount]
    others: ProducerAccount | None
    known: int
    """How many there are, at least."""


class CodecAccount(msgspec.Struct, frozen=True):
    codec: str
    batches: int
    records: int
    stored_bytes: int
    plain_bytes: int


class Account(msgspec.Struct, frozen=True):
    """What was counted of some records."""

    records: int
    size_bytes: int
    stored_bytes: int
    plain_bytes: int
    """What all batches would take without compression."""
    tombstones: int
    without_timestamp: int
    times: tuple[int, int] | None
    appended: tuple[int, int] | None
    rates: Series
    growth: Series
    """By the time of the append: bytes are those of the batches as stored."""
    growth_per_day: float | None
    sizes: Distribution
    keys: Names
    channels: Names
    silences: Silences
    late: Late
    duplicates: Duplicates
    producers: ProducersAccount
    batch_records: Distribution
    batch_bytes: Distribution
    codecs: list[CodecAccount]


class LogAccount(msgspec.Struct, frozen=True):
    partition: int
    first: int
    until: int
    size_bytes: int
    """Of its files."""
    account: Account


class TopicAccount(msgspec.Struct, frozen=True):
    name: str
    id: str
    size_bytes: int
    limit_bytes: int | None
    """What retention lets it grow to; null where nothing holds it."""
    account: Account
    logs: list[LogAccount]


class Forecast(msgspec.Struct, frozen=True):
    """When the volume is full, if all goes on as it did."""

    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    logs_bytes: int
    growth_per_day: float
    window_us: int
    """What the growth was measured over: so long before the report, or as long as there are records."""
    full_at: int | None
    """Null where retention holds all logs below that, or nothing grows."""
    curve: list[tuple[int, float]]
    """Times, and the bytes of the logs of this report then; straight between them."""


class Report(msgspec.Struct, frozen=True):
    format: int
    name: str
    at: int
    """When the node was asked what there is: nothing that came later is counted."""
    node_id: str
    whole: Account
    topics: list[TopicAccount]
    forecast: Forecast | None


decode_report: Final = msgspec.json.Decoder(Report).decode


class RetentionLimit(msgspec.Struct, frozen=True):
    """What retention keeps of a log; None is everything."""

    size_bytes: int | None = None
    age_us: int | None = None
    records: int | None = None


class LogFacts(msgspec.Struct, frozen=True):
    """A log, as the node described it, and its sums."""

    partition: int
    first: int
    until: int
    size_bytes: int
    sums: ReportSums


class TopicFacts(msgspec.Struct, frozen=True):
    name: str
    id: str
    limit: RetentionLimit
    logs: list[LogFacts]


class VolumeReport(msgspec.Struct, frozen=True):
    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    logs_bytes: int


class Wishes(msgspec.Struct, frozen=True):
    """What the one who wants the report has said."""

    name: str
    top: int
    late_us: int
    window_us: int


def make_report(
    wishes: Wishes, at: int, node_id: str, topics: Sequence[TopicFacts], volume: VolumeReport | None
) -> Report:
    accounts, sums = [], []
    for topic in topics:
        together = add([log.sums for log in topic.logs])
        sums.append(together)
        logs = [
            LogAccount(log.partition, log.first, log.until, log.size_bytes, describe(log.sums, wishes, at))
            for log in topic.logs
        ]
        limits = [_limit(topic.limit, log.sums, wishes.window_us, at) for log in topic.logs]
        limit = None if None in limits else sum(limit for limit in limits if limit is not None)
        size = sum(log.size_bytes for log in topic.logs)
        accounts.append(TopicAccount(topic.name, topic.id, size, limit, describe(together, wishes, at), logs))
    forecast = None if volume is None else foresee(topics, volume, wishes.window_us, at)
    return Report(FORMAT, wishes.name, at, node_id, describe(add(sums), wishes, at), accounts, forecast)


def describe(sums: ReportSums, wishes: Wishes, at: int) -> Account:
    codecs = _codecs(sums.codecs)
    return Account(
        records=sums.records,
        size_bytes=sums.size_bytes,
        stored_bytes=sum(codec.stored_bytes for codec in codecs),
        plain_bytes=sum(codec.plain_bytes for codec in codecs),
        tombstones=sums.tombstones,
        without_timestamp=sums.untimed,
        times=sums.times,
        appended=sums.appended,
        rates=make_series(sums.rates),
        growth=make_series(sums.growth),
        growth_per_day=growth_per_day(sums, wishes.window_us, at),
        sizes=make_distribution(sums.sizes),
        keys=_names(sums.keys, wishes.top),
        channels=_names(sums.channels, wishes.top),
        silences=Silences(sums.presence.silences()[:SILENCES], sums.presence.missed),
        late=Late(wishes.late_us, sums.late.count, sums.behind, make_distribution(sums.late)),
        duplicates=_duplicates(sums),
        producers=_producers(sums),
        batch_records=make_distribution(sums.batch_records),
        batch_bytes=make_distribution(sums.batch_bytes),
        codecs=codecs,
    )


def make_distribution(spread: Spread) -> Distribution:
    return Distribution(
        count=spread.count,
        mean=spread.total / spread.count if spread.count else 0.0,
        least=spread.least,
        most=spread.most,
        p50=spread.at(0.5),
        p90=spread.at(0.9),
        p99=spread.at(0.99),
        p999=spread.at(0.999),
        buckets=[(*bounds_of(bucket), spread.buckets[bucket]) for bucket in sorted(spread.buckets)],
    )


def make_series(rates: Rates) -> Series:
    """As fine as a plot can show. Of records far away from all others only their number is given."""
    buckets = sorted(rates.buckets)
    if not buckets:
        return Series(rates.width, [])
    low, high = _bulk([(bucket, rates.buckets[bucket][0]) for bucket in buckets])
    span = (high - low + 1) * rates.width
    width = next((width for width in WIDTHS if width >= rates.width and span <= POINTS_MAX * width), WIDTHS[-1])
    points: dict[int, list[int]] = {}
    before = behind = 0
    for bucket in buckets:
        records, size = rates.buckets[bucket]
        if bucket < low:
            before += records
        elif bucket > high:
            behind += records
        else:
            point = points.setdefault(bucket * rates.width // width, [0, 0])
            point[0] += records
            point[1] += size
    return Series(width, [Point(number * width, *points[number]) for number in sorted(points)], before, behind)


def _bulk(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Without the first and the last hundredth, unless they are near the rest; of few records, without up to three."""
    total = sum(count for _, count in counts)
    rest = max(total // 100, min(3, total // 10))
    edges = []
    for ordered in (counts, counts[::-1]):
        seen = 0
        for bucket, count in ordered:
            seen += count
            if seen > rest:
                edges.append(bucket)
                break
    low, high = edges
    first, last = counts[0][0], counts[-1][0]
    room = high - low + 10
    return first if low - first <= room else low, last if last - high <= room else high


def _names(weights: Weights, top: int) -> Names:
    missed_records, missed_bytes = weights.missed_records, weights.missed_bytes
    named = [
        Named(
            printable(name.decode(errors="backslashreplace")),
            base64.b64encode(name).decode(),
            weight.records,
            weight.records + missed_records - weight.known_records,
            weight.size_bytes,
            weight.size_bytes + missed_bytes - weight.known_bytes,
        )
        for name, weight in weights.names.items()
    ]
    return Names(
        weights.distinct.distinct,
        weights.distinct.one_in,
        weights.records,
        weights.size_bytes,
        weights.absent_records,
        weights.absent_bytes,
        sorted(named, key=lambda name: (-name.records, name.base64))[:top],
        sorted(named, key=lambda name: (-name.size_bytes, name.base64))[:top],
        missed_records,
        missed_bytes,
    )


def _duplicates(sums: ReportSums) -> Duplicates:
    """Each hash is in the sample or not, by chance: a sum over those that are varies with the squares of its terms."""
    copies = sums.copies
    squares = sum((count - 1) ** 2 for count in copies.counts.values())
    deviation = 0 if copies.level == 0 else ceil(sqrt(squares * (1 - 1 / copies.one_in)) * copies.one_in)
    return Duplicates(sums.repeats + copies.repeats, sums.repeats, copies.one_in, deviation)


def _producers(sums: ReportSums) -> ProducersAccount:
    order = sorted(sums.producers, key=lambda number: (-sums.producers[number].records, number))
    accounts = []
    for number in order[:PRODUCERS]:
        found = sums.producers[number]
        name = f"{number:016x}" if number else ""
        accounts.append(ProducerAccount(name, found.records, found.batches, found.size_bytes, found.epochs))
    rest = [sums.producers[number] for number in order[PRODUCERS:]]
    if sums.other_producers is not None:
        rest.append(sums.other_producers)
    others = None
    if rest:
        counts = (sum(other.records for other in rest), sum(other.batches for other in rest))
        epochs = min(other.epochs[0] for other in rest), max(other.epochs[1] for other in rest)
        others = ProducerAccount("", *counts, sum(other.size_bytes for other in rest), epochs)
    return ProducersAccount(accounts, others, len(sums.producers.keys() - {0}))


def _codecs(codecs: Mapping[str, Codec]) -> list[CodecAccount]:
    order = sorted(codecs, key=lambda name: (-codecs[name].stored, name))
    return [
        CodecAccount(name, found.batches, found.records, found.stored, found.plain)
        for name, found in ((name, codecs[name]) for name in order)
    ]


def growth_per_day(sums: ReportSums, window_us: int, at: int) -> float | None:
    """Bytes stored, by the time of their append, in the time before the report; None where that is under a minute."""
    if sums.appended is None:
        return None
    start = max(sums.appended[0], at - window_us)
    if at - start < 60_000_000:
        return None
    width, total = sums.growth.width, 0.0
    for bucket, (_, size) in sums.growth.buckets.items():
        inside = min((bucket + 1) * width, at) - max(bucket * width, start)
        if inside > 0:
            # The first bucket may begin before the first append: all of it is inside.
            whole = min((bucket + 1) * width, at) - max(bucket * width, sums.appended[0])
            total += size * min(1.0, inside / max(1, whole))
    return total * DAY_US / (at - start)


def _limit(limit: RetentionLimit, sums: ReportSums, window_us: int, at: int) -> int | None:
    """What a log grows to at this pace, by the rule that holds it first."""
    growth = growth_per_day(sums, window_us, at) or 0.0
    stored = sum(codec.stored for codec in sums.codecs.values())
    bounds: list[float] = []
    if limit.size_bytes is not None:
        bounds.append(limit.size_bytes)
    if limit.age_us is not None:
        bounds.append(growth * limit.age_us / DAY_US)
    if limit.records is not None and sums.records:
        bounds.append(limit.records * stored / sums.records)
    return int(min(bounds)) if bounds else None


def foresee(topics: Sequence[TopicFacts], volume: VolumeReport, window_us: int, at: int) -> Forecast:
    """Each log goes on growing at its pace until retention holds it. The volume is full when the sum is."""
    speeds: list[tuple[float, float]] = []
    size = 0.0
    for topic in topics:
        for log in topic.logs:
            size += log.size_bytes
            growth = growth_per_day(log.sums, window_us, at) or 0.0
            limit = _limit(topic.limit, log.sums, window_us, at)
            room = float("inf") if limit is None else max(0.0, limit - log.size_bytes)
            if growth > 0 and room > 0:
                speeds.append((room / growth, growth))
    speed, day = sum(growth for _, growth in speeds), 0.0
    free = float(max(0, volume.free_bytes - volume.reserve_bytes))
    growth_now, full = speed, None
    curve = [(at, size)]
    for until, growth in sorted(speeds):
        if speed > 0 and free <= speed * (until - day):
            break
        free -= speed * (until - day)
        size += speed * (until - day)
        day, speed = until, max(0.0, speed - growth)
        curve.append((at + int(day * DAY_US), size))
    else:
        speed = 0.0
    if speed > 0:
        day += free / speed
        full = at + int(min(day, 1e6) * DAY_US)
        curve.append((full, size + free))
    return Forecast(
        volume.total_bytes,
        volume.free_bytes,
        volume.reserve_bytes,
        volume.logs_bytes,
        growth_now,
        window_us,
        full,
        curve,
    )
