"""What rules leave of a batch, on columns, is what they decide of each record by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logboom.access.restriction import Restriction
from logboom.access.rule import Rule
from logboom.access.rule_book import RuleBook, Subject
from logboom.batch import Batch, build, to_table
from logboom.broker.api import Filter
from logboom.broker.read.row_filter import filter_run

LEVELS = st.sampled_from(["a", "b", "ann", "", "ab", "a\n", "ü"])
CHANNELS = st.none() | st.lists(LEVELS, min_size=1, max_size=3).map("/".join)
TAGS = st.lists(st.sampled_from(["red", "read", "re", "r", "blue", "ü"]), max_size=3)
PATTERNS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "+", "%u", "%c", "", "ü"]), max_size=2), st.sampled_from(["", "#", "a", "a*"])
).map(lambda parts: "/".join([*parts[0], parts[1]]) or "+")
NAMES = st.sampled_from(["red", "re*", "*", "blue", "none", "ü*"])
WHO = st.sampled_from(["ann", "*", "group:ops", "bob"])
RECORDS = st.lists(st.tuples(CHANNELS, TAGS), min_size=1, max_size=30)
CODECS = st.sampled_from(["none", "lz4", "zstd"])


@st.composite
def books(draw: st.DrawFn) -> RuleBook:
    rules: dict[int, Rule] = {}
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["channel", "tag"]))
        name = draw(PATTERNS if kind == "channel" else NAMES)
        if kind == "channel" and name.endswith("*") and "+" in name:
            name = name.removesuffix("*")
        rules[number] = Rule(draw(st.sampled_from(["allow", "deny"])), draw(WHO), ("read",), kind, name).check()
    book = RuleBook()
    book.change(rules, {})
    return book


@given(books(), RECORDS, CODECS, st.sampled_from(["", "a", "b/#"]))
def test_columns_say_the_same_as_records(
    book: RuleBook, records: list[tuple[str | None, list[str]]], codec: str, client: str
) -> None:
    ann = Subject("ann", frozenset(("ops",)))
    expected = [book.decide_record(ann, "read", channel or None, tags, client).allowed for channel, tags in records]
    batch = build(
        [b"%d" % number for number in range(len(records))],
        channels=[channel for channel, _ in records],
        tags=[tags for _, tags in records],
        codec=codec,
    )
    restriction = book.restriction(ann, "read", client) or Restriction()
    refused = restriction.find_refused(Batch.parse(bytes(batch.data)))
    assert (refused is None) == all(expected)
    if refused is not None and refused.kind == "channel":
        bad = {channel or "" for (channel, _), is_good in zip(records, expected, strict=True) if not is_good}
        assert refused.name in bad
    if refused is not None and refused.kind == "tag" and refused.name:
        assert any(refused.name in tags for (_, tags), is_good in zip(records, expected, strict=True) if not is_good)
    found = filter_run(batch.data, Filter(), 0, restriction=restriction)
    wanted = [number for number, is_good in enumerate(expected) if is_good]
    assert found.seqnos.cast("B").cast("q").tolist() == wanted
    assert found.next_seqno == len(records)
    if wanted:
        assert Batch.parse(found.data).values() == [b"%d" % number for number in wanted]
        assert to_table(found.data, 0, 0).table.num_rows == len(wanted)
