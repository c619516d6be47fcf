"""What a node and its topics do, as it is shown to people: the last minutes, the troubles, what logs are made of.

Frozen values, the same over every protocol. Rates are per second; times are microseconds since 1970.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from logboom.storage.data.topic import RetentionSettings


class DiskStats(msgspec.Struct, frozen=True):
    """Of the volume the data directory is on."""

    total_bytes: int
    free_bytes: int
    """What the node may still use."""
    reserve_bytes: int
    """Writes are refused while less than this is free."""
    logs_bytes: int
    """Of all logs."""


class Percentiles(msgspec.Struct, frozen=True):
    """Of the durations of each sample, in seconds; null where there were none. Read off buckets that double."""

    p50: list[float | None]
    p99: list[float | None]


class History(msgspec.Struct, frozen=True):
    """Columns of the same length, an entry for each sample, oldest first."""

    interval_ms: int
    """How often a sample is taken."""
    at: list[int]
    """When, microseconds."""
    records_in: list[float]
    """Per second since the sample before; so are the other three."""
    bytes_in: list[float]
    records_out: list[float]
    bytes_out: list[float]
    append: Percentiles
    sync: Percentiles
    read: Percentiles
    rejections: list[int]
    """Since the sample before."""
    connections: list[int]
    memory_bytes: list[int]
    open_files: list[int]
    unsynced_bytes: list[int]
    disk_free_bytes: list[int]


ActivitySort = Literal["name", "records_in", "bytes_in", "records_out", "bytes_out", "size", "records", "newest", "lag"]


class ActivityRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    search: str = ""
    """Words that all are in the name, in any case."""
    sort: ActivitySort = "name"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    internal: bool = False


class TopicActivity(msgspec.Struct, frozen=True):
    name: str
    id: str
    partitions: int
    records: int
    """That can be read."""
    size_bytes: int
    newest: int | None
    """When the last batch was appended, microseconds."""
    retention: RetentionSettings
    refused: str | None
    """Why the topic, or one of its logs, takes no writes."""
    damaged: int
    """How many of its logs take no writes because they are damaged or cannot be opened."""
    records_in: float
    """Per second, of the last sample; so are the other three."""
    bytes_in: float
    records_out: float
    bytes_out: float
    recent_in: list[int]
    """Records in each of the last samples, oldest first; empty where there were none at all."""
    recent_out: list[int]
    cursors: int
    """Names of cursors on it."""
    lag: int | None
    """Of the cursor that is furthest behind."""


class Activity(msgspec.Struct, frozen=True):
    interval_ms: int
    total: int
    """Topics there are."""
    matched: int
    """Of these, those that were searched for."""
    topics: list[TopicActivity]
    """From the asked offset on."""


class LagHistory(msgspec.Struct, frozen=True):
    cursor: str
    partition: int
    lag: list[int | None]
    """At each sample; null where the cursor was not there yet."""


class TopicHistory(msgspec.Struct, frozen=True):
    """Columns of the same length, an entry for each sample, oldest first."""

    interval_ms: int
    at: list[int]
    records_in: list[int]
    """Since the sample before."""
    records_out: list[int]
    cursors: list[LagHistory]
    """Those of the topic that are watched: not all, where there are very many."""


class SegmentInfo(msgspec.Struct, frozen=True):
    first_seqno: int
    next_seqno: int
    """Behind its last record."""
    first_index: int
    generation: int
    """Raised whenever it was stored anew."""
    size_bytes: int
    sealed: bool
    """Nothing is appended to it any more."""
    oldest: int | None
    """When its first batch was appended, microseconds; null where nobody knows without reading it. So is `newest`."""
    newest: int | None
    damage: str | None
    """What is known to be wrong with it."""


class Incident(msgspec.Struct, frozen=True):
    kind: Literal["rejection", "warning", "error"]
    name: str
    """Of the rule, limit or error; of the part of the node that warns."""
    text: str
    count: int
    """How often the same happened."""
    first: int
    """When it happened first and last, microseconds."""
    last: int
