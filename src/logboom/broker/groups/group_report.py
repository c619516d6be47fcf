"""Groups as operators see them: who is a member, who holds what, how far each log has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from msgspec import structs

from logboom.broker.api.groups import GroupDescription, GroupInfo, GroupLog, GroupState, MemberInfo
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.catalog import Catalog
from logboom.broker.groups.coordinator import Coordinator
from logboom.broker.groups.group_entry import GrantEntry, GroupEntry
from logboom.broker.groups.live_group import LiveGroup, QueueStanding
from logboom.broker.groups.shares import LogId
from logboom.broker.monitor.lags import lag_of
from logboom.broker.slices import slices
from logboom.broker.state.cursors import OF_GROUP, CursorEntry, Cursors, bookmark_of, split_key

Sieve = Callable[[str], bool] | None
Standings = dict[LogId, CursorEntry]


class GroupReport:
    def __init__(
        self, coordinator: Coordinator, cursors: Cursors, catalog: Catalog, now_s: Callable[[], float]
    ) -> None:
        self._coordinator = coordinator
        self._cursors = cursors
        self._catalog = catalog
        self._now_s = now_s
        self.queued_of: Callable[[str], dict[LogId, QueueStanding]] = lambda group: {}
        """How a queue stands, in each of its logs."""

    async def list_all(self, prefix: str, sees: Sieve, knows: Sieve) -> list[GroupInfo]:
        """By name. `sees` says which groups, `knows` which topics are shown."""
        names = [
            name
            for name, group in self._coordinator.groups.items()
            if group.is_kept and name.startswith(prefix) and (sees is None or sees(name))
        ]
        standings, found = await self._standings(set(names)), []
        async for some in slices(sorted(names)):
            for name in some:
                group = self._coordinator.groups.get(name)
                if group is not None:
                    found.append(self._info(group, standings[name], knows))
        return found

    async def describe(self, name: str, knows: Sieve) -> GroupDescription:
        """Raises GroupNotFound."""
        group = self._coordinator.find(name)
        standing = (await self._standings({name}))[name]
        entry, logs = group.entry, self._logs(group, standing, knows)
        held = defaultdict(list)
        for log in logs:
            if log.member is not None:
                held[log.member].append(f"{log.topic}/{log.partition}")
        members = [self._member(group, member, held[member], knows) for member in sorted(entry.members)]
        lag, queue = sum(log.lag for log in logs), entry.queue
        if queue is not None and queue.dead_letter and knows is not None and not knows(queue.dead_letter):
            queue = structs.replace(queue, dead_letter="")
        return GroupDescription(name, entry.mode, _state(entry), entry.generation, members, logs, queue, lag)

    async def _standings(self, names: set[str]) -> defaultdict[str, Standings]:
        """Where these groups stand."""
        found: defaultdict[str, Standings] = defaultdict(dict)
        async for some in slices(self._cursors.keys()):
            for key in some:
                cursor, topic, partition = split_key(key)
                if cursor.startswith(OF_GROUP) and cursor[len(OF_GROUP) :] in names:
                    standing = self._cursors.standing(key)
                    if standing is not None:
                        log = LogId(topic, standing.topic_id.hex(), partition)
                        found[cursor[len(OF_GROUP) :]][log] = standing
        return found

    def _info(self, group: LiveGroup, standing: Standings, knows: Sieve) -> GroupInfo:
        entry, logs = group.entry, self._logs(group, standing, knows)
        lags: defaultdict[str, int] = defaultdict(int)
        for log in logs:
            lags[log.topic] += log.lag
        facts = len(entry.members), len(logs), sum(lags.values()), entry.generation, dict(lags)
        return GroupInfo(group.name, entry.mode, _state(entry), *facts)

    def _logs(self, group: LiveGroup, standing: Standings, knows: Sieve) -> list[GroupLog]:
        """Those that somebody holds, and those in which the group has a place."""
        grants, queued = {grant.log: grant for grant in group.entry.grants}, self.queued_of(group.name)
        return [
            self._log(log, grants.get(log), standing.get(log), queued.get(log))
            for log in sorted(grants.keys() | standing.keys() | queued.keys())
            if knows is None or knows(log.topic)
        ]

    def _log(
        self, log: LogId, grant: GrantEntry | None, standing: CursorEntry | None, queued: QueueStanding | None
    ) -> GroupLog:
        hosted = self._catalog.get(log.topic)
        first = committed = 0
        if hosted is not None and hosted.topic.id == log.topic_id and log.partition < len(hosted.writers):
            writer = hosted.writers[log.partition]
            if isinstance(writer, LogWriter):
                first, committed = hosted.describe_log(log.partition).first, writer.log.committed
        seqno = None if standing is None else standing.seqno
        if queued is not None:  # its place is committed a little later
            seqno = queued.base
        at = first if seqno is None else seqno
        lag = lag_of(hosted, bytes.fromhex(log.topic_id), log.partition, max(at, first)) or 0
        return GroupLog(
            *log,
            member=None if grant is None else grant.member,
            generation=0 if grant is None else grant.generation,
            seqno=seqno,
            bookmark=None if standing is None else str(bookmark_of(standing, log.partition)),
            first=first,
            committed=committed,
            lag=lag,
            updated=None if standing is None else standing.updated,
            is_asked_back=bool(grant and grant.asked),
            in_flight=0 if queued is None else queued.in_flight,
            delayed=0 if queued is None else queued.delayed,
        )

    def _member(self, group: LiveGroup, member: str, logs: list[str], knows: Sieve) -> MemberInfo:
        about, presence = group.entry.members[member], group.presences.get(member)
        silent_s = 0.0 if presence is None else self._now_s() - presence.heard_s
        address = about.address if presence is None else presence.caller.address or about.address
        facts = about.instance, about.client, about.principal, address, _known_wish(about.topics, knows)
        return MemberInfo(member, *facts, about.joined, about.session_ms, max(0, int(silent_s * 1000)), logs)


def _known_wish(topics: str, knows: Sieve) -> str:
    """Without the names of topics that are not shown."""
    if knows is None:
        return topics
    return ",".join(part for part in topics.split(",") if knows(part.partition("/")[0].strip()))


def _state(entry: GroupEntry) -> GroupState:
    if not entry.members:
        return "empty"
    return "moving" if entry.is_moving else "stable"
