"""What a report says: numbers of each log, of each topic and of all together.

Where a number is not exact, another one beside it says how far it can be off: `records` and `records_most` of a key,
`one_in` of duplicates and of distinct names. Times are microseconds since 1970, sizes are bytes, of keys and values
where it says nothing else.
"""

from __future__ import annotations

from typing import Final

import msgspec

DAY_US: Final = 86_400_000_000


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
