from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import HEADER_SIZE, KIND_LOST, Batch, Record, Selection, build, build_control, build_records, stamp
from logboom.errors import InvalidPattern, UnsupportedBatch

BASE = 100
LEVELS = ["a", "b", "ab", "", "ü", "a.b", "a b", "(", "$", "^", "\\", "[x]", "line\nbreak", "a|b"]
TAGS = ["red", "re", "größe", ""]

channels = st.none() | st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join)
records = st.builds(
    Record,
    st.none() | st.binary(max_size=3),
    key=st.sampled_from([None, b"", b"a", b"ab"]),
    channel=channels,
    tags=st.lists(st.sampled_from(TAGS), max_size=3).map(tuple),
)
wildcards = st.tuples(
    st.lists(st.sampled_from([*LEVELS, "+", "+"]), min_size=1, max_size=3), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join(parts[0] + parts[1]))
patterns = (
    wildcards
    | st.sampled_from(["#", "+", "*", "a*", "a/*", "ü*"])
    | st.lists(st.sampled_from(LEVELS), max_size=2).map(lambda levels: "/".join(levels) + "*")
).filter(bool)


def matches(pattern: str, channel: str | None) -> bool:
    """What a channel pattern means, level by level."""
    if not channel:
        return False
    wanted, levels = pattern.split("/"), channel.split("/")
    if "+" not in wanted and "#" not in wanted:
        return channel.startswith(pattern[:-1]) if pattern.endswith("*") else channel == pattern
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        levels = levels[: len(wanted)]
    return len(levels) == len(wanted) and all(w in ("+", level) for w, level in zip(wanted, levels, strict=True))


def wants(selection: Selection, record: Record) -> bool:
    """The selection, record by record."""
    assert record.seqno is not None
    return (
        (selection.seqno_from is None or record.seqno >= selection.seqno_from)
        and (selection.seqno_until is None or record.seqno < selection.seqno_until)
        and (not selection.tags_any or not set(selection.tags_any).isdisjoint(record.tags))
        and set(selection.tags_all) <= set(record.tags)
        and (selection.channel is None or matches(selection.channel, record.channel))
        and (selection.key is None or record.key == selection.key)
    )


def stamped(batch: Batch) -> Batch:
    return Batch.parse(stamp(batch.data[:HEADER_SIZE], BASE, 1, 0, 1, 1) + bytes(batch.data[HEADER_SIZE:]))


def check(rows: list[Record], selection: Selection) -> None:
    batch = stamped(build_records(rows))
    expected = [record for record in batch.records() if wants(selection, record)]
    assert list(batch.records(selection)) == expected
    assert batch.to_arrow(["seqno"], selection).column(0).to_pylist() == [record.seqno for record in expected]
    mask = selection.mask(batch)
    if mask is None:
        assert len(expected) == len(rows)
    else:
        assert mask.to_pylist() == [wants(selection, record) for record in batch.records()]


some_seqno = st.none() | st.integers(BASE - 3, BASE + 25)


@given(st.lists(records, min_size=1, max_size=20), some_seqno, some_seqno)
def test_seqnos_are_selected_from_and_until(
    rows: list[Record], seqno_from: int | None, seqno_until: int | None
) -> None:
    check(rows, Selection(seqno_from, seqno_until))


tag_choice = st.lists(st.sampled_from([*TAGS, "absent"]), max_size=3).map(tuple)


@given(st.lists(records, min_size=1, max_size=20), tag_choice, tag_choice)
def test_tags_are_selected_by_any_and_by_all(rows: list[Record], some: tuple[str, ...], every: tuple[str, ...]) -> None:
    check(rows, Selection(tags_any=some, tags_all=every))


@given(st.lists(records, min_size=1, max_size=20), patterns)
def test_channels_are_selected_by_pattern(rows: list[Record], pattern: str) -> None:
    check(rows, Selection(channel=pattern))


@given(st.lists(records, min_size=1, max_size=20), st.sampled_from([b"", b"a", b"absent"]))
def test_keys_are_selected_by_their_bytes(rows: list[Record], key: bytes) -> None:
    check(rows, Selection(key=key))


@given(
    st.lists(records, min_size=1, max_size=20),
    some_seqno,
    some_seqno,
    tag_choice,
    st.none() | patterns,
    st.sampled_from([None, b"a"]),
)
def test_everything_asked_for_must_hold_at_once(
    rows: list[Record], low: int | None, high: int | None, some: tuple[str, ...], pattern: str | None, key: bytes | None
) -> None:
    check(rows, Selection(low, high, tags_any=some, channel=pattern, key=key))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("site/7/temp", ["site/7/temp"], ["site/7", "site/7/temp/x", "Site/7/temp"]),
        ("site/+/temp", ["site/7/temp", "site//temp"], ["site/temp", "site/7/8/temp", "site/7/temp/x"]),
        ("site/#", ["site", "site/7", "site/7/temp", "site/"], ["sites", "site7", "a/site"]),
        ("+/#", ["site", "site/7", "/"], []),
        ("#", ["a", "a/b", "/", "line\nbreak"], []),
        ("+", ["a", "ü", "a b"], ["a/b", "/"]),
        ("site/7*", ["site/7", "site/70", "site/7/temp"], ["site/6", "site"]),
        ("*", ["a", "a/b"], []),
        ("a.c", ["a.c"], ["abc"]),
        ("+/a.c", ["x/a.c"], ["x/abc"]),
    ],
)
def test_a_pattern_means_what_the_page_says(pattern: str, yes: list[str], no: list[str]) -> None:
    batch = build([b"v"] * (len(yes) + len(no) + 1), channels=[*yes, *no, None])
    assert [record.channel for record in batch.records(Selection(channel=pattern))] == yes


@pytest.mark.parametrize(
    "pattern", ["", "a#", "#/a", "a/#/b", "##", "a/##", "a+", "+a/b", "a/b+", "++", "x" * 1025, "\ud800"]
)
def test_a_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Selection(channel=pattern)


def test_a_pattern_may_have_1024_bytes() -> None:
    assert Selection(channel="ü" * 512).channel
    with pytest.raises(InvalidPattern, match="1024"):
        Selection(channel="ü" * 513)


@pytest.mark.parametrize("selection", [{"tags_any": ("\ud800",)}, {"tags_all": ("a", "\ud800")}])
def test_a_tag_no_record_can_have_is_refused(selection: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(InvalidPattern):
        Selection(**selection)  # type: ignore[arg-type]


def test_a_selection_without_restrictions_needs_no_mask() -> None:
    batch = build([b"v"] * 20, tags=[["t"]] * 20)
    assert Selection().mask(batch) is None
    assert Selection(seqno_from=0, seqno_until=20).mask(batch) is None
    assert len(list(batch.records(Selection()))) == 20


def test_columns_that_are_absent_match_nothing() -> None:
    batch = build([b"v"] * 20)
    for selection in (
        Selection(tags_any=("t",)),
        Selection(tags_all=("t",)),
        Selection(channel="#"),
        Selection(key=b""),
    ):
        assert list(batch.records(selection)) == []


def test_a_selection_of_a_batch_without_records_is_refused_before_anything_is_made_for_its_seqnos() -> None:
    lost = build_control(msgspec.defstruct("Note", [("x", int)])(1), KIND_LOST, 2**32 - 1)
    with pytest.raises(UnsupportedBatch):
        Selection(seqno_from=1).mask(lost)
