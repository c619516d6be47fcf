"""Bookmarks as the page of the binary protocol has them: every byte."""

from __future__ import annotations

import msgspec
import pytest

from logboom.batch import build_control
from logboom.errors import InvalidBookmark
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, Term
from logboom.storage.tail import Floor, LogTail, Snapshot

PLACE = Bookmark(bytes(range(16)), 3, 17, 2)
LINEAGE = 0x0102030405060708
ONE = "1AAECAwQFBgcICQoLDA0ODwMAAAARAAAAAAAAAAIAAACe9mUn"
TWO = "2AAECAwQFBgcICQoLDA0ODwMAAAARAAAAAAAAAAIAAAAIBwYFBAMCAfqnBFk"


def test_a_bookmark_without_a_lineage_is_what_it_always_was() -> None:
    assert (str(PLACE), Bookmark.parse(ONE)) == (ONE, PLACE)


def test_a_bookmark_with_a_lineage_has_it_behind_the_term() -> None:
    assert (str(PLACE._replace(lineage=LINEAGE)), Bookmark.parse(TWO)) == (TWO, PLACE._replace(lineage=LINEAGE))


@pytest.mark.parametrize("text", ["", "3" + ONE[1:], "2" + ONE[1:], "1" + TWO[1:], TWO[:-1], TWO[:-1] + "A", "é" + ONE])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InvalidBookmark):
        Bookmark.parse(text)


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (Term(1), Term(1), False),
        (Term(1), Term(2), True),
        (Term(1, 7), Term(1, 8), True),
        (Term(1, 7), Term(1), False),
        (Term(1, 7), Term(2, 7), True),
        (Term(TERM_UNKNOWN, 7), Term(1, 8), False),
    ],
)
def test_terms_differ_by_number_and_where_both_are_known_by_lineage(one: Term, other: Term, differ: bool) -> None:
    assert one.differs(other) == other.differs(one) == differ


def test_a_snapshot_without_lineages_is_read_as_one_that_knows_none() -> None:
    known = Snapshot(5, 2, 1, lineages={1: LINEAGE})
    fields = {key: value for key, value in msgspec.to_builtins(known).items() if key != "lineages"}
    old = msgspec.convert(fields, Snapshot)
    assert (old.lineages, Snapshot.decode(known.encode())) == ({}, known)


def test_a_log_knows_the_lineages_of_its_last_terms() -> None:
    tail = LogTail()
    for term in range(1, 100):
        tail.advance(build_control(Floor(0)).header, 0, term, Floor(0, term + 1000))
    assert tail.lineages == {term: term + 1000 for term in range(36, 100)}
