"""How long to wait before the next try: nothing at first, then twice as long each time, never in step with others."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.05
LONGEST_S: Final = 5.0


class Backoff:
    """
    >>> backoff = Backoff()
    >>> backoff.next_s()
    0.0
    >>> 0 < backoff.next_s() <= FIRST_S
    True
    """

    def __init__(self, immediate: int = 1) -> None:
        self._immediate = immediate
        """So many tries are not waited for."""
        self._tries = 0

    def next_s(self) -> float:
        self._tries += 1
        if self._tries <= self._immediate:
            return 0.0
        return min(LONGEST_S, FIRST_S * 2.0 ** min(self._tries - self._immediate - 1, 30)) * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It went well."""
        self._tries = 0
