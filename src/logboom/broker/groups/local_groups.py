"""The calls of a LocalBroker that are about groups: who may, then what is done.

A member reads a group, as it reads topics: who may is a consumer's rule. Who resets one writes it.
"""

from __future__ import annotations

from collections.abc import Callable

from logboom.broker.access.access_admin import EVERY
from logboom.broker.admission import Admission
from logboom.broker.api.cursors import CursorMove
from logboom.broker.api.groups import (
    GroupDescription,
    GroupInfo,
    GroupJoin,
    GroupMove,
    GroupReset,
    GroupStanding,
    HeldLog,
    RefusedMove,
)
from logboom.broker.api.reads import ReadRequest, Start
from logboom.broker.caller import EVERYBODY, Caller
from logboom.broker.catalog import Hosted
from logboom.broker.groups.coordinator import Coordinator
from logboom.broker.groups.group_report import GroupReport
from logboom.broker.groups.group_reset import GroupResets
from logboom.broker.groups.member_calls import MemberCalls
from logboom.broker.groups.wishes import check_name
from logboom.broker.rules import ObjectKind, Right
from logboom.errors import ShuttingDown


class LocalGroups:
    """Implements broker.api.GroupCalls; see there for what the methods promise."""

    _admission: Admission
    _groups: Coordinator | None
    _members: MemberCalls
    _group_resets: GroupResets
    _group_report: GroupReport

    def _ask(self, caller: Caller, right: Right, kind: ObjectKind, name: str = "") -> None:
        raise NotImplementedError

    def _sieve(self, caller: Caller, kind: ObjectKind) -> Callable[[str], bool] | None:
        raise NotImplementedError

    def _ask_whole(self, request: ReadRequest, caller: Caller) -> None:
        raise NotImplementedError

    def _its_groups(self) -> Coordinator:
        if self._groups is None:
            raise ShuttingDown("the node is starting")
        return self._groups

    async def join_group(self, join: GroupJoin, *, caller: Caller = EVERYBODY) -> GroupStanding:
        self._its_groups()
        self._ask(caller, "read", "group", join.group)
        self._ask_whole(ReadRequest(join.topics, whole=True), caller)
        if join.queue is not None and join.queue.dead_letter:
            self._ask(caller, "write", "topic", join.queue.dead_letter)
        with self._admission.counting():
            return await self._members.join(join, caller)

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
        self._ask(caller, "read", "group", group)
        with self._admission.counting():
            return await self._members.beat(group, member, generation, held, wait_ms, caller)

    async def leave_group(self, group: str, member: str, *, caller: Caller = EVERYBODY) -> None:
        self._ask(caller, "read", "group", group)
        with self._admission.counting():
            await self._members.leave(group, member, caller)

    async def commit_group(
        self, group: str, member: str, moves: list[GroupMove], *, caller: Caller = EVERYBODY
    ) -> list[RefusedMove]:
        self._ask(caller, "read", "group", group)
        for topic in {move.topic for move in moves}:
            self._ask(caller, "read", "topic", topic)
        with self._admission.counting():
            return await self._members.commit(group, member, moves, caller)

    def check_move(self, move: CursorMove, hosted: Hosted, caller: Caller) -> None:
        """See broker.publish.moves.MoveCheck."""
        self._ask(caller, "read", "group", move.cursor)
        self._members.check_move(move, hosted, caller)

    async def list_groups(self, prefix: str = "", *, caller: Caller = EVERYBODY) -> list[GroupInfo]:
        self._ask(caller, "describe", "group")
        self._its_groups()
        return await self._group_report.list_all(prefix, self._sieve(caller, "group"), self._sieve(caller, "topic"))

    async def describe_group(self, group: str, *, caller: Caller = EVERYBODY) -> GroupDescription:
        self._ask(caller, "describe", "group", group)
        self._its_groups()
        return await self._group_report.describe(group, self._sieve(caller, "topic"))

    async def reset_group(
        self, group: str, topics: str, start: Start, dry_run: bool = False, *, caller: Caller = EVERYBODY
    ) -> list[GroupReset]:
        self._ask(caller, "write", "group", group)
        check_name(group)
        self._ask_whole(ReadRequest(topics, start, whole=True), caller)
        with self._admission.counting(dry_run):
            return await self._group_resets.reset(group, topics, start, dry_run, caller)

    async def delete_group(self, group: str, *, caller: Caller = EVERYBODY) -> None:
        self._ask(caller, "delete", "group", group)
        with self._admission.counting():
            groups = self._its_groups()
            await groups.forget(groups.find(group))

    def groups(self, version: str, *, caller: Caller = EVERYBODY) -> tuple[str, dict[bytes, bytes] | None]:
        """See broker.api.Feeds."""
        self._ask(caller, "describe", "group", EVERY)
        return self._its_groups().copy_of(version)
