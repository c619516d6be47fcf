"""Waiting for a file to be written to, without a busy loop.

Linux tells of writes through inotify: a reader sleeps until the writer commits. Where there is no inotify, or no more
of it (it is limited per user), a poll that slows down takes its place. Wakes are at least a millisecond apart, so that
a log with thousands of commits a second, or a busy neighbour in the same file, costs a reader little; after a quiet
millisecond the first write wakes it at once.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from contextlib import suppress
from typing import Final

INTERVAL_S: Final = 0.001
POLL_MAX_S: Final = 0.01

_IN_MODIFY: Final = 0x2
_DRAIN_BYTES: Final = 65536


class Watch:
    """Wakes when the file at `path` is written to. Not for several threads."""

    def __init__(self, path: str, use_inotify: bool = True) -> None:
        self._path = path
        self._fd = _open_inotify() if use_inotify else -1
        self._woken = 0.0
        self._pause_s = INTERVAL_S
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
        early = self._woken + INTERVAL_S - time.monotonic()
        if early > 0:
            time.sleep(early)
        if self._fd < 0:
            time.sleep(min(self._pause_s, timeout_s))
            self._pause_s = min(self._pause_s * 1.5, POLL_MAX_S)
        else:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            if poll.poll(max(0.0, timeout_s) * 1000):
                with suppress(BlockingIOError):
                    os.read(self._fd, _DRAIN_BYTES)
        self._woken = time.monotonic()

    def found(self) -> None:
        """There was something new: what follows will soon come."""
        self._pause_s = INTERVAL_S

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


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
