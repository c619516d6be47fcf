"""What the frames of a dump say, those that are not batches or snapshots: msgpack maps, by field name.

Fields may be added with defaults; they are never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from logboom.batch.header import KIND_LOST, Header
from logboom.storage.data.topic import Topic


class Request(msgspec.Struct, frozen=True):
    """What was asked to be dumped."""

    topics: tuple[str, ...] | None = None
    """By name; None for all."""
    partition: int | None = None
    seqno_from: int | None = None
    seqno_until: int | None = None
    compress: str = "lz4"


class DumpedTopic(msgspec.Struct, frozen=True):
    """A topic that the dump will hold, and about how many bytes its logs have."""

    id: str
    name: str
    size_bytes: int


class DumpHead(msgspec.Struct, frozen=True):
    dump_id: str
    creator: str
    created: int
    """Microseconds since 1970."""
    node_id: str
    request: Request
    topics: tuple[DumpedTopic, ...]


class TopicBegin(msgspec.Struct, frozen=True):
    topic: Topic
    logs: tuple[int, ...]
    """The partitions that follow."""


class LogBegin(msgspec.Struct, frozen=True):
    partition: int
    first_seqno: int
    first_index: int
    next_seqno: int
    next_index: int
    first: int
    """The first readable seqno: records before it are there because their batch, or segment, is."""
    floor: int
    """The least floor that any snapshot of this log has in the dump."""
    size_bytes: int
    """About."""


class LogEnd(msgspec.Struct, frozen=True):
    next_seqno: int
    next_index: int
    chain: int


class DumpEnd(msgspec.Struct, frozen=True):
    logs: int
    batches: int
    records: int
    size_bytes: int
    """Of all batches as they lie in the logs."""
    chain: int


@dataclass(slots=True)
class DumpTotals:
    logs: int = 0
    batches: int = 0
    records: int = 0
    lost: int = 0
    """Records that a repair had given up, among `records`."""
    size_bytes: int = 0

    def count(self, header: Header) -> None:
        """One batch more."""
        self.batches += 1
        self.records += header.record_count
        self.size_bytes += header.size
        if header.kind == KIND_LOST:
            self.lost += header.record_count

    def add(self, other: DumpTotals) -> None:
        self.logs += other.logs
        self.batches += other.batches
        self.records += other.records
        self.lost += other.lost
        self.size_bytes += other.size_bytes

    def end(self, chain: int) -> DumpEnd:
        return DumpEnd(self.logs, self.batches, self.records, self.size_bytes, chain)


def encode(item: DumpHead | TopicBegin | LogBegin | LogEnd | DumpEnd) -> bytes:
    return msgspec.msgpack.encode(item)
