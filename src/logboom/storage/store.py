"""The directory of one log: files are made, written, named and removed here, in an order that a crash cannot hurt.

A file has its name durably before anything is promised of it, and a .log goes durably before its snapshot. After a
short or failed write the file is cut back to its last whole batch. After a failed sync, or where that cutting back
failed, nobody knows what is on disk: `refusal` says so, nothing more is written, and reopening the log recovers.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from logboom.batch.header import Buffer
from logboom.errors import LogboomError, LogReadOnly, LowSpace, StorageError, SyncFailed, WriteFailed
from logboom.storage.files.disk import NO_SPACE, SCARCE, Directory, Disk, File, write_all, write_aside
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.segment import Segment

_TRANSIENT: Final = (*NO_SPACE, *SCARCE)


class SegmentStore:
    def __init__(self, files: OpenFiles, directory: str, generation: int, refusal: str | None) -> None:
        self.files = files
        self.directory = directory
        self.generation = generation
        """Of the files that are made; rises whenever a file takes the place of another."""
        self._reserved = generation
        """The highest generation that anybody was given: swaps may be under way."""
        self.refusal = refusal
        """Why nothing is written any more, or None where it is."""
        self.syncing = False
        """Whether the file that takes the appends is being synced, perhaps on another thread."""
        self.failed = False
        """Whether a sync, or the cleaning up after a failed write, went wrong: what is on disk is not known."""

    @property
    def disk(self) -> Disk:
        return self.files.disk

    def refused(self) -> LogReadOnly | None:
        return None if self.refusal is None else LogReadOnly(self.refusal)

    def demand_writable(self) -> None:
        if self.refusal is not None:
            raise LogReadOnly(self.refusal)

    def fail(self, reason: str) -> None:
        self.failed = True
        self.refusal = f"{self.directory}: {reason}; reopen the log to recover"
        self.files.failure = self.files.failure or self.refusal

    def fail_sync(self, error: OSError) -> SyncFailed:
        """No retry, no promise, no more writes: the page cache may hold what the disk never will."""
        self.syncing = False
        self.fail(f"a sync failed: {error}")
        return SyncFailed(self.refusal)

    def next_generation(self) -> int:
        self._reserved += 1
        return self._reserved

    def new_segment(self, seqno: int, index: int, generation: int) -> Segment:
        return Segment(self.files, self.directory, seqno, index, generation)

    def make(self, segment: Segment) -> File:
        """The .log of a segment, there durably; one that an attempt before this left is taken."""
        directory = self.disk.open_directory(self.directory)
        if self.disk.exists(segment.log_path):
            file = segment.file()
        else:
            file = self.disk.create(segment.log_path)
            self.files.put(file)
        self._sync_directory(directory)
        return file

    def write(self, file: File, buffers: Sequence[Buffer], start: int, size: int) -> LogboomError | None:
        """Put these bytes behind the last whole batch; or, as if they had never been, say why not."""
        try:
            written = file.write(buffers, start)
            if written != size:
                # A full volume takes what fits, and says so only to the next call.
                full = self.disk.free_bytes() < size - written
                raise OSError(errno.ENOSPC if full else errno.EIO, f"only {written} of {size} bytes were written")
        except OSError as error:
            if not self._cut_back(file, start):
                return SyncFailed(self.refusal)
            if error.errno in NO_SPACE:
                return LowSpace(0, self.files.space.reserve_bytes)
            return WriteFailed(f"{self.directory}: {error.strerror}")
        return None

    def _cut_back(self, file: File, end: int) -> bool:
        """After a short or failed write: the file ends with its last whole batch again, durably, before anything else.

        Else nobody knows whether the batches that were refused will be there after a restart.
        """
        try:
            file.truncate(end)
            file.sync()
        except OSError as error:
            self.fail(f"a write failed and what it left could not be cut off: {error}")
            return False
        return True

    def adopt(self, file: File, fronts: Sequence[tuple[Buffer, int]], segment: Segment) -> None:
        """Write each front at its position in this file, sync it, and give it the segment's name as well."""
        try:
            for front, position in fronts:
                write_all(file, front, position)
        except OSError as error:
            raise WriteFailed(f"{file.path}: {error.strerror}") from error
        try:
            file.sync()
        except OSError as error:
            raise self.fail_sync(error) from error
        try:
            directory = self.disk.open_directory(self.directory)
            self.disk.link(file.path, segment.log_path)
        except OSError as error:
            if self.disk.exists(segment.log_path):  # it may be this file all the same: nobody must append to it
                raise self.fail_sync(error) from error
            raise WriteFailed(f"{segment.log_path}: {error.strerror}") from error
        self._sync_directory(directory)

    def begin(self, segment: Segment, snapshot: bytes) -> None:
        """A segment begins with its snapshot; its .log is made when the first batch comes."""
        try:
            directory = self.disk.open_directory(self.directory)
            temporary = write_aside(self.disk, segment.snap_path, snapshot)
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise self.fail_sync(error) from error
            raise WriteFailed(f"{self.directory}: no new segment: {error.strerror}") from error
        try:
            self.disk.rename(temporary, segment.snap_path)
            directory.sync()
        except OSError as error:
            raise self.fail_sync(error) from error  # it may be there or not: the old segment must not grow any more

    def put_in_place(self, new: Segment) -> Directory:
        """A file that was written aside gets its name, and with that the generation rises."""
        try:
            directory = self.disk.open_directory(self.directory)
            self.disk.rename(new.temporary_path, new.log_path)
        except OSError as error:
            self.discard(new)
            raise StorageError(f"{self.directory}: a segment could not be swapped: {error}") from error
        self._sync_directory(directory)
        self.generation = self.next_generation()  # another one each time: it tells readers to look
        return directory

    def discard(self, new: Segment) -> None:
        """Whoever wrote this file aside does not want it any more."""
        with suppress(OSError):
            self._unlink(new.temporary_path, new.index_path)

    def remove_replaced(self, old: Segment, directory: Directory) -> None:
        """As far as that goes: the next start removes what is left of it."""
        self.files.forget(old.log_path)
        with suppress(OSError):
            self._unlink(old.index_path, old.log_path)
            directory.sync()

    def remove(self, segment: Segment) -> None:
        """The .log goes durably before its snapshot: one that came back without it would look damaged."""
        directory = self.disk.open_directory(self.directory)
        self.files.forget(segment.log_path)
        self._unlink(segment.log_path, segment.index_path)
        directory.sync()
        if self.disk.exists(segment.snap_path):
            self.disk.unlink(segment.snap_path)
            directory.sync()

    def _unlink(self, *paths: str) -> None:
        for path in paths:
            if self.disk.exists(path):
                self.disk.unlink(path)

    def _sync_directory(self, directory: Directory) -> None:
        try:
            directory.sync()
        except OSError as error:
            raise self.fail_sync(error) from error
