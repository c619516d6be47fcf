"""What the frames of a dump say, in their order, and whether they may say that.

    HEAD (TOPIC (LOG (SEGMENT BATCHES*)+ LOG_END)*)* END

Invariant: whoever gets an item has proof: the frame's checksums, its place in that order, every batch's own checksums
and structure, and numbers, terms and times that follow each other without a gap from SEGMENT to LOG_END. So a load, a
dry run and a dump that is gone on with see the same thing or the same error.

Crash rule: after an error this stands behind the last sound frame; `end` and `number` say where that is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from logboom.batch.batch import Batch
from logboom.batch.header import NO_TIMESTAMP
from logboom.errors import BatchError, DumpCorrupt, DumpUnsupported, TopicError
from logboom.storage.data.topic import Topic
from logboom.storage.health.floor import floor_fault
from logboom.storage.moving import stream
from logboom.storage.moving.outline import DumpEnd, DumpHead, DumpTotals, LogBegin, LogEnd, TopicBegin
from logboom.storage.moving.stream import DumpFrame, DumpFrameReader, DumpSource
from logboom.storage.producers import REMEMBERED
from logboom.storage.tail import LogTail, Snapshot, read_control

_PRODUCERS_MAX: Final = 1_000_000
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Batches:
    """Consecutive batches, each one verified."""

    batches: list[Batch]
    size_bytes: int


Item = DumpHead | TopicBegin | LogBegin | Snapshot | Batches | LogEnd | DumpEnd
Decoded = TypeVar("Decoded", DumpHead, TopicBegin, LogBegin, LogEnd, DumpEnd)


class Contents:
    def __init__(self, source: DumpSource) -> None:
        self._reader = DumpFrameReader(source)
        self.end = 0
        """The position behind the last sound frame."""
        self.number = 0
        """How many frames that were."""
        self.chain = 0
        self.head: DumpHead | None = None
        self.topic: TopicBegin | None = None
        self.log: LogBegin | None = None
        self.tail: LogTail | None = None
        """Where the log that is being read stands; None before its first SEGMENT."""
        self.in_segment = 0
        """Batches since the last SEGMENT."""
        self.last: Batch | None = None
        """The last batch of the log that is being read."""
        self.topics_begun: list[str] = []
        """By id."""
        self.logs_done: list[int] = []
        """Of the topic that is being read."""
        self.totals = DumpTotals()
        self.complete = False
        self.broken = False
        """Whether a frame with sound checksums said what it must not: no crash does that."""

    def items(self, ahead: Callable[[Iterator[DumpFrame]], Iterator[DumpFrame]] = iter) -> Iterator[Item]:
        """Every item to the end. `ahead` may have frames read before they are asked for."""
        for frame in ahead(self._reader.frames()):
            self.broken = True
            item = self._read(frame)
            self.broken = False
            self.end, self.number, self.chain = frame.end, frame.number + 1, frame.chain_after
            yield item

    def _read(self, frame: DumpFrame) -> Item:
        kind = frame.kind
        if (kind == stream.HEAD) != (self.head is None):
            raise DumpCorrupt(frame.position, "a dump has one HEAD, in front")
        if kind in (stream.SEGMENT, stream.BATCHES, stream.LOG_END) and self.log is None:
            raise DumpCorrupt(frame.position, f"a frame of kind {kind} outside of a log")
        if kind in (stream.TOPIC, stream.LOG, stream.END) and self.log is not None:
            raise DumpCorrupt(frame.position, f"a frame of kind {kind} inside of a log")
        if kind == stream.HEAD:
            self.head = _decode(frame, DumpHead)
            return self.head
        if kind == stream.TOPIC:
            return self._begin_topic(frame)
        if kind == stream.LOG:
            return self._begin_log(frame)
        if kind == stream.SEGMENT:
            return self._begin_segment(frame)
        if kind == stream.BATCHES:
            return self._read_batches(frame)
        if kind == stream.LOG_END:
            return self._end_log(frame)
        return self._end(frame)

    def _begin_topic(self, frame: DumpFrame) -> TopicBegin:
        self._check_topic_whole(frame)
        begun = _decode(frame, TopicBegin)
        topic = begun.topic
        try:
            Topic.make(topic.name, topic.partitions, topic.settings)
        except (TopicError, ValueError) as error:
            raise DumpCorrupt(frame.position, f"a topic that cannot be: {error}") from None
        if _ID.fullmatch(topic.id) is None or topic.id in self.topics_begun:
            raise DumpCorrupt(frame.position, f"topic id {topic.id[:40]!r} is invalid, or occurs twice")
        if list(begun.logs) != sorted({n for n in begun.logs if 0 <= n < topic.partitions}):
            raise DumpCorrupt(frame.position, f"topic {topic.name} cannot have these partitions")
        self.topics_begun.append(topic.id)
        self.topic, self.logs_done = begun, []
        return begun

    def _check_topic_whole(self, frame: DumpFrame) -> None:
        if self.topic is not None and list(self.topic.logs) != self.logs_done:
            raise DumpCorrupt(frame.position, f"logs of topic {self.topic.topic.name} are missing")

    def _begin_log(self, frame: DumpFrame) -> LogBegin:
        log = _decode(frame, LogBegin)
        if self.topic is None or self.topic.logs[len(self.logs_done) : len(self.logs_done) + 1] != (log.partition,):
            raise DumpCorrupt(frame.position, f"a log of partition {log.partition} where none, or another, must be")
        if not (0 <= log.first_seqno <= log.next_seqno < 2**63 and 1 <= log.first_index <= log.next_index < 2**63):
            raise DumpCorrupt(frame.position, "a log with numbers that cannot be")
        if not (0 <= log.floor <= log.next_seqno and log.first <= log.next_seqno and log.size_bytes >= 0):
            raise DumpCorrupt(frame.position, "a log with a floor that cannot be")
        self.log, self.tail, self.last = log, None, None
        self.in_segment = 0
        return log

    def _begin_segment(self, frame: DumpFrame) -> Snapshot:
        log = self.log
        assert log is not None
        snapshot = Snapshot.decode(bytes(frame.payload))
        if snapshot is None or not _can_be(snapshot, log):
            raise DumpCorrupt(frame.position, "a segment's snapshot cannot be read, or says what cannot be")
        if self.tail is None:
            expected = log.first_seqno, log.first_index
        else:
            expected = self.tail.next_seqno, self.tail.next_index
            if not self.in_segment:
                raise DumpCorrupt(frame.position, "a segment without batches before another")
        if (snapshot.next_seqno, snapshot.next_index) != expected:
            raise DumpCorrupt(frame.position, f"a segment begins at {snapshot.next_seqno}, expected {expected[0]}")
        before = self.tail or LogTail(term=0, append_time=NO_TIMESTAMP)
        # Of the tail only the numbers are followed here: producers and floor are the loaded log's own.
        self.tail = LogTail(*expected, max(before.term, snapshot.term), max(before.append_time, snapshot.append_time))
        self.in_segment = 0
        return snapshot

    def _read_batches(self, frame: DumpFrame) -> Batches:
        tail, log = self.tail, self.log
        if tail is None or log is None:
            raise DumpCorrupt(frame.position, "batches before a segment")
        data, offset, batches = memoryview(frame.payload), 0, []
        while offset < len(data):
            try:
                batch = Batch.parse(data[offset:])
                header = batch.header
                reason = tail.expects(header)
                if reason is None:
                    batch.verify()
                    reason = floor_fault(header, read_control(batch))
            except BatchError as error:
                reason = str(error)
            if reason is None and header.index >= log.next_index:
                reason = f"batch {header.index} is behind the end of its log"
            if reason is not None:
                raise DumpCorrupt(frame.position, f"batch {tail.next_index} of {self._where}: {reason}")
            # Not the one that was verified: it would keep its inflated body.
            batches.append(Batch(header, batch.data, True))
            tail.next_seqno, tail.next_index = header.next_seqno, header.index + 1
            tail.term, tail.append_time = header.term, header.append_time
            offset += header.size
        if not batches:
            raise DumpCorrupt(frame.position, "a frame of batches without any")
        for batch in batches:
            self.totals.count(batch.header)
        self.in_segment += len(batches)
        self.last = batches[-1]
        return Batches(batches, len(data))

    def _end_log(self, frame: DumpFrame) -> LogEnd:
        ended, log, tail = _decode(frame, LogEnd), self.log, self.tail
        assert log is not None
        wanted = log.next_seqno, log.next_index
        found = (ended.next_seqno, ended.next_index)
        if tail is None or found != wanted or (tail.next_seqno, tail.next_index) != wanted:
            raise DumpCorrupt(frame.position, f"{self._where} does not end with seqno {log.next_seqno}")
        _check_chain(frame, ended.chain)
        self.logs_done.append(log.partition)
        self.totals.logs += 1
        self.log = self.tail = self.last = None
        return ended

    def _end(self, frame: DumpFrame) -> DumpEnd:
        self._check_topic_whole(frame)
        end = _decode(frame, DumpEnd)
        _check_chain(frame, end.chain)
        assert self.head is not None
        if end != self.totals.end(end.chain) or self.topics_begun != [listed.id for listed in self.head.topics]:
            raise DumpCorrupt(frame.position, "the end does not sum up what came")
        self.complete = True
        return end

    @property
    def _where(self) -> str:
        assert self.topic is not None
        assert self.log is not None
        return f"{self.topic.topic.name}/{self.log.partition}"


def _can_be(snapshot: Snapshot, log: LogBegin) -> bool:
    """Whether a log could have this snapshot: whoever mended checksums must not make one that cannot be opened."""
    times = snapshot.append_time, snapshot.max_timestamp
    return (
        log.floor <= snapshot.floor <= log.next_seqno
        and 0 <= snapshot.term < 2**32
        and 0 <= snapshot.generation < 2**31
        and all(-(2**63) <= moment < 2**63 for moment in times)
        and len(snapshot.producers) <= _PRODUCERS_MAX
        and all(0 < len(stream.batches) <= REMEMBERED for stream in snapshot.producers.values())
    )


def _decode(frame: DumpFrame, kind: type[Decoded]) -> Decoded:
    try:
        return msgspec.msgpack.decode(frame.payload, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise DumpCorrupt(frame.position, f"what a frame of kind {frame.kind} says cannot be read: {error}") from None
    except msgspec.MsgspecError as error:
        reason = f"byte {frame.position}: what a frame of kind {frame.kind} says is not known here: {error}"
        raise DumpUnsupported(f"{reason}; use a newer release") from None


def _check_chain(frame: DumpFrame, chain: int) -> None:
    if chain != frame.chain:
        raise DumpCorrupt(frame.position, "frames before this one are not those that were written")
