"""Slows down those who guess: after a sign-in that failed, the next one from the same address or for the same user
waits, longer each time. What is remembered is bounded, and forgotten after a while."""

from __future__ import annotations

import asyncio
import ipaddress
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
_Key = tuple[str, str]
"""Host and user; one of them is empty where only the other counts."""


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_at: float = 0.0
    free_at: float = 0.0
    """When the next one may try."""

    @property
    def gap_s(self) -> float:
        return min(LONGEST_S, FIRST_S * float(2 ** min(self.count - 1, 10)))


class SignInBrake:
    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now = monotonic_s
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        self._homes: OrderedDict[_Key, None] = OrderedDict()
        """From where users have signed in."""

    async def wait(self, address: str, user: str) -> None:
        """Until it is this one's turn. Raises SignInFailed where too many wait already.

        Where nothing has failed it is at once: whoever then needs time to find out holds others up meanwhile, so that
        those who guess at the same time are not all the first.
        """
        wait_s = self.reserve(address, user)
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def reserve(self, address: str, user: str) -> float:
        """In how many seconds it is this one's turn; nobody else has it. Raises SignInFailed."""
        now = self._now()
        found = [failures for key in self._keys_before(address, user) if (failures := self._find(key, now)) is not None]
        wait_s = max((failures.free_at - now for failures in found), default=0.0)
        if wait_s > PATIENCE_S:  # who is sent away makes nobody wait
            raise SignInFailed("too many sign-ins have failed: try again later")
        for failures in found:
            failures.free_at = max(failures.free_at, now) + failures.gap_s
        return wait_s

    def _keys_before(self, address: str, user: str) -> list[_Key]:
        """Whose failures count. Where a user has been before, his own there alone: else anybody could keep him out,
        from elsewhere or from behind the same proxy."""
        host = _host(address)
        if (host, user) in self._homes:
            return [(host, user)]
        return [("", user), *([(host, "")] if host else ())]

    def note_failure(self, address: str, user: str) -> None:
        now, host = self._now(), _host(address)
        for key in {("", user), *([(host, "")] if host else ()), *self._keys_before(address, user)}:
            failures = self._find(key, now)
            if failures is None:
                failures = self._failures[key] = _Failures()
                if len(self._failures) > KEYS_MOST:
                    self._failures.popitem(last=False)
            failures.count += 1
            failures.last_at = now
            failures.free_at = max(failures.free_at, now + failures.gap_s)

    def note_success(self, address: str, user: str) -> None:
        """It was no guess: this user is at home there. What was guessed of others from there, or of him from elsewhere,
        still counts: who guesses may have a user of his own."""
        host = _host(address)
        self._failures.pop((host, user), None)
        self._homes[host, user] = None
        self._homes.move_to_end((host, user))
        if len(self._homes) > KEYS_MOST:
            self._homes.popitem(last=False)

    def _find(self, key: _Key, now: float) -> _Failures | None:
        failures = self._failures.get(key)
        if failures is None:
            return None
        if now - failures.last_at > FORGOTTEN_AFTER_S:
            del self._failures[key]
            return None
        self._failures.move_to_end(key)
        return failures


def _host(address: str) -> str:
    """Whoever has one address of IPv6 has 2^64 of them: they count as one.

    >>> _host("[2001:db8::1:2:3:4]:9"), _host("10.0.0.1:9"), _host("")
    ('2001:db8::/64', '10.0.0.1', '')
    """
    host = address.rpartition(":")[0]
    if not host.startswith("["):
        return host
    try:
        return str(ipaddress.IPv6Network((host.strip("[]").partition("%")[0], 64), strict=False))
    except ValueError:
        return host
