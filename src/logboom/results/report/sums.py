"""What a report counts: sums of a stretch of a log that can be put together with those of others.

A log is cut into cells of CELL records, at multiples of it, so that whoever counts a cell counts the same. A cell that
is whole never changes, until retention or a trim takes a part of it; a report is the sum of its cells, whether they
were counted now or for the report before.

Nothing here depends on the order in which sums are put together, nor on which are put together first. Where not
everything can be kept, what stays is decided by what was counted alone:

- `Spread` and `Rates` have buckets, and fewer and wider ones where there would be too many;
- `HashSample` keeps what has a small hash, and halves that range where it would be too much;
- `Weights` keeps the heaviest of each cell, and how heavy those can be that it left out;
- `Presence` keeps the longest silences of each cell, and how long those can be that it left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import ceil
from typing import Final, TypeVar

import msgspec

CELL: Final = 262_144
"""Records."""

NAMES_KEPT: Final = 64
"""Of a cell: so many by their records, and so many by their bytes."""
PRODUCERS_KEPT: Final = 256
SILENCES_KEPT: Final = 32
COPIES_KEPT: Final = 1024
"""Hashes of records, of a cell."""
DISTINCT_KEPT: Final = 512
TIMES_KEPT: Final = 256
"""Buckets of time, of a cell: at the widest there are fewer in all time."""
MERGED: Final = 64
"""So many times as much is kept of several cells together."""

_S: Final = 1_000_000
_DAY: Final = 86_400 * _S
WIDTHS: Final[tuple[int, ...]] = (
    *(_S * seconds for seconds in (1, 10, 60, 600, 3_600)),
    *(_DAY * days for days in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)),
)
"""Of buckets of time, microseconds. Each is a multiple of the one before."""
STEPS: Final = 16
"""Buckets of a spread from one power of two to the next: none is wider than a sixteenth of what is in it."""
NAME_BYTES_MAX: Final = 200


class Spread(msgspec.Struct):
    """How numbers from 0 on are distributed."""

    count: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None
    buckets: dict[int, int] = {}

    def at(self, share: float) -> int | None:
        """So that this share of the numbers is not greater: at most a sixteenth too much, never too little."""
        wanted, seen = max(1, ceil(self.count * share)), 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(bounds_of(bucket)[1] - 1, self.most or 0)
        return None


def bucket_of(number: int) -> int:
    """
    >>> [bucket_of(number) for number in (0, 31, 32, 33, 34, 2**63)]
    [0, 31, 32, 32, 33, 960]
    """
    power = max(0, number.bit_length() - 5)
    return STEPS * power + (number >> power)


def bounds_of(bucket: int) -> tuple[int, int]:
    """The least number in it, and the least above it.

    >>> bounds_of(5), bounds_of(32), bounds_of(960)
    ((5, 6), (32, 34), (9223372036854775808, 9799832789158199296))
    """
    power = max(0, bucket // STEPS - 1)
    step = bucket - STEPS * power
    return step << power, step + 1 << power


class Rates(msgspec.Struct):
    """Records and bytes by time. Only times when there were some have a bucket."""

    rung: int = 0
    """Into WIDTHS."""
    buckets: dict[int, tuple[int, int]] = {}
    """By the number of the bucket since 1970: records, bytes."""

    @property
    def width(self) -> int:
        return WIDTHS[self.rung]

    def widened(self, rung: int) -> Rates:
        if rung <= self.rung:
            return self
        factor = WIDTHS[rung] // self.width
        found: dict[int, tuple[int, int]] = {}
        for bucket, (records, size) in self.buckets.items():
            before = found.get(bucket // factor, (0, 0))
            found[bucket // factor] = before[0] + records, before[1] + size
        return Rates(rung, found)


class HashSample(msgspec.Struct):
    """Of many hashes of 64 bits those whose first `level` bits are zero: the same ones wherever they occur."""

    level: int = 0
    counts: dict[int, int] = {}
    """In how many cells each was there."""

    @property
    def one_in(self) -> int:
        """Each hash stands for so many; 1 is everything, and exact."""
        return 1 << self.level

    @property
    def distinct(self) -> int:
        return len(self.counts) << self.level

    @property
    def repeats(self) -> int:
        """In how many cells something was that was in another one before."""
        return sum(self.counts.values()) - len(self.counts) << self.level


class Weight(msgspec.Struct, array_like=True):
    records: int = 0
    size_bytes: int = 0
    known_records: int = 0
    """Of `Weights.missed_records`, those of cells that kept this name: it cannot be among what they left out."""
    known_bytes: int = 0


class Weights(msgspec.Struct):
    """How much there is under each name: of the heaviest, at least so much; of all, at most so much more."""

    records: int = 0
    """With a name."""
    size_bytes: int = 0
    absent_records: int = 0
    absent_bytes: int = 0
    names: dict[bytes, Weight] = {}
    missed_records: int = 0
    """A name that no cell has kept has no more records than this; so has one that some have kept, beyond those."""
    missed_bytes: int = 0
    distinct: HashSample = msgspec.field(default_factory=HashSample)


class Presence(msgspec.Struct):
    """When there were records: spans of time, from the first to the last of each, that do not touch."""

    spans: list[tuple[int, int]] = []
    missed: int = 0
    """Silences of up to so many microseconds may be left out."""

    def silences(self) -> list[tuple[int, int]]:
        """The times between that are longer than what may be missed, the longest first."""
        between = ((before[1], after[0]) for before, after in pairwise(self.spans))
        return sorted((gap for gap in between if gap[1] - gap[0] > self.missed), key=lambda gap: (gap[0] - gap[1], gap))


class ProducerSums(msgspec.Struct):
    records: int
    batches: int
    size_bytes: int
    """As stored."""
    epochs: tuple[int, int]
    """The lowest and the highest."""


class Codec(msgspec.Struct):
    """Batches are counted with their last record."""

    batches: int = 0
    records: int = 0
    stored: int = 0
    plain: int = 0
    """What they would take without compression."""


class ReportSums(msgspec.Struct):
    """Everything that is counted of some records. Sizes of records are those of key and value."""

    records: int = 0
    size_bytes: int = 0
    tombstones: int = 0
    untimed: int = 0
    """Without a timestamp of their own: they count with the time they were appended."""
    times: tuple[int, int] | None = None
    """The least and the greatest timestamp, microseconds."""
    appended: tuple[int, int] | None = None
    rates: Rates = msgspec.field(default_factory=Rates)
    """By timestamp: bytes of keys and values."""
    growth: Rates = msgspec.field(default_factory=Rates)
    """By the time of the append: records, and bytes as stored."""
    sizes: Spread = msgspec.field(default_factory=Spread)
    keys: Weights = msgspec.field(default_factory=Weights)
    channels: Weights = msgspec.field(default_factory=Weights)
    repeats: int = 0
    """Records with the key, timestamp and value of one before them in their cell."""
    copies: HashSample = msgspec.field(default_factory=HashSample)
    """Hashes of log, key, timestamp and value: of different logs they are never the same."""
    behind: int = 0
    """Records with an earlier timestamp than one before them in their cell."""
    late: Spread = msgspec.field(default_factory=Spread)
    """Of those that are so by more than a threshold: by how many microseconds."""
    presence: Presence = msgspec.field(default_factory=Presence)
    producers: dict[int, ProducerSums] = {}
    """By id, 0 where a batch has none; of each cell those with the most records."""
    other_producers: ProducerSums | None = None
    """All others."""
    batch_records: Spread = msgspec.field(default_factory=Spread)
    batch_bytes: Spread = msgspec.field(default_factory=Spread)
    codecs: dict[str, Codec] = {}


class Cell(msgspec.Struct):
    """The sums of records of one log: from a seqno, until before another."""

    topic_id: str
    partition: int
    seqno_from: int
    seqno_until: int
    sums: ReportSums


class Cells(msgspec.Struct):
    """What a report keeps for the next one."""

    format: int
    late_us: int
    """What counts as late."""
    cells: list[Cell]


FORMAT: Final = 1
Kind = TypeVar("Kind")
Name = TypeVar("Name", int, str)


def add(parts: Sequence[ReportSums], keep: int = MERGED) -> ReportSums:
    """All of them together; the same in any order, and whatever was put together before."""
    return ReportSums(
        records=sum(part.records for part in parts),
        size_bytes=sum(part.size_bytes for part in parts),
        tombstones=sum(part.tombstones for part in parts),
        untimed=sum(part.untimed for part in parts),
        times=hull(part.times for part in parts),
        appended=hull(part.appended for part in parts),
        rates=add_rates([part.rates for part in parts], keep * TIMES_KEPT),
        growth=add_rates([part.growth for part in parts], keep * TIMES_KEPT),
        sizes=add_spreads([part.sizes for part in parts]),
        keys=add_weights([part.keys for part in parts], keep),
        channels=add_weights([part.channels for part in parts], keep),
        repeats=sum(part.repeats for part in parts),
        copies=add_samples([part.copies for part in parts], keep * COPIES_KEPT),
        behind=sum(part.behind for part in parts),
        late=add_spreads([part.late for part in parts]),
        presence=add_presence([part.presence for part in parts]),
        producers=_add_named((part.producers for part in parts), _join_producers),
        other_producers=_join_all((part.other_producers for part in parts), _join_producers),
        batch_records=add_spreads([part.batch_records for part in parts]),
        batch_bytes=add_spreads([part.batch_bytes for part in parts]),
        codecs=_add_named((part.codecs for part in parts), _join_codecs),
    )


def hull(spans: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    found = [span for span in spans if span is not None]
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def add_spreads(parts: Sequence[Spread]) -> Spread:
    buckets: dict[int, int] = {}
    for part in parts:
        for bucket, count in part.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
    return Spread(
        sum(part.count for part in parts),
        sum(part.total for part in parts),
        min((part.least for part in parts if part.least is not None), default=None),
        max((part.most for part in parts if part.most is not None), default=None),
        buckets,
    )


def add_rates(parts: Sequence[Rates], most: int) -> Rates:
    rung = max((part.rung for part in parts), default=0)
    found = Rates(rung)
    for part in parts:
        for bucket, (records, size) in part.widened(rung).buckets.items():
            before = found.buckets.get(bucket, (0, 0))
            found.buckets[bucket] = before[0] + records, before[1] + size
    while len(found.buckets) > most and found.rung + 1 < len(WIDTHS):
        found = found.widened(found.rung + 1)
    return found


def add_samples(parts: Sequence[HashSample], most: int) -> HashSample:
    found = HashSample(max((part.level for part in parts), default=0))
    for part in parts:
        for number, count in part.counts.items():
            if not number >> 64 - found.level:
                found.counts[number] = found.counts.get(number, 0) + count
    while len(found.counts) > most:
        level = found.level + 1
        kept = {number: count for number, count in found.counts.items() if not number >> 64 - level}
        found = HashSample(level, kept)
    return found


def add_weights(parts: Sequence[Weights], keep: int) -> Weights:
    names: dict[bytes, Weight] = {}
    for part in parts:
        for name, weight in part.names.items():
            found = names.setdefault(name, Weight())
            found.records += weight.records
            found.size_bytes += weight.size_bytes
            found.known_records += weight.known_records
            found.known_bytes += weight.known_bytes
    return Weights(
        sum(part.records for part in parts),
        sum(part.size_bytes for part in parts),
        sum(part.absent_records for part in parts),
        sum(part.absent_bytes for part in parts),
        names,
        sum(part.missed_records for part in parts),
        sum(part.missed_bytes for part in parts),
        add_samples([part.distinct for part in parts], keep * DISTINCT_KEPT),
    )


def add_presence(parts: Sequence[Presence]) -> Presence:
    spans: list[tuple[int, int]] = []
    for low, high in sorted(span for part in parts for span in part.spans):
        if spans and low <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], high)
        else:
            spans.append((low, high))
    return Presence(spans, max((part.missed for part in parts), default=0))


def _join_producers(one: ProducerSums, other: ProducerSums) -> ProducerSums:
    epochs = min(one.epochs[0], other.epochs[0]), max(one.epochs[1], other.epochs[1])
    counts = one.records + other.records, one.batches + other.batches, one.size_bytes + other.size_bytes
    return ProducerSums(*counts, epochs)


def _join_codecs(one: Codec, other: Codec) -> Codec:
    counts = one.batches + other.batches, one.records + other.records
    return Codec(*counts, one.stored + other.stored, one.plain + other.plain)


def _add_named(parts: Iterable[dict[Name, Kind]], join: Callable[[Kind, Kind], Kind]) -> dict[Name, Kind]:
    found: dict[Name, Kind] = {}
    for part in parts:
        for name, entry in part.items():
            found[name] = entry if name not in found else join(found[name], entry)
    return found


def _join_all(parts: Iterable[Kind | None], join: Callable[[Kind, Kind], Kind]) -> Kind | None:
    found: Kind | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else join(found, part)
    return found
