"""Slows down those who guess: after a sign-in that failed, the next one from the same address or for the same user
waits, longer each time. What is remembered is bounded, and forgotten after a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.errors import SignInFailed

FIRST_S: Final = 0.1
LONGEST_S: Final = 5.0
PATIENCE_S: Final = 10.0
"""Who would have to wait longer, because others wait already, is sent away."""
FORGOTTEN_AFTER_S: Final = 300.0
KEYS_MOST: Final = 20_000


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_at: float = 0.0
    free_at: float = 0.0
    """When the next one may try."""


class SignInBrake:
    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now = monotonic_s
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    async def wait(self, address: str, user: str) -> None:
        """Until it is this one's turn. Raises SignInFailed where too many wait already."""
        now, wait_s = self._now(), 0.0
        found = [self._find(key, now) for key in _keys(address, user)]
        for failures in filter(None, found):
            gap_s = min(LONGEST_S, FIRST_S * 2 ** min(failures.count - 1, 10))
            wait_s = max(wait_s, failures.free_at - now)
            failures.free_at = max(failures.free_at, now) + gap_s
        if wait_s > PATIENCE_S:
            raise SignInFailed("too many sign-ins have failed: try again later")
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def note_failure(self, address: str, user: str) -> None:
        now = self._now()
        for key in _keys(address, user):
            failures = self._find(key, now)
            if failures is None:
                failures = self._failures[key] = _Failures()
                if len(self._failures) > KEYS_MOST:
                    self._failures.popitem(last=False)
            failures.count += 1
            failures.last_at = now
            failures.free_at = max(failures.free_at, now + min(LONGEST_S, FIRST_S * 2 ** min(failures.count - 1, 10)))

    def note_success(self, address: str, user: str) -> None:
        """From this address it was no guess; what others guess of the user still counts."""
        self._failures.pop(("address", _host(address)), None)

    def _find(self, key: tuple[str, str], now: float) -> _Failures | None:
        failures = self._failures.get(key)
        if failures is None:
            return None
        if now - failures.last_at > FORGOTTEN_AFTER_S:
            del self._failures[key]
            return None
        self._failures.move_to_end(key)
        return failures


def _keys(address: str, user: str) -> list[tuple[str, str]]:
    host = _host(address)
    return [("user", user), *([("address", host)] if host else ())]


def _host(address: str) -> str:
    """
    >>> _host("[::1]:9"), _host("10.0.0.1:9"), _host("")
    ('[::1]', '10.0.0.1', '')
    """
    return address.rpartition(":")[0]
