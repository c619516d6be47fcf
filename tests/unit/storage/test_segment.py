from __future__ import annotations

import pytest

from logboom.storage.segment import own_names, parse_name

NUMBERS = f"{12:020}-{3:020}"
NAMES = [
    f"{NUMBERS}-{1:010}.log",
    f"{NUMBERS}-{1:010}.idx",
    f"{NUMBERS}.snap",
    f"{NUMBERS}-{1:010}.snap",
    f"{NUMBERS}.log",
    f"{NUMBERS}-{1:010}.log.tmp",
    f"x{NUMBERS}.snap",
    f"{NUMBERS}.snap\n",
    f"\n{NUMBERS}.snap",
    f"{NUMBERS}-4000000000.log",
    f"{12:020}-1{3:019}.snap",
    f"{NUMBERS}-{1:010}.idxlog",
    "topic.json",
    "",
    f"{NUMBERS[:-1]}\u0663.snap",
    f"{7:020}-{9:020}.snap",
]


def test_many_names_are_told_apart_as_each_is_alone() -> None:
    alone = [name for name in NAMES if parse_name(name)]
    assert own_names(NAMES) == alone == [*NAMES[:3], NAMES[-1]]
    assert own_names(alone) == alone
    assert own_names([]) == own_names([""]) == []


@pytest.mark.parametrize("stray", [name for name in NAMES if not parse_name(name)])
def test_one_name_that_is_none_of_ours_does_not_hide_the_others(stray: str) -> None:
    assert own_names([NAMES[0], stray, NAMES[2]]) == [NAMES[0], NAMES[2]]
