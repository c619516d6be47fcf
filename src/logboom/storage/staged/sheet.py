"""A file of a stage: batches that go to its end, and are not synced as they come.

A short or failed write is cut off, durably, for what was refused must not come back; where that fails, or a sync does,
the stage has failed.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from logboom.batch.header import Buffer
from logboom.errors import LowSpace, NotABatch, StageFailed, WriteFailed
from logboom.storage.files.disk import NO_SPACE, Disk, File, ready_map
from logboom.storage.files.open_files import Space


class Sheet:
    """Not for two threads at once, but for `sync`."""

    def __init__(self, disk: Disk, space: Space, stage: str, path: str, file: File) -> None:
        self._disk = disk
        self._space = space
        self._stage = stage
        self._file: File | None = file
        self.path = path
        self.size_bytes = 0
        self.synced_bytes = 0
        self.failure: StageFailed | None = None
        self.is_torn = False
        """Whether something that is none of its batches lies behind them."""

    @property
    def is_synced(self) -> bool:
        return self.synced_bytes == self.size_bytes

    def put(self, buffers: Sequence[Buffer]) -> None:
        """Raises LowSpace or WriteFailed, and nothing was put."""
        if self.failure is not None:
            raise WriteFailed(str(self.failure))
        size = sum(map(len, buffers))
        if not size:
            return
        self._space.take(size)
        try:
            file = self.file()
        except OSError as error:
            raise WriteFailed(f"{self.path}: {error.strerror}") from None
        if self.is_torn:
            self._cut_back("what a crash left could not be cut off")
        try:
            written = file.write(buffers, self.size_bytes)
            if written != size:
                full = self._disk.free_bytes() < size - written
                raise OSError(errno.ENOSPC if full else errno.EIO, f"only {written} of {size} bytes were written")
        except OSError as error:
            self._cut_back(f"a write failed ({error}) and could not be cut off")
            if error.errno in NO_SPACE:
                raise LowSpace(0, self._space.reserve_bytes) from None
            raise WriteFailed(f"{self.path}: {error.strerror}") from None
        self.size_bytes += size

    def _cut_back(self, failing: str) -> None:
        """The file ends with its last batch again, durably. Raises WriteFailed, and the stage has failed."""
        try:
            self.file().truncate(self.size_bytes)
            self.file().sync()
        except OSError as error:
            self.failure = StageFailed(self._stage, f"{failing}: {error}")
            raise WriteFailed(str(self.failure)) from error
        self.is_torn = False

    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def sync(self) -> None:
        """On any thread: all that was written before is durable, but for the name. Raises StageFailed."""
        size = self.size_bytes
        if self.failure is not None:
            raise self.failure
        if size == self.synced_bytes:
            return
        try:
            self.file().sync()
        except OSError as error:
            self.failure = StageFailed(self._stage, f"a sync failed: {error}")
            raise self.failure from error
        self.synced_bytes = max(self.synced_bytes, size)

    def let_go(self) -> None:
        """Close the file; it is opened again when it is needed. One that is not synced stays: it may have news."""
        if self.is_synced:
            self._file = None

    def data(self) -> memoryview:
        data = ready_map(self.file(), self.size_bytes)
        if len(data) < self.size_bytes:
            raise NotABatch(f"the file has {len(data)} bytes, {self.size_bytes} were written")
        return data
