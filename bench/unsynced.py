"""A disk that never syncs, to make large data directories in little time. Never for data that matters."""

from __future__ import annotations

import os
from collections.abc import Collection

from logboom.storage import File, OsDisk
from logboom.storage.files.disk import OsFile


class UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedDisk(OsDisk):
    def open(self, path: str) -> OsFile:
        return UnsyncedFile(path, os.O_RDWR)

    def create(self, path: str) -> OsFile:
        return UnsyncedFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def sync(self, files: Collection[File]) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass
