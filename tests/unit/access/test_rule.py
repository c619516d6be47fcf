"""Rules: what they speak of, what they cannot say, and what many of them decide together."""

from __future__ import annotations

import doctest
from random import Random

import pytest

from logboom.access import rule as module
from logboom.access.principal import ANONYMOUS, NODE, OPERATOR, check_principal
from logboom.access.rule import KINDS, RIGHTS, Effect, ObjectKind, Right, Rule, matches
from logboom.access.rule_book import ADMIN, RuleBook, Subject
from logboom.errors import InvalidPrincipal, InvalidRule

ANN = Subject("ann", frozenset({"ops"}))


def book(*rules: Rule, roles: dict[str, frozenset[str]] | None = None) -> RuleBook:
    made = RuleBook()
    made.change(dict(enumerate(rules, 1)), roles or {})
    return made


def allow(who: str, rights: str, kind: str, name: str = "*", effect: Effect = "allow") -> Rule:
    return Rule(effect, who, tuple(rights.split(",")), kind, name).check()


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders", True),
        ("orders*", "orders.eu", True),
        ("orders*", "order", False),
        ("*", "anything", True),
        ("*", "_access", False),
        ("_*", "_access", True),
        ("_audit", "_audit", True),
        ("*.raw", "a.b.raw", True),
        ("*.raw", "a.raw.b", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abcd", False),
        ("**", "x", True),
        ("team-*", "*", False),
        ("*", "*", True),
        ("?", "*", False),
        ("*?", "*", False),
        ("a.c", "abc", False),
    ],
)
def test_names_are_exact_prefixes_or_patterns(pattern: str, name: str, fits: bool) -> None:
    assert matches(pattern, name) is fits


def test_a_pattern_of_many_stars_is_soon_through() -> None:
    assert not matches("*a" * 120 + "b", "a" * 249)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (Rule("permit", "ann", ("read",), "topic"), "allow or deny"),  # type: ignore[arg-type]
        (Rule("allow", "ann", ("eat",), "topic"), "'eat' is no right"),
        (Rule("allow", "ann", (), "topic"), "no right is named"),
        (Rule("allow", "ann", ("read",), "house"), "no kind of object"),
        (Rule("allow", "ann", ("read",), "topic", ""), "names no object"),
        (Rule("allow", "ann", ("read",), "topic", "a b"), "names no object"),
        (Rule("allow", "ann", ("read",), "topic", "a" * 300), "names no object"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: Rule, word: str) -> None:
    with pytest.raises(InvalidRule, match=word):
        rule.check()


@pytest.mark.parametrize("who", ["", "_node", "a b", "group:", "role:_x", "-x", "x" * 129, "a\n", "ann\0"])
def test_who_is_somebody_there_can_be(who: str) -> None:
    with pytest.raises(InvalidPrincipal):
        Rule("allow", who, ("read",), "topic").check()


@pytest.mark.parametrize("name", ["anonymous", "ANONYMOUS", "_operator", "*", "", "é", "role:admin", "Group:x"])
def test_some_names_are_taken(name: str) -> None:
    with pytest.raises(InvalidPrincipal):
        check_principal(name)


@pytest.mark.parametrize("name", ["ann", "ann@example.org", "spiffe://example.org/ns/x", "svc-1", "7"])
def test_others_are_names(name: str) -> None:
    assert check_principal(name) == name


def test_what_no_rule_speaks_of_is_not_allowed() -> None:
    for right in RIGHTS:
        for kind in KINDS:
            assert not book().decide(ANN, right, kind, "x").allowed


@pytest.mark.parametrize("who", ["ann", "group:ops", "*"])
def test_a_rule_speaks_of_users_groups_and_everybody(who: str) -> None:
    rules = book(allow(who, "read", "topic", "orders*"))
    decided = rules.decide(ANN, "read", "topic", "orders.eu")
    assert decided.allowed
    assert decided.rule is not None
    assert str(decided.rule) == f"allow {who} read topic orders*"
    assert not rules.decide(ANN, "write", "topic", "orders.eu").allowed
    assert not rules.decide(ANN, "read", "topic", "other").allowed
    assert not rules.decide(ANN, "read", "cursor", "orders").allowed
    assert not rules.decide(Subject(ANONYMOUS), "read", "topic", "orders").allowed


