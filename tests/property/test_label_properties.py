"""Labels never deny what is there: against a look at every record, for any records and any filter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logboom.batch import Record, Selection, build_records
from logboom.storage.labels import LabelMaker, Labels, hash_text
from unit.batch.test_selection import matches, patterns, records, stamped, tag_choice, wants

selections = st.builds(
    Selection,
    tags_any=tag_choice,
    tags_all=tag_choice,
    channel=st.none() | patterns,
    key=st.sampled_from([None, b"", b"a", b"absent"]),
)


def labels_of(batches: list[list[Record]]) -> Labels:
    maker = LabelMaker()
    for rows in batches:
        maker.add(build_records(rows))
    return maker.labels()


@given(st.lists(st.lists(records, min_size=1, max_size=8), max_size=5), st.lists(selections, min_size=1, max_size=8))
def test_a_segment_with_a_match_is_never_passed_by(batches: list[list[Record]], filters: list[Selection]) -> None:
    labels = labels_of(batches)
    decoded = Labels.decode(memoryview(labels.encode()))
    assert decoded == labels
    rows = [row for batch in batches for row in stamped(build_records(batch)).records()]
    for wanted in filters:
        if any(wants(wanted, row) for row in rows):
            assert labels.may_hold(wanted)


@given(
    st.lists(st.text(alphabet="ab/ü", min_size=1, max_size=6), min_size=1, max_size=30),
    st.lists(st.text(alphabet="ab/ü+#*", min_size=1, max_size=6), min_size=1, max_size=30),
)
def test_a_channel_that_matches_a_pattern_is_never_denied(channels: list[str], texts: list[str]) -> None:
    labels = labels_of([[Record(b"", channel=channel) for channel in channels]])
    for text in texts:
        try:
            wanted = Selection(channel=text)
        except ValueError:
            continue
        if any(matches(text, channel) for channel in channels):
            assert labels.may_hold(wanted)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(0, 2000))
def test_many_texts_hash_as_each_one_does(keys: list[bytes], size: int) -> None:
    keys = [*keys, b"/" * size, bytes(size)]
    labels = labels_of([[Record(None, key=key) for key in keys]])
    assert all(labels.keys.may_hold(key) for key in keys)
    assert len({hash_text(key) for key in keys}) == len({key[:1024] for key in keys})
