"""What all rules together decide: deny wins, then allow; what no rule speaks of is not allowed.

Nothing here knows where rules are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from logboom.access.principal import ANONYMOUS, EVERYBODY, GROUP, NODE, OPERATOR, ROLE
from logboom.access.rule import ALL, ObjectKind, Right, Rule

ADMIN: Final = "admin"
"""The role that may do everything: there from the beginning."""
REPLICA: Final = "replica"
"""The role of a node that copies this one: it reads all topics, and changes nothing."""
BUILT_IN: Final = (
    Rule("allow", f"{ROLE}{ADMIN}", (ALL,), ALL),
    Rule("allow", f"{ROLE}{ADMIN}", (ALL,), ALL, "_*"),
    Rule("allow", f"{ROLE}{REPLICA}", ("read",), "topic"),
    Rule("allow", f"{ROLE}{REPLICA}", ("describe",), "cursor"),
    Rule("allow", f"{ROLE}{REPLICA}", ("describe",), "node"),
)
UNBOUND: Final = frozenset((NODE, OPERATOR))
SUBJECTS_MOST: Final = 65_536
"""Whose rules are kept sorted out. More than that make us forget, and no more."""


class Decision(NamedTuple):
    allowed: bool
    rule: Rule | None = None
    """The one that decides; None where there is none, or none is needed."""


class Subject(NamedTuple):
    """Who is asked about: hashable, so that decisions can be remembered by it."""

    principal: str
    groups: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """By which rules may speak of it."""
        everybody = () if self.principal == ANONYMOUS else (EVERYBODY,)
        groups = (f"{GROUP}{name}" for name in self.groups)
        roles = (f"{ROLE}{name}" for name in self.roles)
        return frozenset((self.principal, *everybody, *groups, *roles))


class RuleBook:
    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        self._roles: dict[str, frozenset[str]] = {}
        """Who has a role: names as rules write them."""
        self._of: dict[Subject, list[Rule]] = {}

    def change(self, rules: Mapping[int, Rule], roles: Mapping[str, frozenset[str]]) -> None:
        """From now on these count."""
        self._rules, self._roles = dict(rules), dict(roles)
        self._of.clear()

    def decide(self, subject: Subject, right: Right, kind: ObjectKind, name: str = "") -> Decision:
        """Whether this is allowed. Without a name: to any object of the kind at all."""
        if subject.principal in UNBOUND:
            return Decision(True)
        allowing: Rule | None = None
        for rule in self._rules_of(subject):
            if not rule.gives(right) or not (rule.covers(kind, name) if name else rule.covers_some(kind)):
                continue
            if rule.effect == "allow":
                allowing = allowing or rule
            elif name or rule.name == "*":
                return Decision(False, rule)
        return Decision(allowing is not None, allowing)

    def gives_all(self, subject: Subject, right: Right, kind: ObjectKind) -> bool:
        """Whether this is allowed to every object of the kind, and nothing is taken away from that."""
        if subject.principal in UNBOUND:
            return True
        speaking = [rule for rule in self._rules_of(subject) if rule.covers_some(kind) and rule.gives(right)]
        return all(rule.effect == "allow" for rule in speaking) and any(rule.name == "*" for rule in speaking)

    def _rules_of(self, subject: Subject) -> list[Rule]:
        found = self._of.get(subject)
        if found is None:
            if len(self._of) >= SUBJECTS_MOST:
                self._of.clear()
            names = subject.names()
            roles = (f"{ROLE}{role}" for role, members in self._roles.items() if not members.isdisjoint(names))
            names = names.union(roles)
            found = self._of[subject] = [rule for rule in (*BUILT_IN, *self._rules.values()) if rule.who in names]
        return found
