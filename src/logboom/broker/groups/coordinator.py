"""The groups of a node: one owner of each, which takes what members say, decides, writes it down, and tells them.

    a member says something → the next entry (`moves.py`) → durable → members are told

Invariants. Nobody is told of a grant that is not durable, so after a crash a log has the holder who was told so.
Changes of one group are made one after the other. A place moves only for the holder of its log, in the generation in
which it was given to him; who is given a log is told its place when all moves of it that were begun have ended.

A node that was stopped, or too busy to listen, ends no session for that: the time it was away is not counted. Where a
change cannot be written down it is not made, and tried again at the next occasion. A copy of another node decides
nothing; when it takes over, members have their whole session to find it.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from math import inf
from typing import Any, Final, TypeVar

import msgspec

from logboom.broker.api.cursors import CursorMove
from logboom.broker.api.groups import GroupMode
from logboom.broker.api.reads import ReadRequest
from logboom.broker.append.sync_rounds import logger
from logboom.broker.caller import Caller
from logboom.broker.catalog import Catalog, Hosted
from logboom.broker.groups.group_entry import GrantEntry, GroupEntry, decode_group, encode_group
from logboom.broker.groups.live_group import GroupCounts, LiveGroup
from logboom.broker.groups.moves import settled, taken_over, without_members
from logboom.broker.groups.presence import MemberPresence
from logboom.broker.groups.shares import LogId, Wanted
from logboom.broker.groups.wishes import mark
from logboom.broker.limits import Limits
from logboom.broker.read.log_names import LogNames
from logboom.broker.read.topic_reads import TopicReads
from logboom.broker.slices import slices
from logboom.broker.state.cursors import Cursors, bookmark_of, cursor_key
from logboom.broker.state.internal_log import StateLog
from logboom.broker.state.log_cursors import commit_in
from logboom.broker.world import World
from logboom.errors import GroupBusy, GroupNotFound, LogboomError, LogNotHeld, RemoteProtocolError, ShuttingDown

RETRY_S: Final = 1.0
TICK_S: Final = 0.25
"""So often a node with members notes that it listens: what it was away for is known as exactly."""
DUE_LEAST: Final = 1_000
SHORT: Final = 500
"""Logs, or members, that are shared out at once; more on a thread."""
LOOK_S: Final = 3_600.0
"""How often groups are looked for that nobody has been a member of for long."""

Result = TypeVar("Result")


class Coordinator:
    """For `LocalBroker`, which has asked whether the caller may."""

    def __init__(
        self,
        state: StateLog,
        cursors: Cursors,
        catalog: Catalog,
        reads: TopicReads,
        limits: Limits,
        world: World,
        is_copy: bool,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self.state = state
        self.cursors = cursors
        self.catalog = catalog
        self.reads = reads
        self.limits = limits
        self.world = world
        self._spawn = spawn
        self.is_copy = is_copy
        """While another node decides."""
        self._version = ""
        """Of all that is kept; empty while nobody has asked since it changed."""
        self.counts = GroupCounts()
        self.groups: dict[str, LiveGroup] = {}
        self._due: list[tuple[float, str]] = []
        self._wake = asyncio.Event()
        self._listened_s = world.monotonic_s()
        self.closing = False
        self.on_gone: Callable[[LiveGroup, Collection[str]], None] = lambda group, gone: None
        """Called when these are members no more."""
        self.on_forgotten: Callable[[str, Collection[tuple[str, int]] | None], Awaitable[None]] = _nothing
        """Called when a group is deleted, or its places are put elsewhere in these logs."""
        self._load()
        catalog.watchers.add(self._told)

    def _load(self) -> None:
        now_s = self.world.monotonic_s()
        for key, value in self.state.items():
            group = LiveGroup(key.decode(), decode_group(value))
            self.groups[group.name] = group
            self._expect_all(group, now_s)

    def _expect_all(self, group: LiveGroup, now_s: float) -> None:
        """Every member has its whole session to be heard of."""
        for member, about in group.entry.members.items():
            caller = Caller(about.principal, frozenset(about.principal_groups))
            group.presences[member] = MemberPresence.of(about, caller, now_s, is_heard=False)
        self.schedule(group)

    def find(self, name: str) -> LiveGroup:
        group = self.groups.get(name)
        if group is None or not group.is_kept:
            raise GroupNotFound(name[:300])
        return group

    def take(self, name: str, mode: GroupMode) -> LiveGroup:
        """The group of this name, or one that is to be made."""
        group = self.groups.get(name)
        if group is None:
            now_us = self.world.now_us()
            group = self.groups[name] = LiveGroup(name, GroupEntry(mode, made=now_us, emptied=now_us), is_kept=False)
        return group

    @asynccontextmanager
    async def hold(self, group: LiveGroup) -> AsyncIterator[bool]:
        """Change it alone. False where it was deleted meanwhile. One that was not made in the end is there no more."""
        async with group.changing:
            try:
                yield self.groups.get(group.name) is group
            finally:
                if not group.is_kept and self.groups.get(group.name) is group:
                    del self.groups[group.name]

    async def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """To its end, also where whoever asked has gone away."""
        if self.closing:
            work.close()
            raise ShuttingDown
        result: Result = await asyncio.shield(self._spawn(work))
        return result

    async def settle(self, group: LiveGroup, entry: GroupEntry, given_back: Collection[LogId] = ()) -> None:
        """Write down what follows from this state of the group, and tell its members. Under its lock."""
        before = group.entry
        if group.is_inherited:
            entry = taken_over(entry)
        following = entry if entry.mode == "queue" else await self._settled(group, entry, given_back)
        if following == before and group.is_kept:
            return
        await self.state.put({group.name.encode(): encode_group(following)})
        group.entry, group.is_kept, group.is_inherited, self._version = following, True, False, ""
        known = {(grant.log, grant.generation) for grant in before.grants}
        self.counts.moves += sum((grant.log, grant.generation) not in known for grant in following.grants)
        gone = before.members.keys() - following.members.keys()
        for member in gone:
            group.presences.pop(member, None)
        if gone:
            self.on_gone(group, gone)
        asked = {(grant.member, grant.log) for grant in following.grants if grant.asked}
        for member, presence in group.presences.items():
            presence.told_at = {log: at_s for log, at_s in presence.told_at.items() if (member, log) in asked}
        for member in list(group.waiting):
            about = following.members.get(member)
            if about is None or about.changed > before.generation:
                group.wake(member)
        self.schedule(group)

    async def _settled(self, group: LiveGroup, entry: GroupEntry, given_back: Collection[LogId]) -> GroupEntry:
        """Others have their turn meanwhile, however many logs and members there are."""
        wanted, most = await self._wanted(group, entry), self.limits.logs_per_subscription
        if max(len(wanted), len(entry.grants), len(entry.members)) <= SHORT:
            return settled(entry, wanted, given_back, most)
        following = await asyncio.to_thread(settled, entry, wanted, given_back, most)
        left = sum(map(bool, wanted.values())) - len(following.grants)
        if left > 0 and len(following.grants) == most * len(following.members):
            logger.warning(
                "group %s: %d logs are read by nobody: a member holds %d at most (limits.logs_per_subscription), so it "
                "needs more of them",
                *(group.name, left, most),
            )
        return following

    async def _wanted(self, group: LiveGroup, entry: GroupEntry) -> Wanted:
        """Every log there is that somebody wants or holds, with the members who want it and may read it."""
        kinds: list[frozenset[str]] = []
        """Members who want and may read the same."""
        found: dict[LogId, list[int]] = {grant.log: [] for grant in entry.grants if self._is_there(grant)}
        unheard: defaultdict[str, list[LogId]] = defaultdict(list)
        for grant in entry.grants:
            presence = group.presences.get(grant.member)
            if presence is not None and not presence.is_heard and grant.log in found:
                unheard[grant.member].append(grant.log)  # what it may read is known when it is heard of
        for member, logs in unheard.items():
            for log in logs:
                found[log].append(len(kinds))
            kinds.append(frozenset((member,)))
        alike: defaultdict[tuple[str, Caller], list[str]] = defaultdict(list)
        for member, about in entry.members.items():
            caller = replace(group.presences[member].caller, address="", protocol="")
            alike[about.topics, caller].append(member)
        for (topics, caller), members in alike.items():
            request = ReadRequest(topics, whole=True)
            async for some in slices(list(self.reads.find(LogNames.parse(topics), request, caller))):
                for hosted, partition in some:
                    log = LogId(hosted.topic.name, hosted.topic.id, partition)
                    found.setdefault(log, []).append(len(kinds))
            kinds.append(frozenset(members))
        if len(found) > self.limits.group_logs:
            self._say_too_many(group, len(found))
            found = dict(sorted(found.items())[: self.limits.group_logs])
        wanted = {log: tuple(which) for log, which in found.items()}
        joined = {which: frozenset[str]().union(*(kinds[kind] for kind in which)) for which in set(wanted.values())}
        once = {members: members for members in joined.values()}
        return {log: once[joined[which]] for log, which in wanted.items()}

    def _say_too_many(self, group: LiveGroup, count: int) -> None:
        logger.warning(
            "group %s: its topics have %d logs, and limits.group_logs is %d: the last by name are read by nobody",
            *(group.name, count, self.limits.group_logs),
        )

    def _is_there(self, grant: GrantEntry) -> bool:
        hosted = self.catalog.get(grant.topic)
        return hosted is not None and hosted.topic.id == grant.topic_id and grant.partition < len(hosted.writers)

    # What time, topics and rules do.

    def _told(self, hosted: Hosted | None) -> None:
        """A topic has come; or others may be read than before."""
        for group in self.groups.values():
            entry = group.entry
            if not entry.members or entry.mode == "queue":
                continue
            wishes = {about.topics for about in entry.members.values()}
            if hosted is None or any(LogNames.parse(topics).fit(hosted.topic.name) for topics in wishes):
                self.look_again(group)

    def forget_topic(self, topic_id: str) -> None:
        """It was deleted."""
        for group in self.groups.values():
            if any(grant.topic_id == topic_id for grant in group.entry.grants):
                self.look_again(group)

    def look_again(self, group: LiveGroup) -> None:
        """Soon: something may be due, or its logs may be others."""
        if not self.closing and not self.is_copy and not group.is_stale:
            group.is_stale = True
            self._spawn(self._tend(group))

    def schedule(self, group: LiveGroup) -> None:
        """Look at it when something will be due. What is put off is found out then."""
        due_s = group.retry_s
        if due_s == inf:
            due_s = min((presence.next_due_s() for presence in group.presences.values()), default=inf)
        if due_s < group.due_s:
            group.due_s = due_s
            if len(self._due) > 2 * len(self.groups) + DUE_LEAST:  # most are of times that have changed since
                self._due = [(each.due_s, each.name) for each in self.groups.values() if each.due_s < inf]
                heapq.heapify(self._due)
            heapq.heappush(self._due, (due_s, group.name))
            if self._due[0] == (due_s, group.name):
                self._wake.set()

    async def run(self) -> None:
        """Until `close`: end sessions, take what is not given back, forget groups that nobody uses."""
        await self._look_at_all()
        look_s = self.world.monotonic_s() + LOOK_S
        while not self.closing:
            self._wake.clear()
            now_s = self._listen()
            if look_s <= now_s:
                look_s = now_s + LOOK_S
                await self._forget_idle()
            while self._due and self._due[0][0] <= now_s:
                due_s, name = heapq.heappop(self._due)
                group = self.groups.get(name)
                if group is not None and group.due_s == due_s:
                    group.due_s = inf
                    self.look_again(group)
            due_s = min(look_s, self._due[0][0], now_s + TICK_S) if self._due else look_s
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due_s - now_s)):
                    await self._wake.wait()

    async def _look_at_all(self) -> None:
        """What came, or went, when the node ended may not be shared yet."""
        for group in list(self.groups.values()):
            if group.entry.members and not self.is_copy:
                await self._tend(group)
                await asyncio.sleep(0)  # others have their turn, however many there are

    def _listen(self) -> float:
        """The time. Where the node could not listen for long, nobody was silent then."""
        now_s = self.world.monotonic_s()
        away_s, self._listened_s = now_s - self._listened_s, now_s
        if away_s > 2 * TICK_S:
            for group in self.groups.values():
                for presence in group.presences.values():
                    presence.excuse(away_s, now_s)
        return now_s

    async def _tend(self, group: LiveGroup) -> None:
        """Do what is due for a group by now. Where that cannot be written down it is due again soon."""
        async with group.changing:
            group.is_stale = False
            if self.groups.get(group.name) is not group or self.closing or self.is_copy:
                return
            group.retry_s, group.due_s = inf, inf
            now_s, entry = self._listen(), group.entry
            gone = {member for member, presence in group.presences.items() if presence.until_s <= now_s}
            asked = [grant for grant in entry.grants if grant.asked]
            taken = {grant.log for grant in asked if group.presences[grant.member].is_overdue(grant, now_s)}
            ending = [group.presences[member] for member in gone]
            for presence in ending:
                presence.is_ending = True
            try:
                await self.settle(group, without_members(entry, gone, self.world.now_us()), taken)
                self.counts.expired += len(gone)
                self.counts.taken += len(taken)
            except LogboomError as error:
                logger.warning("group %s: what is due cannot be written down, it is tried again: %s", group.name, error)
                group.retry_s = self.world.monotonic_s() + RETRY_S
            for presence in ending:
                presence.is_ending = False
            self.schedule(group)

    async def _forget_idle(self) -> None:
        since_us = self.world.now_us() - self.limits.group_idle_ms * 1000
        for group in list(self.groups.values()):
            emptied = max(group.entry.emptied, group.entry.made)
            if self.is_copy or group.entry.members or emptied >= since_us:
                continue
            try:
                await self.forget(group)
            except LogboomError as error:
                logger.warning("group %s: cannot be forgotten: %s", group.name, error)

    # What other calls are made of.

    def place_of(self, name: str, log: LogId) -> str | None:
        """The group's bookmark in this log; what is left of a topic that had its name before is none."""
        place = self.cursors.standing(cursor_key(mark(name), log.topic, log.partition))
        if place is None or place.topic_id.hex() != log.topic_id:
            return None
        return str(bookmark_of(place, log.partition))

    async def move(self, name: str, hosted: Hosted, partition: int, bookmark: str, force: bool = False) -> None:
        move = CursorMove(mark(name), hosted.topic.name, partition, bookmark, force=force)
        await commit_in(hosted, self.cursors, move, self.world.now_us())

    def check_holder(self, name: str, member: str, hosted: Hosted, partition: int, generation: int) -> None:
        """Raises LogNotHeld, unless this log was given to this member in this generation and not to others since."""
        group = self.groups.get(name)
        log = LogId(hosted.topic.name, hosted.topic.id, partition)
        if group is not None and not group.is_inherited:
            grant = group.holders.get(log)
            if grant is not None and (grant.member, grant.generation) == (member, generation):
                return
        raise LogNotHeld(name, f"{hosted.topic.name}/{partition}", generation)

    async def forget(self, group: LiveGroup) -> None:
        """With its places. Raises GroupBusy while it has members."""
        await self.do(self._forget(group))

    async def _forget(self, group: LiveGroup) -> None:
        async with group.changing:
            if self.groups.get(group.name) is not group:
                raise GroupNotFound(group.name)
            if group.entry.members:
                raise GroupBusy(group.name, len(group.entry.members))
            await self.on_forgotten(group.name, None)
            await self.cursors.delete(mark(group.name))
            await self.state.put({group.name.encode(): None})
            del self.groups[group.name]
            self._version = ""

    def counted(self) -> dict[str, int]:
        """As NodeStats has it."""
        kept = [group for group in self.groups.values() if group.is_kept]
        return {
            "groups": len(kept),
            "members": sum(len(group.entry.members) for group in kept),
            "logs": sum(len(group.entry.grants) for group in kept),
            **asdict(self.counts),
        }

    # Copies.

    def copy_of(self, version: str) -> tuple[str, dict[bytes, bytes] | None]:
        """Everything, as it is kept, and its version: the same for the same on any node. None where it is this one."""
        entries = dict(self.state.items())
        if not self._version:
            self._version = hashlib.sha256(msgspec.msgpack.encode(sorted(entries.items()))).hexdigest()
        return self._version, None if self._version == version else entries

    async def copy(self, found: Mapping[bytes, bytes]) -> None:
        """As another node has them; what it has not is removed. Raises RemoteProtocolError where they make no sense."""
        try:
            decoded = {key.decode(): decode_group(value) for key, value in found.items()}
        except (msgspec.DecodeError, ValueError):
            raise RemoteProtocolError("the source sent what is no group") from None
        here = dict(self.state.items())
        changes: dict[bytes, bytes | None] = dict.fromkeys(here.keys() - found.keys())
        await self.state.put(changes | {key: value for key, value in found.items() if here.get(key) != value})
        self.groups, self._version = {name: LiveGroup(name, entry) for name, entry in decoded.items()}, ""

    def take_over(self) -> None:
        """From here on this node decides. What the node before has told in its last moments may not be known here, so
        every generation is one that it cannot have had: nobody moves a place before that is written down."""
        self.is_copy = False
        now_s = self._listened_s = self.world.monotonic_s()
        for group in self.groups.values():
            group.is_inherited = True
            self._expect_all(group, now_s)
            self.look_again(group)

    def end(self) -> None:
        """Whoever waits is told that the node ends; what is being written is finished."""
        self.closing = True
        self.catalog.watchers.discard(self._told)
        self._wake.set()
        for group in self.groups.values():
            for member in list(group.waiting):
                group.wake(member)

    async def close(self) -> None:
        await self.state.close()


async def _nothing(name: str, logs: Collection[tuple[str, int]] | None) -> None:
    """Nobody else keeps anything of it."""
