"""The disk of this machine for somebody who does not know what lies on it: only regular files are opened.

Opening a pipe waits for its other end, and reading some devices never ends.
"""

from __future__ import annotations

import errno
import os
import stat

from logboom.storage.files.disk import OsDisk, OsFile
from logboom.storage.files.readonly import ReadOnlyDisk, ReadOnlyFile


class PlainDisk(OsDisk):
    def open(self, path: str) -> OsFile:
        _check_regular(path)
        return super().open(path)

    def lock(self, path: str) -> OsFile:
        if os.path.exists(path):
            _check_regular(path)
        return super().lock(path)


class PlainReading(ReadOnlyDisk):
    """The same for whoever only reads."""

    def open(self, path: str) -> ReadOnlyFile:
        if isinstance(self._disk, PlainDisk):
            _check_regular(path)
        return super().open(path)


def _check_regular(path: str) -> None:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)
