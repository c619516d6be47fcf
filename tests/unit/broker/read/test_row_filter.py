"""A filter over stored batches gives what a look at every record would, and says how far it came."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import (
    BATCH_SIZE_MAX,
    HEADER_SIZE,
    KIND_LOST,
    Batch,
    Record,
    build,
    build_control,
    build_records,
    stamp,
)
from logboom.broker.api import Filter
from logboom.broker.read import row_filter
from logboom.broker.read.row_filter import Found, filter_run
from logboom.errors import InvalidPattern
from logboom.storage.bookmark import TERM_UNKNOWN
from logboom.storage.config import MIB
from logboom.storage.tail import Floor
from support.mutants.batches import with_fields
from unit.batch.test_selection import patterns, records, tag_choice, wants

BASE = 100
LOST = msgspec.defstruct("Note", [("reason", str)])("gone")


def run_of(batches: list[Batch], term: int = 1) -> memoryview:
    """These batches as a log would have stored them, from BASE on; each begins a term of its own."""
    stored, seqno = [], BASE
    for index, batch in enumerate(batches, start=1):
        stored.append(stamp(batch.data[:HEADER_SIZE], seqno, index, 1_000 * index, term + index, 1))
        stored.append(bytes(batch.data[HEADER_SIZE:]))
        seqno += batch.header.record_count
    return memoryview(b"".join(stored))


def rows_of(data: memoryview) -> list[Record]:
    """Every record of a run, one by one."""
    rows: list[Record] = []
    while data:
        batch = Batch.parse(data)
        rows += batch.records() if batch.header.kind == 0 else []
        data = data[batch.header.size :]
    return rows


def found_rows(found: Found) -> list[Record]:
    if not found.data:
        assert not found.seqnos
        return []
    batch = Batch.parse(found.data)
    batch.verify()
    assert batch.header.base_seqno == batch.header.index == batch.header.term == 0
    numbers = found.seqnos.cast("q").tolist()
    return [msgspec.structs.replace(row, seqno=n) for row, n in zip(batch.records(), numbers, strict=True)]


def read_all(data: memoryview, wanted: Filter, seqno: int, until: int | None, found_bytes: int) -> list[Record]:
    """As a reader does: again and again from where the last one ended."""
    end = rows_of(data)[-1].seqno
    assert end is not None
    end = end + 1 if until is None else min(end + 1, until)
    rows: list[Record] = []
    while True:
        found = filter_run(data, wanted, seqno, until, found_bytes=found_bytes)
        assert found.damage is None
        assert found.next_seqno > seqno or found.next_seqno >= end
        rows += found_rows(found)
        assert all(row.seqno is not None and seqno <= row.seqno < found.next_seqno for row in found_rows(found))
        seqno = found.next_seqno
        if seqno >= end:
            return rows


filters = st.builds(
    Filter,
    tags_any=tag_choice,
    tags_all=tag_choice,
    channel=st.none() | patterns,
    key=st.sampled_from([None, None, b"", b"a"]),
)
batch_rows = st.lists(records, min_size=1, max_size=12)
plain = st.lists(st.builds(Record, st.binary(max_size=3), key=st.sampled_from([None, b"a", b"ab"])), min_size=1)


@given(
    st.lists(st.tuples(batch_rows | plain, st.sampled_from(["none", "lz4"])), min_size=1, max_size=8),
    filters,
    st.integers(0, 20),
    st.none() | st.integers(0, 60),
    st.sampled_from([1, 200, row_filter.FOUND_BYTES]),
)
def test_a_filter_leaves_what_a_look_at_every_record_does(
    batches: list[tuple[list[Record], str]], wanted: Filter, skipped: int, until: int | None, found_bytes: int
) -> None:
    data = run_of([build_records(rows, codec=codec) for rows, codec in batches])
    rows = rows_of(data)
    seqno = BASE + min(skipped, len(rows) - 1)
    end = None if until is None else seqno + until
    expected = [
        row
        for row in rows
        if wants(wanted.selection(seqno), row) and (end is None or (row.seqno is not None and row.seqno < end))
    ]
    assert read_all(data, wanted, seqno, end, found_bytes) == expected


def test_many_batches_of_any_kind_give_the_same() -> None:
    dice = random.Random(5)
    names = ["a", "b", "ab", "abc"]

    def rows(kind: int, count: int) -> list[Record]:
        return [
            Record(
                dice.randbytes(20),
                key=dice.choice([None, b"a", b"ab"]) if kind & 1 else None,
                tags=tuple(dice.sample(names, dice.randrange(3))) if kind & 2 else (),
                channel="/".join(dice.choices(names, k=2)) if kind & 4 else None,
                timestamp=dice.choice([None, 5, 6]) if kind & 8 else None,
            )
            for _ in range(count)
        ]

    batches = [build_records(rows(dice.choice([1, 1, 1, *range(16)]), dice.choice([1, 3, 90]))) for _ in range(300)]
    data = run_of(batches)
    everything = rows_of(data)
    for wanted in (
        Filter(key=b"a"),
        Filter(tags_any=("ab", "b")),
        Filter(tags_all=("a", "abc")),
        Filter(channel="a/+", key=b"ab"),
        Filter(channel="+/abc"),
        Filter(channel="ab*"),
        Filter(tags_any=("nowhere",)),
    ):
        expected = [row for row in everything if wants(wanted.selection(), row)]
        assert read_all(data, wanted, BASE, None, row_filter.FOUND_BYTES) == expected


def test_a_record_without_a_time_shows_when_it_was_appended() -> None:
    data = run_of([build([b"x"], keys=[b"k"]), build([b"y"], keys=[b"k"], timestamps=[7])])
    assert [row.timestamp for row in found_rows(filter_run(data, Filter(key=b"k"), BASE))] == [1_000, 7]


def test_the_body_of_a_batch_that_lacks_the_column_is_not_looked_at() -> None:
    data = bytearray(run_of([build([b"x" * 50] * 3, tags=[["t"]] * 3), build([b"hit"], keys=[b"k"])]))
    data[HEADER_SIZE + 20] ^= 1
    found = filter_run(memoryview(data), Filter(key=b"k"), BASE)
    assert found.damage is None
    assert [(row.seqno, row.value) for row in found_rows(found)] == [(BASE + 3, b"hit")]
    assert filter_run(memoryview(data), Filter(tags_any=("t",)), BASE).damage is not None


@pytest.mark.parametrize("keyed", [True, False])
def test_a_flipped_byte_is_damage_behind_what_was_found_whether_it_hid_a_match_or_not(keyed: bool) -> None:
    """In plain batches, and in others that are searched for the text first."""
    channel = None if keyed else "c"
    batches = [build([b"v%d" % n], keys=[b"key"], channels=channel) for n in range(40)]
    data = run_of(batches)
    size = len(data) // 40
    for number in (0, 1, 39):
        for position in range(HEADER_SIZE, size):
            broken = bytearray(data)
            broken[number * size + position] ^= 0x10
            found = filter_run(memoryview(broken), Filter(key=b"key"), BASE, path="/f", position=1000)
            assert found.damage is not None
            assert (found.damage.seqno_from, found.damage.seqno_until) == (BASE + number, BASE + number + 1)
            assert (found.damage.path, found.damage.position) == ("/f", 1000 + number * size)
            assert found.next_seqno == BASE + number
            assert [row.seqno for row in found_rows(found)] == [BASE + n for n in range(number)]


def test_a_broken_header_ends_the_run_there() -> None:
    data = bytearray(run_of([build([b"x"], keys=[b"k"])] * 3))
    data[len(data) // 3 + 50] ^= 1
    found = filter_run(memoryview(data), Filter(key=b"k"), BASE)
    assert [row.seqno for row in found_rows(found)] == [BASE]
    assert found.damage is not None
    assert (found.damage.seqno_from, found.damage.seqno_until) == (BASE + 1, None)
    cut = run_of([build([b"x"], keys=[b"k"])] * 3)[:-8]
    assert filter_run(cut, Filter(key=b"k"), BASE).next_seqno == BASE + 2


def test_a_batch_in_the_place_of_another_is_damage() -> None:
    one = run_of([build([b"x"], keys=[b"k"])])
    found = filter_run(memoryview(bytes(one) * 2), Filter(key=b"k"), BASE)
    assert found.damage is not None
    assert found.next_seqno == BASE + 1


def test_lost_records_are_told_unless_they_lie_before_the_start() -> None:
    data = run_of([build([b"x"], keys=[b"k"]), build_control(LOST, KIND_LOST, 5), build([b"y"], keys=[b"k"])])
    found = filter_run(data, Filter(key=b"k"), BASE)
    assert [row.seqno for row in found_rows(found)] == [BASE]
    assert found.damage is not None
    assert (found.damage.seqno_from, found.damage.seqno_until) == (BASE + 1, BASE + 6)
    inside = filter_run(data, Filter(key=b"k"), BASE + 3).damage
    assert inside is not None
    assert (inside.seqno_from, inside.seqno_until) == (BASE + 3, BASE + 6)
    behind = filter_run(data, Filter(key=b"k"), BASE + 6)
    assert behind.damage is None
    assert [row.seqno for row in found_rows(behind)] == [BASE + 6]


def test_a_batch_of_a_newer_release_is_told_and_not_passed_over() -> None:
    newer = Batch.trusted(with_fields(bytes(build([b"x"]).data), version=9))
    found = filter_run(run_of([build([b"y"], keys=[b"k"]), newer]), Filter(key=b"k"), BASE)
    assert found.damage is not None
    assert (found.damage.seqno_from, found.damage.seqno_until) == (BASE + 1, BASE + 2)


def test_control_batches_hold_nothing_and_the_term_is_that_of_the_record_before() -> None:
    data = run_of([build([b"x"], keys=[b"k"]), build_control(Floor(0)), build([b"y"] * 4, keys=[b"k"] * 4)])
    found = filter_run(data, Filter(key=b"k"), BASE)
    assert len(found_rows(found)) == 5
    assert (found.next_seqno, found.term) == (BASE + 5, 4)
    assert filter_run(data, Filter(key=b"k"), BASE, BASE + 1).term == 2
    assert filter_run(data, Filter(key=b"none"), BASE, BASE + 3).term == 4
    assert filter_run(data, Filter(key=b"none"), BASE, BASE).term == TERM_UNKNOWN


def test_nothing_left_says_how_far_it_came() -> None:
    data = run_of([build([b"x"] * 10, tags=[["t"]] * 10)] * 5)
    nothing = memoryview(b"")
    assert filter_run(data, Filter(tags_any=("u",)), BASE + 7) == (nothing, nothing, BASE + 50, 6, None)
    assert filter_run(nothing, Filter(tags_any=("u",)), 5) == (nothing, nothing, 5, TERM_UNKNOWN, None)


def test_enough_is_enough_and_the_rest_comes_next() -> None:
    rows = 200
    data = run_of([build([b"x" * 10_000] * rows, tags=[["t"]] * rows, codec="lz4")] * 20)
    found = filter_run(data, Filter(tags_any=("t",)), BASE, found_bytes=100_000)
    assert BASE < found.next_seqno <= BASE + rows
    assert len(found.data) < 3_000_000
    assert found.term == 2
    taken = read_all(data, Filter(tags_any=("t",)), BASE, None, 100_000)
    assert [row.seqno for row in taken] == [*range(BASE, BASE + 20 * rows)]


def test_one_batch_of_found_records_stays_within_the_limits_of_a_batch() -> None:
    """More records than one may have; and more bytes, where a large batch follows a small one."""
    count = row_filter.RECORDS_MAX + 10
    found = filter_run(run_of([build([b""] * count, channels="c")]), Filter(channel="c"), BASE)
    assert (len(found.seqnos) // 8, found.next_seqno) == (row_filter.RECORDS_MAX, BASE + row_filter.RECORDS_MAX)
    small = build([b"x" * (3 * MIB)], tags=[["t"]], codec="lz4")
    large = build([b"x" * (BATCH_SIZE_MAX // 2 - MIB)] * 2, tags=[["t"]] * 2, codec="lz4")
    first = filter_run(run_of([small, large]), Filter(tags_any=("t",)), BASE)
    assert (first.next_seqno, first.term) == (BASE + 1, 2)
    second = filter_run(run_of([small, large]), Filter(tags_any=("t",)), BASE + 1)
    assert second.seqnos.cast("q").tolist() == [BASE + 1, BASE + 2]


def test_found_records_and_their_seqnos_fit_in_a_frame_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = run_of([build([b"v"] * 1000, keys=[b"k"] * 1000)])
    whole = filter_run(data, Filter(key=b"k"), BASE)
    limit = len(whole.data) + len(whole.seqnos) // 2
    monkeypatch.setattr(row_filter, "BATCH_SIZE_MAX", limit)
    first = filter_run(data, Filter(key=b"k"), BASE)
    assert len(first.data) + len(first.seqnos) <= limit
    assert (len(first.seqnos), first.next_seqno) == (8 * 500, BASE + 500)
    assert found_rows(first) + found_rows(filter_run(data, Filter(key=b"k"), BASE + 500)) == found_rows(whole)


def test_a_filter_that_means_nothing_is_refused() -> None:
    with pytest.raises(InvalidPattern):
        filter_run(memoryview(b""), Filter(channel="a#"), 0)
    with pytest.raises(InvalidPattern):
        filter_run(memoryview(b""), Filter(tags_any=("\ud800",)), 0)
