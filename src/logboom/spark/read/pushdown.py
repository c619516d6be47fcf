"""Filters of a query that the source takes over, so that segments and batches are skipped.

What is taken is evaluated exactly; every other filter is given back, and Spark evaluates it. Taken are comparisons of
topic, partition and seqno with literals, of the timestamp, and of key and channel where the options say nothing of
them. No column but key, channel and value is ever null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from logboom.batch import Selection, microseconds
from logboom.errors import InvalidPattern

NEVER_NULL: Final = frozenset(("topic", "partition", "seqno", "timestamp"))
_WILD: Final = frozenset("+#")


@dataclass(frozen=True, slots=True)
class Pushed:
    """What the filters taken say; `wanted` also holds what the options say."""

    wanted: Selection = field(default_factory=Selection)
    topics: tuple[Callable[[Any], bool], ...] = ()
    partitions: tuple[Callable[[Any], bool], ...] = ()
    seqno_from: int = 0
    seqno_until: int = 2**63

    def takes(self, topic: str, partition: int) -> bool:
        return all(test(topic) for test in self.topics) and all(test(partition) for test in self.partitions)


def push(filters: Sequence[Filter], wanted: Selection) -> tuple[Pushed, list[Filter]]:
    """What is taken of these, beside what the options say, and what is not."""
    pushed, rest = Pushed(wanted), []
    for one in filters:
        taken = _take(pushed, one)
        if taken is None:
            rest.append(one)
        else:
            pushed = taken
    return pushed, rest


def _take(pushed: Pushed, one: Filter) -> Pushed | None:
    attribute: Sequence[str] = getattr(one, "attribute", ())
    if len(attribute) != 1:
        return None
    (name,) = attribute
    if isinstance(one, IsNotNull):
        return pushed if name in NEVER_NULL else None
    value = getattr(one, "value", None)
    if value is None:
        return None
    take = _TAKERS.get(name)
    return None if take is None else take(pushed, one, value)


def _take_topic(pushed: Pushed, one: Filter, value: Any) -> Pushed | None:
    test = _test(one, value, str)
    return None if test is None else replace(pushed, topics=(*pushed.topics, test))


def _take_partition(pushed: Pushed, one: Filter, value: Any) -> Pushed | None:
    test = _test(one, value, int)
    return None if test is None else replace(pushed, partitions=(*pushed.partitions, test))


def _test(one: Filter, value: Any, kind: type) -> Callable[[Any], bool] | None:
    """The same filter for one value of the column."""
    if isinstance(one, In):
        values = frozenset(value)
        return values.__contains__ if all(isinstance(each, kind) for each in values) else None
    if not isinstance(value, kind):
        return None
    if isinstance(one, StringStartsWith):
        return lambda found: bool(found.startswith(value))
    if isinstance(one, EqualTo | EqualNullSafe):
        return lambda found: bool(found == value)
    # Texts in order are left to Spark, which compares bytes.
    bounds = _range(one, value) if isinstance(value, int) else None
    if bounds is None:
        return None
    low, high = bounds
    return lambda found: low <= found < high


def _take_seqno(pushed: Pushed, one: Filter, value: Any) -> Pushed | None:
    if not isinstance(value, int):
        return None
    bounds = _range(one, value)
    if bounds is None:
        return None
    low, high = bounds
    return replace(pushed, seqno_from=max(pushed.seqno_from, low), seqno_until=min(pushed.seqno_until, high))


def _take_timestamp(pushed: Pushed, one: Filter, value: Any) -> Pushed | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    bounds = _range(one, microseconds(value))
    if bounds is None:
        return None
    low, high = bounds
    wanted = pushed.wanted
    time_from = low if wanted.time_from is None else max(wanted.time_from, low)
    time_until = high if wanted.time_until is None else min(wanted.time_until, high)
    return replace(pushed, wanted=replace(wanted, time_from=time_from, time_until=time_until))


def _take_key(pushed: Pushed, one: Filter, value: Any) -> Pushed | None:
    if not isinstance(one, EqualTo) or not isinstance(value, bytes | bytearray) or pushed.wanted.key is not None:
        return None
    return replace(pushed, wanted=replace(pushed.wanted, key=bytes(value)))


def _take_channel(pushed: Pushed, one: Filter, value: Any) -> Pushed | None:
    """As a pattern, if it has none of a pattern's characters."""
    if not isinstance(value, str) or pushed.wanted.channel is not None or _WILD & set(value) or not value:
        return None
    if isinstance(one, EqualTo) and not value.endswith("*"):
        pattern = value
    elif isinstance(one, StringStartsWith):
        pattern = f"{value}*"
    else:
        return None
    try:
        return replace(pushed, wanted=replace(pushed.wanted, channel=pattern))
    except InvalidPattern:
        return None


def _range(one: Filter, value: int) -> tuple[int, int] | None:
    """From here up to and not including there."""
    low, high = -(2**63), 2**63
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value + 1
    if isinstance(one, GreaterThan):
        return value + 1, high
    if isinstance(one, GreaterThanOrEqual):
        return value, high
    if isinstance(one, LessThan):
        return low, value
    if isinstance(one, LessThanOrEqual):
        return low, value + 1
    return None


_TAKERS: Final[dict[str, Callable[[Pushed, Filter, Any], Pushed | None]]] = {
    "topic": _take_topic,
    "partition": _take_partition,
    "seqno": _take_seqno,
    "timestamp": _take_timestamp,
    "key": _take_key,
    "channel": _take_channel,
}
