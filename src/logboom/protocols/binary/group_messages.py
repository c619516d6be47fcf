"""Calls about groups of consumers, as heads of CALL. Each is named for the broker's method."""

from __future__ import annotations

import msgspec

from logboom.broker.api import GroupJoin, GroupMove, HeldLog, Settlement, Start


class JoinGroup(msgspec.Struct, tag="join_group"):
    join: GroupJoin


class BeatGroup(msgspec.Struct, tag="beat_group", omit_defaults=True):
    group: str
    member: str
    generation: int
    held: list[HeldLog] = []
    wait_ms: int = 0


class LeaveGroup(msgspec.Struct, tag="leave_group"):
    group: str
    member: str


class CommitGroup(msgspec.Struct, tag="commit_group"):
    group: str
    member: str
    moves: list[GroupMove]


class ListGroups(msgspec.Struct, tag="list_groups", omit_defaults=True):
    prefix: str = ""


class DescribeGroup(msgspec.Struct, tag="describe_group"):
    group: str


class ResetGroup(msgspec.Struct, tag="reset_group", omit_defaults=True):
    group: str
    topics: str
    start: Start = Start()
    dry_run: bool = False


class DeleteGroup(msgspec.Struct, tag="delete_group"):
    group: str


class SettleJobs(msgspec.Struct, tag="settle_jobs"):
    group: str
    member: str
    settlements: list[Settlement]


GroupCall = (
    JoinGroup
    | BeatGroup
    | LeaveGroup
    | CommitGroup
    | ListGroups
    | DescribeGroup
    | ResetGroup
    | DeleteGroup
    | SettleJobs
)
