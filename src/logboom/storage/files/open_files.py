"""Open files and maps of all logs of a node, with a limit: the least recently used go first.

Dropping a file from here closes it as soon as nobody uses it: a read or a sync under way keeps its own reference.
A log holds on to a file with unsynced bytes by itself, because closing such a file can lose the news of a failed write.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from logboom.errors import LowSpace
from logboom.storage.files.disk import Disk, File
from logboom.storage.index import SparseIndex
from logboom.storage.labels import Labels

RESERVE_BYTES: Final = 64 * 1024 * 1024
LABELS_MAX: Final = 32
"""They are larger than indexes, and asked for by filtered reads only."""
_CHECK_EVERY_BYTES: Final = 8 * 1024 * 1024


class Space:
    """Free space on the volume: asked for once per some MiB written by all logs together, always while it is low."""

    def __init__(self, disk: Disk, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._disk = disk
        self.reserve_bytes = reserve_bytes
        self._unasked_bytes = 0
        self._promised_bytes = 0

    def take(self, size: int) -> None:
        """Raises LowSpace where writing so much would leave less than the reserve and what is promised to others."""
        self._unasked_bytes -= size
        if self._unasked_bytes < 0:
            free = self._disk.free_bytes()
            kept = self.reserve_bytes + self._promised_bytes
            if free - size < kept:
                raise LowSpace(free, kept)
            self._unasked_bytes = min(_CHECK_EVERY_BYTES, (free - size - kept) // 2)

    def promise(self, size: int) -> None:
        """Keep so much free for whoever asks: until it says `redeem`, and then writes it. Raises LowSpace."""
        free, kept = self._disk.free_bytes(), self.reserve_bytes + self._promised_bytes
        if free - size < kept:
            raise LowSpace(free, kept + size)
        self._promised_bytes += size
        self._unasked_bytes = 0

    def redeem(self, size: int) -> None:
        self._promised_bytes = max(0, self._promised_bytes - size)


Thing = TypeVar("Thing")


class RecentlyUsed(Generic[Thing]):
    """The things used most recently, by name, up to a limit. Each call is one step under the interpreter's lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._things: OrderedDict[str, Thing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._things)

    def get(self, name: str) -> Thing | None:
        thing = self._things.get(name)
        if thing is not None:
            try:  # noqa: SIM105 (it costs a tenth of suppress, and each write comes here)
                self._things.move_to_end(name)
            except KeyError:  # another thread has made room
                pass
        return thing

    def put(self, name: str, thing: Thing) -> None:
        self._things[name] = thing
        if len(self._things) > self._limit:
            self._things.popitem(last=False)

    def forget(self, name: str) -> None:
        self._things.pop(name, None)

    def clear(self) -> None:
        self._things.clear()


class OpenFiles:
    """Also holds loaded indexes and labels of sealed segments, with limits too: idle logs hold nothing."""

    def __init__(self, disk: Disk, limit: int = 512, reserve_bytes: int = RESERVE_BYTES) -> None:
        self.disk = disk
        self.space = Space(disk, reserve_bytes)
        self.failure: str | None = None
        """Why the first log that failed did: then nobody knows what the volume holds."""
        self.indexes: RecentlyUsed[SparseIndex] = RecentlyUsed(limit)
        self.labels: RecentlyUsed[Labels] = RecentlyUsed(min(limit, LABELS_MAX))
        self._files: RecentlyUsed[File] = RecentlyUsed(limit)

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> File:
        """This file, opened if it is not yet."""
        file = self._files.get(path)
        if file is None:
            file = self.disk.open(path)
            self._files.put(path, file)
        return file

    def put(self, file: File) -> None:
        self._files.put(file.path, file)

    def forget(self, path: str) -> None:
        self._files.forget(path)
        self.indexes.forget(path)
        self.labels.forget(path)

    def clear(self) -> None:
        self._files.clear()
        self.indexes.clear()
        self.labels.clear()
