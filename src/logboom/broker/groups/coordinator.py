"""The groups of a node: one owner of each, which takes what members say, decides, writes it down, and tells them.

    a member says something → the next entry (`moves.py`) → durable → members are told

Invariants. Nobody is told of a grant that is not durable, so after a crash a log has the holder who was told so. Changes
of one group are made one after the other. A place moves only for the holder of its log, in the generation in which it
was given to him; who is given a log is told its place when all moves of it that were begun have ended.

A node that was stopped, or too busy to listen, ends no session for that: the time it was away is not counted. Where a
change cannot be written down it is not made, and tried again at the next occasion. A copy of another node decides
nothing; when it takes over, members have their whole session to find it.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec

from logboom.broker.api.cursors import CursorMove
from logboom.broker.api.groups import (
    Grant,
    GroupJoin,
    GroupMode,
    GroupMove,
    GroupReset,
    GroupStanding,
    HeldLog,
    RefusedMove,
)
from logboom.broker.api.reads import ReadRequest, Start
from logboom.broker.append.sync_rounds import logger
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.groups.group_entry import (
    GrantEntry,
    GroupEntry,
    MemberEntry,
    decode_group,
    encode_group,
)
from logboom.broker.groups.moves import settled, with_member, without_members
from logboom.broker.groups.presence import Presence
from logboom.broker.groups.sharing import LogId
from logboom.broker.groups.wishes import check_join, check_name, mark
from logboom.broker.limits import Limits
from logboom.broker.read.log_names import LogNames
from logboom.broker.read.topic_reads import TopicReads
from logboom.broker.rules import Rules
from logboom.broker.state.cursors import Cursors
from logboom.broker.state.internal_log import StateLog
from logboom.broker.state.log_cursors import commit_in
from logboom.broker.world import World
from logboom.errors import (
    GroupBusy,
    GroupMismatch,
    GroupNotFound,
    InvalidGroup,
    LimitExceeded,
    LogboomError,
    LogNotHeld,
    MemberUnknown,
    ShuttingDown,
    code_of,
)
from logboom.storage.bookmark import Bookmark

BEATS: Final = 3
"""So many beats go into a session."""
RETRY_S: Final = 1.0
MOVES_MAX: Final = 10_000
"""Of one commit."""
LOOK_S: Final = 3_600.0
"""How often groups are looked for that nobody has been a member of for long."""

Result = TypeVar("Result")


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


@dataclass(slots=True, eq=False)
class LiveGroup:
    """A group, as it is kept, and what is known of its members."""

    name: str
    entry: GroupEntry
    presences: dict[str, Presence] = field(default_factory=dict)
    waiting: dict[str, set[asyncio.Future[None]]] = field(default_factory=dict)
    """Beats, by their member, until there is something to tell."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_kept: bool = True
    """Whether it is on disk: not while it is being made."""
    is_due: bool = False
    """Whether it is in the heap of those that time will do something to."""
    is_stale: bool = False
    """Whether it is about to be looked at again."""


