"""A member of a group, as a client is one: it beats, holds what it is given, and gives back what it is asked for."""

from __future__ import annotations

from typing import Any

from logboom.broker.api import Grant, GroupJoin, GroupMove, GroupStanding, HeldLog, RefusedMove
from logboom.broker.caller import EVERYBODY, Caller
from logboom.storage.bookmark import Bookmark
from support.brokers.any_broker import AnyBroker

Log = tuple[str, int]


class GroupMember:
    def __init__(self, broker: AnyBroker, name: str, topics: str = "rooms", caller: Caller = EVERYBODY, **wishes: Any):
        self.broker = broker
        self.caller = caller
        wishes = {"group": "billing", "session_ms": 60_000, **wishes}
        self.wish = GroupJoin(member=name.ljust(16, "-"), topics=topics, **wishes)
        self.standing = GroupStanding(0, 0, [])
        self.keeps = False
        """Whether it holds on to what it is asked for."""

    @property
    def group(self) -> str:
        return self.wish.group

    @property
    def member(self) -> str:
        return self.wish.member

    @property
    def grants(self) -> dict[Log, Grant]:
        """What it holds, by topic and partition."""
        return {
            (grant.topic, grant.partition): grant
            for grant in self.standing.grants
            if self.keeps or not grant.is_asked_back
        }

    @property
    def logs(self) -> list[Log]:
        return sorted(self.grants)

    async def join(self) -> GroupMember:
        self.standing = await self.broker.join_group(self.wish, caller=self.caller)
        return self

    async def beat(self, wait_ms: int = 0) -> GroupMember:
        held = [HeldLog(grant.topic_id, grant.partition) for grant in self.grants.values()]
        about = self.group, self.member, self.standing.generation, held, wait_ms
        self.standing = await self.broker.beat_group(*about, caller=self.caller)
        return self

    async def leave(self) -> None:
        await self.broker.leave_group(self.group, self.member, caller=self.caller)

    async def commit(self, seqno: int, topic: str = "rooms", partition: int = 0) -> list[RefusedMove]:
        """Of a log that it holds, or has held."""
        grant = next(each for each in self.standing.grants if (each.topic, each.partition) == (topic, partition))
        return await self.commit_as(grant, seqno)

    async def commit_as(self, grant: Grant, seqno: int) -> list[RefusedMove]:
        place = str(Bookmark(bytes.fromhex(grant.topic_id), grant.partition, seqno, 0))
        move = GroupMove(grant.topic, grant.partition, place, grant.generation)
        return await self.broker.commit_group(self.group, self.member, [move], caller=self.caller)
