"""What the node does, has done and holds: counters, history, activity, segments, incidents.

Nothing here changes anything. Counters begin at 0 with every start.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from logboom.broker.caller import Caller
from logboom.broker.monitor.activity import (
    Activity,
    ActivityRequest,
    DiskStats,
    History,
    Incident,
    SegmentInfo,
    TopicHistory,
)
from logboom.broker.monitor.measures import Measures


class InsightCalls(Protocol):
    """For those who watch the node."""

    async def stats(self, *, caller: Caller) -> NodeStats: ...

    async def measures(self, *, caller: Caller) -> Measures:
        """What was counted of each topic and each protocol since the start."""
        ...

    async def history(self, since: int = 0, *, caller: Caller) -> History:
        """What the node did in the last minutes: the samples taken after `since`, microseconds."""
        ...

    async def activity(self, request: ActivityRequest, *, caller: Caller) -> Activity:
        """Topics with what they do now, searched and sorted: a page of them, however many there are."""
        ...

    async def topic_history(self, topic: str, *, caller: Caller) -> TopicHistory: ...

    async def segments(
        self, topic: str, partition: int | None = None, limit: int = 1000, *, caller: Caller
    ) -> list[SegmentInfo]:
        """The newest so many, oldest first."""
        ...

    async def incidents(self, *, caller: Caller) -> list[Incident]:
        """What was refused or went wrong lately, newest first."""
        ...


class NodeStats(msgspec.Struct, frozen=True):
    node_id: str
    cluster_id: str
    version: str
    started: int
    now: int
    topics: int
    logs: int
    writes: dict[str, int]
    """batches, records, bytes, repeats, refused; waiting_bytes and unsynced_bytes as they are now."""
    reads: dict[str, int]
    """chunks, bytes, subscriptions, waiting; filtered runs, skips of whole segments, runs that were not in memory, and
    those from the archive."""
    syncs: dict[str, float]
    """count, logs, seconds, longest_s."""
    rejections: dict[str, int]
    """How often each limit or rule has said no, by the name of its error or limit."""
    connections: dict[str, int] = {}
    """Now, by protocol."""
    refused: str | None = None
    failure: str | None = None
    """Why the node takes no writes until it is restarted; `refused` says so too."""
    upkeep: Any = None
    memory_bytes: int = 0
    open_files: int = 0
    limits: dict[str, int] = {}
    """What the node allows, by the names of `broker.limits.Limits`."""
    replica: ReplicaStats | None = None
    """Of a node that copies another one."""
    memory_limit_bytes: int = 0
    """Of the machine, or of the control group; 0 where nobody knows."""
    open_files_limit: int = 0
    disk: DiskStats | None = None
    """As of the last sample."""
    unreadable: list[str] = []
    """Ids of topics that are on disk and cannot be served: their topic.json is damaged."""
    staging: dict[str, int] = {}
    """stages, staged_bytes, keys and publishing (what cannot be finished too) as they are now; published,
    published_records, repeats, opened, discarded and expired since the start."""
    deletions: int | None = None
    """How many deleted topics are remembered, for those who copy the node."""
    access: AccessStats | None = None
    """None where it only lives in this process."""
    access_entries: int | None = None
    """How many users, tokens, roles, rules and quotas there are together, for those who copy the node."""
    quotas: QuotaStats | None = None
    groups: dict[str, int] = {}
    """groups, members, and logs that they hold, as they are now; joins, expired, moves, taken, commits and refused
    since the start."""
    queues: dict[str, int] = {}
    """in_flight and delayed, as they are now; leases, redeliveries, acks, releases, rejects, refused, dead_letters,
    given_up and skipped since the start."""


class QuotaStats(msgspec.Struct, frozen=True):
    """What quotas do, without whom they do it to."""

    quotas: int
    resting: int
    """How many connections and requests wait now."""
    throttled: dict[str, int]
    """How often somebody began to wait since the start, by the rate he waited for."""
    throttled_s: dict[str, float]
    """For how long, seconds."""


class AccessStats(msgspec.Struct, frozen=True):
    """Who reaches a node, and what of them it knows."""

    anonymous: str
    """What callers may do that have not signed in: all, or none but what rules say."""
    insecure: bool = False
    """Other machines reach it without TLS, or may do everything, because somebody said --insecure."""
    certificate_expires: int | None = None
    """When its certificate does, microseconds; None where it has none."""


class ReplicaStats(msgspec.Struct, frozen=True):
    source: str
    """Where it copies from."""
    connected: bool
    lag_records: int
    """Committed there and not here, of all logs together, as far as was heard."""
    lag_logs: dict[str, int]
    """The logs that lag most, by `topic/partition`."""
    heard: int | None = None
    """When the source was last heard of, microseconds."""
    error: str | None = None
    """Why it does not copy, or what it cannot copy."""
    kept: list[str] = []
    """Topics that the source has no more and was not told to delete: some of them."""
    kept_topics: int = 0
    """How many there are."""
    access: str | None = None
    """`copied`, where users and rules are the source's; or why they are not."""
