"""The rules of a node with users: what a caller may do, by who he is now.

Users, tokens and rules are looked at as they are, not as they were when somebody signed in: whoever was removed may do
nothing any more. What was decided is remembered until any of them changes, so that asking again costs a look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.access.principal import ANONYMOUS
from logboom.access.restriction import Restriction
from logboom.access.rule import ObjectKind, Right, matches
from logboom.access.rule_book import UNBOUND, Decision, Subject
from logboom.broker.access.access_state import TOPIC, AccessState
from logboom.broker.api.topics import PIPELINE_TOPIC
from logboom.broker.caller import Caller
from logboom.errors import LogboomError, NotAllowed, SignInRequired, TopicNotFound

REMEMBERED_MOST: Final = 65_536
"""Decisions. Whoever asks for ever new names makes us forget, and no more."""
RESTRICTIONS_MOST: Final = 4096
"""They hold patterns, for each client that calls itself otherwise."""
VOUCHED: Final = frozenset(("certificate", "bearer"))
"""Whoever signs in so needs no user here: somebody else says who he is."""
TOKEN: Final = "token:"
PASSWORD: Final = "password"
REACHING_FAR: Final = frozenset(("user", "node", "pipeline"))
"""Not for a token that names topics: who manages users, say, could give himself all others."""
_NO: Final = Decision(False)
_YES: Final = Decision(True)
_Question = tuple[str, frozenset[str], str, tuple[int, int], Caller | None, str, str, str]


class AccessRules:
    """Implements broker.rules.Rules."""

    def __init__(self, state: AccessState, anonymous_may_all: bool, now_us: Callable[[], int]) -> None:
        self._state = state
        self._anonymous_may_all = anonymous_may_all
        self._now_us = now_us
        self._decided: dict[_Question, Decision] = {}
        self._restricted: dict[_Question, Restriction | None] = {}
        self.on_refusal: Callable[[Caller, str, str, LogboomError], None] = lambda caller, act, name, error: None
        """Called with what was refused: `RIGHT KIND`, the name of the object, and what the caller is told."""
        state.on_change += [self._decided.clear, self._restricted.clear]

    def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        if not self.decide(caller, right, kind, name).allowed:
            error = self._refusal(caller, right, kind, name)
            self.on_refusal(caller, f"{right} {kind}", name, error)
            raise error

    def allows(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> bool:
        return self.decide(caller, right, kind, name).allowed

    def gives_all(self, caller: Caller, right: Right, kind: ObjectKind) -> bool:
        if self.sees_all(caller, kind):
            return True
        subject = self.subject_of(caller)
        if subject is None or not self.allows(caller, right, kind, "*"):  # a token may reach less far
            return False
        return self._state.book.gives_all(subject, right, kind)

    def sees_all(self, caller: Caller, kind: ObjectKind) -> bool:
        is_own = caller.through is None
        return (is_own and caller.principal in UNBOUND) or (caller.principal == ANONYMOUS and self._anonymous_may_all)

    def decide(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> Decision:
        if caller.expires and caller.expires <= self._now_us():
            return _NO
        if caller.through is not None and not self._is_spoken_for(caller, caller.through):
            return _NO
        question = (caller.principal, caller.groups, caller.by, caller.account, caller.through, right, kind, name)
        found = self._decided.get(question)
        if found is None:
            if len(self._decided) >= REMEMBERED_MOST:
                self._decided.clear()
            found = self._decided[question] = self._find(caller, right, kind, name)
        return found

    def restriction(self, caller: Caller, right: Right) -> Restriction | None:
        if not self._state.book.speaks_of_records:
            return None
        who = caller.principal, caller.groups, caller.by, caller.account, caller.through
        question = (*who, right, "record", caller.client)
        if question not in self._restricted:
            if len(self._restricted) >= RESTRICTIONS_MOST:
                self._restricted.clear()
            subject = None if self.sees_all(caller, "topic") else self.subject_of(caller)
            found = None if subject is None else self._state.book.restriction(subject, right, caller.client)
            self._restricted[question] = found
        return self._restricted[question]

    def _find(self, caller: Caller, right: Right, kind: ObjectKind, name: str) -> Decision:
        if kind == "topic" and name == TOPIC and caller.principal not in UNBOUND:
            return _NO  # what SCRAM makes of passwords is there
        if kind == "topic" and name == PIPELINE_TOPIC:
            kind, name = "pipeline", PIPELINE_TOPIC.removeprefix("_")  # so that a rule for all speaks of it
        if caller.principal == ANONYMOUS:
            return _YES if self._anonymous_may_all else self._state.book.decide(Subject(ANONYMOUS), right, kind, name)
        subject = self.subject_of(caller)
        if subject is None or (caller.by.startswith(TOKEN) and not self._is_within(caller, right, kind, name)):
            return _NO
        return self._state.book.decide(subject, right, kind, name)

    def subject_of(self, caller: Caller) -> Subject | None:
        """The caller as rules see him; None where he may do nothing any more."""
        name, groups = caller.principal, caller.groups
        if caller.through is not None:
            if not self._is_spoken_for(caller, caller.through):
                return None
            if groups and not self.allows(caller.through, "manage", "user", "*"):
                groups = frozenset()  # as nobody else gives groups
        if name in UNBOUND or name == ANONYMOUS:
            return Subject(name)
        if name not in self._state.users and caller.by in VOUCHED:
            return Subject(name, groups)
        if caller.by == PASSWORD and caller.account[0] != self._state.account_of(name)[0]:
            return None  # he was removed, and this is another
        known = self._state.subject_of(name)
        return None if known is None else known._replace(groups=known.groups | groups)

    def _is_spoken_for(self, caller: Caller, through: Caller) -> bool:
        """Whether this one may speak for that one now: who could set his password may. Nobody speaks for the node."""
        if caller.principal == ANONYMOUS:
            return True
        return caller.principal not in UNBOUND and self.allows(through, "manage", "user", caller.principal)

    def is_himself(self, caller: Caller, name: str) -> bool:
        """Whether a user speaks of himself: with his password, as it is now. Who has only a token is not himself."""
        if caller.by != PASSWORD or caller.principal != name or self.subject_of(caller) is None:
            return False
        return caller.account == self._state.account_of(name)

    def _is_within(self, caller: Caller, right: Right, kind: ObjectKind, name: str) -> bool:
        """Whether the caller's token reaches so far."""
        token = self._state.tokens.get(caller.by.removeprefix(TOKEN))
        if token is None or token.user != caller.principal:
            return False
        if token.rights and right not in token.rights and right != "describe":
            return False
        if not token.topics:
            return True
        if kind == "topic":
            return not name or any(matches(some, name) for some in token.topics)
        return kind not in REACHING_FAR

    def _refusal(self, caller: Caller, right: Right, kind: ObjectKind, name: str) -> LogboomError:
        """Whoever may not know of a topic hears what he would hear if there were none."""
        if caller.through is not None and not self._is_spoken_for(caller, caller.through):
            return NotAllowed(caller.through.principal, "manage", "user", caller.principal)
        if caller.principal == ANONYMOUS and not self._state.speaks_of_anonymous:
            return SignInRequired()
        is_hidden = kind == "topic" and name and right != "create" and not self.allows(caller, "describe", kind, name)
        return TopicNotFound(name, "this node") if is_hidden else NotAllowed(caller.principal, right, kind, name)
