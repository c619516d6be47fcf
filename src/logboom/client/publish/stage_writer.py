"""Records on their way into a stage, where nobody sees them until they are published. For one thread.

    writer = StageWriter("localhost:1773")
    writer.write("events", b"21.5", key=b"kitchen")
    publish("localhost:1773", Key("import", 7), [writer.finish()])

Records of one log stand in the stage in the order of the calls. Batches are numbered; those without an answer, at most
WINDOW_BYTES, are kept here and sent again, in their order, where a connection is lost or the node has no room for now.
After any other refusal the stage is of no use: every further call raises why, and so does `finish`. A stage that nobody
publishes or discards is thrown away by the node after a while.

With `lazily` there is no stage until something has to be sent: a little is published in one call, without any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

from msgspec import structs
from msgspec.msgpack import Decoder

from logboom.batch import Batch, Producer
from logboom.batch.codec import CODECS
from logboom.batch.header import SEQUENCE_MODULUS
from logboom.batch.partitioner import partition_of
from logboom.broker.api import CursorMove, TopicInfo
from logboom.broker.publish.publication import KeyInfo, Publication, PublishKey, Receipt, StageInfo
from logboom.client.link.address import Servers
from logboom.client.link.calls import Calls
from logboom.client.publish.publish_calls import (
    DISCARD_TIMEOUT_S,
    PUBLISH_TIMEOUT_S,
    check_movable,
    publish_in_one_over,
    publish_over,
)
from logboom.client.publish.stage_stream import WAITED_FOR, WINDOW_BYTES, StageStream
from logboom.client.publish.staged_topic import StagedLog, StagedTopic
from logboom.client.write.column_source import ColumnSource
from logboom.client.write.gathered import RECORD_BYTES, Gathered, as_bytes, check_fields
from logboom.client.write.pieces import PIECE_BATCHES, PIECE_BYTES, ColumnPiece, joined
from logboom.errors import (
    BatchTooLarge,
    ConfigError,
    InvalidKey,
    LocalProtocolError,
    LogboomError,
    LowSpace,
    RemoteProtocolError,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.protocols.binary import messages
from logboom.protocols.binary.messages import AppendPart

Payload = bytes | bytearray | memoryview | str | None

BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Gathered in all logs together and not yet a batch, about."""
HELD_BYTES: Final = 64 * 1024 * 1024
"""What is gathered holds on to no more memory than this, about."""
STAGING_TIMEOUT_S: Final = 60.0

_stage_info = Decoder(StageInfo)
_topic_info = Decoder(TopicInfo)
_keys = Decoder(list[KeyInfo])
_count = Decoder(int)


