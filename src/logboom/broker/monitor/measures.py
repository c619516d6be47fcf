"""Counts and durations of each topic and each protocol: counted as it happens, shown as frozen values.

A meter is touched once for each append or read, not for each record, and costs well under a microsecond. Durations fall
into buckets that double: 64 us, 128 us … 16 s, and longer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

LOWEST_BITS: Final = 6
BUCKETS: Final = 19
BOUNDS_S: Final = tuple((1 << (LOWEST_BITS + number)) / 1e6 for number in range(BUCKETS))
"""The upper bound of each bucket but the last, which has none."""


class Durations(msgspec.Struct, frozen=True):
    counts: list[int]
    """By bucket, one more than BOUNDS_S; not cumulative."""
    sum_s: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    def since(self, before: Durations) -> Durations:
        """What came after `before` was taken."""
        counts = [max(0, now - then) for now, then in zip(self.counts, before.counts, strict=True)]
        return Durations(counts, max(0.0, self.sum_s - before.sum_s))

    def percentile(self, share: float) -> float | None:
        """So many of them, at most 1, took no longer: seconds, interpolated within a bucket; None where there are none.

        >>> Durations([0, 4] + [0] * 18, 0.0004).percentile(0.5)
        9.6e-05
        """
        rank, below = share * self.count, 0
        for number, count in enumerate(self.counts):
            if count and below + count >= rank:
                low = BOUNDS_S[number - 1] if number else 0.0
                high = BOUNDS_S[number] if number < BUCKETS else low
                return low + (high - low) * max(0.0, rank - below) / count
            below += count
        return None


class Measured(msgspec.Struct, frozen=True):
    """Of a topic, or of a protocol."""

    batches_in: int
    records_in: int
    bytes_in: int
    records_out: int
    bytes_out: int
    append: Durations
    """From when it was asked for to when its promise was kept."""
    read: Durations
    """Of reads that found something, the wait for it left out."""


class Measures(msgspec.Struct, frozen=True):
    topics: dict[str, Measured]
    protocols: dict[str, Measured]
    sync: Durations


def add_up(some: Iterable[Durations]) -> Durations:
    """Those of all together.

    >>> add_up([Durations([1] * 20, 1.0), Durations([2] * 20, 2.0)]).counts[:3]
    [3, 3, 3]
    """
    counts, sum_s = [0] * (BUCKETS + 1), 0.0
    for durations in some:
        counts = [one + other for one, other in zip(counts, durations.counts, strict=True)]
        sum_s += durations.sum_s
    return Durations(counts, sum_s)


@dataclass(slots=True)
class Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (BUCKETS + 1))
    sum_s: float = 0.0

    def note(self, seconds: float) -> None:
        """
        >>> histogram = Histogram()
        >>> histogram.note(64e-6); histogram.note(65e-6); histogram.note(3600.0)
        >>> histogram.counts[0], histogram.counts[1], histogram.counts[-1]
        (1, 1, 1)
        """
        self.sum_s += seconds
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1

    def shown(self) -> Durations:
        return Durations(list(self.counts), self.sum_s)


@dataclass(slots=True)
class Meter:
    batches_in: int = 0
    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    append: Histogram = field(default_factory=Histogram)
    read: Histogram = field(default_factory=Histogram)

    def note_append(self, batches: int, records: int, size: int, seconds: float) -> None:
        """Repeats and what was refused were not appended, and do not count."""
        self.batches_in += batches
        self.records_in += records
        self.bytes_in += size
        self.append.note(seconds)

    def note_read(self, records: int, size: int, seconds: float) -> None:
        self.records_out += records
        self.bytes_out += size
        self.read.note(seconds)

    def shown(self) -> Measured:
        return Measured(
            self.batches_in,
            self.records_in,
            self.bytes_in,
            self.records_out,
            self.bytes_out,
            self.append.shown(),
            self.read.shown(),
        )
