"""The settings of one log, validated once."""

from __future__ import annotations

from dataclasses import dataclass, fields

from logboom.batch.header import BATCH_SIZE_DEFAULT, BATCH_SIZE_MAX

MIB = 1024 * 1024
DAY_US = 24 * 3600 * 1_000_000

_RANGES = {
    "segment_bytes": (4096, 2**40),
    "segment_age_us": (1_000_000, 2**62),
    "index_bytes": (512, 2**30),
    "batch_bytes_max": (4096, BATCH_SIZE_MAX),
    "producers_max": (1, 1_000_000),
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 128 * MIB
    """A segment is rolled before it would grow beyond this."""
    segment_age_us: int = 7 * DAY_US
    """A segment is rolled when its first batch is older than this."""
    index_bytes: int = 4096
    """One entry of the sparse index per so many bytes."""
    batch_bytes_max: int = BATCH_SIZE_DEFAULT
    """Batches larger than this, stored or inflated, are refused."""
    producers_max: int = 10_000
    """How many producers with ids that a node gave out a log remembers, and as many others; the one silent longest
    makes room."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            low, high = _RANGES[field.name]
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{field.name} is {value!r}, allowed are {low} to {high}")
