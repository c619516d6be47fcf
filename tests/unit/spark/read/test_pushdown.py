"""Filters that are taken over: what is read with them, and what is left to Spark, give what the filters say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from logboom.batch import Selection
from logboom.client.file_catalog import FileCatalog
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.pushdown import push
from logboom.spark.read.split_read import COLUMNS, ScanSpec, read_split
from logboom.spark.read.table import plan_splits
from logboom.storage import DataDirectory
from support.spark.content import CHANNELS, KEYS, NOW, Row, make_topic, read_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: bool(found == value),
    EqualNullSafe: lambda found, value: bool(found == value),
    GreaterThan: lambda found, value: bool(found > value),
    GreaterThanOrEqual: lambda found, value: bool(found >= value),
    LessThan: lambda found, value: bool(found < value),
    LessThanOrEqual: lambda found, value: bool(found <= value),
    In: lambda found, value: found in value,
    StringStartsWith: lambda found, value: bool(found.startswith(value)),
    StringEndsWith: lambda found, value: bool(found.endswith(value)),
    StringContains: lambda found, value: value in found,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FileCatalog, list[Row]]]:
    path = tmp_path_factory.mktemp("pushing") / "data"
    with DataDirectory.open(str(path)) as data:
        make_topic(data, "one", 1, 300, 3)
        make_topic(data, "other", 2, 100)
    catalog = FileCatalog(path)
    yield catalog, read_rows(path, "one", 3) + read_rows(path, "other")
    catalog.close()


def holds(one: Filter, row: Row) -> bool:
    """As SQL has it: what is null is not true."""
    if isinstance(one, Not):
        inner = one.child
        null = row[COLUMNS.index(inner.attribute[0])] is None  # type: ignore[attr-defined]
        return not holds(inner, row) and not (null and not isinstance(inner, IsNull | IsNotNull | EqualNullSafe))
    found = row[COLUMNS.index(one.attribute[0])]  # type: ignore[attr-defined]
    if isinstance(one, IsNull | IsNotNull):
        return (found is None) == isinstance(one, IsNull)
    value = one.value  # type: ignore[attr-defined]
    if isinstance(one, EqualNullSafe) and (found is None or value is None):
        return found is value
    if found is None or value is None:
        return False
    if one.attribute[0] == "timestamp":  # type: ignore[attr-defined]
        found = EPOCH + timedelta(microseconds=found)
    return COMPARE[type(one)](found, value)


def moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def filters_of(name: str, values: st.SearchStrategy[Any], *kinds: Any) -> st.SearchStrategy[Filter]:
    column = (name,)
    compared = st.builds(lambda kind, value: kind(column, value), st.sampled_from(kinds), values)
    listed = st.lists(values, min_size=1, max_size=3).map(lambda some: In(column, tuple(some)))
    plain = compared | listed | st.sampled_from([IsNull(column), IsNotNull(column)])
    return plain | plain.map(Not)


ORDER = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
TEXT = (*ORDER, StringStartsWith, StringEndsWith, StringContains)
numbers = st.integers(-2, 400) | st.sampled_from([-(2**63), 2**63 - 1])
moments = st.integers(-(10**6), 10**6) | st.integers(NOW - 10**9, NOW + 10**9) | st.integers(NOW - 3, NOW + 400)
channels = st.sampled_from([text for text in CHANNELS if text is not None] + ["a/", "+", "#", "*", "gr", "x" * 2000])
filters = st.one_of(
    filters_of("seqno", numbers, *ORDER),
    filters_of("partition", st.integers(-1, 4), *ORDER),
    filters_of("topic", st.sampled_from(["one", "other", "on", "", "z"]), *TEXT),
    filters_of("timestamp", moments.map(moment), *ORDER),
    filters_of("channel", channels, *TEXT),
    filters_of("key", st.sampled_from([key for key in KEYS if key is not None] + [b"k"]), *ORDER),
    filters_of("value", st.sampled_from([b"", b"text"]), *ORDER),
)


@given(st.lists(filters, max_size=4))
def test_what_is_taken_and_what_is_left_give_what_all_filters_say(
    place: tuple[FileCatalog, list[Row]], wanted: list[Filter]
) -> None:
    catalog, rows = place
    pushed, rest = push(wanted, Selection())
    assert all(any(one is other for other in wanted) for one in rest), "given back are the very same"
    options = ReadOptions.parse({"path": str(catalog.directory), "topic": "one,other", "splitBytes": "20k"})
    job = ScanSpec(wanted=pushed.wanted)
    found = [
        (one["topic"], one["partition"], one["seqno"])
        for split in plan_splits(catalog, options, pushed)
        for batch in read_split(split, job)
        for one in batch.select(["topic", "partition", "seqno"]).to_pylist()
    ]
    taken = [one for one in wanted if not any(one is other for other in rest)]
    assert sorted(found) == [row[:3] for row in rows if all(holds(one, row) for one in taken)]


@pytest.mark.parametrize(
    "one",
    [
        *(kind(("seqno",), 5) for kind in ORDER),
        *(kind(("partition",), 5) for kind in ORDER),
        *(kind(("timestamp",), moment(5)) for kind in ORDER),
        *(kind(("topic",), "a") for kind in (EqualTo, EqualNullSafe, StringStartsWith)),
        In(("topic",), ("a", "b")),
        In(("partition",), (1, 2)),
        *(IsNotNull((name,)) for name in ("topic", "partition", "seqno", "timestamp")),
        EqualTo(("channel",), "site/7"),
        StringStartsWith(("channel",), "site/"),
        StringStartsWith(("channel",), "x*"),
        EqualTo(("key",), b"k"),
        EqualTo(("key",), b""),
    ],
)
def test_these_are_taken(one: Filter) -> None:
    assert push([one], Selection())[1] == []


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("seqno",), 5)),
        IsNull(("channel",)),
        IsNotNull(("channel",)),
        IsNotNull(("key",)),
        EqualTo(("value",), b"v"),
        EqualTo(("headers", "key"), "h"),
        In(("topic",), ("a", None)),
        GreaterThan(("topic",), "a"),
        EqualTo(("timestamp",), datetime(2026, 1, 1)),
        *(EqualTo(("channel",), text) for text in ("", "a+b", "a/#", "x*", "x" * 2000)),
        *(StringStartsWith(("channel",), text) for text in ("", "a/+", "#")),
        EqualNullSafe(("channel",), "a"),
        EqualTo(("seqno",), None),
        EqualNullSafe(("seqno",), None),
    ],
)
def test_these_are_left_to_spark(one: Filter) -> None:
    pushed, rest = push([one], Selection())
    assert rest == [one]
    assert pushed.wanted == Selection()


def test_what_options_say_of_keys_and_channels_stays() -> None:
    wanted = Selection(channel="a/#", key=b"k", tags_any=("red",))
    filters = [EqualTo(("channel",), "b"), EqualTo(("key",), b"j"), GreaterThan(("timestamp",), moment(7))]
    pushed, rest = push(filters, wanted)
    assert rest == filters[:2]
    assert pushed.wanted == Selection(tags_any=("red",), channel="a/#", key=b"k", time_from=8, time_until=2**63)


def test_of_two_for_one_channel_or_key_the_second_is_left() -> None:
    filters = [StringStartsWith(("channel",), "a"), EqualTo(("channel",), "ab"), EqualTo(("key",), b"1")]
    pushed, rest = push([*filters, EqualTo(("key",), b"2")], Selection())
    assert rest == [filters[1], EqualTo(("key",), b"2")]
    assert (pushed.wanted.channel, pushed.wanted.key) == ("a*", b"1")


def test_ranges_are_joined() -> None:
    pushed, rest = push(
        [
            GreaterThan(("seqno",), 4),
            GreaterThanOrEqual(("seqno",), 3),
            LessThan(("seqno",), 9),
            LessThanOrEqual(("timestamp",), moment(-1)),
            GreaterThanOrEqual(("timestamp",), moment(-5)),
        ],
        Selection(),
    )
    assert rest == []
    assert (pushed.seqno_from, pushed.seqno_until) == (5, 9)
    assert (pushed.wanted.time_from, pushed.wanted.time_until) == (-5, 0)
