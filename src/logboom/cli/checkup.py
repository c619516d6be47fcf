"""What a running node says of itself, and what of that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logboom.cli.moment import show_moment
from logboom.cli.wording import count_of
from logboom.storage.health.findings import SEVERITIES, Severity

if TYPE_CHECKING:
    from logboom.broker.api import CursorInfo, NodeStats, TopicInfo
    from logboom.client.remote import RemoteBroker

NEAR: Final = 0.8
"""Beyond this share of a limit it is near."""
SLOW_SYNC_S: Final = 1.0


class Complaint(msgspec.Struct, frozen=True):
    severity: Severity
    kind: str
    where: str
    reason: str
    advice: str


class Checkup(msgspec.Struct, frozen=True):
    node_id: str
    directory: str | None
    """As the node said, on its own machine."""
    stats: NodeStats
    findings: list[Complaint]

    @property
    def wrong(self) -> bool:
        return any(complaint.severity in ("damage", "warning") for complaint in self.findings)


async def ask_node(broker: RemoteBroker) -> Checkup:
    stats = await broker.stats()
    topics = await broker.list_topics("", internal=True)
    cursors = await broker.list_cursors()
    found = [*_of_node(stats), *_of_limits(stats), *_of_upkeep(stats.upkeep), *_of_topics(topics)]
    found += _of_cursors(cursors, topics)
    found.sort(key=lambda complaint: SEVERITIES.index(complaint.severity))
    return Checkup(stats.node_id, broker.welcome.directory, stats, found)


def _of_node(stats: NodeStats) -> Iterator[Complaint]:
    if stats.refused is not None:
        reason = stats.refused or "switched to read-only"
        yield Complaint("warning", "writes refused", "the node", reason, "`logboom accept` takes writes again")
    longest_s = stats.syncs.get("longest_s", 0.0)
    if longest_s > SLOW_SYNC_S:
        reason = f"a sync took {longest_s:.1f} seconds: writers waited for it"
        yield Complaint("info", "slow disk", "the node", reason, "nothing, if it was once; else a faster disk")


def _of_limits(stats: NodeStats) -> Iterator[Complaint]:
    used = {
        "topics": stats.topics,
        "connections": sum(stats.connections.values()),
        "unsynced_bytes": stats.writes.get("unsynced_bytes", 0),
    }
    for name, count in used.items():
        allowed = stats.limits.get(name)
        if allowed and count >= NEAR * allowed:
            reason = f"{count:,} of {allowed:,}"
            yield Complaint("warning", "near a limit", f"limits.{name}", reason, f"raise limits.{name}, or use less")
    for name, count in sorted(stats.rejections.items()):
        reason = f"has said no {'once' if count == 1 else f'{count:,} times'} since the node was started"
        if name.startswith("limits."):
            yield Complaint("warning", "limit reached", name, reason, f"raise {name}, or use less")
        else:
            yield Complaint("info", "rejections", name, reason, "look at what the clients send")


def _of_upkeep(upkeep: dict[str, Any] | None) -> Iterator[Complaint]:
    if not upkeep:
        return
    for hook in upkeep["hooks"]["failing"]:
        where = f"{hook['topic']}/{hook['partition']}"
        reason = (
            f"the delete hook has failed {hook['attempts']:,} times (last: {hook['error']}), and holds its segments"
        )
        yield Complaint("warning", "failing hook", where, reason, "mend the command: the node runs it again by itself")
    for finding in upkeep["scrub"]["findings"]:
        advice = "stop the node and run `logboom check`, then `logboom repair`, or restore the file from a copy"
        yield Complaint("damage", "found by a scrub", f"{finding['log']}/{finding['file']}", finding["reason"], advice)
    lost = upkeep["dropped_without_hook"]
    if lost["segments"]:
        reason = f"{count_of(lost['segments'], 'segment')} went beyond retention.hard_bytes before their hook succeeded"
        yield Complaint("warning", "dropped without hook", "upkeep", reason, "mend the hook, or raise the limit")
    if upkeep["errors"]:
        reason = f"{count_of(upkeep['errors'], 'error')} since the start, the last one: {upkeep['last_error']}"
        yield Complaint("warning", "upkeep fails", "upkeep", reason, "as the error says")


def _of_topics(topics: list[TopicInfo]) -> Iterator[Complaint]:
    for topic in topics:
        if topic.refused is not None:
            advice = f"`logboom accept {topic.name}` takes writes again"
            yield Complaint("warning", "writes refused", topic.name, topic.refused or "switched to read-only", advice)
        for part in topic.partitions:
            if part.refusal is not None:
                advice = "stop the node and run `logboom doctor` on its directory"
                yield Complaint("damage", "log takes no writes", f"{topic.name}/{part.partition}", part.refusal, advice)


def _of_cursors(cursors: list[CursorInfo], topics: list[TopicInfo]) -> Iterator[Complaint]:
    firsts = {(topic.id, part.partition): part.first for topic in topics for part in topic.partitions}
    for cursor in cursors:
        where = f"{cursor.cursor} on {cursor.topic}/{cursor.partition}"
        first = firsts.get((cursor.topic_id, cursor.partition))
        if first is None or cursor.lag is None:
            advice = f"`logboom cursor delete {cursor.cursor} {cursor.topic}`, if nobody wants it"
            yield Complaint("info", "cursor without a topic", where, "its topic was deleted", advice)
        elif cursor.seqno < first:
            gone = count_of(first - cursor.seqno, "record")
            reason = f"it stands at seqno {cursor.seqno}, the log begins at {first}: {gone} went unread"
            advice = "let its reader run with gaps skipped, and keep more, or read sooner"
            yield Complaint("warning", "cursor left behind", where, reason, advice)
        elif cursor.lag:
            reason = f"{count_of(cursor.lag, 'record')} behind, last moved {show_moment(cursor.updated)}"
            yield Complaint("info", "cursor lag", where, reason, "nothing, if its reader is running")
