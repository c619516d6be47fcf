"""Columns that a log does not hold, because all of its records have the same there: its topic, and its partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC: Final = "topic"
PARTITION: Final = "partition"
_COUNTED: Final = "seqno"
"""Where nothing else is wanted, this says how many there are."""


def stored(columns: Sequence[str]) -> tuple[str, ...]:
    """Those of them that the log holds: at least one."""
    return tuple(name for name in columns if name not in (TOPIC, PARTITION)) or (_COUNTED,)


def is_stored(columns: Sequence[str] | None) -> bool:
    """Whether the log holds all of them."""
    return columns is None or (TOPIC not in columns and PARTITION not in columns)


def complete_lists(
    found: Iterator[tuple[list[Any], ...]], columns: Sequence[str], topic: str, partition: int
) -> Iterator[tuple[list[Any], ...]]:
    """`found` has the columns that are `stored`; what comes out has all."""
    for lists in found:
        have = dict(zip(stored(columns), lists, strict=True))
        count = len(lists[0])
        have[TOPIC], have[PARTITION] = [topic] * count, [partition] * count
        yield tuple(have[name] for name in columns)


def complete_tables(
    found: Iterator[pa.Table], columns: Sequence[str], topic: str, partition: int
) -> Iterator[pa.Table]:
    import pyarrow as pa

    number = pa.scalar(partition, pa.int32())
    for table in found:
        same = {TOPIC: pa.repeat(topic, len(table)), PARTITION: pa.repeat(number, len(table))}
        arrays = [same[name] if name in same else table.column(name) for name in columns]
        yield pa.Table.from_arrays(arrays, names=list(columns))
