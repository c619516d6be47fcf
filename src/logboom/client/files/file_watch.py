"""Waiting for a file to be written to, without a busy loop.

Linux tells of writes through inotify: a reader sleeps until the writer commits. Where there is no inotify, or no more
of it (it is limited per user), a poll that slows down takes its place.

A reader that is idle is woken at once. One that is woken for nothing, because other logs are busy in the same file,
pauses a millisecond before it sleeps again, then two, up to eight. One that keeps up with a busy log rests between
small reads, eight times as long as a read took, up to 20 milliseconds: what has gathered meanwhile costs little more
than what came first. So ten readers of one log do not take the machine from its writer.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from contextlib import suppress
from typing import Final

PAUSE_S: Final = 0.001
PAUSE_MAX_S: Final = 0.008
POLL_MAX_S: Final = 0.01
REST_SHARE: Final = 8
REST_MAX_S: Final = 0.02
REST_MIN_S: Final = 0.0005
GATHER_BYTES: Final = 4 * 1024 * 1024

_IN_MODIFY: Final = 0x2
_DRAIN_BYTES: Final = 65536


class FileWatch:
    """Wakes when the file at `path` is written to. Not for several threads."""

    def __init__(self, path: str, use_inotify: bool = True) -> None:
        self._path = path
        self._fd = _open_inotify() if use_inotify else -1
        self._poll = select.poll()
        if self._fd >= 0:
            self._poll.register(self._fd, select.POLLIN)
        self._woken = 0.0
        self._pause_s = PAUSE_S
        self._poll_s = PAUSE_S
        self.renew()

    @property
    def by_inotify(self) -> bool:
        return self._fd >= 0

    def renew(self) -> None:
        """Watch the file that has the name now: it may be another one, or may not have been there before."""
        if self._fd >= 0 and not _add_watch(self._fd, self._path):
            with suppress(FileNotFoundError):
                os.stat(self._path)
                self.close()  # it is there and cannot be watched

    def wait(self, timeout_s: float) -> None:
        """Until the file is written to, or about `timeout_s` has passed. May return early."""
        early = self._woken + self._pause_s - time.monotonic()
        if early > 0:
            time.sleep(early)
        if self._fd < 0:
            time.sleep(min(self._poll_s, timeout_s))
            self._poll_s = min(self._poll_s * 1.5, POLL_MAX_S)
        elif self._is_written(0):
            self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        else:
            self._pause_s = PAUSE_S
            self._is_written(timeout_s)
        self._woken = time.monotonic()

    def _is_written(self, timeout_s: float) -> bool:
        if not self._poll.poll(timeout_s * 1000):
            return False
        with suppress(BlockingIOError):
            os.read(self._fd, _DRAIN_BYTES)
        return True

    def found(self) -> None:
        """It was for us: the next one may be too."""
        self._poll_s = self._pause_s = PAUSE_S
        self._woken = 0.0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class ReadPace:
    """When a reader at the end of a busy log may read again."""

    def __init__(self) -> None:
        self._began = self._owed_s = 0.0

    def begin(self) -> None:
        """A read begins."""
        self._began = time.monotonic()

    def end(self, size: int) -> None:
        """It has brought so many bytes. Much at once is worth its while, and there may be more."""
        worked_s = time.monotonic() - self._began
        self._owed_s = 0.0 if size >= GATHER_BYTES else min(REST_SHARE * worked_s, REST_MAX_S)

    def rest(self) -> None:
        if self._owed_s > REST_MIN_S:
            time.sleep(self._owed_s)
        self._owed_s = 0.0


def _open_inotify() -> int:
    """A descriptor, or -1."""
    try:
        return int(_libc().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    except (OSError, AttributeError):
        return -1


def _add_watch(fd: int, path: str) -> bool:
    return int(_libc().inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY)) >= 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
