"""What members of groups say, and what they are told: they join, beat, leave, and move the group's places."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from logboom.broker.api.cursors import CursorMove
from logboom.broker.api.groups import Grant, GroupJoin, GroupMove, GroupStanding, HeldLog, RefusedMove
from logboom.broker.api.reads import ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.broker.catalog import Hosted
from logboom.broker.groups.coordinator import Coordinator
from logboom.broker.groups.group_entry import GrantEntry, GroupEntry, MemberEntry
from logboom.broker.groups.live_group import LiveGroup
from logboom.broker.groups.moves import with_member, without_members
from logboom.broker.groups.presence import MemberPresence
from logboom.broker.groups.shares import LogId
from logboom.broker.groups.wishes import check_join, mark
from logboom.broker.read.log_names import LogNames
from logboom.errors import (
    GroupMismatch,
    InvalidGroup,
    LimitExceeded,
    LogboomError,
    MemberUnknown,
    ShuttingDown,
    code_of,
)
from logboom.storage.bookmark import Bookmark

MOVES_MAX: Final = 10_000
"""Of one commit."""
WISHES_MAX: Final = 64 * 1024
"""Of the topics, as text, that members of one group want: they are looked at whenever the group changes."""
KEPT_WISHES_MAX: Final = 16 * WISHES_MAX
"""The same of each member: they are written whenever the group changes."""


class MemberCalls:
    def __init__(self, coordinator: Coordinator) -> None:
        self._groups = coordinator

    async def join(self, join: GroupJoin, caller: Caller) -> GroupStanding:
        check_join(join)
        names = LogNames.parse(join.topics)
        while True:
            group = self._groups.take(join.group, join.mode)
            if await self._groups.do(self._join(group, join, names, caller)):
                return await self._stand(group, join.member)

    async def _join(self, group: LiveGroup, join: GroupJoin, names: LogNames, caller: Caller) -> bool:
        """False where the group was deleted meanwhile."""
        async with self._groups.hold(group) as is_there:
            if not is_there:
                return False
            entry = group.entry
            if join.mode == "queue" and _was_only_placed(entry):
                group.entry = entry = replace(entry, mode=join.mode)
            if entry.mode != join.mode:
                raise GroupMismatch(join.group, entry.mode, join.mode)
            self._check_identity(entry, join, caller)
            self._check_room(entry, join)
            if join.start != Start():
                await self._place_anew(group, join, names, caller)
                entry = group.entry
            about = MemberEntry(
                *(join.topics, join.session_ms, join.give_back_ms, caller.principal, tuple(sorted(caller.groups))),
                *(join.instance, join.client, caller.address, self._groups.world.now_us()),
            )
            was = entry.members.get(join.member)
            if was is not None:
                about = replace(about, joined=was.joined, address=was.address)
                if about == replace(was, changed=0):
                    about = was
            presence = MemberPresence.of(about, caller, self._groups.world.monotonic_s())
            presence.take_after(group.presences.get(join.member))
            group.presences[join.member] = presence
            entered = with_member(entry, join.member, about)
            if join.queue is not None and join.mode == "queue":
                entered = replace(entered, queue=join.queue)
            self._check_dead_letter(group.name, entered)
            try:
                await self._groups.settle(group, entered)
            except BaseException:
                if join.member not in group.entry.members:
                    del group.presences[join.member]
                raise
            self._groups.counts.joins += was is None
        self._groups.schedule(group)
        return True

    def _check_dead_letter(self, name: str, entry: GroupEntry) -> None:
        """A dead letter that its own group reads would be tried in vain again, and make another one."""
        dead = "" if entry.queue is None else entry.queue.dead_letter
        if dead and any(LogNames.parse(wish).fit(dead) for wish in {about.topics for about in entry.members.values()}):
            raise InvalidGroup(name, f"dead_letter is {dead!r}, which the group reads itself: name another topic")

    def _check_identity(self, entry: GroupEntry, join: GroupJoin, caller: Caller) -> None:
        """A member, and an instance, are those of whoever has made them."""
        for name, about in entry.members.items():
            if name == join.member and about.principal != caller.principal:
                raise InvalidGroup(join.group, f"member {join.member!r} is another user's: make up an id of your own")
            if join.instance and about.instance == join.instance and about.principal != caller.principal:
                raise InvalidGroup(join.group, f"instance {join.instance!r} is another user's: use another name")

    def _check_room(self, entry: GroupEntry, join: GroupJoin) -> None:
        """Raises LimitExceeded where it is one too many, or wants too much, for one group."""
        others = [
            about
            for name, about in entry.members.items()
            if name != join.member and not (join.instance and about.instance == join.instance)
        ]
        if len(others) >= self._groups.limits.group_members:
            raise LimitExceeded("limits.group_members", self._groups.limits.group_members, "use another group")
        wishes = {join.topics, *(about.topics for about in others)}
        kept = len(join.topics) + sum(len(about.topics) for about in others)
        if sum(map(len, wishes)) > WISHES_MAX or kept > KEPT_WISHES_MAX:
            raise LimitExceeded("characters of topics that members of one group want", WISHES_MAX, "use a pattern")

    async def _place_anew(self, group: LiveGroup, join: GroupJoin, names: LogNames, caller: Caller) -> None:
        """Where the group has no place yet in logs that are there now, it is where the member wants to start. Where
        somebody reads already he has begun with the first record, and goes on.
        """
        request, groups = ReadRequest(join.topics, join.start, gaps="skip", whole=True), self._groups
        places = await groups.reads.locate(request, caller, groups.limits.group_logs)
        await groups.settle(group, group.entry)  # there is a group before it has places
        moves = []
        for place in places:
            log = LogId(place.topic, place.topic_id, place.partition)
            if log not in group.holders and groups.place_of(join.group, log) is None:
                hosted = groups.catalog.find(place.topic)
                moves.append(groups.move(join.group, hosted, place.partition, str(place.bookmark)))
        await asyncio.gather(*moves)

    async def beat(
        self, name: str, member: str, generation: int, held: Collection[HeldLog], wait_ms: int, caller: Caller
    ) -> GroupStanding:
        group = self._find_member(name, member, caller)
        while group.presences[member].is_ending:
            async with group.changing:
                group = self._find_member(name, member, caller)
        presence = group.presences[member]
        presence.heard_s = self._groups.world.monotonic_s()
        if not (presence.is_heard and caller.is_like(presence.caller)):
            self._groups.look_again(group)  # others may be read than what was known of it says
        presence.caller, presence.is_heard = caller, True
        presence.knows = min(generation, group.entry.generation)
        back = presence.given_back(group.entry, member, {(log.topic_id, log.partition) for log in held})
        if back:
            await self._groups.do(self._give_back(group, back))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(wait_ms, presence.beat_ms, self._groups.limits.read_wait_ms) / 1000
        while not self._groups.closing:
            about = group.entry.members.get(member)
            if about is None or self._groups.groups.get(name) is not group:
                raise MemberUnknown(name, member)
            rest_s = deadline - loop.time()
            if about.changed > generation or generation > group.entry.generation or rest_s <= 0:
                return await self._stand(group, member)
            await group.wait(member, rest_s)
        raise ShuttingDown

    async def _give_back(self, group: LiveGroup, back: set[GrantEntry]) -> None:
        async with group.changing:
            still = {grant.log for grant in back if _is_still_asked(grant, group.holders.get(grant.log))}
            await self._groups.settle(group, group.entry, still)

    async def leave(self, name: str, member: str, caller: Caller) -> None:
        group = self._find_member(name, member, caller)
        if not group.entry.members[member].instance:
            await self._groups.do(self._remove(group, {member}))

    async def _remove(self, group: LiveGroup, gone: set[str]) -> None:
        async with group.changing:
            await self._groups.settle(group, without_members(group.entry, gone, self._groups.world.now_us()))

    async def commit(self, name: str, member: str, moves: list[GroupMove], caller: Caller) -> list[RefusedMove]:
        self._find_member(name, member, caller)
        if len(moves) > MOVES_MAX:
            raise LimitExceeded("moves of one commit", MOVES_MAX, "use several")
        made = await asyncio.gather(*(self._commit(name, member, move) for move in moves))
        refused = [
            RefusedMove(move.topic, move.partition, code_of(error), str(error))
            for move, error in zip(moves, made, strict=True)
            if error is not None
        ]
        self._groups.counts.commits += len(moves) - len(refused)
        self._groups.counts.refused += len(refused)
        return refused

    async def _commit(self, name: str, member: str, move: GroupMove) -> LogboomError | None:
        try:
            hosted = self._groups.catalog.find(move.topic)
            self._groups.check_holder(name, member, hosted, move.partition, move.generation)
            await self._groups.move(name, hosted, move.partition, move.bookmark)
        except LogboomError as error:
            return error
        return None

    def check_move(self, move: CursorMove, hosted: Hosted, caller: Caller) -> None:
        """Raises where it is not this caller's member that holds the log."""
        self._find_member(move.cursor, move.member, caller)
        partition = Bookmark.parse(move.bookmark).partition if move.partition is None else move.partition
        self._groups.check_holder(move.cursor, move.member, hosted, partition, move.generation)

    def _find_member(self, name: str, member: str, caller: Caller) -> LiveGroup:
        group = self._groups.groups.get(name)
        about = None if group is None else group.entry.members.get(member)
        if group is None or about is None or about.principal != caller.principal:
            raise MemberUnknown(name[:300], member[:64])
        return group

    async def _stand(self, group: LiveGroup, member: str) -> GroupStanding:
        """What a member is told: what is durable, and the group's places when all that moved them has ended."""
        about, presence = group.entry.members.get(member), group.presences.get(member)
        if about is None or presence is None:
            raise MemberUnknown(group.name, member)
        entry, grants = group.entry, []
        for grant in entry.grants_of(member):
            await self._groups.cursors.settled(mark(group.name), grant.topic, grant.partition)
            bookmark = self._groups.place_of(group.name, grant.log)
            grants.append(Grant(*grant.log, grant.generation, bookmark, bool(grant.asked)))
        presence.note_told(entry, member, self._groups.world.monotonic_s())
        self._groups.schedule(group)
        return GroupStanding(entry.generation, presence.beat_ms, grants, member)


def _is_still_asked(grant: GrantEntry, now: GrantEntry | None) -> bool:
    """It may have been given to somebody else meanwhile, or given again."""
    return now is not None and (now.member, now.generation, now.asked) == (grant.member, grant.generation, grant.asked)


def _was_only_placed(entry: GroupEntry) -> bool:
    """Whether a reset has made it, and nobody was ever a member: then it is of no mode yet."""
    return not entry.members and entry.generation == 0
