"""A report, made of sums: the account of each log, of each topic and of all together."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Final

import msgspec

from logboom.broker.wording import printable
from logboom.results.report.account import (
    DAY_US,
    Account,
    CodecAccount,
    Distribution,
    Duplicates,
    Late,
    LogAccount,
    Named,
    Names,
    Point,
    ProducerAccount,
    ProducersAccount,
    Report,
    Series,
    Silences,
    TopicAccount,
)
from logboom.results.report.forecast import TopicFacts, VolumeReport, foresee, growth_per_day, limit_of
from logboom.results.report.sums import Codec, Rates, ReportSums, Spread, Weights, add, bounds_of

FORMAT: Final = 1
PAGE: Final = "report.html"
NUMBERS: Final = "report.json"
CELLS: Final = "cells.msgpack.zst"

POINTS_MAX: Final = 240
"""Of a rate over time: what a plot can show."""
SILENCES: Final = 10
PRODUCERS: Final = 20
WIDTHS: Final = (
    *(second * 1_000_000 for second in (1, 10, 60, 600, 3_600, 6 * 3_600)),
    *(day * DAY_US for day in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)),
)


decode_report: Final = msgspec.json.Decoder(Report).decode


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
        limits = [limit_of(topic.limit, log.sums, wishes.window_us, at) for log in topic.logs]
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
