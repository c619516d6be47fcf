"""Groups of consumers of a source, brought to its replica: members and what they hold survive a take-over.

They are given to whoever may describe all groups at the source, as the role `replica` may. Where this node may not, its
groups have no members when it takes over, and their places all the same: those are cursors.
"""

from __future__ import annotations

import asyncio

from logboom.broker.replica import Replica
from logboom.errors import AccessError, ConnectionLost, Unavailable
from logboom.replication.carrier import logger
from logboom.replication.facts import read_kept
from logboom.replication.source_link import SourceLink

RETRY_S = 60.0


class GroupCopier:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._version = ""
        """Of what is here."""
        self._retry_at = 0.0
        self._may_ask = False

    def begin(self, can_tell: bool) -> None:
        """There is a new connection to the source."""
        self._may_ask, self._retry_at, self._version = can_tell, 0.0, ""

    async def copy(self, link: SourceLink) -> None:
        """What has changed at the source."""
        now = asyncio.get_running_loop().time()
        if not self._may_ask or now < self._retry_at:
            return
        try:
            version, entries = read_kept(await link.ask(f"GROUPS {self._version}".rstrip()))
        except ConnectionLost:
            raise
        except (Unavailable, AccessError) as refusal:
            self._retry_at = now + RETRY_S
            logger.warning("groups of consumers are not copied: %s", refusal)
            return
        if entries is not None:
            await self._replica.set_groups(entries)
        self._version = version
