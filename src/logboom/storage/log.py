"""A log: one totally ordered sequence of records in append-only segments.

    append → (written) → sync → (synced) → commit → (committed, readable)

Invariants. Seqnos and indexes are dense. Readers see whole batches below committed and nothing else. What `sync`
returned for survives power loss. A segment is synced before its successor takes a byte. Committed bytes are never cut,
only unlinked. After a failed sync the log takes no writes; reopening recovers.

Its parts, from the disk up: `SegmentStore` makes, writes, names and removes the files; a `Segment` is one of them;
`Appender` puts batches into the last one and syncs it. `ReadableLog` finds what is committed in them: `read` and what
else only looks stands there, because a `LogView` in another process reads in the same way. Here is what is committed,
what other processes are told, and what is taken away.

Plain synchronous code with one owner: whoever calls the methods that write must not call two of them at once. A sync
may run on another thread between `begin_sync` and `end_sync` while the owner goes on appending. There is no clock here:
the time comes in as `now`, microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from logboom.batch.batch import Batch
from logboom.batch.header import STAGED_IDS, Header
from logboom.errors import (
    AppendRefused,
    Damage,
    IndexOutOfRange,
    LogboomError,
    SeqnoOutOfRange,
    StorageError,
    SyncFailed,
)
from logboom.storage.append import Answer, Appended
from logboom.storage.appender import Appender, PendingSync
from logboom.storage.config import LogConfig
from logboom.storage.data.state import Slot
from logboom.storage.files.disk import File
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.index import SparseIndex, Summary
from logboom.storage.producers import ProducerStream, check_sequence
from logboom.storage.readable_log import ReadableLog
from logboom.storage.recovery import Recovered, recover
from logboom.storage.segment import Segment
from logboom.storage.store import SegmentStore
from logboom.storage.tail import Floor, LogTail, known_lineage


class PendingSwap(NamedTuple):
    """A segment that is being stored anew, at `new.temporary_path`, until `end_swap` puts it in place."""

    old: Segment
    new: Segment


class Log(ReadableLog):
    def __init__(
        self, files: OpenFiles, directory: str, config: LogConfig, slot: Slot | None, found: Recovered
    ) -> None:
        self._leftovers: list[Segment] = []
        """Segments wholly below what the state file calls first: nobody reads them, the next drop removes them."""
        dropped = min(found.standing.first, found.tail.next_seqno) if found.standing else 0
        is_drop = dropped > found.tail.floor
        while is_drop and _lies_below(found.segments[0], dropped):
            self._leftovers.append(found.segments.pop(0))
        super().__init__(directory, found.segments, found.tail.floor)
        self._dropped = dropped
        self.recovered = found
        """What opening found and did."""
        self._slot = slot
        refusal = None if found.damage is None else str(found.damage)
        self._store = SegmentStore(files, directory, found.generation, refusal)
        self._appender = Appender(self._store, self._segments, found, config, self._write_state)
        self._closed = False
        self._holds: dict[str, int] = {}
        self._said = min(found.standing.committed, found.tail.next_seqno) if found.standing else 0
        """What was committed when the log was closed, says the state file, as far as it is there."""
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
    def next(self) -> int:
        """The seqno the next record will get."""
        return self._appender.tail.next_seqno

    @property
    def last_index(self) -> int:
        """Of what is written."""
        return self._appender.tail.next_index - 1

    @property
    def active_bytes(self) -> int:
        """Bytes in the last segment."""
        return self._appender.end

    @property
    def tail(self) -> LogTail:
        """Everything the next append depends on."""
        return self._appender.tail

    @property
    def synced_index(self) -> int:
        return self._appender.synced_index

    @property
    def generation(self) -> int:
        """Rises whenever files take the place of others: it tells readers in other processes to look."""
        return self._store.generation

    @property
    def term(self) -> int:
        return self._appender.tail.term

    @property
    def append_time(self) -> int:
        """When the last batch was appended."""
        return self._appender.tail.append_time

    @property
    def segment_append_time(self) -> int | None:
        """When the first batch of the last segment was appended; None while there is none."""
        return self._appender.segment_append_time

    @property
    def highest_issued(self) -> int:
        """The highest producer id given out by a node that the log has seen; 0 where it has seen none."""
        return self._appender.tail.producers.highest_issued

    def producer(self, producer_id: int) -> ProducerStream | None:
        """What the log remembers of a producer."""
        return self._appender.tail.producers.get(producer_id)

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
        return self._store.syncing

    @property
    def config(self) -> LogConfig:
        return self._appender.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """Counts from the next append on."""
        self._appender.config = config

    def is_quick(self, size: int) -> bool:
        """Whether an append of so many bytes is no more than a write now.

        No sync of the file is under way, and the file has room: none is synced to begin another.
        """
        appender = self._appender
        return appender.named and not self._store.syncing and appender.end + size <= self.config.segment_bytes

    @property
    def outgrown(self) -> bool:
        """Whether `end_sync` will roll: that takes a while."""
        return self._appender.outgrown

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def failed(self) -> bool:
        """Whether a sync, or the cleaning up after a failed write, went wrong: what is on disk is not known."""
        return self._store.failed

    @property
    def refusal(self) -> str | None:
        """Why the log takes no writes, or None where it does."""
        return self._store.refusal

    def append(
        self, batches: Sequence[Batch], now: int, term: int | None = None, expect: Sequence[int | None] | None = None
    ) -> list[Answer]:
        """Write batches with as few calls as can be; one answer for each, in order.

        A batch is refused by itself, without harm to the others. A repeat of what its producer has sent before gets the
        first answer, also where nothing new is taken. `expect` demands the seqno a batch must get. Nothing is durable
        before a sync.
        """
        return self._appender.append(batches, now, term, expect)

    def first_answer(self, batch: Batch) -> Answer | None:
        """What is to be said of a batch by a log that takes nothing: None unless it is a repeat of what is here.

        After a failed sync nobody knows what became of batches that were not synced before.
        """
        return self._appender.first_answer(batch)

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
        return self._appender.replicate(batches)

    def adopt(self, file: File, batches: Sequence[Batch], now: int, term: int | None = None) -> list[Appended]:
        """Make a file that holds these batches, one behind the other, and nothing else, a segment of this log.

        It is stamped where it is, synced, and gets a second name, and with that its batches are appended and synced.
        Raises WriteFailed, LogReadOnly or BatchError where it is not, and SyncFailed where nobody knows. Nobody must
        write to the file any more; its first name is the caller's to remove.
        """
        appended = self._appender.adopt(file, batches, now, term)
        self._write_state()
        self._appender.try_roll()
        return appended

    def trim(self, seqno: int, now: int, term: int | None = None, first: int | None = None) -> Appended:
        """Set the floor: once this is committed, nothing below `seqno` is ever served again.

        `first` says where what is served begins, if that is not the log's own first: others may have what it dropped.
        """
        first = self.first if first is None else first
        if not first <= seqno <= self.committed:
            raise SeqnoOutOfRange(seqno, first, self.committed)
        return self._appender.append_floor(Floor(seqno), now, term)

    def begin_term(self, term: int, now: int, lineage: int) -> None:
        """Write a batch that says nothing new but its term, under a lineage that no other has begun it with.

        It tells readers that the log may have lost its tail.
        """
        self._appender.append_floor(Floor(self.floor, lineage), now, term)

    def lineage_of(self, term: int) -> int:
        """Which of all terms of this number it is; 0 where nobody knows."""
        return known_lineage(self.tail.lineages, term)

    def roll(self) -> None:
        """Seal the active segment and begin the next; does nothing while it is empty or a sync of it is under way."""
        self._appender.roll()

    def sync(self) -> int:
        """Make everything written durable; returns the highest index that now is."""
        return self._appender.sync()

    def begin_sync(self) -> PendingSync | None:
        """What is to be synced, or None where everything is. One sync at a time: `end_sync` or `fail_sync` ends it.

        A file tells of a failed write-back only once: a second sync of it would be told that all is well.
        """
        return self._appender.begin_sync()

    def end_sync(self, pending: PendingSync, tell: bool = True) -> None:
        """The sync succeeded. Readers in other processes learn of it now, or when the owner calls `tell`."""
        self._appender.end_sync(pending, tell)

    def fail_sync(self, error: OSError) -> SyncFailed:
        """The sync failed: no retry, no promise, no more writes. The page cache may hold what the disk never will."""
        return self._store.fail_sync(error)

    def commit(self, index: int, tell: bool = True) -> None:
        """Show readers everything up to this batch. The owner says so once it is synced as the topic demands.

        Those in other processes learn of it now, or when the owner calls `tell`.
        """
        if index <= self._committed.index:
            return
        if index > self.last_index:
            raise IndexOutOfRange(index, self._committed.index, self.last_index)
        reached, boundaries = self._committed, self._appender.boundaries
        while boundaries and boundaries[0].index <= index:
            reached = boundaries.popleft()
        self._floor = max(self._floor, reached.floor)
        self._committed = reached if reached.index == index else self._locate(index)
        if tell:
            self._write_state()

    def commit_synced(self) -> None:
        """The same, of everything that is synced: for tools that have the directory to themselves, with no broker."""
        self.commit(self.synced_index)

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
            self._put_state(self._slot, self._said_first, self.synced_index)
        except OSError as error:
            self._store.fail(f"the state file cannot be written: {error}")

    def _put_state(self, slot: Slot, first: int, synced: int, always: bool = False) -> None:
        slot.write(self.generation, first, self._shown, synced, self.term, self._floor, always)

    def truncate(self, index: int) -> None:
        """Cut everything behind batch `index` off, durably. Committed batches cannot be."""
        if not max(self._committed.index, self.first_index - 1) <= index <= self.last_index:
            raise IndexOutOfRange(index, self._committed.index, self.last_index)
        self._store.demand_writable()
        if index == self.last_index:
            return
        try:
            self._truncate(index)
        except (OSError, Damage) as error:
            self._store.fail(f"a truncation failed half way: {error}")
            raise SyncFailed(self.refusal) from error

    def _truncate(self, index: int) -> None:
        if self._slot is not None:
            # Before the bytes go: else a crash in between would look like lost records.
            self._put_state(self._slot, self._said_first, min(self.synced_index, index), always=True)
            self._slot.sync()
        while len(self._segments) > 1 and self._segments[-1].first_index > index + 1:
            self._store.remove(self._segments.pop())
        self._appender.read_again(index)
        self._floor = min(self._floor, self.tail.floor)
        self._appender.cut_off(index)
        self._said = min(self._said, self.next)

    def cold_segments(self) -> list[Segment]:
        """Segments that will never change any more, oldest first: sealed and wholly committed."""
        committed = self._committed.index
        return [
            segment for segment in self._segments if segment.after is not None and segment.after[1] <= committed + 1
        ]

    def hold(self, name: str, seqno: int) -> None:
        """Nothing from this seqno on is dropped until `release`. A hold lives as long as the log is open."""
        self._holds[name] = seqno

    def release(self, name: str) -> None:
        self._holds.pop(name, None)

    @property
    def held(self) -> int | None:
        """The lowest seqno that somebody holds."""
        return min(self._holds.values(), default=None)

    def begin_swap(self, segment: Segment) -> PendingSwap:
        """A cold segment is to be stored anew, under the next generation. Many may be under way; each ends once."""
        if segment not in self.cold_segments():
            raise ValueError(f"{segment.log_path} is not a cold segment of this log")
        store = self._store
        new = store.new_segment(segment.first_seqno, segment.first_index, store.next_generation())
        new.after = segment.after
        return PendingSwap(segment, new)

    def end_swap(self, pending: PendingSwap, summary: Summary, index: SparseIndex) -> bool:
        """Put the new file, written and synced, in the place of the old one; False where that is not wanted any more.

        Readers who hold the old file go on reading it. A crash at any step leaves one of the two, or both: then the
        higher generation counts, and the next start removes the other.
        """
        old, new = pending
        if old not in self._segments or self.refusal is not None:
            self.cancel_swap(pending)
            return False
        directory = self._store.put_in_place(new)
        new.adopt(index, summary)
        self._segments[self._segments.index(old)] = new
        self._write_state()
        self._store.remove_replaced(old, directory)
        return True

    def cancel_swap(self, pending: PendingSwap) -> None:
        """Forget about it; the old file stays."""
        self._store.discard(pending.new)

    def drop(self, seqno: int) -> int:
        """Drop the oldest segments as long as all their records are committed and lie below `seqno`; returns how many.

        Never past what is held. The segment that takes the appends stays: roll first to be rid of everything.
        """
        count = 0
        seqno = min(seqno, *self._holds.values()) if self._holds else seqno
        for following in self._segments[1:]:
            if following.first_seqno > seqno or following.first_index > self._committed.index + 1:
                break
            count += 1
        try:
            if count and self._slot is not None:
                # Before they go: else segments that were dropped would count as missing after a power loss.
                first = max(self.first, self._segments[count].first_seqno)
                self._put_state(self._slot, first, self.synced_index)
                self._slot.sync()
                self._missing = None
            while self._leftovers:
                self._store.remove(self._leftovers[0])
                self._leftovers.pop(0)
            for _ in range(count):
                self._store.remove(self._segments[0])
                self._segments.pop(0)
        except OSError as error:
            gone = not self._leftovers and not self._store.disk.exists(self._segments[0].log_path)
            if gone and len(self._segments) > 1:
                self._segments.pop(0)
            raise StorageError(f"{self.directory}: a segment could not be dropped: {error}") from error
        return count

    def close(self) -> None:
        """Sync, and take no more writes. What is not synced because that fails is not promised either."""
        store = self._store
        if store.refusal is None:
            self.sync()
            self._write_state()
        if not store.failed:
            store.refusal = f"{self.directory}: the log is closed"
        self._closed = True
        for segment in self._segments:
            store.files.forget(segment.log_path)
        self._appender.release()

    def clear(self) -> None:
        """Remove all files of a log that is closed, oldest first: a crash half way leaves a log that begins later."""
        for segment in (*self._leftovers, *self._segments):
            self._store.remove(segment)


def _lies_below(segment: Segment, seqno: int) -> bool:
    """Whether all records of a segment that has some lie below this seqno."""
    return segment.after is not None and segment.first_seqno < seqno and segment.after[0] <= seqno
