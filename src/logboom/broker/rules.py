"""Who may do what: every call of a broker asks, before it does anything and before it says what there is.

Asked for is a right of a caller to an object, on the event loop, and the answer comes at once. There is one place for
all front-ends: `LocalBroker` asks, and its router for each part of an append. `access.access_rules` decides by users
and rules; here is what asks, and what a broker without any has.
"""

from __future__ import annotations

from typing import Final, Protocol

from logboom.access.restriction import Restriction
from logboom.access.rule import ObjectKind, Right
from logboom.broker.caller import Caller

__all__ = ["OPEN", "ObjectKind", "OpenRules", "Right", "Rules"]


class Rules(Protocol):
    def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        """Raises a LogboomError where the caller has no such right. The node, and all of a kind, have no name."""
        ...

    def allows(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> bool:
        """The same as an answer: for what is left out where it is not allowed."""
        ...

    def gives_all(self, caller: Caller, right: Right, kind: ObjectKind) -> bool:
        """Whether the caller has this right to all objects of the kind that are not the node's own."""
        ...

    def sees_all(self, caller: Caller, kind: ObjectKind) -> bool:
        """Whether nothing of the kind is to be left out for this caller."""
        ...

    def restriction(self, caller: Caller, right: Right) -> Restriction | None:
        """Which records he may read, or write, of topics that he may; None where that is all of them."""
        ...


class OpenRules:
    """Everybody may do everything."""

    def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        return None

    def allows(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> bool:
        return True

    def gives_all(self, caller: Caller, right: Right, kind: ObjectKind) -> bool:
        return True

    def sees_all(self, caller: Caller, kind: ObjectKind) -> bool:
        return True

    def restriction(self, caller: Caller, right: Right) -> Restriction | None:
        return None


OPEN: Final = OpenRules()
