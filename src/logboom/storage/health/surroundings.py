"""What the operating system says of a data directory: its volume, the limits of this process, and who may do what.

Values, taken once; a test may make its own. Only metadata is looked at, and nothing is changed. What vanishes while the
tree is walked is passed over: a writer may be at work.
"""

from __future__ import annotations

import grp
import os
import pwd
import resource
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from logboom.storage.files.disk import OsDisk

DEPTH_MAX: Final = 4
"""DATA/topics/<topic>/<partition>/<file>"""
_INOTIFY: Final = "/proc/sys/fs/inotify/max_user_instances"


@dataclass(frozen=True, slots=True)
class FileAccess:
    """A file or directory, to whom it belongs, and what this process may do with it."""

    path: str
    uid: int
    gid: int
    mode: int
    readable: bool
    writable: bool

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def allows(self, uid: int, gid: int) -> tuple[bool, bool]:
        """Whether this user may read it, and write it, as its mode says."""
        if not uid:
            return True, True
        shift = 6 if uid == self.uid else 3 if gid == self.gid else 0
        bits = self.mode >> shift
        enter = bool(bits & 1) or not self.is_directory
        return bool(bits & 4) and enter, bool(bits & 2) and enter


@dataclass(frozen=True, slots=True)
class Surroundings:
    uid: int
    """Who asks."""
    holdings: tuple[FileAccess, ...] = ()
    """The data directory itself comes first."""
    total_bytes: int | None = None
    free_files: int | None = None
    """How many more files the volume takes; None where it has no such limit."""
    read_only: bool = False
    file_system: str | None = None
    files_max: int | None = None
    """How many files a process may have open that raises its limit as far as it can, as a node does."""
    inotify_max: int | None = None
    """How many readers of one user may wait for news at once."""


def look_around(disk: OsDisk, path: str) -> Surroundings:
    volume, uid = os.statvfs(path), os.geteuid()
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Surroundings(
        uid=uid,
        holdings=tuple(_walk(path, DEPTH_MAX, uid)),
        total_bytes=volume.f_blocks * volume.f_frsize,
        free_files=volume.f_favail if volume.f_files else None,
        read_only=bool(volume.f_flag & os.ST_RDONLY),
        file_system=disk.file_system,
        files_max=None if files_max == resource.RLIM_INFINITY else files_max,
        inotify_max=_read_number(_INOTIFY),
    )


def _walk(path: str, depth: int, uid: int) -> Iterator[FileAccess]:
    try:
        status = os.stat(path)
    except OSError:
        return
    holding = FileAccess(path, status.st_uid, status.st_gid, status.st_mode, *_access(path, status, uid))
    yield holding
    if depth and holding.is_directory and holding.readable:
        with suppress(OSError):
            for name in sorted(os.listdir(path)):
                yield from _walk(f"{path}/{name}", depth - 1, uid)


def _access(path: str, status: os.stat_result, uid: int) -> tuple[bool, bool]:
    """Whether this process may read and write it; of root that is known."""
    if not uid:
        return True, True
    enter = os.X_OK if stat.S_ISDIR(status.st_mode) else 0
    readable = os.access(path, os.R_OK | enter, effective_ids=True)
    return readable, os.access(path, os.W_OK | enter, effective_ids=True)


def _read_number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def owner_name(uid: int, gid: int) -> str:
    """As `chown` takes it."""
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    try:
        return f"{user}:{grp.getgrgid(gid).gr_name}"
    except KeyError:
        return f"{user}:{gid}"
