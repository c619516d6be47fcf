"""A disk that never syncs: for directories that are filled for a test and that no power loss will meet."""

from __future__ import annotations

import os
from collections.abc import Collection

from logboom.storage.files.disk import File, OsDisk, OsFile


class HastyFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class HastyDisk(OsDisk):
    def open(self, path: str) -> OsFile:
        return HastyFile(path, os.O_RDWR)

    def create(self, path: str) -> OsFile:
        return HastyFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open_directory(self, path: str) -> OsFile:
        return HastyFile(path, os.O_RDONLY | os.O_DIRECTORY)

    def sync(self, files: Collection[File]) -> None:
        pass
