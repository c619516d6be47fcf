"""A disk that cannot be changed, and that reads what it can of a failing one.

A check works on this, so that by construction it writes nothing. A block the device cannot read (EIO) comes back as
zeros: to the scan that is a bad batch like any other, and what lies behind it is still found.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from typing import Final, NoReturn

from logboom.batch.header import Buffer
from logboom.storage.files.disk import Disk, File, OsDisk, OsFile

BLOCK: Final = 4096


class ReadOnlyFile:
    def __init__(self, file: File) -> None:
        self._file = file
        self.unreadable: set[int] = set()
        """Positions of the blocks that the device did not give."""

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def links(self) -> int:
        return self._file.links()

    def read(self, size: int, position: int) -> bytes:
        try:
            return self._file.read(size, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        end = min(position + size, self.size())
        starts = [position, *range((position // BLOCK + 1) * BLOCK, end, BLOCK)]
        return b"".join(self._read_block(start, min(end, (start // BLOCK + 1) * BLOCK)) for start in starts)

    def _read_block(self, start: int, end: int) -> bytes:
        try:
            return self._file.read(end - start, start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.unreadable.add(start // BLOCK * BLOCK)
            return bytes(end - start)

    def drop_cache(self) -> None:
        self._file.drop_cache()

    def map(self, end: int) -> memoryview:
        return memoryview(self.read(end, 0))

    def write(self, buffers: Sequence[Buffer], position: int) -> NoReturn:
        _refuse(self.path)

    def truncate(self, size: int) -> NoReturn:
        _refuse(self.path)

    def sync(self) -> NoReturn:
        _refuse(self.path)


class ReadOnlyDisk:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str) -> ReadOnlyFile:
        return ReadOnlyFile(OsFile(path, os.O_RDONLY) if isinstance(self._disk, OsDisk) else self._disk.open(path))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._disk.is_directory(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def create(self, path: str) -> NoReturn:
        _refuse(path)

    def make_directory(self, path: str) -> NoReturn:
        _refuse(path)

    def remove_directory(self, path: str) -> NoReturn:
        _refuse(path)

    def rename(self, old: str, new: str) -> NoReturn:
        _refuse(old)

    def link(self, path: str, new: str) -> NoReturn:
        _refuse(new)

    def unlink(self, path: str) -> NoReturn:
        _refuse(path)

    def open_directory(self, path: str) -> NoReturn:
        _refuse(path)

    def sync_directory(self, path: str) -> NoReturn:
        _refuse(path)

    def sync(self, files: Collection[File]) -> NoReturn:
        _refuse("")

    def lock(self, path: str) -> NoReturn:
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
