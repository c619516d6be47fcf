"""A node in memory for a writer's core to talk to: real frames, real rules for producers, scripted trouble.

What a log holds are the values in their order. `refuse` decides about each batch before it is appended; the stream may
be cut on its way there, or the answers on their way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from logboom.batch import Batch, Header
from logboom.batch.header import Buffer
from logboom.broker.api import PartitionInfo, Settings, TopicInfo
from logboom.client.write.options import WriterOptions
from logboom.client.write.spill import Spill
from logboom.client.write.writer_core import WriterCore
from logboom.errors import ConnectionLost, LogboomError, TopicRecreated, UnknownProducer
from logboom.protocols.binary.codec import Frame, FrameReader, encode
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import (
    Append,
    AppendedAt,
    Appends,
    Failure,
    Kind,
    Welcome,
    WireLimits,
)
from logboom.storage.producers import ProducerBatch, Producers, check_sequence

Refuse = Callable[[int, Header], LogboomError | None]


class ScriptedNode:
    def __init__(self, partitions: int = 1, window: int = 16, exists: bool = True) -> None:
        self.partitions = partitions
        self.topic_id = "ab" * 16
        self.exists = exists
        self.logs: dict[int, list[bytes | None]] = {number: [] for number in range(partitions)}
        self.producers = {number: Producers() for number in range(partitions)}
        self.batches: list[tuple[int, Header]] = []
        """Everything that came, in order, repeats too."""
        self.refuse: Refuse = lambda partition, header: None
        self.limits = WireLimits(2**26, 2**20, 2**25, window, 600_000, 100)
        self.kinds: list[int] = []
        self.replica_of: str | None = None
        self.next_id = 0
        """The producer id to give out next, and with every refusal; 0 where it gives none."""

    def issue(self) -> int:
        self.next_id += bool(self.next_id)
        return self.next_id - 1 if self.next_id else 0

    def answer(self, frame: Frame) -> list[Buffer]:
        self.kinds.append(frame.kind)
        if frame.kind == Kind.HELLO:
            topics = [self.describe()] if self.exists else []
            facts = "node", "cluster", None, "test", self.limits, topics, self.replica_of, self.issue()
            return encode(Kind.WELCOME, frame.correlation, Welcome(1, *facts))
        if frame.kind == Kind.CALL:
            self.exists = True
            return encode(Kind.RESULT, frame.correlation, self.describe())
        if frame.kind == Kind.PING:
            return encode(Kind.PONG, frame.correlation)
        request = msgspec.msgpack.decode(frame.head, type=Append)
        (part,) = request.parts
        if part.topic_id != self.topic_id:
            failure = encode_failure(TopicRecreated(part.topic, part.topic_id or "", self.topic_id))
            return encode(Kind.APPENDED, frame.correlation, Appends([None], {0: failure}))
        outcome = self.append(part.partition or 0, Batch.parse(bytes(frame.payload)))
        if request.acks == "none":
            return []
        failures: dict[int, Failure] = {}
        if isinstance(outcome, LogboomError):
            failures[0] = encode_failure(outcome)
        return encode(
            Kind.APPENDED,
            frame.correlation,
            Appends([outcome if isinstance(outcome, AppendedAt) else None], failures),
        )

    def append(self, partition: int, batch: Batch) -> AppendedAt | LogboomError:
        batch.verify()
        header = batch.header
        self.batches.append((partition, header))
        log, producers = self.logs[partition], self.producers[partition]
        error = self.refuse(partition, header)
        if error is not None:
            return error
        if header.producer_id:
            try:
                found = check_sequence(producers.get(header.producer_id), header, producers.horizon)
            except UnknownProducer as refusal:
                refusal.fresh_id = self.issue()
                return refusal
            except LogboomError as refusal:
                return refusal
            if found is not None:
                return AppendedAt(found.base_seqno, found.count, found.index, found.append_time, True)
            written = ProducerBatch(header.producer_seq, header.record_count, len(log), len(log) + 1, 7)
            producers.record(header.producer_id, header.producer_epoch, written)
        base = len(log)
        log.extend(batch.values())
        return AppendedAt(base, header.record_count, base + 1, 7)

    def describe(self) -> TopicInfo:
        infos = [PartitionInfo(number, 0, 0, 0) for number in range(self.partitions)]
        return TopicInfo("events", self.topic_id, infos, Settings())


class Line:
    """A writer's core and the connection it has, or has not, to a node."""

    def __init__(self, node: ScriptedNode, spill: Spill | None = None, servers: int = 1, **options: Any) -> None:
        self.node = node
        self.core = WriterCore("events", WriterOptions(**options), servers, spill)
        self.now = 100.0
        self.told: list[Any] = []
        self.losses: list[tuple[LogboomError, int]] = []
        self.is_up = False
        self._frames = FrameReader(2**26)
        self._answers: list[bytes] = []

    def connect(self) -> Line:
        self.connect_only()
        return self.run()

    def connect_only(self) -> None:
        """Greeted and welcomed, and nothing more."""
        self._frames = FrameReader(2**26)
        self._answers = []
        self.is_up = True
        self.core.connected(self.now)
        while self.is_up and not self.core.contact.ready and self.core.contact.fatal is None:
            hello, self.core.outgoing = b"".join(self.core.outgoing), []
            self._answers += [b"".join(self.node.answer(frame)) for frame in self._receive(hello)]
            self.hear()

    def lose(self) -> None:
        self.is_up = False
        self.core.lost(ConnectionLost("cut"), self.now)
        self._collect()

    def write(self, value: bytes | None, key: bytes | None = None, waits: bool = False, **fields: Any) -> None:
        more = (fields.get("timestamp"), fields.get("channel"), fields.get("tags", ()), fields.get("headers", ()))
        waiter = self.told.append if waits else None
        routing = self.core.routing
        if not routing.inbox.leave(value, key, *more, waiter) and routing.add(value, key, *more, waiter):
            self.core.turn(self.now)

    def send(self) -> int:
        """What is due goes to the node. How many answers wait to be received."""
        self.core.turn(self.now)
        data = b"".join(self.core.outgoing)
        self.core.outgoing = []
        if not self.is_up:
            return 0
        for frame in self._receive(data):
            answer = b"".join(self.node.answer(frame))
            if answer:
                self._answers.append(answer)
        return len(self._answers)

    def _receive(self, data: bytes) -> Iterator[Frame]:
        view = memoryview(data)
        while view:
            buffer = self._frames.buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            yield from self._frames.received(count)

    def hear(self, number: int = 0) -> None:
        """One answer reaches the writer: the oldest, or another one."""
        view = memoryview(self._answers.pop(number))
        while view:
            buffer = self.core.buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            try:
                self.core.received(count, self.now)
            except LogboomError as error:
                self.is_up = False
                self.core.lost(error, self.now)
                break
        self._collect()

    def run(self, flush: bool = False) -> Line:
        """Until nothing moves any more."""
        if flush:
            self.core.flush(self.now)
        for _ in range(1000):
            if not self.send():
                break
            while self._answers and self.is_up:
                self.hear()
        self._collect()
        return self

    def pass_time(self, seconds: float) -> Line:
        self.now += seconds
        return self.run() if self.is_up else self.tick()

    def tick(self) -> Line:
        self.core.turn(self.now)
        self._collect()
        return self

    def _collect(self) -> None:
        ledger = self.core.ledger
        for waiter, outcome in ledger.results:
            waiter(outcome)
        self.losses += ledger.losses
        ledger.results, ledger.losses = [], []
