"""What storage takes from the process besides its disk: chance, and threads. The time is an argument of each call.

Whoever opens a data directory may bring others: a simulation gives chance by a seed, and threads that are none.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Final

Threads = Callable[[int, str], Executor]
"""Makes so many threads, under this name. Whoever asks for them shuts them down."""


@dataclass(frozen=True, slots=True)
class Means:
    chance: Random = field(default_factory=SystemRandom)
    """What the system makes cannot be foretold; another is for tests."""
    threads: Threads = ThreadPoolExecutor

    def new_id(self) -> str:
        """32 hex digits that nothing else has."""
        return new_id(self.chance)


def new_id(chance: Random) -> str:
    return uuid.UUID(int=chance.getrandbits(128), version=4).hex


SYSTEM: Final = Means()
"""Of this process."""
