"""Who asks: every call of the broker says so.

A front-end makes one for each connection, when the connection is made, and passes it on with everything that comes over
it; nobody makes one for a single call. The broker alone decides by it what is allowed (`rules.py`), once for all
front-ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ANONYMOUS: Final = "anonymous"
"""The principal of those who did not say who they are."""


@dataclass(frozen=True, slots=True)
class Caller:
    principal: str = ANONYMOUS
    groups: frozenset[str] = frozenset()
    protocol: str = ""
    """By which front-end; empty for what calls within the node."""
    address: str = ""
    """Of the peer, HOST:PORT; empty on a Unix socket and within the node."""

    def is_like(self, other: Caller) -> bool:
        """Whether both are the same principal in the same groups, from wherever they call.

        Their records may lie in one batch: that is appended in the name of one of them.
        """
        return self is other or (self.principal == other.principal and self.groups == other.groups)


EVERYBODY: Final = Caller()
"""For those who have no connection of their own to name."""
