from __future__ import annotations

from logboom.storage.segment import parse_name, parse_names

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
    alone = [match for match in map(parse_name, NAMES) if match]
    assert [found[:2] for found in parse_names(NAMES)] == [(match[1], match[2] or "") for match in alone]
    assert [found[2] for found in parse_names(NAMES)] == ["log", "idx", "snap", "snap"]
    assert parse_names([]) == []
