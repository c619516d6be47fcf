"""Rules on channels and tags: which records they let somebody read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from logboom.access.rule import Rule
from logboom.access.rule_book import BUILT_IN, RuleBook, Subject
from logboom.errors import InvalidRule

ANN = Subject("ann", frozenset(("ops",)), frozenset(("night",)))


def book_of(*texts: str) -> RuleBook:
    book = RuleBook()
    rules = [Rule(*_words(text)).check() for text in texts]
    book.change(dict(enumerate(rules, 1)), {"watch": frozenset(("group:ops",))})
    return book


def _words(text: str) -> tuple[Any, str, tuple[str, ...], str, str]:
    effect, who, rights, kind, name = text.split()
    return effect, who, tuple(rights.split(",")), kind, name


def may(book: RuleBook, channel: str | None, *tags: str, client: str = "", subject: Subject = ANN) -> bool:
    return book.decide_record(subject, "read", channel, tags, client).allowed


@pytest.mark.parametrize(
    ("rules", "allowed", "refused"),
    [
        ((), [("a",), (None,), ("a", "red")], []),
        (("deny ann read channel a/#",), [(None,), ("b",), ("ab",)], [("a",), ("a/b",), ("a/b/c", "red")]),
        (("allow ann read channel a/+",), [("a/b",), ("a/b", "red")], [(None,), ("a",), ("a/b/c",)]),
        (("allow ann read channel a/*",), [("a/b/c",), ("a/",)], [("a",), ("b",)]),
        (("allow ann read channel a", "allow ann read channel b"), [("a",), ("b",)], [("c",), (None,)]),
        (("allow ann read channel #", "deny ann read channel a/#"), [("b",)], [("a/b",), (None,)]),
        (("deny ann read tag secret",), [(None,), (None, "secrets")], [(None, "secret"), ("a", "red", "secret")]),
        (("deny ann read tag se*",), [(None, "red")], [(None, "secret"), (None, "se"), (None, "red", "sea")]),
        (("allow ann read tag red",), [(None, "red"), ("a", "blue", "red")], [(None,), ("a", "blue")]),
        (
            ("allow ann read tag red", "deny ann read tag blue", "allow ann read channel a/#"),
            [("a/b", "red"), ("a", "green", "red")],
            [("a/b", "red", "blue"), ("a/b",), ("b", "red"), (None, "red")],
        ),
        (("deny group:ops read channel a",), [("b",)], [("a",)]),
        (("deny role:night read channel a",), [("b",)], [("a",)]),
        (("deny role:watch read channel a",), [("b",)], [("a",)]),
        (("deny * all channel a",), [("b",)], [("a",)]),
        (("deny anonymous read channel a", "deny bob read channel a", "deny ann write channel a"), [("a",)], []),
        (("allow ann all all *", "deny ann read tag secret"), [("a",), (None,)], [("a", "secret")]),
        (("allow ann all all *",), [("a",), (None,), ("a", "red")], []),
    ],
)
def test_a_record_is_let_through(
    rules: Sequence[str], allowed: list[tuple[str, ...]], refused: list[tuple[str, ...]]
) -> None:
    book = book_of(*rules)
    assert [record for record in allowed if not may(book, *record)] == []
    assert [record for record in refused if may(book, *record)] == []


def test_whom_no_rule_of_the_kinds_speaks_of_is_not_restricted() -> None:
    book = book_of("allow ann all all *", "allow ann read topic *", "deny bob read channel a", "deny ann write tag x")
    assert book.restriction(ANN, "read") is None
    assert book.restriction(ANN, "write") is not None
    assert book.restriction(Subject("bob"), "read") is not None
    assert book.restriction(Subject("_operator"), "write") is None
    assert not book_of("allow ann all all *").speaks_of_records
    assert all(rule.kind not in ("channel", "tag") for rule in BUILT_IN)


@pytest.mark.parametrize(
    ("name", "user", "client", "allowed", "refused"),
    [
        ("devices/%u/#", "ann", "", ["devices/ann", "devices/ann/t"], ["devices/bob", "devices/anna"]),
        ("devices/%c", "ann", "d7", ["devices/d7"], ["devices/d8", "devices/ann", "devices/"]),
        ("x-%u/%c/+", "ann", "d7", ["x-ann/d7/t"], ["x-ann/d7", "x-ann/t/d7"]),
        ("%u", "%c", "d7", ["%c"], ["d7"]),
        ("%c", "ann", "%u", ["%u"], ["ann"]),
    ],
)
def test_a_placeholder_stands_for_the_user_or_the_client(
    name: str, user: str, client: str, allowed: list[str], refused: list[str]
) -> None:
    book = book_of(f"allow * read channel {name}")
    subject = Subject(user)
    assert [channel for channel in allowed if not may(book, channel, client=client, subject=subject)] == []
    assert [channel for channel in refused if may(book, channel, client=client, subject=subject)] == []


@pytest.mark.parametrize("value", ["a/#", "#", "+", "a/b", "a+b", "a*", "*", "a#", "", "x" * 1024])
@pytest.mark.parametrize("sort", ["%u", "%c"])
def test_a_name_that_would_be_another_pattern_gives_nothing_and_takes_all_that_may_be_meant(
    value: str, sort: str
) -> None:
    user, client = (value, "") if sort == "%u" else ("ann", value)
    subject = Subject(user)
    allowing, denying = book_of(f"allow * read channel dev/{sort}/#"), book_of(f"deny * read channel dev/{sort}/in")
    for channel in ("dev/a", "dev/a/x", "dev//x", f"dev/{value}/x", "other", "dev"):
        assert not may(allowing, channel, client=client, subject=subject)
    for channel in ("dev/a/in", "dev/b/out", "dev", f"dev/{value}/in"):
        assert not may(denying, channel, client=client, subject=subject)
    assert may(denying, "other", client=client, subject=subject)
    assert may(denying, None, client=client, subject=subject)


@pytest.mark.parametrize(
    "rule",
    [
        Rule("allow", "ann", ("read",), "channel", ""),
        Rule("allow", "ann", ("read",), "channel", "a/#/b"),
        Rule("allow", "ann", ("read",), "channel", "a#"),
        Rule("allow", "ann", ("read",), "channel", "a+/b"),
        Rule("allow", "ann", ("read",), "channel", "+%u"),
        Rule("allow", "ann", ("read",), "channel", "a/+/b*"),
        Rule("allow", "ann", ("read",), "channel", "x" * 1025),
        Rule("allow", "ann", ("read",), "channel", "%u" * 513),
        Rule("allow", "ann", ("read",), "channel", "a\nb"),
        Rule("allow", "ann", ("read",), "channel", "a\x1b[2J"),
        Rule("allow", "ann", ("read",), "channel", "\ud800"),
        Rule("allow", "ann", ("read",), "tag", ""),
        Rule("allow", "ann", ("read",), "tag", "a*b"),
        Rule("allow", "ann", ("read",), "tag", "é" * 513),
        Rule("allow", "ann", ("read",), "tag", "a\u202eb"),
        Rule("allow", "ann", ("delete",), "channel", "a"),
        Rule("allow", "ann", ("read", "describe"), "tag", "a"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: Rule) -> None:
    with pytest.raises(InvalidRule):
        rule.check()


@pytest.mark.parametrize("name", ["a", "a/+/b", "#", "+", "a/#", "*", "Küche/1", "a b/c", "%u", "dev/%c/#", "100%"])
def test_a_channel_may_be_any_pattern_of_readers(name: str) -> None:
    assert Rule("deny", "*", ("read", "write"), "channel", name).check().name == name


def test_the_pipeline_is_not_for_those_who_may_read_some_records_only() -> None:
    book = book_of("allow ann all pipeline *", "allow ann all topic *", "deny ann read tag x")
    for right in ("read", "write", "describe"):
        assert not book.decide(ANN, right, "pipeline", "pipeline").allowed
    assert book.decide(ANN, "read", "topic", "orders").allowed
    book = book_of("allow ann all pipeline *", "deny ann write tag x")
    assert book.decide(ANN, "read", "pipeline", "pipeline").allowed


def test_the_rule_that_decides_is_told() -> None:
    book = book_of("allow ann read channel a/#", "deny ann read tag secret", "allow ann read channel b")
    decided = [
        book.decide_record(ANN, "read", channel, tags)
        for channel, tags in (("a/b", ()), ("a", ("secret",)), ("b", ()), ("c", ()))
    ]
    names = [(decision.allowed, decision.rule and decision.rule.name) for decision in decided]
    assert names == [(True, "a/#"), (False, "secret"), (True, "b"), (False, None)]
