"""The one API of a node, without any protocol: what every front-end calls, and what every kind of node implements.

In the process it is `broker.local.LocalBroker`, through the network `client.remote.RemoteBroker`; nobody tells them
apart. Everything that can go wrong is an error of errors.py.

An append takes its place in its logs' order when it is called, not when it is awaited; the future it returns is done as
soon as the promise is kept, which may be at once. Answers come one for each batch, in order: where it went, or why not.
Reads show what is committed and nothing else, and always say how far they came. A subscription is a read that goes on:
whoever has room for more asks for more, so a slow reader costs nobody memory.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from logboom.batch import KIND_DATA, KIND_LOST, Batch, Record, Selection
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
from logboom.broker.publish.publication import KeyInfo, Publication, PublishedPart, PublishKey, Receipt, StageInfo
from logboom.errors import Damage
from logboom.storage.append import Answer, Appended
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.deletions import Deletion
from logboom.storage.data.topic import Acks, Settings
from logboom.storage.readable_log import READ_BYTES

__all__ = [
    "PIPELINE_TOPIC",
    "Acks",
    "Activity",
    "ActivityRequest",
    "Answer",
    "Appended",
    "Broker",
    "Chunk",
    "CursorInfo",
    "Deletion",
    "DiskStats",
    "Feed",
    "FeedOrigin",
    "FeedPiece",
    "Feeds",
    "Filter",
    "History",
    "Incident",
    "KeyInfo",
    "Measures",
    "NodeStats",
    "Part",
    "PartitionInfo",
    "Publication",
    "PublishKey",
    "PublishedPart",
    "ReadRequest",
    "Receipt",
    "ReplicaStats",
    "SegmentInfo",
    "Settings",
    "StageInfo",
    "Start",
    "Subscription",
    "TopicHistory",
    "TopicInfo",
]


PIPELINE_TOPIC: Final = "_pipeline"
"""What the pipeline's runners tell each other, and whoever listens. Of the node's own topics the only one that others
append to, at a seqno they name: who has read all that is before it knows what he does."""


class Broker(Protocol):
    async def create_topic(
        self, name: str, partitions: int | None = None, settings: Settings | None = None
    ) -> TopicInfo:
        """The node's rules say what stands in for what is None."""
        ...

    async def configure_topic(self, name: str, settings: Settings) -> TopicInfo: ...
    async def describe_topic(self, name: str, create: bool = False) -> TopicInfo:
        """`create` makes it where there is none, if the node's rules let a write do that."""
        ...

    async def list_topics(self, prefix: str = "", internal: bool = False) -> list[TopicInfo]: ...
    async def delete_topic(self, name: str, topic_id: str | None = None) -> None: ...
    async def trim(self, topic: str, partition: int | None, seqno: int) -> PartitionInfo:
        """Nothing below `seqno` is ever served again."""
        ...

    def append(self, parts: Sequence[Part], acks: Acks | None = None) -> Future[list[Answer]]:
        """One answer for each batch of each part, in order. The topic's default stands in for `acks`."""
        ...

    async def read(self, request: ReadRequest) -> Chunk:
        """Waits up to `wait_ms` where there is nothing yet; then the chunk is empty, and says where the log ends."""
        ...

    async def subscribe(self, request: ReadRequest) -> Subscription: ...

    async def commit_cursor(
        self,
        cursor: str,
        topic: str,
        partition: int | None,
        bookmark: str,
        force: bool = False,
        expect: str | None = None,
    ) -> None:
        """Durable when this returns. Raises CursorMovedBack for a place before the one where it stands, unless `force`.

        `expect` is the bookmark where the cursor must stand before, or "" where there must be none: else
        UnexpectedCursor. A repeat of what was committed is no error.
        """
        ...

    async def fetch_cursor(self, cursor: str, topic: str, partition: int | None = None) -> str | None:
        """Its bookmark; None where there is no such cursor."""
        ...

    async def list_cursors(self, topic: str | None = None, prefix: str = "") -> list[CursorInfo]: ...
    async def delete_cursor(self, cursor: str, topic: str | None = None) -> int:
        """How many partitions' cursors of this name there were."""
        ...

    async def refuse(self, topic: str | None = None, reason: str = "") -> None:
        """Take no more writes: of a topic, or at all. Lasts until `accept`, or a restart."""
        ...

    async def accept(self, topic: str | None = None) -> None: ...
    async def stats(self) -> NodeStats: ...
    async def measures(self) -> Measures:
        """What was counted of each topic and each protocol since the start."""
        ...

    async def promote(self) -> None:
        """A replica copies no more and takes writes from now on; done when it does. Nothing to do for other nodes."""
        ...

    async def history(self, since: int = 0) -> History:
        """What the node did in the last minutes: the samples taken after `since`, microseconds."""
        ...

    async def activity(self, request: ActivityRequest) -> Activity:
        """Topics with what they do now, searched and sorted: a page of them, however many there are."""
        ...

    async def topic_history(self, topic: str) -> TopicHistory: ...
    async def segments(self, topic: str, partition: int | None = None, limit: int = 1000) -> list[SegmentInfo]:
        """The newest so many, oldest first."""
        ...

    async def incidents(self) -> list[Incident]:
        """What was refused or went wrong lately, newest first."""
        ...

    async def open_stage(self, note: str = "") -> StageInfo:
        """A place for batches that nobody sees until they are published, all at once with those of other stages."""
        ...

    def stage(self, stage: str, parts: Sequence[Part]) -> Future[list[Answer]]:
        """One answer for each batch, in order, as `append` has; seqnos are those of the stage's stream in that log.

        The batches carry the stage's producer id. A repeat is answered and not staged. Synced by `publish`.
        """
        ...

    async def publish(self, key: PublishKey, stages: Sequence[Receipt]) -> Publication:
        """Append all that is in these stages, in their order; or, where this raises, nothing.

        Unavailable and OutcomeUnknown alone leave it open: say it again, and the answer is true. Returns when all of it
        is synced.
        """
        ...

    async def discard(self, stages: Sequence[str]) -> int:
        """Throw stages away that are not being published; how many there were."""
        ...

    async def list_stages(self) -> list[StageInfo]: ...
    async def list_keys(self, prefix: str = "") -> list[KeyInfo]: ...
    async def forget_key(self, name: str) -> bool:
        """From now on the name is one that was never published under. Whether it was."""
        ...


