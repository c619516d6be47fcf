"""A reader that begins with a checkpoint: finds it, gives its records, and leaves the reader where the log goes on.

Which checkpoint there is the node's log of the pipeline says; its files the reader opens itself, at the place that the
result names. `find_state` is steps as `fetching` has them; a `CheckpointRecords` reads files when it is told to `fill`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.msgpack import Decoder

from logboom.batch import Record, Selection
from logboom.batch.arrow import ORDER, to_list
from logboom.broker.api import PIPELINE_TOPIC, Chunk, Filter, ReadRequest, Start, TopicInfo
from logboom.client.files.sieve import choose
from logboom.client.read.fetcher import Ask, LongWork, Steps
from logboom.client.read.reader_core import ReaderCore
from logboom.errors import RemoteProtocolError
from logboom.protocols.binary.messages import DescribeTopic, FetchCursor, Kind, Read
from logboom.results.checkpoint import By, Checkpoint, find_result
from logboom.results.pipeline_ledger import READ_BYTES
from logboom.results.pipeline_state import PipelineState, Result

if TYPE_CHECKING:
    import pyarrow as pa

_ROW = ("value", "key", "timestamp", "channel", "tags", "headers", "seqno")
"""As `Record` has them."""
_topic = Decoder(TopicInfo)
_text: Decoder[str | None] = Decoder(str | None)


class CheckpointRecords:
    """The records of a checkpoint, a piece at a time. A piece that was not taken to its end stays."""

    def __init__(self, tables: Iterator[pa.Table], topic: str, partition: int) -> None:
        """Reads the first piece."""
        self._tables = tables
        self._topic, self._partition = topic, partition
        self._held: pa.Table | None = None
        self._given = 0
        self._last: pa.Table | None = None
        """What was given as lists or as a table last."""
        self._ahead: pa.Table | None = next(tables, None)

    @property
    def is_over(self) -> bool:
        """Whether all of it was given."""
        return self._held is None and self._ahead is None

    def fill(self) -> None:
        """Have a piece to give. Reads files: not on an event loop."""
        if self._held is None:
            self._held, self._ahead = self._ahead, next(self._tables, None)

    def records(self) -> Iterator[Record]:
        table = self._rest()
        if table is None:
            return
        log = [self._topic] * len(table), [self._partition] * len(table)
        for row in zip(*_lists(table, _ROW), *log, strict=True):
            self._given += 1
            if self._held is not None and self._given == self._held.num_rows:
                self._held, self._given = None, 0
            yield Record(*row)

    def lists(self, columns: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        return (tuple(_lists(table, columns)) for table in self.tables(columns))

    def return_to(self, row: int) -> None:
        """Behind so many rows of the lists that were given last."""
        if self._last is not None:
            self._held = self._last if row < self._last.num_rows else None
            self._given = row if self._held is not None else 0

    def tables(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        table = self._last = self._rest()
        self._held, self._given = None, 0
        if table is not None:
            yield table.select(list(ORDER if columns is None else columns))

    def _rest(self) -> pa.Table | None:
        return None if self._held is None else self._held.slice(self._given)


def _lists(table: pa.Table, columns: Sequence[str]) -> list[list[Any]]:
    return [to_list(name, table.column(name).combine_chunks()) for name in columns]


class WantedCheckpoint(NamedTuple):
    """Which checkpoint, and what of it."""

    by: By | None
    tag: str | None
    where: Selection | None
    cursor: str | None
    """Where this one has a place, the reader goes on there."""


def choose_checkpoint(by: By | None, wanted: Filter, cursor: str | None) -> WantedCheckpoint:
    """Raises ValueError for what cannot be said of a state: the latest record of a key may not be the latest that a
    filter lets through."""
    if by not in (None, "key", "channel"):
        raise ValueError(f"checkpoint is {by!r}, allowed are 'key' and 'channel'")
    tags = {*wanted.tags_any, *wanted.tags_all}
    given: dict[By, object] = {"key": wanted.key, "channel": wanted.channel}
    named = [name for name, value in given.items() if value is not None]
    if len(tags) > 1 or len(named) > 1 or (named and by not in (None, *named)):
        raise ValueError(
            "with from_checkpoint a reader may ask for one tag, of which there is a checkpoint, and for the key of one "
            "by key, or the channel of one by channel"
        )
    where = Selection(key=wanted.key, channel=wanted.channel) if named else None
    return WantedCheckpoint(named[0] if named else by, next(iter(tags), None), where, cursor)


def find_state(reading: ReaderCore, wanted: WantedCheckpoint) -> Steps:
    """Let the reading begin with its checkpoint. Raises CheckpointNotFound, ResultsUnreadable."""
    if wanted.cursor is not None:
        told = yield Ask(Kind.CALL, FetchCursor(wanted.cursor, reading.topic, reading.partition))
        if _text.decode(told) is not None:
            return
    topic = _topic.decode((yield Ask(Kind.CALL, DescribeTopic(reading.topic, False))))
    if reading.partition is None and len(topic.partitions) > 1:
        return  # whoever looks for the start is told
    pipeline = yield from _read_catalogue()
    result = find_result(pipeline, reading.topic, topic.id, wanted.by, wanted.tag)
    partition = reading.partition or 0
    floor = next((log.floor for log in topic.partitions if log.partition == partition), 0)
    state, bookmark = yield LongWork(lambda: _open(result, reading.topic, partition, floor, wanted.where))
    reading.begin(state, bookmark)


def _open(
    result: Result, topic: str, partition: int, floor: int, where: Selection | None
) -> tuple[CheckpointRecords, str]:
    checkpoint = Checkpoint.open(result)
    tables = (choose(table, None, where) for table in checkpoint.tables(partition, floor))
    records = CheckpointRecords((table for table in tables if table.num_rows), topic, partition)
    return records, checkpoint.bookmark(partition, floor)


def _read_catalogue() -> Steps:
    pipeline = PipelineState()
    while True:
        start = Start(seqno=pipeline.next) if pipeline.next else Start()
        chunk = yield Ask(Kind.READ, Read(ReadRequest(PIPELINE_TOPIC, start, max_bytes=READ_BYTES, gaps="skip")))
        if not isinstance(chunk, Chunk):
            raise RemoteProtocolError("a read was answered with something else")
        pipeline.fold(chunk.records())
        if chunk.at_end:
            return pipeline
