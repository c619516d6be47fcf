"""One rule: who may, or may not, do what to which objects.

    allow alice read,write topic orders*        allow group:ops manage node
    deny  *     write      topic orders.closed  allow role:audit read topic _audit

`who` is a user, `group:NAME`, `role:NAME`, `*` for all who have signed in, or `anonymous`. An object's name is exact; a
prefix, with a `*` at its end; or a pattern, with `*` and `?` anywhere. Names that begin with `_` are the node's own:
only a rule that begins so itself speaks of them.

Rules for channels and tags are about records, inside the topics that other rules give:

    allow sensors write channel devices/%u/#    deny group:guests read tag secret

A channel is a pattern as readers have them (`batch/selection.py`), in which `%u` stands for the principal and `%c` for
the id that the client gives itself; a tag is exact, or a prefix with a `*` at its end.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final, Literal, get_args

import msgspec

from logboom.access.principal import ANONYMOUS, EVERYBODY, GROUP, ROLE, check_principal
from logboom.access.restriction import check_tag
from logboom.batch.selection import pattern
from logboom.errors import InvalidPattern, InvalidRule

Right = Literal["read", "write", "create", "configure", "delete", "describe", "manage"]
ObjectKind = Literal["topic", "cursor", "group", "transaction", "pipeline", "user", "node", "channel", "tag"]
Effect = Literal["allow", "deny"]
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
KINDS: Final[tuple[ObjectKind, ...]] = get_args(ObjectKind)
CHANNEL: Final = "channel"
TAG: Final = "tag"
RECORD_KINDS: Final = frozenset((CHANNEL, TAG))
"""What a record has. Only rules of exactly these kinds restrict somebody to some records; those for all do not."""
RECORD_RIGHTS: Final = ("read", "write")
ALL: Final = "all"
"""Every right, or every kind."""
NAME_MAX: Final = 260
"""Of a name in a rule that is not for channels or tags: those are longer."""
_NAME: Final = re.compile(r"[A-Za-z0-9._/:*?-]{1,260}", re.ASCII)
_PLACEHOLDER: Final = re.compile("%[uc]")
_BREAKING: Final = frozenset("/+#*")
"""In the place of a placeholder these would make another pattern of the one that was meant."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    effect: Effect
    who: str
    rights: tuple[str, ...]
    """Some of RIGHTS; or `all`."""
    kind: str
    """One of KINDS; or `all`."""
    name: str = "*"

    def check(self) -> Rule:
        """Itself, where it means something. Raises InvalidRule or InvalidPrincipal."""
        if self.effect not in get_args(Effect):
            raise InvalidRule(f"a rule begins with allow or deny, not with {self.effect[:40]!r}")
        check_who(self.who)
        unknown = [right for right in self.rights if right not in (*RIGHTS, ALL)]
        if unknown or not self.rights or len(self.rights) > len(RIGHTS):
            wrong = f"{unknown[0][:40]!r} is no right" if unknown else "no right is named, or one more than once"
            raise InvalidRule(f"{wrong}: there are {', '.join(RIGHTS)} and all")
        if self.kind not in (*KINDS, ALL):
            raise InvalidRule(f"{self.kind[:40]!r} is no kind of object: there are {', '.join(KINDS)} and all")
        if self.kind in RECORD_KINDS:
            self._check_record()
        elif _NAME.fullmatch(self.name) is None:
            raise InvalidRule(f"{self.name[:100]!r} names no object: write a name, a prefix* or a pattern with * and ?")
        return self

    def _check_record(self) -> None:
        other = [right for right in self.rights if right not in (*RECORD_RIGHTS, ALL)]
        if other:
            raise InvalidRule(f"nobody can {other[0]} a {self.kind}: rules for them are about read and write")
        if not self.name.isprintable():
            raise InvalidRule(f"{self.name[:100]!r} has characters that cannot be shown: use a pattern that fits it")
        try:
            if self.kind == TAG:
                check_tag(self.name)
            else:
                pattern(_PLACEHOLDER.sub("xx", self.name))  # as long as it is, so that it is not too long
        except InvalidPattern as error:
            raise InvalidRule(str(error)) from None

    def gives(self, right: Right) -> bool:
        """Whether it speaks of this right. Who may do anything to an object may know of it."""
        if right in self.rights or ALL in self.rights:
            return True
        return right == "describe" and self.effect == "allow"

    def covers(self, kind: ObjectKind, name: str) -> bool:
        return self.kind in (kind, ALL) and matches(self.name, name)

    def covers_some(self, kind: ObjectKind) -> bool:
        return self.kind in (kind, ALL)

    def filled_in(self, principal: str, client: str) -> str | None:
        """The channels that it speaks of for this principal, at this client; None where that is none.

        Where a name cannot stand in a pattern (it is empty, or has / + # *), a rule that allows speaks of none, and one
        that denies of all that it could be about: everything from the level of the placeholder on.
        """
        names = {"%u": principal, "%c": client}
        if all(names[each] and _BREAKING.isdisjoint(names[each]) for each in _PLACEHOLDER.findall(self.name)):
            filled = _PLACEHOLDER.sub(lambda each: names[each[0]], self.name)
            with suppress(InvalidPattern):  # it may be too long now
                pattern(filled)
                return filled
        if self.effect == "allow":
            return None
        levels = self.name.split("/")
        before = next((number for number, level in enumerate(levels) if _PLACEHOLDER.search(level)), 0)
        return "/".join([*levels[:before], "#"])

    def __str__(self) -> str:
        return f"{self.effect} {self.who} {','.join(self.rights)} {self.kind} {self.name}"


def check_who(who: str) -> None:
    """Raises InvalidPrincipal."""
    if who not in (EVERYBODY, ANONYMOUS):
        check_principal(who.removeprefix(ROLE if who.startswith(ROLE) else GROUP))


def matches(pattern: str, name: str) -> bool:
    """
    >>> matches("orders*", "orders.eu"), matches("*", "_access"), matches("*.raw", "a.raw"), matches("a", "ab")
    (True, False, True, False)
    """
    if name.startswith("_") and not pattern.startswith("_"):
        return False
    if pattern == "*":
        return True
    if name == "*":
        return False  # it stands for all names, and is none
    front = pattern[:-1]
    if "*" not in front and "?" not in pattern:
        return name.startswith(front) if pattern.endswith("*") else name == pattern
    return _is_like(pattern, name)


def _is_like(pattern: str, name: str) -> bool:
    """Whether a pattern with stars and question marks fits: in time that grows with both lengths, whatever they are."""
    at = star = seen = 0
    back = -1
    while seen < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, back = at, seen
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[seen]):
            at, seen = at + 1, seen + 1
        elif back >= 0:
            back += 1
            at, seen = star + 1, back
        else:
            return False
    return not pattern[at:].strip("*")
