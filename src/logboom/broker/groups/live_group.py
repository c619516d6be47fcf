"""A group while the node runs: how it is kept, and what is known of its members."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from logboom.broker.groups.group_entry import GrantEntry, GroupEntry
from logboom.broker.groups.presence import MemberPresence
from logboom.broker.groups.shares import LogId


@dataclass(slots=True)
class GroupCounts:
    """Since the node began."""

    joins: int = 0
    expired: int = 0
    """Members that were silent for too long."""
    moves: int = 0
    """Logs that were given to a member."""
    taken: int = 0
    """Logs that a member did not give back in time."""
    commits: int = 0
    """Places that were moved."""
    refused: int = 0
    """Moves of places that were not made."""


class QueueStanding(NamedTuple):
    """How a group that shares records stands in one log."""

    base: int
    in_flight: int
    delayed: int


@dataclass(slots=True, eq=False)
class LiveGroup:
    """A group, as it is kept, and what is known of its members."""

    name: str
    entry: GroupEntry
    presences: dict[str, MemberPresence] = field(default_factory=dict)
    waiting: dict[str, set[asyncio.Future[None]]] = field(default_factory=dict)
    """Beats, by their member, until there is something to tell."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_kept: bool = True
    """Whether it is on disk: not while it is being made."""
    due_s: float = inf
    """When it is looked at next, because something may be due."""
    retry_s: float = inf
    """When it is looked at again, because what was due could not be written down."""
    is_stale: bool = False
    """Whether it is about to be looked at again."""
    is_inherited: bool = False
    """Whether its generations are those of another node, which may have given out later ones."""
    _holders: tuple[GroupEntry | None, dict[LogId, GrantEntry]] = field(default_factory=lambda: (None, {}))

    @property
    def holders(self) -> dict[LogId, GrantEntry]:
        """Who holds each log."""
        entry, found = self._holders
        if entry is not self.entry:
            found = {grant.log: grant for grant in self.entry.grants}
            self._holders = self.entry, found
        return found

    async def wait(self, member: str, rest_s: float) -> None:
        """Until there is something to tell this member, or for so long."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self.waiting.setdefault(member, set())
        waiting.add(news)
        try:
            await asyncio.wait((news,), timeout=rest_s)
        finally:
            waiting.discard(news)
            if not waiting and self.waiting.get(member) is waiting:
                del self.waiting[member]

    def wake(self, member: str) -> None:
        for news in list(self.waiting.get(member, ())):
            if not news.done():
                news.set_result(None)
