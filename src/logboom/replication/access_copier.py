"""Users, tokens, roles, rules and quotas of a source, brought to its replica: so that it knows them when it takes over.

They are given only to whoever may manage users at the source, for what is made of passwords is among them. Where this
node may not, it goes on without, keeps its own, and says so; it asks again from time to time.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logboom.broker.replica import Replica
from logboom.errors import AccessError, ConnectionLost, Unavailable
from logboom.replication.carrier import logger
from logboom.replication.facts import read_kept
from logboom.replication.source_link import SourceLink

COPIED: Final = "copied"
RETRY_S: Final = 60.0
UNKNOWN: Final = "not copied: nothing was heard of the source"
UNSUPPORTED: Final = "not copied: the source runs a release that has none"
NAMELESS: Final = "not copied: this replica does not sign in at its source, see replicate.token_file"


class AccessCopier:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._version = ""
        """Of what is here."""
        self._retry_at = 0.0
        self._may_ask = False
        self.state = UNKNOWN

    def begin(self, has_signed_in: bool, can_tell: bool) -> None:
        """There is a new connection to the source."""
        self._may_ask, self._retry_at = has_signed_in and can_tell, 0.0
        if not self._may_ask:
            self._leave(UNSUPPORTED if has_signed_in else NAMELESS)

    def _leave(self, state: str) -> None:
        """Those of this node count."""
        self._replica.copies_access, self._version = False, ""
        if state != self.state and state != NAMELESS:
            logger.warning("users and rules are %s", state)
        self.state = state

    async def copy(self, link: SourceLink) -> None:
        """What has changed at the source."""
        now = asyncio.get_running_loop().time()
        if not self._may_ask or now < self._retry_at:
            return
        try:
            version, entries = read_kept(await link.ask(f"ACCESS {self._version}".rstrip()))
        except ConnectionLost:
            raise
        except (Unavailable, AccessError) as refusal:
            self._retry_at = now + RETRY_S
            self._leave(f"not copied: {refusal}")
            return
        if entries is not None:
            await self._replica.set_access(entries)
        if self.state != COPIED:
            logger.info("users and rules are those of the source")
        self._replica.copies_access, self._version, self.state = True, version, COPIED