class StageWriter:
    """Opens a stage and writes to it. `stage` is its id.

    Waits for a node that is away, or has no room for now, until nothing has gone on for `timeout_s`.
    """

    def __init__(
        self,
        servers: Servers = None,
        *,
        codec: str = "none",
        batch_bytes: int = 1024 * 1024,
        timeout_s: float = STAGING_TIMEOUT_S,
        note: str = "",
        create: bool = True,
        lazily: bool = False,
        calls: Calls | None = None,
        known: dict[str, TopicInfo] | None = None,
        give_back: Callable[[Calls], None] | None = None,
    ) -> None:
        """`create` makes topics that are not there, where the node allows it.

        `calls` are used instead of others, and given back at the end where they are of use. `known` are topics as they
        were found before.
        """
        if codec not in CODECS:
            raise ConfigError("codec", f"{codec!r} is not one of {', '.join(map(repr, CODECS))}")
        if batch_bytes < 1:
            raise ConfigError("batch_bytes", f"is {batch_bytes!r}, allowed are 1 and more")
        self._codec = codec
        self._timeout_s = timeout_s
        self._calls = calls or Calls(servers)
        self._give_back = give_back
        self._is_given_back = False
        self._known = {} if known is None else known
        self._note = note
        self._topics: dict[str, StagedTopic] = {}
        self._create = create
        self._ids: Mapping[str, str] = {}
        """Of topics that must be the same that they were."""
        self._buffered = 0
        self._held = 0
        """Memory that what is gathered may hold on to, at most."""
        self._failure: LogboomError | None = None
        self._receipt: Receipt | None = None
        self.stage = ""
        self._producer_id = 0
        self._stream: StageStream | None = None
        """None while there is no stage."""
        try:
            limits = self._calls.link(time.monotonic() + timeout_s).welcome.limits
            if not lazily:
                self._open()
        except BaseException:
            self._calls.close()
            raise
        self._limit_bytes = limits.batch_bytes
        self._batch_bytes = max(1, min(batch_bytes, limits.batch_bytes * 7 // 8))
        self.records = 0
        """Taken so far."""

    def __repr__(self) -> str:
        return f"<StageWriter of {self.stage} at {self._calls}: {self.records:,} records>"

    def _open(self) -> StageStream:
        if self._stream is None:
            opened = self._calls.ask(messages.OpenStage(self._note), _stage_info, self._timeout_s, WAITED_FOR)
            limits = self._calls.link(time.monotonic() + self._timeout_s).welcome.limits
            self.stage, self._producer_id = opened.id, opened.producer_id
            window_bytes = min(WINDOW_BYTES, limits.in_flight_bytes)
            self._stream = StageStream(self._calls, opened.id, window_bytes, self._timeout_s)
        return self._stream

    def keep_to(self, key: str) -> None:
        """Topics that were published to before under this name are neither made again nor taken for others.

        Then a record for one that is gone raises TopicDeleted, for one that was made anew TopicRecreated.
        """
        found = self._calls.ask(messages.ListKeys(key), _keys, self._timeout_s, WAITED_FOR)
        self._ids = next((info.topics for info in found if info.name == key), {})

    def partitions(self, topic: str) -> int:
        """How many the topic has."""
        return self._find(topic).partitions

    def _find(self, topic: str) -> StagedTopic:
        found = self._topics.get(topic)
        if found is None:
            self._check()
            before = self._ids.get(topic)
            info = self._known.get(topic) if before is None else None
            if info is None:
                info = self._known[topic] = self._describe(topic, before)
            found = self._topics[topic] = StagedTopic(topic, info)
        return found

    def _describe(self, topic: str, before: str | None) -> TopicInfo:
        describe = messages.DescribeTopic(topic, create=self._create and before is None)
        try:
            info = self._calls.ask(describe, _topic_info, self._timeout_s, WAITED_FOR)
        except TopicNotFound:
            if before is None:
                raise
            raise TopicDeleted(topic, before) from None
        if before is not None and info.id != before:
            raise TopicRecreated(topic, before, info.id)
        return info

    def write(
        self,
        topic: str,
        value: Payload,
        *,
        key: Payload = None,
        timestamp: int | datetime | None = None,
        channel: str | None = None,
        tags: Iterable[str] = (),
        headers: Iterable[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """Take a record, to be sent with others. Where it cannot be taken nothing has changed."""
        self._check()
        found = self._topics.get(topic) or self._find(topic)
        if type(value) is not bytes:
            value = as_bytes("value", value)
        size = RECORD_BYTES if value is None else len(value) + RECORD_BYTES
        log = found.sticky if partition is None else found.log(partition)
        if key is None and channel is None and timestamp is None and log.gathered.plain and not tags and not headers:
            if size > self._limit_bytes:
                raise BatchTooLarge(size, self._limit_bytes)
            log.gathered.values.append(value)
        else:
            fields = check_fields(key, timestamp, channel, tags, headers)
            size += fields.size
            if size > self._limit_bytes:
                raise BatchTooLarge(size, self._limit_bytes)
            named = fields.key if fields.key is not None else channel.encode() if channel else None
            if named is not None and partition is None:
                log = found.log(partition_of(named, found.partitions))
            log.gathered.add(value, fields, None)
        self.records += 1
        self._grow(log, size)

    def write_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        timestamps: Any = None,
        channels: Any = None,
        tags: Any = None,
        headers: Any = None,
        *,
        partition: int | None = None,
    ) -> None:
        """Columns of records: lists, Arrow or NumPy arrays, pandas series, or anything that can be gone through once.
        One timestamp or channel may be for all. They are taken and sent piece by piece.

        All go to `partition`; without one, where their keys or channels say.
        """
        self._check()
        source = ColumnSource(values, keys=keys, timestamps=timestamps, channels=channels, tags=tags, headers=headers)
        found = self._find(topic)
        fixed = None if partition is None else found.log(partition)
        is_dealt = fixed is None and found.partitions > 1 and source.has_names
        size = max(self._batch_bytes, min(PIECE_BATCHES * self._batch_bytes, PIECE_BYTES)) if is_dealt else None
        columns = source.take(size or self._batch_bytes)  # what is wrong with the first harms nothing yet
        with self._all_or_failed():
            while columns is not None:
                # The rest of much may wait to be a batch: what is wrong with it is said now all the same.
                is_rest = columns.count < source.taken
                whole = ColumnPiece.from_columns(columns.checked() if is_dealt or is_rest else columns)
                for part in whole.slices(found.partitions if is_dealt else 1, self._batch_bytes):
                    log = fixed or (found.sticky if part.partition is None else found.log(part.partition))
                    self._add(log, ColumnPiece.from_columns(part.columns), part.size)
                    self.records += part.columns.count
                self._held += whole.held_bytes
                if self._held > HELD_BYTES:
                    self._compact()
                columns = source.take(size or self._batch_bytes)

    def _add(self, log: StagedLog, piece: ColumnPiece, size: int) -> None:
        """What is nearly a batch becomes one by itself; less is gathered."""
        if 2 * size >= self._batch_bytes:
            self._cut(log)
            self._put(log, piece)
            self._move_on(log)
            return
        self._end_rows(log)
        log.pieces.append(piece)
        self._grow(log, size)

    def _grow(self, log: StagedLog, size: int) -> None:
        log.size += size
        self._buffered += size
        if log.size >= self._batch_bytes:
            with self._all_or_failed():
                self._cut(log)
        elif self._buffered >= BUFFER_BYTES:
            with self._all_or_failed():
                self._relieve()

    def _compact(self) -> None:
        """Small pieces may hold on to the large columns they were cut from: no longer."""
        for log in self._logs():
            log.pieces = [piece.compact() for piece in log.pieces]
        self._held = self._buffered

    def _relieve(self) -> None:
        """Too much is gathered in too many logs: the larger ones become batches now."""
        for log in sorted(self._logs(), key=lambda log: log.size, reverse=True):
            if 2 * self._buffered < BUFFER_BYTES:
                return
            self._cut(log)

    def _logs(self) -> list[StagedLog]:
        return [log for topic in self._topics.values() for log in topic.logs.values()]

    def _end_rows(self, log: StagedLog) -> None:
        """What was added one by one is a piece like others."""
        if log.gathered.values:
            log.pieces.append(ColumnPiece.from_rows(log.gathered))
            log.gathered = Gathered()

    def _cut(self, log: StagedLog) -> None:
        """What the log has gathered becomes a batch; several, where pieces do not fit together."""
        self._end_rows(log)
        if not log.pieces:
            return
        pieces, log.pieces = log.pieces, []
        self._buffered -= log.size
        log.size = 0
        for piece in joined(pieces):
            self._put(log, piece)
        self._move_on(log)

    def _move_on(self, log: StagedLog) -> None:
        if log is log.topic.sticky:
            log.topic.unstick()

    def _put(self, log: StagedLog, piece: ColumnPiece) -> None:
        """As a batch; as several, where the node would not take it."""
        stream, limit = self._open(), self._limit_bytes
        producer = Producer(self._producer_id, 0, log.seq)
        try:
            batch = piece.make(self._codec)(producer)
            size = max(batch.header.size, batch.header.body_size)
            if size > limit:
                raise BatchTooLarge(size, limit)
        except BatchTooLarge:
            if piece.count == 1:
                raise
            for half in piece.halves():
                self._put(log, half)
            return
        log.seq = (log.seq + piece.count) % SEQUENCE_MODULUS
        stream.send(log, batch)

    def finish(self) -> Receipt:
        """When all is staged: what `publish` wants to have. Nothing can be written any more."""
        if self._receipt is None:
            self._open()
            self._flush()
            self.close()
            self._receipt = Receipt(self.stage, self.records)
        return self._receipt

    def publish(
        self, key: PublishKey, timeout_s: float = PUBLISH_TIMEOUT_S, moves: Sequence[CursorMove] = ()
    ) -> Publication:
        """Finish, and publish this alone: in one call, where there is no stage yet and it is little."""
        if moves:
            check_movable(self._calls.link(time.monotonic() + self._timeout_s).welcome.limits, moves)
        in_one = self._publish_in_one(key, timeout_s, moves) if self._stream is None else None
        if in_one is not None:
            self._end()
            return in_one
        if self._receipt is None:
            self._open()
            self._flush()
            self._receipt = Receipt(self.stage, self.records)
        try:
            publication = publish_over(self._calls, key, [self._receipt], timeout_s, moves)
            self._end()
            return publication
        finally:
            self.close()

    def _publish_in_one(self, key: PublishKey, timeout_s: float, moves: Sequence[CursorMove]) -> Publication | None:
        """None where it takes a stage: nothing was published then, and everything is still here."""
        self._check()
        link = self._calls.link(time.monotonic() + self._timeout_s)
        limits, now = link.welcome.limits, link.node_time_us
        if not limits.publish_bytes or self._buffered > 2 * limits.publish_bytes or not (key.lasting or now):
            return None
        if not key.lasting:
            key = structs.replace(key, number=now)
        batches = self._batches()
        payload = [batch.data for _, batch in batches]
        if len(payload) > limits.publish_batches or sum(map(len, payload)) > limits.publish_bytes:
            return None
        parts = [
            AppendPart(log.topic.name, batch.header.size, log.partition, None, log.topic.id) for log, batch in batches
        ]
        try:
            with self._all_or_failed():
                return publish_in_one_over(self._calls, key, parts, payload, timeout_s, moves)
        except (InvalidKey, LowSpace, RemoteProtocolError):
            self._failure = None
            return None  # what is really wrong with it is said of the stage, or waited for

    def _batches(self) -> list[tuple[StagedLog, Batch]]:
        """All that is gathered, by no producer; and it stays gathered."""
        found = []
        for log in self._logs():
            self._end_rows(log)
            log.pieces = list(joined(log.pieces))
            found += [(log, piece.make(self._codec)(Producer())) for piece in log.pieces]
        return found

    def _end(self) -> None:
        """Everything was answered: the connection is good for others."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            self._is_given_back = True
            give_back(self._calls)
        self.close()

    def _flush(self) -> None:
        self._check()
        with self._all_or_failed():
            for log in self._logs():
                self._cut(log)
            if self._stream is not None:
                self._stream.flush()

    def discard(self) -> None:
        """Throw the stage away. Where the node cannot be told it does so itself, after a while."""
        if self._stream is None and self._failure is None:
            self._end()
            return
        try:
            with suppress(LogboomError):
                self._calls.ask(messages.Discard([self.stage]), _count, min(DISCARD_TIMEOUT_S, self._timeout_s))
        finally:
            self.close()

    def close(self) -> None:
        """End the connection. The stage stays, with what was answered."""
        self._failure = self._failure or LocalProtocolError("the stage is finished, or closed: open another")
        if not self._is_given_back:
            self._calls.close()
        if self._stream is not None:
            self._stream.clear()
        self._topics.clear()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _all_or_failed(self) -> Iterator[None]:
        """Half of what a caller has given must not be published as if it were all."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, TopicDeleted | TopicNotFound | TopicRecreated):
                for name in self._topics:
                    self._known.pop(name, None)
            interrupted = LocalProtocolError(f"interrupted by {type(error).__name__}: only part of a call is staged")
            self._failure = self._failure or (error if isinstance(error, LogboomError) else interrupted)
            raise
