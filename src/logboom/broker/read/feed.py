"""What a node gives to those who copy it: the batches of a log as they are stored, in the order of their indexes.

A feed is a place in a log and holds nothing of it. What it gives is committed and durable, also where the topic says
flush = os: a copy never has what its source can lose. Where retention overtakes the place, the feed ends with
IndexOutOfRange; where the topic's settings change, with FeedEnded: whoever asks again learns where to go on, and what
holds now. Where the topic is deleted it ends with TopicDeleted.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from logboom.batch.header import HEADER_SIZE
from logboom.broker.api import FeedOrigin, FeedPiece
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.catalog import Hosted
from logboom.broker.limits import said_again
from logboom.broker.read.log_reader import LogReader
from logboom.errors import Damage, FeedEnded, IndexOutOfRange, ShuttingDown
from logboom.storage.config import LogConfig
from logboom.storage.data.directory import DataDirectory, NodeIdentity
from logboom.storage.log import Log
from logboom.storage.readable_log import READ_BYTES
from logboom.storage.recovery import snapshot_of

_PLACE: Final = Struct("<4xI8xQ")
"""Of a batch's header: its size and its index."""


async def begin_feed(
    data: DataDirectory, reading: LogReader, hosted: Hosted, partition: int | None, index: int
) -> LocalFeed:
    """See broker.api.Feeds. Raises IndexOutOfRange for an index above the next."""
    writer = hosted.writer(partition)
    log = writer.log
    if not 0 <= index <= log.committed_index + 1:
        raise IndexOutOfRange(index, log.first_index, log.committed_index + 1)
    snapshot = b""
    begin = max(index, log.first_index)
    if index <= 1 or begin != index:
        try:
            snapshot = await reading.loop.run_in_executor(reading.threads, _snapshot, data, log)
        except Damage:
            if log.closed:
                raise FeedEnded(writer.name, "it is being taken away") from None
            if log.first_index == begin:
                raise
        if log.first_index != begin:  # retention was quicker
            return await begin_feed(data, reading, hosted, partition, index)
    return LocalFeed(reading, hosted, writer, _origin(data.node, hosted, writer, begin, snapshot))


def _snapshot(data: DataDirectory, log: Log) -> bytes:
    """On a thread: what the log knew before its first segment."""
    found, damage = snapshot_of(data.files, list(log.segments[:1]), 0, LogConfig(), write=False)
    if damage is not None:
        raise damage
    return found.encode()


def _origin(node: NodeIdentity, hosted: Hosted, writer: LogWriter, index: int, snapshot: bytes) -> FeedOrigin:
    topic = hosted.topic
    return FeedOrigin(
        node_id=node.node_id,
        cluster_id=node.cluster_id,
        topic=topic.name,
        topic_id=topic.id,
        partitions=topic.partitions,
        partition=hosted.writers.index(writer),
        settings=topic.settings,
        index=index,
        snapshot=snapshot,
        maker=topic.maker,
    )


class LocalFeed:
    """Implements broker.api.Feed."""

    def __init__(self, reading: LogReader, hosted: Hosted, writer: LogWriter, origin: FeedOrigin) -> None:
        self.origin = origin
        self._reading = reading
        self._hosted = hosted
        self._writer = writer
        self._log = writer.log
        self._durable_index = writer.commitment.durable_index
        self._index = origin.index
        self.check_reader: Callable[[], None] = lambda: None
        """Raises where whoever reads may not do so any more."""

    async def next(self, max_bytes: int = READ_BYTES, wait_ms: int = 1000) -> FeedPiece:
        reading = self._reading
        deadline = reading.loop.time() + min(wait_ms, reading.limits.read_wait_ms) / 1000
        max_bytes = max(1, min(max_bytes, reading.limits.read_bytes))
        while True:
            self._check()
            data = await self._look(max_bytes)
            if len(data) or not await reading.wait(self._writer, deadline):
                return self.standing()._replace(data=data)

    def standing(self) -> FeedPiece:
        """Where it is, without anything."""
        log = self._log
        return FeedPiece(memoryview(b""), self._index, log.first, log.committed, log.committed_index)

    def _check(self) -> None:
        """Raises why there is no more to come."""
        self.check_reader()
        if self._reading.closing:
            raise ShuttingDown
        if self._writer.gone is not None:
            raise said_again(self._writer.gone)
        if self._log.closed:
            raise FeedEnded(self._writer.name, "a copy itself, it has begun anew")
        if self._hosted.topic.settings != self.origin.settings:
            raise FeedEnded(self._writer.name, "the topic has other settings")

    async def _look(self, max_bytes: int) -> memoryview:
        """What there is to give now."""
        log, last = self._log, min(self._log.committed_index, self._durable_index(self._log))
        if log.first_index <= self._index > last:
            return memoryview(b"")
        try:
            run = log.read_index(self._index, max_bytes, committed=True)
            data = memoryview(b"") if run is None else await self._reading.data(run)
        except Damage:
            self._check()  # its files may be gone because the topic is
            raise
        if run is not None and run.next_index > last + 1:
            data = data[: _end_of(data, last)]
        self._index = self._index if run is None else min(run.next_index, last + 1)
        return data

    async def close(self) -> None:
        """Nothing is held."""


def _end_of(data: memoryview, last: int) -> int:
    """Where in these batches the one with the index `last` ends."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        size, index = _PLACE.unpack_from(data, position)
        if index > last:
            break
        position += size
    return position
