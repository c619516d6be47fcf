"""Keeps background work slow: a job says how many bytes it is about to move, and sleeps until it may.

Invariant: in any stretch of time no more bytes are let through than the rate allows, and a burst of `BURST_S`, and the
one piece that each caller has in hand. Jobs on several threads may share one throttle; together they keep to its rate.

`stop` ends them all: a call that sleeps, and every later one, raises `Stopped`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from logboom.broker.world import REAL

BURST_S: Final = 0.1
"""So long an idle throttle saves up."""


class Stopped(Exception):
    """The job is to end now."""


class Throttle:
    def __init__(
        self,
        bytes_per_second: int | None,
        clock: Callable[[], float] = REAL.monotonic_s,
        wait: Callable[[threading.Event, float], object] = REAL.wait,
    ) -> None:
        """None is no limit. Clock and wait are those of the world that the job lives in."""
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise ValueError(f"bytes_per_second is {bytes_per_second}, allowed is 1 or more, or None for no limit")
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._stopped = threading.Event()
        self._wait = wait
        self._lock = threading.Lock()
        self._paid_until = float("-inf")
        """When everything let through so far will have been paid for at the rate."""

    def __call__(self, size: int) -> None:
        """Sleep until this many bytes more may be moved."""
        self._raise_if_stopped()
        if self._bytes_per_second is None:
            return
        with self._lock:
            now = self._clock()
            self._paid_until = max(self._paid_until, now - BURST_S) + size / self._bytes_per_second
            wait_s = self._paid_until - now
        if wait_s > 0:
            self._wait(self._stopped, min(wait_s, threading.TIMEOUT_MAX))
            self._raise_if_stopped()

    def stop(self) -> None:
        """From any thread, any number of times."""
        self._stopped.set()

    def _raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise Stopped
