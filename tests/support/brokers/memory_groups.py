"""The calls of a MemoryBroker that are about groups: it has none, and nobody can make one."""

from __future__ import annotations

from logboom.broker.api import (
    GroupDescription,
    GroupInfo,
    GroupJoin,
    GroupMove,
    GroupReset,
    GroupStanding,
    HeldLog,
    LeasedJobs,
    RefusedMove,
    RefusedSettlement,
    Settlement,
    Start,
    TakeJobs,
)
from logboom.broker.caller import EVERYBODY, Caller
from logboom.errors import GroupNotFound, MemberUnknown


class MemoryGroups:
    async def join_group(self, join: GroupJoin, *, caller: Caller = EVERYBODY) -> GroupStanding:
        raise GroupNotFound(join.group)

    async def beat_group(
        self,
        group: str,
        member: str,
        generation: int,
        held: list[HeldLog],
        wait_ms: int = 0,
        *,
        caller: Caller = EVERYBODY,
    ) -> GroupStanding:
        raise MemberUnknown(group, member)

    async def leave_group(self, group: str, member: str, *, caller: Caller = EVERYBODY) -> None:
        raise MemberUnknown(group, member)

    async def commit_group(
        self, group: str, member: str, moves: list[GroupMove], *, caller: Caller = EVERYBODY
    ) -> list[RefusedMove]:
        raise MemberUnknown(group, member)

    async def list_groups(self, prefix: str = "", *, caller: Caller = EVERYBODY) -> list[GroupInfo]:
        return []

    async def describe_group(self, group: str, *, caller: Caller = EVERYBODY) -> GroupDescription:
        raise GroupNotFound(group)

    async def reset_group(
        self, group: str, topics: str, start: Start, dry_run: bool = False, *, caller: Caller = EVERYBODY
    ) -> list[GroupReset]:
        return []

    async def delete_group(self, group: str, *, caller: Caller = EVERYBODY) -> None:
        raise GroupNotFound(group)

    async def take_jobs(self, request: TakeJobs, *, caller: Caller = EVERYBODY) -> LeasedJobs:
        raise MemberUnknown(request.group, request.member)

    async def settle_jobs(
        self, group: str, member: str, settlements: list[Settlement], *, caller: Caller = EVERYBODY
    ) -> list[RefusedSettlement]:
        raise MemberUnknown(group, member)