class Coordinator:
    """For `LocalBroker`, which has asked whether the caller may."""

    def __init__(
        self,
        state: StateLog,
        cursors: Cursors,
        catalog: Catalog,
        reads: TopicReads,
        rules: Rules,
        limits: Limits,
        world: World,
        is_copy: bool,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._state = state
        self._cursors = cursors
        self._catalog = catalog
        self._reads = reads
        self._rules = rules
        self._limits = limits
        self._world = world
        self._spawn = spawn
        self.is_copy = is_copy
        """While another node decides."""
        self.counts = GroupCounts()
        self.groups: dict[str, LiveGroup] = {}
        self._due: list[tuple[float, str]] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._load()
        catalog.watchers.add(self._told)

    def _load(self) -> None:
        now_s = self._world.monotonic_s()
        for key, value in self._state.items():
            group = LiveGroup(key.decode(), decode_group(value))
            self.groups[group.name] = group
            self._expect_all(group, now_s)

    def _expect_all(self, group: LiveGroup, now_s: float) -> None:
        """Every member has its whole session to be heard of."""
        for member, about in group.entry.members.items():
            if member not in group.presences:
                caller = Caller(about.principal, frozenset(about.principal_groups))
                group.presences[member] = Presence.of(about, caller, now_s)
        self._schedule(group)

    # What members say.

    async def join(self, join: GroupJoin, caller: Caller) -> GroupStanding:
        check_join(join)
        names = LogNames.parse(join.topics)
        while True:
            group = self._take(join.group, join.mode)
            if await self._do(self._join(group, join, names, caller)):
                return await self._standing(group, join.member)

    def _take(self, name: str, mode: GroupMode) -> LiveGroup:
        """The group of this name, or one that is to be made."""
        group = self.groups.get(name)
        if group is None:
            now_us = self._world.now_us()
            group = self.groups[name] = LiveGroup(name, GroupEntry(mode, made=now_us, emptied=now_us), is_kept=False)
        return group

    async def _join(self, group: LiveGroup, join: GroupJoin, names: LogNames, caller: Caller) -> bool:
        """False where the group was deleted meanwhile."""
        async with group.changing:
            if self.groups.get(join.group) is not group:
                return False
            entry = group.entry
            if entry.mode != join.mode:
                raise GroupMismatch(join.group, entry.mode, join.mode)
            self._check_identity(entry, join, caller)
            if join.member not in entry.members and len(entry.members) >= self._limits.group_members:
                raise LimitExceeded("limits.group_members", self._limits.group_members, "use another group")
            if join.start != Start():
                await self._place_anew(join, names, caller)
            about = MemberEntry(
                *(join.topics, join.session_ms, join.give_back_ms, caller.principal, tuple(sorted(caller.groups))),
                *(join.instance, join.client, caller.address, self._world.now_us()),
            )
            was = entry.members.get(join.member)
            if was is not None:
                about = msgspec.structs.replace(about, joined=was.joined, address=was.address)
                if about == msgspec.structs.replace(was, changed=0):
                    about = was
            group.presences[join.member] = Presence.of(about, caller, self._world.monotonic_s())
            entered = with_member(entry, join.member, about)
            if join.queue is not None and join.mode == "queue":
                entered = msgspec.structs.replace(entered, queue=join.queue)
            try:
                await self._settle(group, entered)
            except BaseException:
                if join.member not in group.entry.members:
                    del group.presences[join.member]
                raise
            self.counts.joins += was is None
        self._schedule(group)
        return True

    def _check_identity(self, entry: GroupEntry, join: GroupJoin, caller: Caller) -> None:
        """A member, and an instance, are those of whoever has made them."""
        for name, about in entry.members.items():
            if name == join.member and about.principal != caller.principal:
                raise InvalidGroup(join.group, f"member {join.member!r} is another user's: make up an id of your own")
            if join.instance and about.instance == join.instance and about.principal != caller.principal:
                raise InvalidGroup(join.group, f"instance {join.instance!r} is another user's: use another name")

    async def _place_anew(self, join: GroupJoin, names: LogNames, caller: Caller) -> None:
        """Where the group has no place yet in logs that are there now, it is where the member wants to start."""
        request = ReadRequest(join.topics, join.start, gaps="skip", whole=True)
        for place in await self._reads.locate(request, caller, self._limits.group_logs):
            if self._cursors.fetch(mark(join.group), place.topic, place.partition) is None:
                await self._move(join.group, self._catalog.find(place.topic), place.partition, str(place.bookmark))

    async def beat(
        self, name: str, member: str, generation: int, held: Collection[HeldLog], wait_ms: int, caller: Caller
    ) -> GroupStanding:
        group = self._find_member(name, member, caller)
        presence = group.presences[member]
        presence.heard_s, presence.caller = self._world.monotonic_s(), caller
        presence.knows = min(generation, presence.told)
        back = presence.given_back(group.entry, member, {(log.topic_id, log.partition) for log in held})
        if back:
            await self._do(self._give_back(group, member, presence, back))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(wait_ms, self._limits.read_wait_ms) / 1000
        while not self._closing:
            about = group.entry.members.get(member)
            if about is None or self.groups.get(name) is not group:
                raise MemberUnknown(name, member)
            rest_s = deadline - loop.time()
            if about.changed > generation or rest_s <= 0:
                return await self._standing(group, member)
            await self._wait(group, member, rest_s)
        raise ShuttingDown

    async def _give_back(self, group: LiveGroup, member: str, presence: Presence, back: set[LogId]) -> None:
        async with group.changing:
            still = {
                grant.log for grant in group.entry.grants_of(member) if 0 < grant.asked <= presence.knows
            }  # it may have been given again meanwhile
            await self._settle(group, group.entry, back & still)

    async def _wait(self, group: LiveGroup, member: str, rest_s: float) -> None:
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = group.waiting.setdefault(member, set())
        waiting.add(news)
        try:
            await asyncio.wait((news,), timeout=rest_s)
        finally:
            waiting.discard(news)
            if not waiting and group.waiting.get(member) is waiting:
                del group.waiting[member]

    async def leave(self, name: str, member: str, caller: Caller) -> None:
        group = self._find_member(name, member, caller)
        if not group.entry.members[member].instance:
            await self._do(self._remove(group, {member}))

    async def _remove(self, group: LiveGroup, gone: set[str]) -> None:
        async with group.changing:
            await self._settle(group, without_members(group.entry, gone, self._world.now_us()))

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
        self.counts.commits += len(moves) - len(refused)
        self.counts.refused += len(refused)
        return refused

    async def _commit(self, name: str, member: str, move: GroupMove) -> LogboomError | None:
        try:
            hosted = self._catalog.find(move.topic)
            self.check_holder(name, member, hosted, move.partition, move.generation)
            await self._move(name, hosted, move.partition, move.bookmark)
        except LogboomError as error:
            return error
        return None

    async def _move(self, name: str, hosted: Hosted, partition: int, bookmark: str, force: bool = False) -> None:
        move = CursorMove(mark(name), hosted.topic.name, partition, bookmark, force=force)
        await commit_in(hosted, self._cursors, move, self._world.now_us())

    def check_holder(self, name: str, member: str, hosted: Hosted, partition: int, generation: int) -> None:
        """Raises LogNotHeld, unless this log was given to this member in this generation and not to others since."""
        group = self.groups.get(name)
        log = LogId(hosted.topic.name, hosted.topic.id, partition)
        for grant in () if group is None else group.entry.grants:
            if grant.log == log and grant.member == member and grant.generation == generation:
                return
        raise LogNotHeld(name, f"{hosted.topic.name}/{partition}", generation)

    def check_move(self, move: CursorMove, hosted: Hosted, caller: Caller) -> None:
        """Raises where it is not this caller's member that holds the log."""
        self._find_member(move.cursor, move.member, caller)
        partition = Bookmark.parse(move.bookmark).partition if move.partition is None else move.partition
        self.check_holder(move.cursor, move.member, hosted, partition, move.generation)

    def _find_member(self, name: str, member: str, caller: Caller) -> LiveGroup:
        group = self.groups.get(name)
        about = None if group is None else group.entry.members.get(member)
        if group is None or about is None or about.principal != caller.principal:
            raise MemberUnknown(name, member[:64])
        return group

    def find(self, name: str) -> LiveGroup:
        group = self.groups.get(name)
        if group is None or not group.is_kept:
            raise GroupNotFound(name)
        return group

    # What is decided.

    async def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """To its end, also where whoever asked has gone away."""
        if self._closing:
            work.close()
            raise ShuttingDown
        result: Result = await asyncio.shield(self._spawn(work))
        return result

    async def _settle(self, group: LiveGroup, entry: GroupEntry, given_back: Collection[LogId] = ()) -> None:
        """Write down what follows from this state of the group, and tell its members. Under its lock."""
        following = entry if entry.mode == "queue" else settled(entry, self._wanted(group, entry), given_back)
        before = group.entry
        if following == before and group.is_kept:
            return
        try:
            await self._state.put({group.name.encode(): encode_group(following)})
        except BaseException:
            if not group.is_kept:
                self.groups.pop(group.name, None)
            raise
        group.entry, group.is_kept = following, True
        known = {(grant.log, grant.generation) for grant in before.grants}
        self.counts.moves += sum((grant.log, grant.generation) not in known for grant in following.grants)
        for member in before.members.keys() - following.members.keys():
            group.presences.pop(member, None)
        for member in list(group.waiting):
            about = following.members.get(member)
            if about is None or about.changed > before.generation:
                _release(group.waiting.get(member, ()))
        self._schedule(group)

    def _wanted(self, group: LiveGroup, entry: GroupEntry) -> dict[LogId, tuple[str, ...]]:
        """Every log there is that somebody wants or holds, with the members who want it and may read it."""
        wanted: dict[LogId, list[str]] = {grant.log: [] for grant in entry.grants if self._is_there(grant)}
        alike: dict[tuple[str, Caller], list[str]] = {}
        for member, about in entry.members.items():
            caller = replace(group.presences[member].caller, address="", protocol="")
            alike.setdefault((about.topics, caller), []).append(member)
        for (topics, caller), members in alike.items():
            request = ReadRequest(topics, whole=True)
            for hosted, partition in self._reads.find(LogNames.parse(topics), request, caller):
                wanted.setdefault(LogId(hosted.topic.name, hosted.topic.id, partition), []).extend(members)
        if len(wanted) > self._limits.group_logs:
            self._say_too_many(group, len(wanted))
            wanted = dict(sorted(wanted.items())[: self._limits.group_logs])
        return {log: tuple(sorted(members)) for log, members in wanted.items()}

    def _say_too_many(self, group: LiveGroup, count: int) -> None:
        logger.warning(
            "group %s: its topics have %d logs, and limits.group_logs is %d: the last by name are read by nobody",
            *(group.name, count, self._limits.group_logs),
        )

    def _is_there(self, grant: GrantEntry) -> bool:
        hosted = self._catalog.get(grant.topic)
        return hosted is not None and hosted.topic.id == grant.topic_id and grant.partition < len(hosted.writers)

    async def _standing(self, group: LiveGroup, member: str) -> GroupStanding:
        """What a member is told: what is durable, and the group's places when all that moved them has ended."""
        about, presence = group.entry.members.get(member), group.presences.get(member)
        if about is None or presence is None:
            raise MemberUnknown(group.name, member)
        entry, grants = group.entry, []
        for grant in entry.grants_of(member):
            await self._cursors.settled(mark(group.name), grant.topic, grant.partition)
            bookmark = self._cursors.fetch(mark(group.name), grant.topic, grant.partition)
            grants.append(Grant(*grant.log, grant.generation, bookmark, bool(grant.asked)))
        presence.note_told(entry, member, self._world.monotonic_s())
        self._schedule(group)
        return GroupStanding(entry.generation, about.session_ms // BEATS, grants, member)

    # What time, topics and rules do.

    def _told(self, hosted: Hosted | None) -> None:
        """A topic has come; or others may be read than before."""
        for group in self.groups.values():
            entry = group.entry
            if not entry.members or entry.mode == "queue":
                continue
            wishes = {about.topics for about in entry.members.values()}
            if hosted is None or any(LogNames.parse(topics).fit(hosted.topic.name) for topics in wishes):
                self._look_again(group)

    def forget_topic(self, topic_id: str) -> None:
        """It was deleted."""
        for group in self.groups.values():
            if any(grant.topic_id == topic_id for grant in group.entry.grants):
                self._look_again(group)

    def _look_again(self, group: LiveGroup) -> None:
        if not self._closing and not self.is_copy and not group.is_stale:
            group.is_stale = True
            self._spawn(self._tend(group))

    def _schedule(self, group: LiveGroup) -> None:
        if group.presences and not group.is_due:
            due_s = min(presence.next_due_s() for presence in group.presences.values())
            group.is_due = True
            heapq.heappush(self._due, (due_s, group.name))
            if self._due[0][1] == group.name:
                self._wake.set()

    async def run(self) -> None:
        """Until `close`: end sessions, take what is not given back, forget groups that nobody uses."""
        look_s = self._world.monotonic_s() + LOOK_S
        while not self._closing:
            self._wake.clear()
            now_s = self._world.monotonic_s()
            due_s = min(look_s, self._due[0][0]) if self._due else look_s
            if due_s > now_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(due_s - now_s):
                        await self._wake.wait()
                late_s = self._world.monotonic_s() - due_s
                if late_s > RETRY_S / 2:
                    self._excuse(late_s)
                continue
            if look_s <= now_s:
                look_s = now_s + LOOK_S
                await self._forget_idle()
            while self._due and self._due[0][0] <= now_s:
                group = self.groups.get(heapq.heappop(self._due)[1])
                if group is not None:
                    group.is_due = False
                    if not self.is_copy:
                        await self._tend(group)
                        self._schedule(group)

    def _excuse(self, late_s: float) -> None:
        """The node could not listen for so long: nobody was silent then."""
        for group in self.groups.values():
            for presence in group.presences.values():
                presence.heard_s += late_s
                presence.told_at = {log: told_s + late_s for log, told_s in presence.told_at.items()}

    async def _tend(self, group: LiveGroup) -> None:
        """Do what is due for a group by now."""
        try:
            async with group.changing:
                group.is_stale = False
                if self.groups.get(group.name) is not group or self._closing:
                    return
                now_s, entry = self._world.monotonic_s(), group.entry
                gone = {member for member, presence in group.presences.items() if presence.until_s <= now_s}
                taken: set[LogId] = set()
                for member, presence in group.presences.items():
                    taken |= presence.overdue(entry, member, now_s)
                await self._settle(group, without_members(entry, gone, self._world.now_us()), taken)
                self.counts.expired += len(gone)
                self.counts.taken += len(taken)
        except LogboomError as error:
            logger.warning("group %s: what is due cannot be written down, it is tried again: %s", group.name, error)
            for presence in group.presences.values():
                presence.heard_s += RETRY_S

    async def _forget_idle(self) -> None:
        since_us = self._world.now_us() - self._limits.group_idle_ms * 1000
        for group in list(self.groups.values()):
            if (
                not self.is_copy
                and not group.entry.members
                and 0 < max(group.entry.emptied, group.entry.made) < since_us
            ):
                try:
                    await self.delete(group.name)
                except LogboomError as error:
                    logger.warning("group %s: cannot be forgotten: %s", group.name, error)

    # What operators do.

    async def reset(self, name: str, topics: str, start: Start, dry_run: bool, caller: Caller) -> list[GroupReset]:
        check_name(name)
        group = self.groups.get(name)
        if group is not None and group.entry.members:
            raise GroupBusy(name, len(group.entry.members))
        request = ReadRequest(topics, start, gaps="skip", whole=True)
        places = await self._reads.locate(request, caller, self._limits.group_logs)
        found = []
        for place in places:
            bookmark = self._cursors.fetch(mark(name), place.topic, place.partition)
            seqno_from = None if bookmark is None else Bookmark.parse(bookmark).seqno
            found.append(GroupReset(place.topic, place.partition, seqno_from, place.seqno))
        if not dry_run:
            bookmarks = {(place.topic, place.partition): str(place.bookmark) for place in places}
            await self._do(self._reset(self._take(name, "logs"), bookmarks))
        return found

    async def _reset(self, group: LiveGroup, bookmarks: Mapping[tuple[str, int], str]) -> None:
        async with group.changing:
            if group.entry.members:
                raise GroupBusy(group.name, len(group.entry.members))
            await self._settle(group, group.entry)
            moves = [
                self._move(group.name, self._catalog.find(topic), partition, bookmark, force=True)
                for (topic, partition), bookmark in bookmarks.items()
            ]
            await asyncio.gather(*moves)

    async def delete(self, name: str) -> None:
        await self._do(self._delete(self.find(name)))

    async def _delete(self, group: LiveGroup) -> None:
        async with group.changing:
            if self.groups.get(group.name) is not group:
                raise GroupNotFound(group.name)
            if group.entry.members:
                raise GroupBusy(group.name, len(group.entry.members))
            await self._cursors.delete(mark(group.name))
            await self._state.put({group.name.encode(): None})
            del self.groups[group.name]

    # Copies.

    @property
    def entries(self) -> dict[bytes, bytes]:
        """Everything, as it is kept."""
        return dict(self._state.items())

    @property
    def version(self) -> str:
        """The same for the same entries, on any node."""
        return hashlib.sha256(msgspec.msgpack.encode(sorted(self.entries.items()))).hexdigest()

    async def copy(self, found: Mapping[bytes, bytes]) -> None:
        """As another node has them; what it has not is removed."""
        decoded = {key: decode_group(value) for key, value in found.items()}
        here = self.entries
        changes: dict[bytes, bytes | None] = dict.fromkeys(here.keys() - found.keys())
        await self._state.put(changes | {key: value for key, value in found.items() if here.get(key) != value})
        self.groups = {key.decode(): LiveGroup(key.decode(), entry) for key, entry in decoded.items()}

    def take_over(self) -> None:
        """From here on this node decides."""
        self.is_copy = False
        now_s = self._world.monotonic_s()
        for group in self.groups.values():
            self._expect_all(group, now_s)

    def end(self) -> None:
        """Whoever waits is told that the node ends; what is being written is finished."""
        self._closing = True
        self._catalog.watchers.discard(self._told)
        self._wake.set()
        for group in self.groups.values():
            for waiting in list(group.waiting.values()):
                _release(waiting)

    async def close(self) -> None:
        await self._state.close()


def _release(waiting: Iterable[asyncio.Future[None]]) -> None:
    for news in list(waiting):
        if not news.done():
            news.set_result(None)
