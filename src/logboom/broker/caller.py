"""Who asks: every call of the broker says so.

A front-end makes one for each connection, when the connection is made and when its peer signs in, and passes it on with
everything that comes over it; nobody makes one for a single call. The broker alone decides by it what is allowed
(`rules.py`), once for all front-ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logboom.access.principal import ANONYMOUS, NODE


@dataclass(frozen=True, slots=True)
class Caller:
    principal: str = ANONYMOUS
    groups: frozenset[str] = frozenset()
    """Besides those that the node's users say: such as a certificate's or a bearer token's."""
    protocol: str = ""
    """By which front-end; empty for what calls within the node."""
    address: str = ""
    """Of the peer, HOST:PORT; empty on a Unix socket and within the node."""
    by: str = ""
    """How he has signed in: `password`, `token:ID`, `certificate`, `system`; empty where he has not."""
    expires: int = 0
    """Until when that holds, microseconds; 0 for as long as the connection."""
    account: tuple[int, int] = (0, 0)
    """Of who has shown a password: when the user and the password were made. A later user of this name is another."""
    client: str = ""
    """What his program calls itself: `%c` in rules. Anybody can say anything here."""
    through: Caller | None = None
    """Who speaks for him, as a gateway does: that one must be allowed to, whenever something is asked for."""

    def is_like(self, other: Caller) -> bool:
        """Whether both are the same principal in the same groups, from wherever they call.

        Their records may lie in one batch: that is appended in the name of one of them.
        """
        if self is other:
            return True
        ours = self.principal, self.groups, self.by, self.account, self.client, self.through
        return ours == (other.principal, other.groups, other.by, other.account, other.client, other.through)


EVERYBODY: Final = Caller()
"""For those who have no connection of their own to name."""
ITSELF: Final = Caller(NODE)
"""The node, where it calls its own broker."""