class Subscription(Protocol):
    async def next(self, max_bytes: int = READ_BYTES) -> Chunk:
        """Waits for news: records, or how far it has come where a filter left none."""
        ...

    async def close(self) -> None: ...


class Feeds(Protocol):
    """What a node gives to those who copy it."""

    async def feed(self, topic: str, partition: int | None, index: int) -> Feed:
        """The stored batches of a log, from the one with this index on; 0 and 1 are the first there is.

        Where that one is gone the feed begins with the first that is not, and says so. Raises IndexOutOfRange for one
        that is not next or before.
        """
        ...

    def deleted(self, topic_ids: Sequence[str]) -> list[Deletion]:
        """Those of these topics, none of which is here, that were deleted on purpose, as far as that is remembered."""
        ...


class Feed(Protocol):
    origin: FeedOrigin

    async def next(self, max_bytes: int = READ_BYTES, wait_ms: int = 1000) -> FeedPiece:
        """Committed batches as they are stored, whole, control batches too; none where nothing came in time."""
        ...

    async def close(self) -> None: ...


class Part(NamedTuple):
    """Batches for one log."""

    topic: str
    batches: Sequence[Batch]
    partition: int | None = None
    """None names the only one."""
    expect_seqno: int | None = None
    """The seqno the first batch must get; the others follow it, or are refused with it."""
    topic_id: str | None = None
    """Refuse where the name is another topic's by now."""


