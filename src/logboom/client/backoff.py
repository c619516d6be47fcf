"""How long to wait before the next try to reach a node: not at all at first, then longer and longer, never in step."""

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

    def __init__(self) -> None:
        self._tries = 0

    def next_s(self) -> float:
        """Half of what it grows to is certain, the other half is chance: so clients do not all come at once."""
        self._tries += 1
        if self._tries == 1:
            return 0.0
        return min(LONGEST_S, FIRST_S * 2.0 ** min(self._tries - 2, 30)) * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It went well."""
        self._tries = 0
