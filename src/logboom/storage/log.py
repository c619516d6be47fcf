"""A log: one totally ordered sequence of records in append-only segments.

    append → (written) → sync → (synced) → commit → (committed, readable)

Invariants. Seqnos and indexes are dense. Readers see whole batches below committed and nothing else. What `sync`
returned for survives power loss. A segment is synced before its successor takes a byte. Committed bytes are never cut,
only unlinked. After a failed sync the log takes no writes; reopening recovers.

Plain synchronous code with one owner: whoever calls the methods that write must not call two of them at once. A sync
may run on another thread between `begin_sync` and `end_sync` while the owner goes on appending. There is no clock here:
the time comes in as `now`, microseconds since 1970.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import NamedTuple

from logboom.batch.header import NO_TIMESTAMP
from logboom.errors import (
    Damage,
    IndexOutOfRange,
    LogReadOnly,
    StorageError,
    SyncFailed,
)
from logboom.storage.growing_log import GrowingLog
from logboom.storage.index import SparseIndex, Summary
from logboom.storage.labels import label_columns
from logboom.storage.recovery import snapshot_of
from logboom.storage.scan import Bad, Window, scan
from logboom.storage.segment import Segment
from logboom.storage.tail import LogTail


class PendingSwap(NamedTuple):
    """A segment that is being stored anew, at `new.temporary_path`, until `end_swap` puts it in place."""

    old: Segment
    new: Segment


class Log(GrowingLog):
    def truncate(self, index: int) -> None:
        """Cut everything behind batch `index` off, durably. Committed batches cannot be."""
        if not max(self._committed.index, self.first_index - 1) <= index <= self.last_index:
            raise IndexOutOfRange(index, self._committed.index, self.last_index)
        if self._refusal is not None:
            raise LogReadOnly(self._refusal)
        if index == self.last_index:
            return
        try:
            self._truncate(index)
        except (OSError, Damage) as error:
            self._fail(f"a truncation failed half way: {error}")
            raise SyncFailed(self._refusal) from error

    def _truncate(self, index: int) -> None:
        self._cuts += 1
        if self._slot is not None:
            # Before the bytes go: else a crash in between would look like lost records.
            synced = min(self._synced_index, index)
            numbers = self._said_first, self._shown, synced, self.term, self._floor
            self._slot.write(self._generation, *numbers, always=True)
            self._slot.sync()
        while len(self._segments) > 1 and self._segments[-1].first_index > index + 1:
            self._remove(self._segments.pop())
        segment, number = self._segments[-1], len(self._segments) - 1
        segment.unseal()
        self._dirty = None
        self._named = self._files.disk.exists(segment.log_path)
        size = segment.file().size() if self._named else 0
        snapshot, damage = snapshot_of(self._files, self._segments, number, self.config)
        if damage is not None:
            raise damage
        self._rebuild(LogTail.at(snapshot, self.config.producers_max), index, size)
        self._floor = min(self._floor, self._tail.floor)
        if size:
            segment.file().truncate(self._end)
            segment.file().sync()
        self._synced_index = index
        self._said = min(self._said, self.next)
        self._pending = deque(boundary for boundary in self._pending if boundary.index <= index)
        self._floors = deque(entry for entry in self._floors if entry[0] <= index)

    def _rebuild(self, tail: LogTail, index: int, size: int) -> None:
        """Follow the active segment again, up to a batch: the producer table has no way back."""
        segment = self._segments[-1]
        sparse = segment.start_index(self.config.index_bytes)
        self._tail, self._end = tail, 0
        self._segment_append_time, self._segment_max_timestamp = None, NO_TIMESTAMP
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
            if self._segment_append_time is None:
                self._segment_append_time = header.append_time
            self._end = position + header.size
            self._last_header_crc = header.header_crc
            if header.index == index:
                return
        raise Damage(segment.log_path, self._end, tail.next_seqno, None, f"batch {index} is not there")

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
        self._reserved += 1
        new = Segment(self._files, self.directory, segment.first_seqno, segment.first_index, self._reserved)
        new.after = segment.after
        return PendingSwap(segment, new)

    def end_swap(self, pending: PendingSwap, summary: Summary, index: SparseIndex) -> bool:
        """Put the new file, written and synced, in the place of the old one; False where that is not wanted any more.

        Readers who hold the old file go on reading it. A crash at any step leaves one of the two, or both: then the
        higher generation counts, and the next start removes the other.
        """
        old, new = pending
        if old not in self._segments or self._refusal is not None:
            self.cancel_swap(pending)
            return False
        disk = self._files.disk
        try:
            directory = disk.open_directory(self.directory)
            disk.rename(new.temporary_path, new.log_path)
        except OSError as error:
            self.cancel_swap(pending)
            raise StorageError(f"{self.directory}: a segment could not be swapped: {error}") from error
        try:
            directory.sync()
        except OSError as error:
            raise self.fail_sync(error) from error
        self._reserved += 1
        self._generation = self._reserved  # another one each time: it tells readers to look
        new.adopt(index, summary)
        self._segments[self._segments.index(old)] = new
        self._write_state()
        self._files.forget(old.log_path)
        with suppress(OSError):  # the next start removes what is left of it
            for path in (old.index_path, old.log_path):
                if disk.exists(path):
                    disk.unlink(path)
            directory.sync()
        return True

    def cancel_swap(self, pending: PendingSwap) -> None:
        """Forget about it; the old file stays."""
        with suppress(OSError):
            for path in (pending.new.temporary_path, pending.new.index_path):
                if self._files.disk.exists(path):
                    self._files.disk.unlink(path)

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
                numbers = first, self._shown, self._synced_index, self.term, self._floor
                self._slot.write(self._generation, *numbers)
                self._slot.sync()
                self._missing = None
            while self._leftovers:
                self._remove(self._leftovers[0])
                self._leftovers.pop(0)
            for _ in range(count):
                self._remove(self._segments[0])
                self._segments.pop(0)
        except OSError as error:
            gone = not self._leftovers and not self._files.disk.exists(self._segments[0].log_path)
            if gone and len(self._segments) > 1:
                self._segments.pop(0)
            raise StorageError(f"{self.directory}: a segment could not be dropped: {error}") from error
        return count

    def _remove(self, segment: Segment) -> None:
        """The .log goes durably before its snapshot: one that came back without it would look damaged."""
        disk = self._files.disk
        directory = disk.open_directory(self.directory)
        self._files.forget(segment.log_path)
        for path in (segment.log_path, segment.index_path):
            if disk.exists(path):
                disk.unlink(path)
        directory.sync()
        if disk.exists(segment.snap_path):
            disk.unlink(segment.snap_path)
            directory.sync()

    def close(self) -> None:
        """Sync, and take no more writes. What is not synced because that fails is not promised either."""
        if self._refusal is None:
            self.sync()
            self._write_state()
        if not self._failed:
            self._refusal = f"{self.directory}: the log is closed"
        self._closed = True
        for segment in self._segments:
            self._files.forget(segment.log_path)
        self._dirty = None

    def clear(self) -> None:
        """Remove all files of a log that is closed, oldest first: a crash half way leaves a log that begins later."""
        for segment in (*self._leftovers, *self._segments):
            self._remove(segment)