class Start(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a read begins: one of these, else at the first record."""

    seqno: int | None = None
    time: int | None = None
    bookmark: str | None = None
    cursor: str | None = None
    """Where this cursor stands; where there is none yet, at `at`."""
    at: Literal["earliest", "latest"] = "earliest"


class Filter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which records. Fields that are empty do not restrict; those that are not must all hold."""

    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    channel: str | None = None
    """A channel, or a pattern: `+` is one level, `#` at the end the rest, `*` at the end makes it a prefix."""
    key: bytes | None = None

    def selection(self, seqno_from: int | None = None) -> Selection:
        """Raises InvalidPattern."""
        return Selection(seqno_from, None, self.tags_any, self.tags_all, self.channel, self.key)


class ReadRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    start: Start = Start()
    partition: int | None = None
    topic_id: str | None = None
    max_bytes: int = READ_BYTES
    """At least one batch comes, however large."""
    max_records: int | None = None
    """No batch comes that begins so many records after the start: what comes may be more, by less than a batch.
    Not with a filter."""
    wait_ms: int = 0
    filter: Filter | None = None
    gaps: Literal["raise", "skip"] = "raise"
    """What to do where records are gone (dropped by retention, damaged): an error, or go on behind them."""


class Chunk(NamedTuple):
    """Some of a log: whole batches as they are stored; or, where there was a filter, the records left, as one batch."""

    topic_id: str
    partition: int
    seqno: int
    """Where the read began. The first batch may begin earlier: records before this are to be left out."""
    next_seqno: int
    """Where to read on."""
    first: int
    committed: int
    term: int
    """Of the record before `next_seqno`; bookmark.TERM_UNKNOWN where nobody knows."""
    data: memoryview
    seqnos: memoryview | None = None
    """With a filter: the seqnos of the records in `data`, as i64, little-endian."""
    lineage: int = 0
    """Of `term`; 0 where nobody knows."""

    @property
    def record_count(self) -> int:
        """From `seqno` on; lost ones too."""
        return self.next_seqno - self.seqno if self.seqnos is None else self.seqnos.nbytes // 8

    @property
    def at_end(self) -> bool:
        return self.next_seqno >= self.committed

    @property
    def bookmark(self) -> str:
        """Of `next_seqno`."""
        return self.bookmark_at(self.next_seqno, self.term)

    def bookmark_at(self, seqno: int, term: int) -> str:
        """Of another place in the log: `term` is that of the record before it."""
        lineage = self.lineage if term == self.term else 0
        return str(Bookmark(bytes.fromhex(self.topic_id), self.partition, seqno, term, lineage))

    def batches(self) -> Iterator[Batch]:
        """Every data batch, verified. Without a filter only. Raises Damage for what repair could not save."""
        offset = 0
        while offset < len(self.data):
            batch = Batch.parse(self.data[offset:])
            header = batch.header
            offset += header.size
            if header.kind == KIND_LOST and header.next_seqno > self.seqno:
                raise Damage(
                    f"partition {self.partition}", 0, header.base_seqno, header.next_seqno, "lost, says repair"
                )
            if header.kind == KIND_DATA:
                batch.verify()
                yield batch

    def records(self) -> Iterator[Record]:
        """Every record from `seqno` on, with its own seqno."""
        if self.seqnos is None:
            for batch in self.batches():
                where = Selection(seqno_from=self.seqno) if batch.header.base_seqno < self.seqno else None
                yield from batch.records(where)
        elif len(self.data):
            found = Batch.parse(self.data).records()
            for record, seqno in zip(found, self.seqnos.cast("B").cast("q"), strict=True):
                yield msgspec.structs.replace(record, seqno=seqno)


class FeedOrigin(msgspec.Struct, frozen=True):
    """What a copy must know of a log before its batches."""

    node_id: str
    cluster_id: str
    topic: str
    topic_id: str
    partitions: int
    partition: int
    settings: Settings
    index: int
    """Of the first batch that comes."""
    snapshot: bytes
    """A storage.tail.Snapshot, encoded: all that the log knew before that batch. Empty where the one who asks has it:
    where it asked for this very index, and that is above 1."""


class FeedPiece(NamedTuple):
    """A piece of a feed."""

    data: memoryview
    next_index: int
    """Of the batch that comes next."""
    first: int
    committed: int
    committed_index: int


class PartitionInfo(msgspec.Struct, frozen=True):
    partition: int
    first: int
    committed: int
    next: int
    floor: int = 0
    size_bytes: int = 0
    segments: int = 0
    newest: int | None = None
    """When the last batch was appended, microseconds."""
    refusal: str | None = None
    """Why this log takes no writes."""
    first_stored: int | None = None
    """The first that is in the log's own files, where that is not `first`: what is before it is archived."""


class TopicInfo(msgspec.Struct, frozen=True):
    name: str
    id: str
    partitions: list[PartitionInfo]
    settings: Settings
    refused: str | None = None
    """Why the topic takes no writes, where an operator said so."""
    unusable: dict[str, str] = {}
    """Settings that name what the node's configuration does not allow, each with the reason: `hook.delete`, whose
    segments are held, `validators.urls`, without which nothing is appended."""


class CursorInfo(msgspec.Struct, frozen=True):
    cursor: str
    topic: str
    topic_id: str
    partition: int
    seqno: int
    bookmark: str
    updated: int
    """When, microseconds."""
    lag: int | None = None
    """Records between it and the end of its log; None where the topic is gone."""


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
