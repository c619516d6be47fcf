"""Who may do what: every call of a broker asks, before it does anything and before it says what there is.

Asked for is a right of a caller to an object, on the event loop, and the answer comes at once. There is one place for
all front-ends: `LocalBroker` asks, and its router for each part of an append. So far everybody may do everything.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol

from logboom.broker.caller import Caller

Right = Literal["read", "write", "create", "configure", "delete", "describe", "manage"]
ObjectKind = Literal["topic", "cursor", "stage", "key", "node"]


class Rules(Protocol):
    def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        """Raises a LogboomError where the caller has no such right. The node, and all of a kind, have no name."""
        ...


class OpenRules:
    """Everybody may do everything."""

    def check(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        return None


OPEN: Final = OpenRules()