def test_deny_wins_wherever_it_stands() -> None:
    for rules in (
        book(allow("ann", "all", "all"), allow("group:ops", "write", "topic", "closed", "deny")),
        book(allow("group:ops", "write", "topic", "closed", "deny"), allow("ann", "all", "all")),
    ):
        assert not rules.decide(ANN, "write", "topic", "closed").allowed
        assert rules.decide(ANN, "read", "topic", "closed").allowed
        assert rules.decide(ANN, "write", "topic", "open").allowed
        assert rules.decide(ANN, "write", "topic").allowed


def test_who_may_do_anything_to_an_object_may_know_of_it_and_a_denial_says_nothing_of_that() -> None:
    rules = book(allow("ann", "write", "topic", "a"), allow("ann", "write", "topic", "b", "deny"))
    assert rules.decide(ANN, "describe", "topic", "a").allowed
    assert not rules.decide(ANN, "describe", "topic", "b").allowed
    hidden = book(allow("ann", "all", "topic"), allow("ann", "describe", "topic", "secret", "deny"))
    assert not hidden.decide(ANN, "describe", "topic", "secret").allowed


def test_all_of_a_kind_is_asked_for_by_a_star_and_some_by_no_name() -> None:
    rules = book(allow("ann", "manage", "user", "team-*"))
    assert rules.decide(ANN, "manage", "user", "team-1").allowed
    assert rules.decide(ANN, "manage", "user").allowed
    assert not rules.decide(ANN, "manage", "user", "*").allowed
    assert book(allow("ann", "manage", "user")).decide(ANN, "manage", "user", "*").allowed


def test_a_right_to_all_is_one_that_nothing_is_taken_away_from() -> None:
    everything, closed = allow("ann", "read", "topic"), allow("group:ops", "read", "topic", "closed", "deny")
    assert book(everything).gives_all(ANN, "read", "topic")
    assert not book(everything).gives_all(ANN, "write", "topic")
    assert not book(everything, closed).gives_all(ANN, "read", "topic")
    assert book(everything, allow("ann", "write", "topic", "x", "deny")).gives_all(ANN, "read", "topic")
    assert not book(allow("ann", "read", "topic", "a*")).gives_all(ANN, "read", "topic")
    assert book().gives_all(Subject(OPERATOR), "read", "topic")


def test_roles_are_given_by_users_and_by_their_members() -> None:
    rules = book(allow("role:audit", "read", "topic", "_audit"), roles={"audit": frozenset({"group:ops", "bob"})})
    for subject in (ANN, Subject("bob"), Subject("eve", roles=frozenset({"audit"}))):
        assert rules.decide(subject, "read", "topic", "_audit").allowed
    assert not rules.decide(Subject("eve"), "read", "topic", "_audit").allowed


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_administrator_the_operator_and_the_node_may_do_everything(right: Right, kind: ObjectKind) -> None:
    for subject in (Subject("ann", roles=frozenset({ADMIN})), Subject(NODE), Subject(OPERATOR)):
        for name in ("", "x", "_x", "*"):
            assert book().decide(subject, right, kind, name).allowed


def test_a_change_counts_at_once() -> None:
    rules = book(allow("ann", "read", "topic"))
    assert rules.decide(ANN, "read", "topic", "x").allowed
    rules.change({}, {})
    assert not rules.decide(ANN, "read", "topic", "x").allowed


@pytest.mark.parametrize("seed", range(20))
def test_rules_that_are_found_by_name_decide_as_if_all_were_looked_at(seed: int) -> None:
    random = Random(seed)
    names = ["a", "ab", "abc", "a*", "ab*", "*", "*c", "a?c", "?", "_a", "_*", "b.*", "**", "a*c"]
    rules = [
        Rule(
            random.choice(("allow", "allow", "deny")),
            random.choice(("ann", "*", "group:ops", "bob")),
            (random.choice(("read", "write", "describe", "all")),),
            random.choice(("topic", "cursor", "all")),
            random.choice(names),
        )
        for _ in range(30)
    ]
    made = book(*rules)
    for name in ("", "a", "ab", "abc", "abcd", "b.x", "_a", "_b", "*", "z"):
        for right in RIGHTS:
            speaking = [
                rule
                for rule in rules
                if rule.who != "bob"
                and rule.gives(right)
                and (rule.covers("topic", name) if name else rule.covers_some("topic"))
            ]
            denying = [rule for rule in speaking if rule.effect == "deny" and (name or rule.name == "*")]
            allowing = [rule for rule in speaking if rule.effect == "allow"]
            expected = (False, denying[0]) if denying else (bool(allowing), allowing[0] if allowing else None)
            assert made.decide(ANN, right, "topic", name) == expected, (right, name)
