"""What all rules together decide: deny wins, then allow; what no rule speaks of is not allowed.

Rules for channels and tags decide which records, of topics that other rules give. Whom none of them speaks of is not
restricted. Where some of them allow channels, a record needs one that fits; so it does of tags.

Nothing here knows where rules are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from logboom.access.principal import ANONYMOUS, EVERYBODY, GROUP, NODE, OPERATOR, ROLE
from logboom.access.restriction import Restriction
from logboom.access.rule import ALL, CHANNEL, RECORD_KINDS, TAG, ObjectKind, Right, Rule
from logboom.batch.selection import fits_channel, fits_tag

ADMIN: Final = "admin"
"""The role that may do everything: there from the beginning."""
REPLICA: Final = "replica"
"""The role of a node that copies this one: it reads all topics, and changes nothing."""
BUILT_IN: Final = (
    Rule("allow", f"{ROLE}{ADMIN}", (ALL,), ALL),
    Rule("allow", f"{ROLE}{ADMIN}", (ALL,), ALL, "_*"),
    Rule("allow", f"{ROLE}{REPLICA}", ("read",), "topic"),
    Rule("allow", f"{ROLE}{REPLICA}", ("describe",), "cursor"),
    Rule("allow", f"{ROLE}{REPLICA}", ("describe",), "group"),
    Rule("allow", f"{ROLE}{REPLICA}", ("describe",), "node"),
)
UNBOUND: Final = frozenset((NODE, OPERATOR))
SUBJECTS_MOST: Final = 65_536
"""Whose rules about which kind are kept sorted out. More than that make us forget, and no more."""


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


_WILD: Final = re.compile(r"[*?]")
_Placed = tuple[int, Rule]
"""A rule, and where it stands among all of them."""


class KindRules:
    """Rules about one kind of object, by how the names begin that they speak of: up to a star, or a question mark."""

    def __init__(self, rules: list[_Placed]) -> None:
        self._all = rules
        self._by_start: dict[str, list[_Placed]] = {}
        for placed in rules:
            self._by_start.setdefault(_WILD.split(placed[1].name, 1)[0], []).append(placed)
        self._sizes = sorted(set(map(len, self._by_start)))

    def near(self, name: str) -> list[_Placed]:
        """Those that may speak of this object, in their order; without a name, all of them."""
        if not name:
            return self._all
        found = [placed for size in self._sizes for placed in self._by_start.get(name[:size], ())]
        return sorted(found, key=_place)


class RuleBook:
    def __init__(self) -> None:
        self._roles: dict[str, frozenset[str]] = {}
        """Who has a role: names as rules write them."""
        self._by_who: dict[str, list[_Placed]] = {}
        self._of: dict[tuple[Subject, str], KindRules] = {}
        self.speaks_of_records = False
        """Whether any rule is about channels or tags."""
        self.change({}, {})

    def change(self, rules: Mapping[int, Rule], roles: Mapping[str, frozenset[str]]) -> None:
        """From now on these count."""
        self._roles, self._by_who = dict(roles), {}
        for place, rule in enumerate((*BUILT_IN, *rules.values())):
            self._by_who.setdefault(rule.who, []).append((place, rule))
        self.speaks_of_records = any(rule.kind in RECORD_KINDS for rule in rules.values())
        self._of.clear()

    def decide(self, subject: Subject, right: Right, kind: ObjectKind, name: str = "") -> Decision:
        """Whether this is allowed. Without a name: to any object of the kind at all."""
        if subject.principal in UNBOUND:
            return Decision(True)
        if kind == "pipeline" and (restricting := self.record_rules(subject, "read")):
            return Decision(False, restricting[0])  # what it makes holds records, and names where they are
        allowing: Rule | None = None
        for _, rule in self._rules_of(subject, kind).near(name):
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
        speaking = [rule for _, rule in self._rules_of(subject, kind).near("") if rule.gives(right)]
        return all(rule.effect == "allow" for rule in speaking) and any(rule.name == "*" for rule in speaking)

    def record_rules(self, subject: Subject, right: Right) -> list[Rule]:
        """Those for channels and tags that speak of him, and of this right."""
        if not self.speaks_of_records or subject.principal in UNBOUND:
            return []
        placed = {*self._rules_of(subject, CHANNEL).near(""), *self._rules_of(subject, TAG).near("")}
        found = (rule for _, rule in sorted(placed, key=_place))
        return [rule for rule in found if rule.kind in RECORD_KINDS and rule.gives(right)]

    def restriction(self, subject: Subject, right: Right, client: str = "") -> Restriction | None:
        """Which records he may read, or write; None where that is all of them."""
        rules = self.record_rules(subject, right)
        if not rules:
            return None
        named: dict[tuple[str, str], list[str]] = {}
        for rule in rules:
            text, names = _meant(rule, subject, client), named.setdefault((rule.kind, rule.effect), [])
            names += () if text is None else (text,)
        allowed = (named.get((kind, "allow")) for kind in (CHANNEL, TAG))
        channels, tags = (None if names is None else tuple(names) for names in allowed)
        channels_denied, tags_denied = (tuple(named.get((kind, "deny"), ())) for kind in (CHANNEL, TAG))
        return Restriction(channels, channels_denied, tags, tags_denied)

    def decide_record(
        self, subject: Subject, right: Right, channel: str | None, tags: Sequence[str], client: str = ""
    ) -> Decision:
        """Whether he may read, or write, a record that has these. The same as `restriction` says, one by one."""
        allowed: dict[str, Rule | None] = {}
        for rule in self.record_rules(subject, right):
            text = _meant(rule, subject, client)
            names = tags if rule.kind == TAG else () if channel is None else (channel,)
            fits = fits_tag if rule.kind == TAG else fits_channel
            is_meant = text is not None and any(fits(text, name) for name in names)
            if rule.effect == "deny" and is_meant:
                return Decision(False, rule)
            if rule.effect == "allow":
                allowed[rule.kind] = allowed.get(rule.kind) or (rule if is_meant else None)
        if not all(allowed.values()):
            return Decision(False)
        return Decision(True, next(iter(allowed.values()), None))

    def _rules_of(self, subject: Subject, kind: ObjectKind) -> KindRules:
        found = self._of.get((subject, kind))
        if found is None:
            if len(self._of) >= SUBJECTS_MOST:
                self._of.clear()
            names = subject.names()
            roles = (f"{ROLE}{role}" for role, members in self._roles.items() if not members.isdisjoint(names))
            speaking = (self._by_who.get(name, ()) for name in names.union(roles))
            of_kind = [placed for some in speaking for placed in some if placed[1].covers_some(kind)]
            found = self._of[subject, kind] = KindRules(sorted(of_kind, key=_place))
        return found


def _meant(rule: Rule, subject: Subject, client: str) -> str | None:
    """The channels, or tags, that a rule speaks of; None where that is none of them."""
    return rule.name if rule.kind == TAG else rule.filled_in(subject.principal, client)


def _place(placed: _Placed) -> int:
    return placed[0]
