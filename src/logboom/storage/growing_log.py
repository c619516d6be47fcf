"""A log as it grows: appended to, synced, committed, rolled. `log.Log` adds what takes away from it.

    append → (written) → sync → (synced) → commit → (committed, readable)
    adopt  →                (synced) → commit → (committed, readable)

A segment is synced before its successor takes a byte. After a short or failed write the file is cut back to the last
whole batch; after a failed sync the log takes no writes, and reopening recovers. A sync may run on another thread
between `begin_sync` and `end_sync` while the owner goes on appending.
"""

from __future__ import annotations

import errno
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self

from logboom.batch.batch import Batch
from logboom.batch.builder import build_control
from logboom.batch.header import KIND_DATA, NO_TIMESTAMP, STAGED_IDS, Header
from logboom.errors import (
    AppendRefused,
    BatchError,
    IndexOutOfRange,
    LogboomError,
    LogReadOnly,
    LowSpace,
    MalformedBatch,
    SeqnoOutOfRange,
    SyncFailed,
    UnexpectedSeqno,
    WriteFailed,
)
from logboom.storage.append import Answer, Appended, AppendGroup
from logboom.storage.config import LogConfig
from logboom.storage.data.state import Slot
from logboom.storage.files.disk import NO_SPACE, SCARCE, File, write_all, write_aside
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.index import Summary
from logboom.storage.labels import label_columns
from logboom.storage.producers import ProducerStream, check_sequence
from logboom.storage.readable_log import Boundary, ReadableLog
from logboom.storage.recovery import Recovered, recover
from logboom.storage.segment import Segment
from logboom.storage.tail import Floor, known_lineage, read_control

_TRANSIENT: Final = (*NO_SPACE, *SCARCE)


class PendingSync(NamedTuple):
    """What a sync under way will have made durable: hand `file` to `Disk.sync`, then this to `end_sync`."""

    file: File
    index: int  # type: ignore[assignment]
    cuts: int
    """How often the log had been truncated: a sync that began before a truncation says nothing after it."""


