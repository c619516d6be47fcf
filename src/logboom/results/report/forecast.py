"""When a volume will be full: each log grows at its pace until its retention holds it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logboom.results.report.account import DAY_US, Forecast
from logboom.results.report.sums import ReportSums


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


def limit_of(limit: RetentionLimit, sums: ReportSums, window_us: int, at: int) -> int | None:
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
            limit = limit_of(topic.limit, log.sums, window_us, at)
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
