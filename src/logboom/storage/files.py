"""Open files and maps of all logs of a node, with a limit: the least recently used go first.

Dropping a file from here closes it as soon as nobody uses it: a read or a sync under way keeps its own reference.
A log holds on to a file with unsynced bytes by itself, because closing such a file can lose the news of a failed write.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from logboom.errors import LowSpace
from logboom.storage.disk import Disk, File

RESERVE_BYTES: Final = 64 * 1024 * 1024
_CHECK_EVERY_BYTES: Final = 8 * 1024 * 1024


class Space:
    """Free space on the volume: asked for once per some MiB written by all logs together, always while it is low."""

    def __init__(self, disk: Disk, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._disk = disk
        self.reserve_bytes = reserve_bytes
        self._unasked_bytes = 0

    def take(self, size: int) -> None:
        """Raises LowSpace where writing so much would leave less than the reserve."""
        self._unasked_bytes -= size
        if self._unasked_bytes < 0:
            free = self._disk.free_bytes()
            if free - size < self.reserve_bytes:
                raise LowSpace(free, self.reserve_bytes)
            self._unasked_bytes = min(_CHECK_EVERY_BYTES, (free - size - self.reserve_bytes) // 2)


class OpenFiles:
    def __init__(self, disk: Disk, limit: int = 512, reserve_bytes: int = RESERVE_BYTES) -> None:
        self.disk = disk
        self.limit = limit
        self.space = Space(disk, reserve_bytes)
        self._files: OrderedDict[str, File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> File:
        """This file, opened if it is not yet."""
        file = self._files.get(path)
        if file is None:
            file = self.disk.open(path)
        self.put(file)
        return file

    def put(self, file: File) -> None:
        files = self._files
        files[file.path] = file
        files.move_to_end(file.path)
        while len(files) > self.limit:
            files.popitem(last=False)

    def forget(self, path: str) -> None:
        self._files.pop(path, None)

    def clear(self) -> None:
        self._files.clear()
