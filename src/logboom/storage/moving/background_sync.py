"""Syncs of one log while it is being written: every so many bytes, on a thread, one at a time.

Invariant: a sync that failed is told to the log, which stops, and raised here at the next call.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

from logboom.storage.appender import PendingSync
from logboom.storage.files.disk import Disk
from logboom.storage.log import Log
from logboom.storage.means import SYSTEM, Threads

EVERY_BYTES: Final = 64 * 1024 * 1024


class BackgroundSync:
    def __init__(self, disk: Disk, every_bytes: int = EVERY_BYTES, threads: Threads = SYSTEM.threads) -> None:
        self._disk = disk
        self._every_bytes = every_bytes
        self._unsynced_bytes = 0
        self._thread = threads(1, "logboom-sync")
        self._pending: tuple[Log, PendingSync, Future[None]] | None = None

    def written(self, log: Log, size: int) -> None:
        """So many bytes more: begins a sync now and then, after the one before has ended."""
        self._unsynced_bytes += size
        if self._unsynced_bytes < self._every_bytes:
            return
        self.finish()
        self._unsynced_bytes = 0
        begun = log.begin_sync()
        if begun is not None:
            self._pending = log, begun, self._thread.submit(self._disk.sync, [begun.file])

    def finish(self) -> None:
        """Wait for the sync under way. Raises SyncFailed where it failed."""
        if self._pending is None:
            return
        (log, begun, done), self._pending = self._pending, None
        try:
            done.result()
        except OSError as error:
            raise log.fail_sync(error) from error
        log.end_sync(begun)

    def close(self) -> None:
        try:
            self.finish()
        finally:
            self._thread.shutdown()
