"""A range of time, on columns and on headers."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import (
    HEADER_SIZE,
    KIND_LOST,
    NO_TIMESTAMP,
    Batch,
    Record,
    Selection,
    build,
    build_control,
    build_records,
    read_header,
    stamp,
)

BASE, APPENDED = 100, 50
moments = st.none() | st.integers(40, 60) | st.sampled_from([NO_TIMESTAMP + 1, -1, 0, 2**63 - 1])
bounds = st.none() | st.integers(38, 62) | st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1, 2**63])
rows = st.lists(
    st.builds(
        Record,
        st.binary(max_size=2),
        key=st.sampled_from([None, b"", b"a"]),
        timestamp=moments,
        channel=st.sampled_from([None, "a", "a/b"]),
        tags=st.sampled_from([(), ("red",)]),
    ),
    min_size=1,
    max_size=8,
)
selections = st.builds(
    Selection,
    tags_any=st.sampled_from([(), ("red",), ("blue",)]),
    channel=st.sampled_from([None, "a", "a*", "b"]),
    key=st.sampled_from([None, b"", b"a"]),
    time_from=bounds,
    time_until=bounds,
)


def stamped(batch: Batch) -> Batch:
    return Batch.parse(stamp(batch.data[:HEADER_SIZE], BASE, 1, APPENDED, 1, 1) + bytes(batch.data[HEADER_SIZE:]))


@given(rows, bounds, bounds)
def test_times_are_selected_from_and_until(records: list[Record], low: int | None, high: int | None) -> None:
    batch = stamped(build_records(records))
    shown = [APPENDED if record.timestamp is None else record.timestamp for record in records]
    expected = [
        BASE + number
        for number, moment in enumerate(shown)
        if (low is None or moment >= low) and (high is None or moment < high)
    ]
    wanted = Selection(time_from=low, time_until=high)
    assert [record.seqno for record in batch.records(wanted)] == expected
    assert batch.to_arrow(["seqno"], wanted).column(0).to_pylist() == expected


@given(rows, selections)
def test_no_batch_with_a_record_that_matches_is_passed_over(records: list[Record], wanted: Selection) -> None:
    batch = stamped(build_records(records))
    if list(batch.records(wanted)):
        assert wanted.may_hold(batch.header)


def test_a_header_tells_of_times_and_of_columns_that_are_not_there() -> None:
    header = stamped(build([b"a", b"b"], timestamps=[10, 20])).header
    assert not Selection(time_from=21).may_hold(header)
    assert Selection(time_from=20).may_hold(header)
    assert not Selection(time_until=10).may_hold(header)
    assert Selection(time_until=11).may_hold(header)
    for absent in (Selection(key=b"k"), Selection(channel="a"), Selection(tags_any=("t",)), Selection(tags_all=("t",))):
        assert not absent.may_hold(header)
    unset = stamped(build([b"a"])).header
    assert Selection(time_from=APPENDED, time_until=APPENDED + 1).may_hold(unset)
    assert not Selection(time_from=APPENDED + 1).may_hold(unset)
    assert not Selection(time_until=APPENDED).may_hold(unset)


class Note(msgspec.Struct):
    text: str


def test_of_batches_that_are_no_data_nobody_can_tell() -> None:
    control = read_header(build_control(Note("hi")).data)
    assert Selection(time_from=2**62, key=b"k").may_hold(control)
    assert Selection(time_from=2**62).may_hold(stamped(build([b"a"])).header._replace(kind=KIND_LOST))


def test_a_selection_knows_the_columns_it_looks_at() -> None:
    assert Selection(seqno_from=1, seqno_until=2).columns == ()
    assert Selection(time_from=0).columns == ("timestamp",)
    every = Selection(None, None, ("a",), ("b",), "c", b"k", None, 0)
    assert every.columns == ("timestamp", "key", "channel", "tags")
