"""What a running node says of itself, and what of that is wrong: each with its cause and what to do about it.

Bounded: the worst come first, and beyond FINDINGS_MAX the rest is only counted, however many topics and cursors there
are. Those are looked at in slices, so that others have their turn. `Examiner` does it for many who ask: one examination
at a time, and none while the last one is fresh. `Examiners` keep those apart who may not see the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from logboom.broker.allowances import HOOK
from logboom.broker.api import (
    AccessStats,
    Broker,
    CursorInfo,
    DiskStats,
    Incident,
    KeyInfo,
    NodeStats,
    ReplicaStats,
    StageInfo,
    TopicInfo,
)
from logboom.broker.caller import Caller
from logboom.broker.slices import slices
from logboom.broker.state.cursors import OF_GROUP
from logboom.broker.wording import age_of, size_of
from logboom.broker.world import REAL
from logboom.errors import NotAllowed
from logboom.storage.health.backlog import hook_advice, validator_advice
from logboom.storage.health.findings import SEVERITIES, Severity, counted

NEAR: Final = 0.8
"""Beyond this share of a limit it is near."""
FREE_SHARE_MIN: Final = 0.05
"""Of a volume; less is a warning."""
SLOW_SYNC_S: Final = 1.0
REPLICA_LAG_MAX: Final = 100_000
"""Records that a replica may be behind before that is a warning."""
KEPT_SHOWN: Final = 5
"""So many topics are named that a replica keeps."""
STAGE_END: Final = 0.1
"""A stage is about to expire in this last share of the time it is kept unused."""
STAGED_SHARE: Final = 0.2
"""Of a volume; stages that hold more are a warning."""
PUBLISH_S: Final = 60.0
"""A publish that is committed and not in all of its logs for longer waits for something."""
EXPIRES_S: Final = 30 * 86_400
"""A certificate that expires so soon is a warning."""
FINDINGS_MAX: Final = 200
REASON_MAX: Final = 1_000
FRESH_S: Final = 5.0
EXAMINERS_MAX: Final = 64
Info = TypeVar("Info")


class Complaint(msgspec.Struct, frozen=True):
    severity: Severity
    """`damage`: something promised cannot be read, or a log takes no writes. `warning`: somebody has to act.
    `harmless` mends itself; `info` asks for nothing."""
    kind: str
    where: str
    reason: str
    advice: str
    """What to do."""


class Examiner:
    def __init__(self, broker: Broker, caller: Caller, monotonic_s: Callable[[], float] = REAL.monotonic_s) -> None:
        """The findings are shown to anyone who asks, and kept for a while; `caller` is who looks for them."""
        self._broker = broker
        self._caller = caller
        self._monotonic_s = monotonic_s
        self._found: list[Complaint] = []
        self._examined_at = float("-inf")
        self._examining = asyncio.Lock()

    async def findings(self) -> list[Complaint]:
        async with self._examining:
            if self._monotonic_s() - self._examined_at >= FRESH_S:
                self._found = await examine(self._broker, self._caller)
                self._examined_at = self._monotonic_s()
            return self._found


class Examiners:
    """One for each who asks: what is found is what he may know of."""

    def __init__(self, broker: Broker, monotonic_s: Callable[[], float] = REAL.monotonic_s) -> None:
        self._broker = broker
        self._monotonic_s = monotonic_s
        self._examiners: OrderedDict[tuple[str, frozenset[str], str], Examiner] = OrderedDict()

    async def findings(self, caller: Caller) -> list[Complaint]:
        await self._broker.stats(caller=caller)  # whether he may ask, now
        who = caller.principal, caller.groups, caller.by
        examiner = self._examiners.get(who)
        if examiner is None:
            examiner = self._examiners[who] = Examiner(self._broker, caller, self._monotonic_s)
            if len(self._examiners) > EXAMINERS_MAX:
                self._examiners.popitem(last=False)
        self._examiners.move_to_end(who)
        return await examiner.findings()


async def examine(broker: Broker, caller: Caller) -> list[Complaint]:
    """What is wrong with the node, the worst first. What the caller may not list is left out."""
    found = _Findings()
    stats = await broker.stats(caller=caller)
    topics = await _allowed(broker.list_topics("", internal=True, caller=caller))
    cursors = await _allowed(broker.list_cursors(caller=caller))
    found.add(_of_node(stats))
    found.add(_of_access(stats.access, stats.now))
    found.add(_of_disk(stats.disk))
    found.add(_of_replica(stats.replica, stats.now))
    found.add(_of_limits(stats, len(cursors)))
    found.add(_of_rejections(stats, await broker.incidents(caller=caller)))
    found.add(_of_upkeep(stats.upkeep))
    await _look_at_staging(broker, caller, stats, found)
    firsts: dict[tuple[str, int], int] = {}
    async for some in slices(topics):
        for topic in some:
            found.add(_of_topic(topic))
            firsts |= {(topic.id, part.partition): part.first for part in topic.partitions}
    behind, unreadable = _Behind(), set(stats.unreadable)
    async for more in slices(cursors):
        for cursor in more:
            first = firsts.get((cursor.topic_id, cursor.partition))
            if cursor.topic_id not in unreadable:
                found.add(_of_cursor(cursor, first))
            if first is not None and cursor.lag and cursor.seqno >= first:
                behind.add(cursor)
    found.add(behind.complaints(stats.now))
    found.skip("info", behind.left_out)
    return found.worst()


class _Findings:
    """So many of each severity; the others are counted."""

    def __init__(self) -> None:
        self._kept: dict[Severity, list[Complaint]] = {severity: [] for severity in SEVERITIES}
        self._counts = dict.fromkeys(SEVERITIES, 0)

    def add(self, complaints: Iterable[Complaint]) -> None:
        for complaint in complaints:
            self._counts[complaint.severity] += 1
            kept = self._kept[complaint.severity]
            if len(kept) < FINDINGS_MAX:
                kept.append(msgspec.structs.replace(complaint, reason=complaint.reason[:REASON_MAX]))

    def skip(self, severity: Severity, count: int) -> None:
        """So many more there are, and nobody made them."""
        self._counts[severity] += count

    def worst(self) -> list[Complaint]:
        total = sum(self._counts.values())
        kept = [complaint for severity in SEVERITIES for complaint in self._kept[severity]]
        if total <= FINDINGS_MAX:
            return kept
        del kept[FINDINGS_MAX - 1 :]
        left = dict(self._counts)
        for complaint in kept:
            left[complaint.severity] -= 1
        worst = next(severity for severity in SEVERITIES if left[severity])
        counts = ", ".join(f"{count:,} {severity}" for severity, count in left.items() if count)
        advice = "fix those above first: many have the same cause"
        return [*kept, Complaint(worst, "more findings", "the node", f"not shown here: {counts}", advice)]


class _Behind:
    """The cursors that are most behind."""

    def __init__(self) -> None:
        self._most: list[CursorInfo] = []
        self.left_out = 0

    def add(self, cursor: CursorInfo) -> None:
        self._most.append(cursor)
        if len(self._most) >= 2 * FINDINGS_MAX:
            self._cut()

    def _cut(self) -> None:
        self._most.sort(key=lambda cursor: cursor.lag or 0, reverse=True)
        self.left_out += max(0, len(self._most) - FINDINGS_MAX)
        del self._most[FINDINGS_MAX:]

    def complaints(self, now: int) -> list[Complaint]:
        self._cut()
        return [_lagging(cursor, now) for cursor in self._most]


async def _look_at_staging(broker: Broker, caller: Caller, stats: NodeStats, found: _Findings) -> None:
    found.add(_of_staged(stats))
    if stats.staging.get("stages"):
        async for some in slices(await _allowed(broker.list_stages(caller=caller))):
            for stage in some:
                found.add(_of_stage(stage, stats.now))
    if stats.staging.get("publishing"):
        async for more in slices(await _allowed(broker.list_keys(caller=caller))):
            for key in more:
                found.add(_of_publish(key, stats.now))


async def _allowed(listed: Awaitable[list[Info]]) -> list[Info]:
    try:
        return await listed
    except NotAllowed:
        return []


def _of_node(stats: NodeStats) -> Iterator[Complaint]:
    if stats.failure is not None:
        advice = "see what the system's log says of the disk, then restart the node: it recovers by itself"
        yield Complaint("damage", "writes have failed", "the node", stats.failure, advice)
    elif stats.refused is not None:
        reason = stats.refused or "switched to read-only"
        yield Complaint("warning", "writes refused", "the node", reason, "`logboom accept` takes writes again")
    for topic_id in stats.unreadable:
        reason = "its topic.json is damaged: the topic can be neither read nor written"
        advice = "run `logboom doctor` on the node's directory: it says how to restore the file; then restart the node"
        yield Complaint("damage", "unreadable topic", f"the topic with id {topic_id}", reason, advice)
    longest_s = stats.syncs.get("longest_s", 0.0)
    if longest_s > SLOW_SYNC_S:
        reason = f"a sync took {longest_s:.1f} seconds: writers waited for it"
        yield Complaint("info", "slow disk", "the node", reason, "nothing, if it was once; else a faster disk")


def exposure(anonymous: str) -> str:
    """What --insecure means for a node, by what callers may do that have not signed in."""
    if anonymous == "all":
        return "everybody who reaches it may do everything"
    return "callers sign in, and whoever is on the way can read and change what they send"


def _of_access(access: AccessStats | None, now: int) -> Iterator[Complaint]:
    if access is None:
        return
    if access.insecure:
        reason = f"it runs with --insecure: {exposure(access.anonymous)}"
        advice = (
            "give it a certificate (`logboom cert`) and users (`logboom user add`), and start it without --insecure"
        )
        yield Complaint("warning", "insecure", "the node", reason, advice)
    expires = access.certificate_expires
    if expires is None or expires - now > EXPIRES_S * 1e6:
        return
    advice = "make a new one (`logboom cert server --force`): the node reads it within seconds, without a restart"
    reason = f"it expires in {age_of(expires - now)}" if expires > now else f"it expired {age_of(now - expires)} ago"
    yield Complaint("warning", "certificate", "the node", reason, advice)


def _of_disk(disk: DiskStats | None) -> Iterator[Complaint]:
    if disk is None:
        return
    free, reserve, total = (size_of(size) for size in (disk.free_bytes, disk.reserve_bytes, disk.total_bytes))
    advice = (
        "delete topics or other files, shorten the retention of large topics, or enlarge the volume; "
        "writes resume by themselves"
    )
    if disk.free_bytes < disk.reserve_bytes:
        reason = f"{free} of {total} are free, less than the reserve of {reserve}: writes are refused"
        yield Complaint("damage", "no space", "the volume", reason, advice)
    elif disk.free_bytes < max(2 * disk.reserve_bytes, FREE_SHARE_MIN * disk.total_bytes):
        reason = f"{free} of {total} are free; below {reserve} writes are refused"
        yield Complaint("warning", "low space", "the volume", reason, advice.partition(";")[0])


def _of_replica(replica: ReplicaStats | None, now: int) -> Iterator[Complaint]:
    if replica is None:
        return
    where = f"the copy of {replica.source}"
    if not replica.connected:
        since = "since its start" if replica.heard is None else f"for {age_of(now - replica.heard)}"
        reason = f"the source was not heard of {since}" + (f": {replica.error}" if replica.error else "")
        advice = (
            "see that the source runs and that its logd port can be reached from here; "
            "`logboom promote` makes this node independent, if the source is lost"
        )
        yield Complaint("warning", "replica not connected", where, reason, advice)
    elif replica.error is not None:
        yield Complaint("warning", "replica does not copy all", where, replica.error, "as the error says")
    if replica.kept:
        some = ", ".join(replica.kept[:KEPT_SHOWN])
        more = f" and {replica.kept_topics - KEPT_SHOWN:,} more" if replica.kept_topics > KEPT_SHOWN else ""
        reason = f"the source does not have {some}{more}, and does not say that they were deleted there"
        advice = (
            "was the source restored from an older backup? Then read them here, or promote this node; "
            "delete what you do not need with `logboom topic delete NAME --server` and this node's address"
        )
        yield Complaint("warning", "replica keeps topics", where, reason, advice)
    if replica.lag_records:
        most = ", ".join(f"{log} by {lag:,}" for log, lag in replica.lag_logs.items())
        reason = f"{counted(replica.lag_records, 'record')} behind" + (f"; most are {most}" if most else "")
        severity: Severity = "warning" if replica.lag_records >= REPLICA_LAG_MAX else "info"
        advice = "nothing, if it shrinks; else look at the network between the two, and at this node's disk"
        yield Complaint(severity, "replica lag", where, reason, advice)


def _of_limits(stats: NodeStats, cursors: int) -> Iterator[Complaint]:
    used = {
        "topics": stats.topics,
        "connections": sum(stats.connections.values()),
        "unsynced_bytes": stats.writes.get("unsynced_bytes", 0),
        "cursors": cursors,
        "groups": stats.groups.get("groups", 0),
        "stages": stats.staging.get("stages", 0),
        "staged_bytes": stats.staging.get("staged_bytes", 0),
        "publish_keys": stats.staging.get("keys", 0),
    }
    for name, count in used.items():
        allowed = stats.limits.get(name)
        if allowed and count >= NEAR * allowed:
            reason = f"{count:,} of {allowed:,}"
            yield Complaint("warning", "near a limit", f"limits.{name}", reason, f"raise limits.{name}, or use less")
    if stats.open_files_limit and stats.open_files >= NEAR * stats.open_files_limit:
        reason = f"{stats.open_files:,} of {stats.open_files_limit:,} are open; without any, writes are refused too"
        advice = "raise it with `ulimit -n`, or LimitNOFILE= of the systemd unit, or close connections"
        yield Complaint("warning", "near a limit", "open files of the process", reason, advice)
    if stats.memory_limit_bytes and stats.memory_bytes >= NEAR * stats.memory_limit_bytes:
        reason = f"{size_of(stats.memory_bytes)} of {size_of(stats.memory_limit_bytes)}, with what is mapped of files"
        advice = "lower limits.connections, limits.receive_bytes or limits.unsynced_bytes, or give the node more"
        yield Complaint("warning", "near a limit", "memory", reason, advice)


def _of_rejections(stats: NodeStats, incidents: Sequence[Incident]) -> Iterator[Complaint]:
    """Limits, and what can be looked up: what clients misspell is counted, and no trouble of the node."""
    noted = {incident.name for incident in incidents}
    for name, count in sorted(stats.rejections.items()):
        reason = f"has refused requests {'once' if count == 1 else f'{count:,} times'} since the node was started"
        if name.startswith("limits."):
            yield Complaint("warning", "limit reached", name, reason, f"raise {name}, or use less")
        elif name in noted:
            advice = "look at what the clients send: `GET /incidents` shows what was refused"
            yield Complaint("info", "rejections", name, reason, advice)


def _of_upkeep(upkeep: dict[str, Any] | None) -> Iterator[Complaint]:
    if not upkeep:
        return
    for hook in upkeep["hooks"]["failing"]:
        if not hook["next_attempt_at"]:
            continue  # said of its topic
        where = f"{hook['topic']}/{hook['partition']}"
        reason = (
            f"the delete hook has failed {hook['attempts']:,} times (last: {hook['error']}), and holds its segments"
        )
        yield Complaint("warning", "failing hook", where, reason, "fix the command: the node runs it again by itself")
    for finding in upkeep["scrub"]["findings"]:
        advice = "stop the node and run `logboom check`, then `logboom repair`, or restore the file from a backup"
        yield Complaint("damage", "found by a scrub", f"{finding['log']}/{finding['file']}", finding["reason"], advice)
    lost = upkeep["dropped_without_hook"]
    if lost["segments"]:
        reason = f"{counted(lost['segments'], 'segment')} went beyond retention.hard_bytes before their hook succeeded"
        yield Complaint("warning", "dropped without hook", "upkeep", reason, "fix the hook, or raise the limit")
    lost = upkeep["dropped_without_archive"]
    if lost["segments"]:
        reason = f"{counted(lost['segments'], 'segment')} went beyond retention.hard_bytes before they were archived"
        advice = "let the archive run more often, or raise the limit"
        yield Complaint("warning", "dropped before it was archived", "upkeep", reason, advice)
    for waiting in upkeep["waiting"]:
        yield _waiting(waiting)
    if upkeep["errors"]:
        reason = f"{counted(upkeep['errors'], 'error')} since the start, the last one: {upkeep['last_error']}"
        yield Complaint("warning", "upkeep fails", "upkeep", reason, "as the error says")


def _waiting(log: dict[str, Any]) -> Complaint:
    """Segments that stay until they are archived."""
    where = f"{log['topic']}/{log['partition']}"
    reason = f"{counted(log['segments'], 'segment')} with {size_of(log['bytes'])} could go, and are not archived"
    hard, size = log["hard_bytes"], log["log_bytes"]
    if hard is not None:
        reason += f"; the log has {size_of(size)}, beyond {size_of(hard)} they go all the same"
    advice = f"run the archive of {log['topic']}: `logboom pipeline list` says when it last ran, and why it failed"
    if log["archived_until"] is None:
        advice = f"nothing was ever archived of it: configure an archive of {log['topic']}, or unset retention.after"
        return Complaint("warning", "waits for an archive", where, reason, advice)
    if hard is not None and size >= NEAR * hard:
        return Complaint("warning", "near the hard limit", where, reason, advice)
    return Complaint("info", "waits for the archive", where, reason, advice)


def _of_staged(stats: NodeStats) -> Iterator[Complaint]:
    disk, staged = stats.disk, stats.staging.get("staged_bytes", 0)
    if disk is None or not staged:
        return
    advice = "`logboom stage list` shows whose they are: publish them, or discard those that are not needed"
    room = max(0, disk.free_bytes - disk.reserve_bytes)
    if staged > room:
        reason = f"{size_of(staged)} are staged, and {size_of(room)} can be written: not all can be published"
        yield Complaint("warning", "much is staged", "stages", reason, advice)
    elif staged >= STAGED_SHARE * disk.total_bytes:
        reason = f"{size_of(staged)} of a volume of {size_of(disk.total_bytes)} are staged"
        yield Complaint("warning", "much is staged", "stages", reason, advice)


def _of_stage(stage: StageInfo, now: int) -> Iterator[Complaint]:
    where = f"stage {stage.id}" + (f" ({stage.note})" if stage.note else "")
    if stage.state == "failed":
        reason = f"what is in it cannot be relied on: {size_of(stage.size_bytes)} for nothing"
        advice = f"`logboom stage discard {stage.id}`, or nothing: it expires by itself"
        yield Complaint("harmless", "failed stage", where, reason, advice)
    elif stage.state == "open" and (stage.records or not stage.producer_id):  # unread since a restart: who knows
        left = stage.expires - now
        if left < STAGE_END * (stage.expires - stage.touched):
            size, unused = size_of(stage.size_bytes), age_of(now - stage.touched)
            reason = f"{size}, unused for {unused}: it expires in {age_of(max(0, left))}"
            advice = "publish it now if its records are needed; else nothing. limits.stage_idle_ms sets the time"
            yield Complaint("warning", "stage expires", where, reason, advice)


def _of_publish(key: KeyInfo, now: int) -> Iterator[Complaint]:
    if key.is_open and now - key.published > PUBLISH_S * 1e6:
        reason = (
            f"committed {age_of(now - key.published)} ago, and not in all of its logs; its topics cannot be deleted"
        )
        advice = (
            "the node's log and `GET /incidents` say what it waits for: free space, or repair the log, then restart; "
            f"`logboom stage forget {key.name}` gives up what can never be finished"
        )
        yield Complaint("warning", "publish waits", f"key {key.name}, number {key.number}", reason, advice)


def _of_topic(topic: TopicInfo) -> Iterator[Complaint]:
    if topic.refused is not None:
        advice = f"`logboom accept {topic.name}` takes writes again"
        yield Complaint("warning", "writes refused", topic.name, topic.refused or "switched to read-only", advice)
    yield from _unusable(topic)
    for part in topic.partitions:
        if part.refusal is not None:
            advice = "stop the node and run `logboom doctor` on its directory"
            yield Complaint("damage", "log takes no writes", f"{topic.name}/{part.partition}", part.refusal, advice)


def _unusable(topic: TopicInfo) -> Iterator[Complaint]:
    for key, reason in topic.unusable.items():
        if key == HOOK:
            limit = topic.settings.retention.hard_bytes
            until = "forever" if limit is None else f"until a partition has more than {size_of(limit)}"
            reason = f"{reason}; nothing is run, and what retention would drop is held {until}"
            yield Complaint("warning", "unknown hook", topic.name, reason, hook_advice(topic.name))
        else:
            advice = validator_advice(topic.name)
            yield Complaint("warning", "validator not allowed", topic.name, f"{reason}; appends are refused", advice)


def _of_cursor(cursor: CursorInfo, first: int | None) -> Iterator[Complaint]:
    """What is wrong with it, besides that it is behind. `first` is where its log begins, if there is one.

    Of a log that cannot be opened nobody knows how far behind it is, and of one that was just made where it begins.
    """
    if first is None and cursor.lag is None:
        of_group = cursor.cursor.startswith(OF_GROUP)
        goes = f"group delete {cursor.cursor[1:]}" if of_group else f"cursor delete {cursor.cursor} {cursor.topic}"
        advice = f"`logboom {goes}`, if it is not needed"
        yield Complaint("info", "cursor without a topic", _place(cursor), "its topic was deleted", advice)
    elif first is not None and cursor.seqno < first:
        gone = counted(first - cursor.seqno, "record")
        reason = f"it is at seqno {cursor.seqno}, the log begins at {first}: {gone} dropped unread"
        advice = "let its reader run with gaps skipped, and keep more, or read sooner"
        yield Complaint("warning", "cursor left behind", _place(cursor), reason, advice)


def _lagging(cursor: CursorInfo, now: int) -> Complaint:
    reason = f"{counted(cursor.lag or 0, 'record')} behind, last moved {age_of(now - cursor.updated)} ago"
    return Complaint("info", "cursor lag", _place(cursor), reason, "nothing, if its reader is running")


def _place(cursor: CursorInfo) -> str:
    name = cursor.cursor
    whose = f"group {name[1:]}" if name.startswith(OF_GROUP) else name
    return f"{whose} on {cursor.topic}/{cursor.partition}"
