"""Logs as one portable stream: whole data directories, topics, or a range of one log.

Invariant: only committed batches, each one with its checksum and its place verified on the way; where a log's dump
ends is fixed when it begins. Nothing is left out silently: what cannot be read is Damage, what was dropped meanwhile is
DumpOvertaken.

Crash rule: the output is a prefix of a dump at any time. `resume` finds the last whole frame of such a prefix, and the
dump goes on behind it, by index: what a log has committed never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

import msgspec

from logboom import __version__
from logboom.batch import codec as codecs
from logboom.batch.rewrite import equal
from logboom.errors import Damage, DumpCorrupt, DumpIncomplete, DumpMismatch, IndexOutOfRange, TopicNotFound
from logboom.storage.data.near_names import near_names
from logboom.storage.data.topic import Topic
from logboom.storage.means import SYSTEM, new_id
from logboom.storage.moving import stream
from logboom.storage.moving.contents import Contents
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import (
    DumpedTopic,
    DumpHead,
    DumpTotals,
    LogBegin,
    LogEnd,
    Request,
    TopicBegin,
    encode,
)
from logboom.storage.moving.span import check_batch, follow_to, run_at, segment_at, span_of
from logboom.storage.moving.stream import DumpFrameWriter, DumpSink, DumpSource
from logboom.storage.readable_log import ReadableLog
from logboom.storage.run import Run
from logboom.storage.tail import LogTail

_ATTEMPTS: Final = 5

Progress = Callable[[int], None]


class Dumped(NamedTuple):
    """What a dump holds, all of it, and how many bytes of it were written now."""

    dump_id: str
    topics: int
    logs: int
    batches: int
    records: int
    lost: int
    size_bytes: int
    written_bytes: int


@dataclass(slots=True)
class DumpPlan:
    """What will be dumped: the topics with their logs, as they are when the dump begins."""

    head: DumpHead
    topics: list[Topic]

    @property
    def size_bytes(self) -> int:
        return sum(listed.size_bytes for listed in self.head.topics)


def plan_dump(origin: DumpOrigin, request: Request, now: int, chance: Random = SYSTEM.chance) -> DumpPlan:
    """Raises where what is asked for is not there."""
    topics = origin.topics()
    if request.topics is None:
        origin.check_accounted()
        topics = [topic for topic in topics if not topic.is_internal]
    else:
        by_name = {topic.name: topic for topic in topics}
        for name in request.topics:
            if name not in by_name:
                raise TopicNotFound(name, origin.path, near_names(name, by_name))
        topics = [by_name[name] for name in sorted(set(request.topics))]
    if request.partition is not None:
        for topic in topics:
            if not 0 <= request.partition < topic.partitions:
                raise ValueError(f"topic {topic.name} has partitions 0 to {topic.partitions - 1}")
    logs = sum(1 if request.partition is not None else topic.partitions for topic in topics)
    if (request.seqno_from is not None or request.seqno_until is not None) and logs != 1:
        raise ValueError(f"a range is of one log, and here are {logs}: name a topic, and a partition where it has many")
    _check_finished(origin, topics, request)
    listed = [DumpedTopic(topic.id, topic.name, _size_of(origin, topic, request)) for topic in topics]
    head = DumpHead(new_id(chance), __version__, now, origin.node_id, request, tuple(listed))
    return DumpPlan(head, topics)


def _check_finished(origin: DumpOrigin, topics: list[Topic], request: Request) -> None:
    origin.check_finished({(topic.id, number) for topic in topics for number in _partitions(topic, request)})


def _partitions(topic: Topic, request: Request) -> Iterable[int]:
    return range(topic.partitions) if request.partition is None else (request.partition,)


def _size_of(origin: DumpOrigin, topic: Topic, request: Request) -> int:
    logs = ((partition, origin.log(topic, partition)) for partition in _partitions(topic, request))
    return sum(span_of(origin, log, partition, request).size_bytes for partition, log in logs if log is not None)


def resume(source: DumpSource, origin: DumpOrigin, request: Request) -> Contents | None:
    """What a dump that was cut off holds; `end` is where to cut it. None where it holds nothing to go on from.

    Raises DumpMismatch where it is a dump of something else, DumpUnsupported where it is no dump.
    """
    contents = Contents(source)
    try:
        for _ in contents.items():
            pass
    except (DumpCorrupt, DumpIncomplete):
        if contents.broken:
            raise
    head = contents.head
    if head is None:
        return None
    if head.node_id != origin.node_id:
        raise DumpMismatch(f"it is a dump of node {head.node_id}, this is node {origin.node_id}: use another file")
    if head.request != request:
        asked = ", ".join(
            f"{name} was {getattr(head.request, name)}, is {getattr(request, name)}"
            for name in Request.__struct_fields__
            if getattr(head.request, name) != getattr(request, name)
        )
        raise DumpMismatch(f"it was begun with other options ({asked}): use the same, or another file")
    return contents


def plan_rest(origin: DumpOrigin, contents: Contents) -> DumpPlan:
    """What is left of a dump that was cut off: the topics that it began with."""
    head = contents.head
    assert head is not None
    by_id = {topic.id: topic for topic in origin.topics()}
    for listed in head.topics:
        if listed.id not in by_id:
            raise DumpMismatch(f"topic {listed.name} with id {listed.id} is not there any more: begin a new dump")
    topics = [by_id[listed.id] for listed in head.topics]
    _check_finished(origin, topics, head.request)
    return DumpPlan(head, topics)


def dump(
    origin: DumpOrigin, plan: DumpPlan, sink: DumpSink, begun: Contents | None = None, progress: Progress | None = None
) -> Dumped:
    """Write a dump, or the rest of one that was begun."""
    head = plan.head
    codec = codecs.CODECS[head.request.compress]
    number, chain = (begun.number, begun.chain) if begun is not None else (0, 0)
    with DumpFrameWriter(sink, codec, number, chain) as frames:
        dumper = _Dumper(origin, frames, head.request, begun, progress or (lambda size: None))
        if begun is None:
            frames.put(stream.HEAD, encode(head))
        if begun is None or not begun.complete:
            dumper.dump_topics(plan.topics)
            frames.flush()
            frames.put(stream.END, encode(dumper.totals.end(frames.chain)))
            frames.flush()
        totals = dumper.totals
        return Dumped(
            head.dump_id,
            len(plan.topics),
            totals.logs,
            totals.batches,
            totals.records,
            totals.lost,
            totals.size_bytes,
            frames.written_bytes,
        )


class _Dumper:
    def __init__(
        self, origin: DumpOrigin, frames: DumpFrameWriter, request: Request, begun: Contents | None, progress: Progress
    ) -> None:
        self._origin = origin
        self._frames = frames
        self._request = request
        self._begun = begun
        self._progress = progress
        self.totals = begun.totals if begun is not None else DumpTotals()
        if self.totals.size_bytes:
            progress(self.totals.size_bytes)

    def dump_topics(self, topics: list[Topic]) -> None:
        begun = self._begun
        done = begun.topics_begun[:-1] if begun is not None else []
        for topic in topics:
            if topic.id in done:
                continue
            if begun is not None and begun.topic is not None and begun.topic.topic.id == topic.id:
                self._dump_logs(begun.topic, topic, [n for n in begun.topic.logs if n not in begun.logs_done])
            else:
                partitions = [n for n in _partitions(topic, self._request) if self._origin.log(topic, n) is not None]
                self._origin.check_there(topic)
                frame = TopicBegin(msgspec.structs.replace(topic, maker=msgspec.UNSET), tuple(partitions))
                self._frames.put(stream.TOPIC, encode(frame))
                self._dump_logs(frame, topic, partitions)

    def _dump_logs(self, frame: TopicBegin, topic: Topic, partitions: list[int]) -> None:
        for partition in partitions:
            log = self._origin.log(topic, partition)
            if log is None:
                raise DumpMismatch(f"{topic.name}/{partition} is not there any more: begin a new dump")
            begun = self._begun
            if begun is not None and begun.topic == frame and begun.log is not None:
                self._go_on(log, begun, begun.log)
            else:
                self._dump_log(log, partition)
            self.totals.logs += 1

    def _dump_log(self, log: ReadableLog, partition: int) -> None:
        span = span_of(self._origin, log, partition, self._request)
        self._frames.put(stream.LOG, encode(span))
        self._dump_batches(log, span, LogTail(span.first_seqno, span.first_index), None)

    def _go_on(self, log: ReadableLog, begun: Contents, span: LogBegin) -> None:
        """Behind what was dumped of this log before."""
        tail, last = begun.tail, begun.last
        begun.log = None
        if self._origin.live and log.committed_index + 1 < span.next_index and log.committed == span.next_seqno:
            raise DumpMismatch(
                f"{log.directory} ends with a trim, which cannot be seen beside a server before a record follows: "
                "stop the server, or begin a new dump"
            )
        if tail is None:
            self._dump_batches(log, span, LogTail(span.first_seqno, span.first_index), None)
            return
        if log.committed_index < tail.next_index - 1:
            raise DumpMismatch(f"{log.directory} ends before what was dumped of it: begin a new dump")
        if last is not None and last.header.index >= log.first_index:
            run = log.read_index(last.header.index, 1)
            here = None if run is None else next(run.batches())
            if here is None or not equal(here, last):
                raise DumpMismatch(f"{log.directory} holds another batch {last.header.index}: begin a new dump")
        self._dump_batches(log, span, tail, tail.next_index - begun.in_segment)

    def _dump_batches(self, log: ReadableLog, span: LogBegin, tail: LogTail, segment: int | None) -> None:
        """From the tail to the end of the span. `segment` is where the last SEGMENT frame begins, if there is one."""
        failures = 0
        while True:
            index = tail.next_index
            try:
                number = segment_at(log, index)
                if segment is None or segment != index == log.segments[number].first_index:
                    self._put_segment(log, number, tail, span.floor, failures)
                    segment = index
                if index == span.next_index:
                    break
                self._put_batches(run_at(log, index), tail, span.next_index)
                failures = 0
            except (Damage, IndexOutOfRange, FileNotFoundError):
                failures += 1
                if not self._origin.refresh(log, index) or failures == _ATTEMPTS:
                    raise
        self._frames.flush()
        self._frames.put(stream.LOG_END, encode(LogEnd(tail.next_seqno, tail.next_index, self._frames.chain)))

    def _put_segment(self, log: ReadableLog, number: int, tail: LogTail, floor: int, failures: int) -> None:
        snapshot = self._origin.snapshot(log, number)
        if snapshot.next_index != tail.next_index:
            try:
                snapshot = follow_to(log, snapshot, tail.next_index)
            except Damage:
                if self._request.seqno_from is None or (self._origin.live and failures < _ATTEMPTS - 1):
                    raise
                # What was asked for lies behind the damage; of producers the segment's own snapshot is what is left.
                numbers = {"next_seqno": tail.next_seqno, "next_index": tail.next_index}
                snapshot = msgspec.structs.replace(snapshot, **numbers)
        snapshot = msgspec.structs.replace(snapshot, floor=max(snapshot.floor, floor))
        self._frames.put(stream.SEGMENT, snapshot.encode())

    def _put_batches(self, run: Run, tail: LogTail, until: int) -> None:
        """One frame: the batches of a run, verified, as far as they are wanted."""
        data, offset, totals = run.view(), 0, DumpTotals()
        ahead = LogTail(tail.next_seqno, tail.next_index, tail.term, tail.append_time)
        while offset < len(data) and ahead.next_index < until:
            header = check_batch(run, data, offset, ahead)
            ahead.next_seqno, ahead.next_index = header.next_seqno, header.index + 1
            ahead.term, ahead.append_time = header.term, header.append_time
            offset += header.size
            totals.count(header)
        self._frames.put(stream.BATCHES, data[:offset])
        self.totals.add(totals)
        tail.next_seqno, tail.next_index = ahead.next_seqno, ahead.next_index
        tail.term, tail.append_time = ahead.term, ahead.append_time
        self._progress(offset)
