from __future__ import annotations

import json
from typing import Any

import pytest

from logboom.errors import ConfigError
from logboom.spark.read.offsets import OffsetMark, Offsets

MARKS = {
    ("events", 0): OffsetMark("aa" * 16, 17, 3),
    ("events", 1): OffsetMark("aa" * 16, 17, 3, 2**64 - 1),
    ("events", 10): OffsetMark("aa" * 16, 0),
    ("naïve", 2): OffsetMark("bb" * 16, 2**62, 0),
}


@pytest.mark.parametrize(
    "offsets",
    [
        Offsets({}),
        Offsets(MARKS),
        Offsets(MARKS, is_initial=True),
        Offsets(MARKS, since={("events", 0): OffsetMark("aa" * 16, 5)}),
        Offsets(MARKS, cursor={"name": "reports", "servers": "localhost:1773"}),
    ],
)
def test_offsets_come_back_from_a_checkpoint_as_they_were(offsets: Offsets) -> None:
    found = Offsets.from_json(json.loads(json.dumps(offsets.to_json())))
    assert (found, found.cursor) == (offsets, offsets.cursor)


def test_equal_offsets_are_the_same_text_however_they_were_found() -> None:
    """Spark compares texts: another one would be news."""
    turned = dict(reversed(MARKS.items()))
    assert json.dumps(Offsets(MARKS).to_json()) == json.dumps(Offsets(turned).to_json())


def test_a_topic_says_its_id_once_and_a_term_and_lineage_only_where_they_are_known() -> None:
    assert Offsets(MARKS).to_json()["topics"]["events"] == {
        "id": "aa" * 16,
        "seqnos": {"0": 17, "1": 17, "10": 0},
        "terms": {"0": 3, "1": 3},
        "lineages": {"1": 2**64 - 1},
    }


@pytest.mark.parametrize(
    "found",
    [
        7,
        None,
        "17",
        [1, 2],
        {},
        {"events": {"0": 17}},
        {"logOffset": 3},
        {"topics": 5},
        {"topics": {"events": 17}},
        {"topics": {"events": {"id": "aa", "seqnos": {"0": "far"}, "terms": {}}}},
        {"topics": {"events": {"id": "aa", "seqnos": {"zero": 1}, "terms": {}}}},
    ],
)
def test_the_checkpoint_of_another_source_is_refused_by_name(found: Any) -> None:
    with pytest.raises(ConfigError, match=r"checkpointLocation.* one checkpoint per query"):
        Offsets.from_json(found)