class GrowingLog(ReadableLog):
    def __init__(
        self, files: OpenFiles, directory: str, config: LogConfig, slot: Slot | None, found: Recovered
    ) -> None:
        self._leftovers: list[Segment] = []
        """Segments wholly below what the state file calls first: nobody reads them, the next drop removes them."""
        dropped = min(found.standing.first, found.tail.next_seqno) if found.standing else 0
        is_drop = dropped > found.tail.floor
        while is_drop and _lies_below(found.segments[0], dropped):
            self._leftovers.append(found.segments.pop(0))
        super().__init__(directory, found.segments, found.tail, found.end)
        self._dropped = dropped
        self.config = config
        self.recovered = found
        """What opening found and did."""
        self._files = files
        self._slot = slot
        self._generation = found.generation
        self._segment_append_time = found.segment_append_time
        self._segment_max_timestamp = found.segment_max_timestamp
        self._last_header_crc = found.last_header_crc
        self._synced_index = found.tail.next_index - 1
        self._pending: deque[Boundary] = deque()
        self._floors: deque[tuple[int, int]] = deque()
        """Floors that count when the batch with this index is committed."""
        self._dirty: File | None = None
        self._named = files.disk.exists(found.segments[-1].log_path)
        self._cuts = 0
        self._closed = self._failed = self._syncing = False
        self._outgrown = False
        """Whether the segment grew beyond its limit during a sync."""
        self._refusal: str | None = None if found.damage is None else str(found.damage)
        self._holds: dict[str, int] = {}
        self._said = min(found.standing.committed, found.tail.next_seqno) if found.standing else 0
        """What was committed when the log was closed, says the state file, as far as it is there."""
        self._reserved = found.generation
        """The highest generation that anybody was given: swaps may be under way."""
        self._missing = found.missing

    @classmethod
    def open(cls, files: OpenFiles, directory: str, config: LogConfig | None = None, slot: Slot | None = None) -> Self:
        """Recover the log in this directory, or begin one. Nothing is committed yet: the owner knows what is."""
        config = config or LogConfig()
        found = recover(files, directory, config, slot.standing if slot else None)
        log = cls(files, directory, config, slot, found)
        if found.damage is None:
            log._write_state()  # so that readers in other processes find it
        return log

    def __repr__(self) -> str:
        return f"<Log {self.directory}: first {self.first}, committed {self.committed}, next {self.next}>"

    @property
    def synced_index(self) -> int:
        return self._synced_index

    @property
    def generation(self) -> int:
        """Rises whenever files take the place of others: it tells readers in other processes to look."""
        return self._generation

    @property
    def term(self) -> int:
        return self._tail.term

    @property
    def append_time(self) -> int:
        """When the last batch was appended."""
        return self._tail.append_time

    @property
    def segment_append_time(self) -> int | None:
        """When the first batch of the last segment was appended; None while there is none."""
        return self._segment_append_time

    @property
    def highest_issued(self) -> int:
        """The highest producer id given out by a node that the log has seen; 0 where it has seen none."""
        return self._tail.producers.highest_issued

    def producer(self, producer_id: int) -> ProducerStream | None:
        """What the log remembers of a producer."""
        return self._tail.producers.get(producer_id)

    def repeat_of(self, header: Header) -> Appended | None:
        """Where a batch is that its producer has sent before; None where the log does not know that it has it."""
        if not 0 < header.producer_id < STAGED_IDS:
            return None
        try:
            written = check_sequence(self.producer(header.producer_id), header)
        except AppendRefused:
            return None
        if written is None:
            return None
        return Appended(written.base_seqno, written.count, written.index, written.append_time, True)

    @property
    def syncing(self) -> bool:
        return self._syncing

    @property
    def is_quick(self) -> bool:
        """Whether an append now is no more than a write: no sync of the file is under way, and there is a file."""
        return self._named and not self._syncing

    @property
    def outgrown(self) -> bool:
        """Whether `end_sync` will roll: that takes a while."""
        return self._outgrown

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def failed(self) -> bool:
        """Whether a sync, or the cleaning up after a failed write, went wrong: what is on disk is not known."""
        return self._failed

    @property
    def refusal(self) -> str | None:
        """Why the log takes no writes, or None where it does."""
        return self._refusal

    def append(
        self, batches: Sequence[Batch], now: int, term: int | None = None, expect: Sequence[int | None] | None = None
    ) -> list[Answer]:
        """Write batches with as few calls as can be; one answer for each, in order.

        A batch is refused by itself, without harm to the others. A repeat of what its producer has sent before gets the
        first answer, also where nothing new is taken. `expect` demands the seqno a batch must get. Nothing is durable
        before a sync.
        """
        if self._end and self._segment_age(now) >= self.config.segment_age_us:
            self._try_roll()
        answers: list[Answer | None] = [None] * len(batches)
        failure = self._refused()
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
        """What is to be said of a batch by a log that takes nothing: None unless it is a repeat of what is here.

        After a failed sync nobody knows what became of batches that were not synced before.
        """
        header = batch.header
        if header.kind != KIND_DATA or not 0 < header.producer_id < STAGED_IDS:
            return None
        try:
            repeat = self._group(NO_TIMESTAMP, None).repeat_of(header)
            if repeat is not None:
                batch.verify(self.config.batch_bytes_max)
        except (AppendRefused, BatchError):
            return None
        if repeat is not None and self._failed and repeat.index > self._synced_index:
            return SyncFailed(self._refusal)
        return repeat

    def append_one(self, batch: Batch, now: int, term: int | None = None, expect: int | None = None) -> Appended:
        """Append a single batch, or raise why not."""
        (answer,) = self.append([batch], now, term, [expect])
        if isinstance(answer, LogboomError):
            raise answer
        return answer

    def replicate(self, batches: Sequence[Batch]) -> int:
        """Append batches that have their numbers, times and terms already: a copy of a log goes on where it ends.

        Returns the last index. Raises at the first batch that does not follow; those before it may have been appended.
        """
        if self._refusal is not None:
            raise LogReadOnly(self._refusal)
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

    def _put(self, group: AppendGroup) -> None:
        error = self._write_staged(group) if group.staged else None
        if error is not None:
            raise error

    def adopt(self, file: File, batches: Sequence[Batch], now: int, term: int | None = None) -> list[Appended]:
        """Make a file that holds these batches, one behind the other, and nothing else, a segment of this log.

        It is stamped where it is, synced, and gets a second name, and with that its batches are appended and synced.
        Raises WriteFailed, LogReadOnly or BatchError where it is not, and SyncFailed where nobody knows. Nobody must
        write to the file any more; its first name is the caller's to remove.
        """
        if self._end:
            self.roll()
        if self._refusal is not None:
            raise LogReadOnly(self._refusal)
        if self._end or self._named:
            raise WriteFailed(f"{self.directory}: the last segment cannot be another file now")
        if file.links() != 1:
            raise WriteFailed(f"{file.path} has another name: it is a segment already")
        segment, disk, group = self._segments[-1], self._files.disk, self._group(now, term)
        for number, batch in enumerate(batches):
            batch.verify(self.config.batch_bytes_max)
            group.add(number, batch, batch.header, None)
        try:
            for front, (_, _, _, position, _) in zip(group.buffers[::2], group.staged, strict=True):
                write_all(file, front, position)
        except OSError as error:
            raise WriteFailed(f"{file.path}: {error.strerror}") from error
        try:
            file.sync()
        except OSError as error:
            raise self.fail_sync(error) from error
        try:
            directory = disk.open_directory(self.directory)
            disk.link(file.path, segment.log_path)
        except OSError as error:
            if disk.exists(segment.log_path):  # it may be this file all the same: nobody must append to it
                raise self.fail_sync(error) from error
            raise WriteFailed(f"{segment.log_path}: {error.strerror}") from error
        try:
            directory.sync()
        except OSError as error:
            raise self.fail_sync(error) from error
        self._named = True
        self._take(group)
        self._synced_index = self.last_index
        self._write_state()
        self._try_roll()
        return [answer for _, answer in group.answers]

    def trim(self, seqno: int, now: int, term: int | None = None, first: int | None = None) -> Appended:
        """Set the floor: once this is committed, nothing below `seqno` is ever served again.

        `first` says where what is served begins, if that is not the log's own first: others may have what it dropped.
        """
        first = self.first if first is None else first
        if not first <= seqno <= self.committed:
            raise SeqnoOutOfRange(seqno, first, self.committed)
        group = self._group(now, term)
        batch = build_control(Floor(seqno))
        group.add(0, batch, batch.header, Floor(seqno))
        self._put(group)
        return group.answers[0][1]

    def begin_term(self, term: int, now: int, lineage: int) -> None:
        """Write a batch that says nothing new but its term, under a lineage that no other has begun it with.

        It tells readers that the log may have lost its tail.
        """
        group = self._group(now, term)
        floor = Floor(self.floor, lineage)
        batch = build_control(floor)
        group.add(0, batch, batch.header, floor)
        self._put(group)

    def lineage_of(self, term: int) -> int:
        """Which of all terms of this number it is; 0 where nobody knows."""
        return known_lineage(self._tail.lineages, term)

    def _segment_age(self, now: int) -> int:
        return 0 if self._segment_append_time is None else now - self._segment_append_time

    def _group(self, now: int, term: int | None) -> AppendGroup:
        if term is None:
            term = self._tail.term
        elif term < self._tail.term:
            raise ValueError(f"term {term} is below the log's {self._tail.term}: a former leader must not append")
        # While a sync is under way nothing can be rolled: the segment grows, and `end_sync` makes up for it.
        limit = sys.maxsize if self._syncing else self.config.segment_bytes
        return AppendGroup(self._tail, self._end, limit, now, term, self._synced_index)

    def _refused(self) -> AppendRefused | None:
        return None if self._refusal is None else LogReadOnly(self._refusal)

    def _make_room(self, size: int) -> AppendRefused | None:
        """Roll if the next batch would make the segment too large."""
        if self._end and self._end + size > self.config.segment_bytes:
            self._try_roll()
        return self._refused()

    def _write(self, group: AppendGroup, answers: list[Answer | None]) -> AppendRefused | None:
        """Answer for all batches of the group: written, or not, or nobody knows. Returns why none may follow."""
        error = self._write_staged(group) if group.staged else None
        for number, answer in group.answers:
            lost = error is not None and answer.index >= self._tail.next_index
            answers[number] = error if lost else answer
        return error if isinstance(error, AppendRefused) else self._refused()

    def _write_staged(self, group: AppendGroup) -> LogboomError | None:
        """Put the group on disk and make it the log's; or, as if it had never been, say why not."""
        if self._refusal is not None:
            return self._refused()
        size = group.position - group.start
        try:
            self._files.space.take(size)
            file = self._active_file()
        except LowSpace as error:
            return error
        except SyncFailed as error:
            return LogReadOnly(str(error))
        except OSError as error:  # nothing was written
            return WriteFailed(f"{self.directory}: {error.strerror}")
        try:
            written = file.write(group.buffers, group.start)
            if written != size:
                # A full volume takes what fits, and says so only to the next call.
                full = self._files.disk.free_bytes() < size - written
                raise OSError(errno.ENOSPC if full else errno.EIO, f"only {written} of {size} bytes were written")
        except OSError as error:
            if not self._cut_back(file):
                return SyncFailed(self._refusal)
            if error.errno in NO_SPACE:
                return LowSpace(0, self._files.space.reserve_bytes)
            return WriteFailed(f"{self.directory}: {error.strerror}")
        self._dirty = file
        self._take(group)
        return None

    def _take(self, group: AppendGroup) -> None:
        segment, tail = self._segments[-1], self._tail
        index, newest = segment.index, self._segment_max_timestamp
        when, term = group.append_time, group.term
        for header, seqno, number, position, control in group.staged:
            index.add(seqno, number, position, newest, columns=label_columns(header))
            if group.stamped:
                when, term = header.append_time, header.term
            newest = max(newest, tail.advance(header, when, term, control))
            if self._segment_append_time is None:
                self._segment_append_time = when
        self._segment_max_timestamp = newest
        self._last_header_crc = group.last_header_crc
        self._end = group.position
        self._pending.append(Boundary(self.last_index, self.next, segment, self._end))
        self._outgrown = self._syncing and self._end > self.config.segment_bytes
        if tail.floor > self._floor:
            self._floors.append((self.last_index, tail.floor))

    def _active_file(self) -> File:
        """The file that takes the appends, made when the first one comes."""
        if self._dirty is not None:
            return self._dirty
        segment = self._segments[-1]
        if self._named:
            return segment.file()
        disk = self._files.disk
        directory = disk.open_directory(self.directory)
        if disk.exists(segment.log_path):
            file = segment.file()
        else:
            file = disk.create(segment.log_path)
            self._files.put(file)
        try:
            directory.sync()
        except OSError as error:
            raise self.fail_sync(error) from error
        self._named = True
        return file

    def _cut_back(self, file: File) -> bool:
        """After a short or failed write: the file ends with its last whole batch again, durably, before anything else.

        Else nobody knows whether the batches that were refused will be there after a restart.
        """
        try:
            file.truncate(self._end)
            file.sync()
        except OSError as error:
            self._fail(f"a write failed and what it left could not be cut off: {error}")
            return False
        return True

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._refusal = f"{self.directory}: {reason}; reopen the log to recover"
        self._files.failure = self._files.failure or self._refusal

    def begin_sync(self) -> PendingSync | None:
        """What is to be synced, or None where everything is. One sync at a time: `end_sync` or `fail_sync` ends it.

        A file tells of a failed write-back only once: a second sync of it would be told that all is well.
        """
        if self._syncing:
            raise RuntimeError(f"{self.directory}: a sync is under way")
        if self._dirty is None or self._refusal is not None:
            return None
        self._syncing = True
        return PendingSync(self._dirty, self.last_index, self._cuts)

    def end_sync(self, pending: PendingSync) -> None:
        """The sync succeeded."""
        self._syncing = False
        if pending.cuts != self._cuts or self._failed:
            return
        self._synced_index = max(self._synced_index, pending.index)
        if self._synced_index == self.last_index:
            self._dirty = None
        self._write_state()
        if self._outgrown:
            self._outgrown = False
            self._try_roll()

    def fail_sync(self, error: OSError) -> SyncFailed:
        """The sync failed: no retry, no promise, no more writes. The page cache may hold what the disk never will."""
        self._syncing = False
        self._fail(f"a sync failed: {error}")
        return SyncFailed(self._refusal)

    def sync(self) -> int:
        """Make everything written durable; returns the highest index that now is."""
        if self._refusal is not None and self._dirty is not None:
            raise SyncFailed(self._refusal)
        pending = self.begin_sync()
        if pending is not None:
            try:
                self._files.disk.sync([pending.file])
            except OSError as error:
                raise self.fail_sync(error) from error
            self.end_sync(pending)
        return self._synced_index

    def commit(self, index: int, tell: bool = True) -> None:
        """Show readers everything up to this batch. The owner says so once it is synced as the topic demands.

        Those in other processes learn of it now, or when the owner calls `tell`.
        """
        if index <= self._committed.index:
            return
        if index > self.last_index:
            raise IndexOutOfRange(index, self._committed.index, self.last_index)
        reached = self._committed
        while self._pending and self._pending[0].index <= index:
            reached = self._pending.popleft()
        self._committed = reached if reached.index == index else self._locate(index)
        while self._floors and self._floors[0][0] <= index:
            self._floor = self._floors.popleft()[1]
        if tell:
            self._write_state()

    def tell(self) -> None:
        """Readers in other processes see what is committed."""
        self._write_state()

    @property
    def _shown(self) -> int:
        """The committed seqno for readers in other processes: what they have seen before the log was opened stays."""
        return max(self.committed, self._said)

    @property
    def _said_first(self) -> int:
        """The first seqno for the state file: where segments are missing, it goes on saying that they were there."""
        missing = self._missing
        return self.first if missing is None or self._floor >= (missing.seqno_until or 0) else missing.seqno_from

    def _write_state(self) -> None:
        if self._slot is None:
            return
        try:
            numbers = self._said_first, self._shown, self._synced_index, self.term, self._floor
            self._slot.write(self._generation, *numbers)
        except OSError as error:
            self._fail(f"the state file cannot be written: {error}")

    def roll(self) -> None:
        """Seal the active segment and begin the next; does nothing while it is empty or a sync of it is under way."""
        if not self._end or self._syncing:
            return
        if self._refusal is not None:
            raise LogReadOnly(self._refusal)
        self.sync()
        tail = self._tail
        summary = Summary(
            self._end, tail.next_seqno, tail.next_index, self._segment_max_timestamp, self._last_header_crc
        )
        segment = Segment(self._files, self.directory, tail.next_seqno, tail.next_index, self._generation)
        snapshot = tail.snapshot(self._generation)
        with suppress(OSError):  # derived: made again when it is needed
            self._segments[-1].seal(summary)
        try:
            directory = self._files.disk.open_directory(self.directory)
            temporary = write_aside(self._files.disk, segment.snap_path, snapshot.encode())
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise self.fail_sync(error) from error
            raise WriteFailed(f"{self.directory}: no new segment: {error.strerror}") from error
        try:
            self._files.disk.rename(temporary, segment.snap_path)
            directory.sync()
        except OSError as error:
            raise self.fail_sync(error) from error  # it may be there or not: the old segment must not grow any more
        self._segments[-1].sealed(summary)
        segment.start_index(self.config.index_bytes)
        self._segments.append(segment)
        self._end = 0
        self._named = False
        self._segment_append_time = None
        self._segment_max_timestamp = NO_TIMESTAMP

    def _try_roll(self) -> None:
        """Roll; where there is no room for that, the segment grows instead. A failed sync shows in `refusal`."""
        with suppress(WriteFailed, SyncFailed, LogReadOnly):
            self.roll()


def _lies_below(segment: Segment, seqno: int) -> bool:
    """Whether all records of a segment that has some lie below this seqno."""
    return segment.after is not None and segment.first_seqno < seqno and segment.after[0] <= seqno
