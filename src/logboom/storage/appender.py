"""The end of a log that takes the appends: batches become bytes of the last segment, and the log's tail moves on.

    append, replicate → (written) → sync → (synced)
    adopt             →                    (synced)

A segment is synced before its successor takes a byte. What could not be written is as if it had never been there. A
sync may run on another thread between `begin_sync` and `end_sync` while the owner goes on appending; nothing is rolled
meanwhile, so the segment may outgrow its limit, and `end_sync` makes up for it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from logboom.batch.batch import Batch
from logboom.batch.builder import build_control
from logboom.batch.header import KIND_DATA, NO_TIMESTAMP, STAGED_IDS, Buffer
from logboom.errors import (
    AppendRefused,
    BatchError,
    Damage,
    LogboomError,
    LogReadOnly,
    LowSpace,
    MalformedBatch,
    SyncFailed,
    UnexpectedSeqno,
    WriteFailed,
)
from logboom.storage.append import Answer, Appended, AppendGroup
from logboom.storage.config import LogConfig
from logboom.storage.files.disk import File
from logboom.storage.index import Summary
from logboom.storage.labels import label_columns
from logboom.storage.readable_log import Boundary
from logboom.storage.recovery import Recovered, snapshot_of
from logboom.storage.scan import Bad, Window, scan
from logboom.storage.segment import Segment
from logboom.storage.store import SegmentStore
from logboom.storage.tail import Floor, LogTail, read_control


class PendingSync(msgspec.Struct, frozen=True):
    """What a sync under way will have made durable: hand `file` to `Disk.sync`, then this to `end_sync`."""

    file: File
    index: int
    cuts: int
    """How often the log had been truncated: a sync that began before a truncation says nothing after it."""


class Appender:
    def __init__(
        self,
        store: SegmentStore,
        segments: list[Segment],
        found: Recovered,
        config: LogConfig,
        tell: Callable[[], None],
    ) -> None:
        self._store = store
        self._segments = segments
        """The log's own; a roll puts the next one at its end."""
        self.config = config
        self._tell = tell
        """Called when more is synced than before."""
        self.tail = found.tail
        self.end = found.end
        """Bytes of the last segment that are whole batches."""
        self.synced_index = found.tail.next_index - 1
        self.segment_append_time = found.segment_append_time
        """When the first batch of the last segment was appended; None while there is none."""
        self._segment_max_timestamp = found.segment_max_timestamp
        self._last_header_crc: Buffer = found.last_header_crc.to_bytes(4, "little")
        """As it lies in the file: its number is asked for only when the segment is sealed."""
        self.boundaries: deque[Boundary] = deque()
        """Where groups end that were written; whoever commits takes them."""
        self.named = store.disk.exists(segments[-1].log_path)
        """Whether the last segment has a file."""
        self._dirty: File | None = None
        self._cuts = 0
        self.outgrown = False
        """Whether the segment grew beyond its limit during a sync."""

    @property
    def last_index(self) -> int:
        return self.tail.next_index - 1

    def append(
        self, batches: Sequence[Batch], now: int, term: int | None, expect: Sequence[int | None] | None
    ) -> list[Answer]:
        if self.end and self._segment_age(now) >= self.config.segment_age_us:
            self.try_roll()
        answers: list[Answer | None] = [None] * len(batches)
        failure: AppendRefused | None = self._store.refused()
        group = self._group(now, term)
        for number, batch in enumerate(batches):
            try:
                batch.verify(self.config.batch_bytes_max)
                header = batch.header
                if header.kind != KIND_DATA:
                    raise MalformedBatch("only the log itself writes control batches")
                if group.position and group.position + header.size > group.limit:
                    failure = self._write(group, answers) or failure or self._make_room(header.size)
                    group = self._group(now, term)
                if failure is not None:
                    answers[number] = self.first_answer(batch) or failure  # nothing may overtake what was not written
                    continue
                if 0 < header.producer_id < STAGED_IDS and (repeat := group.repeat_of(header)) is not None:
                    group.answers.append((number, repeat))
                    continue
                wanted = None if expect is None else expect[number]
                if wanted is not None and wanted != group.next_seqno:
                    raise UnexpectedSeqno(wanted, group.next_seqno)
            except (BatchError, AppendRefused) as error:
                answers[number] = error
                continue
            group.add(number, batch, header, None)
        self._write(group, answers)
        return answers  # type: ignore[return-value]

    def first_answer(self, batch: Batch) -> Answer | None:
        header = batch.header
        if header.kind != KIND_DATA or not 0 < header.producer_id < STAGED_IDS:
            return None
        try:
            repeat = self._group(NO_TIMESTAMP, None).repeat_of(header)
            if repeat is not None:
                batch.verify(self.config.batch_bytes_max)
        except (AppendRefused, BatchError):
            return None
        if repeat is not None and self._store.failed and repeat.index > self.synced_index:
            return SyncFailed(self._store.refusal)
        return repeat

    def replicate(self, batches: Sequence[Batch]) -> int:
        self._store.demand_writable()
        group = self._group(NO_TIMESTAMP, None)
        for batch in batches:
            batch.verify()
            header = batch.header
            if group.position and group.position + header.size > group.limit:
                self._put(group)
                self._make_room(header.size)
                group = self._group(NO_TIMESTAMP, None)
            group.add_stamped(batch, header, read_control(batch))
        self._put(group)
        return self.last_index

    def adopt(self, file: File, batches: Sequence[Batch], now: int, term: int | None) -> list[Appended]:
        if self.end:
            self.roll()
        self._store.demand_writable()
        if self.end or self.named:
            raise WriteFailed(f"{self._store.directory}: the last segment cannot be another file now")
        if file.links() != 1:
            raise WriteFailed(f"{file.path} has another name: it is a segment already")
        group = self._group(now, term)
        for number, batch in enumerate(batches):
            batch.verify(self.config.batch_bytes_max)
            group.add(number, batch, batch.header, None)
        fronts = [(front, staged[3]) for front, staged in zip(group.buffers[::2], group.staged, strict=True)]
        self._store.adopt(file, fronts, self._segments[-1])
        self.named = True
        self._take(group)
        self.synced_index = self.last_index
        return [answer for _, answer in group.answers]

    def append_floor(self, floor: Floor, now: int, term: int | None) -> Appended:
        """Write a control batch."""
        group = self._group(now, term)
        batch = build_control(floor)
        group.add(0, batch, batch.header, floor)
        self._put(group)
        return group.answers[0][1]

    def _segment_age(self, now: int) -> int:
        return 0 if self.segment_append_time is None else now - self.segment_append_time

    def _group(self, now: int, term: int | None) -> AppendGroup:
        tail = self.tail
        if term is None:
            term = tail.term
        elif term < tail.term:
            raise ValueError(f"term {term} is below the log's {tail.term}: a former leader must not append")
        limit = sys.maxsize if self._store.syncing else self.config.segment_bytes
        return AppendGroup(tail, self.end, limit, now, term, self.synced_index)

    def _make_room(self, size: int) -> AppendRefused | None:
        """Roll if the next batch would make the segment too large."""
        if self.end and self.end + size > self.config.segment_bytes:
            self.try_roll()
        return self._store.refused()

    def _write(self, group: AppendGroup, answers: list[Answer | None]) -> AppendRefused | None:
        """Answer for all batches of the group: written, or not, or nobody knows. Returns why none may follow."""
        error = self._write_staged(group) if group.staged else None
        for number, answer in group.answers:
            answers[number] = answer if error is None or answer.index < self.tail.next_index else error
        return error if isinstance(error, AppendRefused) else self._store.refused()

    def _put(self, group: AppendGroup) -> None:
        error = self._write_staged(group) if group.staged else None
        if error is not None:
            raise error

    def _write_staged(self, group: AppendGroup) -> LogboomError | None:
        """Put the group on disk and make it the log's; or, as if it had never been, say why not."""
        store = self._store
        if store.refusal is not None:
            return store.refused()
        size = group.position - group.start
        try:
            store.files.space.take(size)
            file = self._file()
        except LowSpace as error:
            return error
        except SyncFailed as error:
            return LogReadOnly(str(error))
        except OSError as error:  # nothing was written
            return WriteFailed(f"{store.directory}: {error.strerror}")
        failure = store.write(file, group.buffers, group.start, size)
        if failure is not None:
            return failure
        self._dirty = file
        self._take(group)
        return None

    def _file(self) -> File:
        """The file that takes the appends, made when the first one comes."""
        if self._dirty is not None:
            return self._dirty
        segment = self._segments[-1]
        if self.named:
            return segment.file()
        file = self._store.make(segment)
        self.named = True
        return file

    def _take(self, group: AppendGroup) -> None:
        """The batches of a group are the log's: they are in its file."""
        segment, tail = self._segments[-1], self.tail
        index, newest = segment.index, self._segment_max_timestamp
        when, term = group.append_time, group.term
        for header, seqno, number, position, control in group.staged:
            index.add(seqno, number, position, newest, columns=label_columns(header))
            if group.stamped:
                when, term = header.append_time, header.term
            newest = max(newest, tail.advance(header, when, term, control))
            if self.segment_append_time is None:
                self.segment_append_time = when
        self._segment_max_timestamp = newest
        self._last_header_crc = group.buffers[-2][92:96]
        self.end = group.position
        self.boundaries.append(Boundary(tail.next_index - 1, tail.next_seqno, segment, self.end, tail.floor))
        self.outgrown = self._store.syncing and self.end > self.config.segment_bytes

    def begin_sync(self) -> PendingSync | None:
        store = self._store
        if store.syncing:
            raise RuntimeError(f"{store.directory}: a sync is under way")
        if self._dirty is None or store.refusal is not None:
            return None
        store.syncing = True
        return PendingSync(self._dirty, self.last_index, self._cuts)

    def end_sync(self, pending: PendingSync, tell: bool = True) -> None:
        self._store.syncing = False
        if pending.cuts != self._cuts or self._store.failed:
            return
        self.synced_index = max(self.synced_index, pending.index)
        if self.synced_index == self.last_index:
            self._dirty = None
        if tell:
            self._tell()
        if self.outgrown:
            self.outgrown = False
            self.try_roll()

    def sync(self) -> int:
        store = self._store
        if store.refusal is not None and self._dirty is not None:
            raise SyncFailed(store.refusal)
        pending = self.begin_sync()
        if pending is not None:
            try:
                store.disk.sync([pending.file])
            except OSError as error:
                raise store.fail_sync(error) from error
            self.end_sync(pending)
        return self.synced_index

    def roll(self) -> None:
        if not self.end or self._store.syncing:
            return
        self._store.demand_writable()
        self.sync()
        tail, generation = self.tail, self._store.generation
        last_header_crc = int.from_bytes(self._last_header_crc, "little")
        summary = Summary(self.end, tail.next_seqno, tail.next_index, self._segment_max_timestamp, last_header_crc)
        segment = self._store.new_segment(tail.next_seqno, tail.next_index, generation)
        snapshot = tail.snapshot(generation)
        with suppress(OSError):  # derived: made again when it is needed
            self._segments[-1].seal(summary)
        self._store.begin(segment, snapshot.encode())
        self._segments[-1].sealed(summary)
        segment.start_index(self.config.index_bytes)
        self._segments.append(segment)
        self.end = 0
        self.named = False
        self.segment_append_time = None
        self._segment_max_timestamp = NO_TIMESTAMP

    def try_roll(self) -> None:
        """Roll; where there is no room for that, the segment grows instead. A failed sync shows in `refusal`."""
        with suppress(WriteFailed, SyncFailed, LogReadOnly):
            self.roll()

    def release(self) -> None:
        """The log is closed: its file is nobody's any more."""
        self._dirty = None

    def read_again(self, index: int) -> None:
        """The last segment is to end with this batch: from its snapshot, follow the file up to there."""
        self._cuts += 1
        segment, number = self._segments[-1], len(self._segments) - 1
        segment.unseal()
        self._dirty = None
        self.named = self._store.disk.exists(segment.log_path)
        size = segment.file().size() if self.named else 0
        snapshot, damage = snapshot_of(self._store.files, self._segments, number, self.config)
        if damage is not None:
            raise damage
        self._follow(LogTail.at(snapshot, self.config.producers_max), index, size)

    def cut_off(self, index: int) -> None:
        """Behind this batch, which `read_again` has found, there is nothing any more, durably."""
        if self.named and (file := self._segments[-1].file()).size():
            file.truncate(self.end)
            file.sync()
        self.synced_index = index
        self.boundaries = deque(boundary for boundary in self.boundaries if boundary.index <= index)

    def _follow(self, tail: LogTail, index: int, size: int) -> None:
        """The producer table has no way back: it is made again, and with it everything else."""
        segment = self._segments[-1]
        sparse = segment.start_index(self.config.index_bytes)
        self.tail, self.end = tail, 0
        self.segment_append_time, self._segment_max_timestamp = None, NO_TIMESTAMP
        if tail.next_index > index:
            return
        for found in scan(Window(segment.file(), size), 0, size, tail):
            if isinstance(found, Bad):
                raise Damage(segment.log_path, found.position, tail.next_seqno, None, found.reason)
            position, header = found
            newest_before = self._segment_max_timestamp
            sparse.add(header.base_seqno, header.index, position, newest_before, columns=label_columns(header))
            newest = header.newest_timestamp(header.append_time)
            self._segment_max_timestamp = max(self._segment_max_timestamp, newest)
            if self.segment_append_time is None:
                self.segment_append_time = header.append_time
            self.end = position + header.size
            self._last_header_crc = header.header_crc.to_bytes(4, "little")
            if header.index == index:
                return
        raise Damage(segment.log_path, self.end, tail.next_seqno, None, f"batch {index} is not there")
