"""Reads of one log, and subscriptions, which are reads that go on.

Reads show what is committed and nothing else, and always say how far they came. Whoever has room for more of a
subscription asks for more, so a slow reader costs nobody memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

import msgspec

from logboom.batch import KIND_DATA, KIND_LOST, Batch, Record, Selection
from logboom.broker.caller import Caller
from logboom.errors import Damage
from logboom.storage.bookmark import Bookmark
from logboom.storage.readable_log import READ_BYTES


class ReadCalls(Protocol):
    """For those who only read."""

    async def read(self, request: ReadRequest, *, caller: Caller) -> Chunk:
        """Waits up to `wait_ms` where there is nothing yet; then the chunk is empty, and says where the log ends."""
        ...

    async def subscribe(self, request: ReadRequest, *, caller: Caller) -> Subscription: ...

    async def locate(self, request: ReadRequest, *, caller: Caller) -> list[LogPlace]:
        """Where a read of several logs (`whole`) would begin in each of them now: by topic and partition."""
        ...


class Subscription(Protocol):
    async def next(self, max_bytes: int = READ_BYTES) -> Chunk:
        """Waits for news: records, or how far it has come where a filter left none."""
        ...

    async def close(self) -> None: ...


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
    Where records are left out, by a filter or by rules, no more than so many come."""
    wait_ms: int = 0
    filter: Filter | None = None
    gaps: Literal["raise", "skip"] = "raise"
    """What to do where records are gone (dropped by retention, damaged): an error, or go on behind them."""
    whole: bool = False
    """`topic` names several logs, as `broker.read.log_names` has it: all of them are read. For subscriptions."""


class LogPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a read of one log begins, and how far the log reaches."""

    topic: str
    topic_id: str
    partition: int
    seqno: int
    first: int
    committed: int
    term: int
    """Of the record before `seqno`; bookmark.TERM_UNKNOWN where nobody knows."""
    lineage: int = 0

    @property
    def bookmark(self) -> Bookmark:
        return Bookmark(bytes.fromhex(self.topic_id), self.partition, self.seqno, self.term, self.lineage)


class Chunk(NamedTuple):
    """Some of a log: whole batches as they are stored; or, where a filter or rules leave some out, the records left, as
    one batch."""

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
    """Where records are left out: the seqnos of those in `data`, as i64, little-endian."""
    lineage: int = 0
    """Of `term`; 0 where nobody knows."""
    topic: str = ""
    """Its name, where several are read."""

    @property
    def record_count(self) -> int:
        """From `seqno` on; lost ones too."""
        return self.next_seqno - self.seqno if self.seqnos is None else self.seqnos.nbytes // 8

    @property
    def at_end(self) -> bool:
        return self.next_seqno >= self.committed

    @property
    def is_gone(self) -> bool:
        """Whether there is no such log any more: one of several that were read."""
        return self.first > self.committed

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
