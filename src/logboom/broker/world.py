"""The world a node lives in, besides its disk and its event loop: clock, chance and threads.

Everything in the broker and the front-ends that goes by the time, draws by chance, or runs on threads of its own takes
that from here, so that a whole node can live in a simulated world and do the same again on the same seed. Waits are the
event loop's, and so is the clock of timers: a world's `monotonic_s` must agree with it.

What only measures how long something took, and decides nothing by it, may look at the process's own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from logboom.storage.means import Means


def _now_us() -> int:
    return time.time_ns() // 1000


def _start_thread(work: Callable[[], None], name: str) -> None:
    Thread(target=work, name=name, daemon=True).start()


@dataclass(frozen=True, slots=True)
class World(Means):
    """That of a real process, unless something else is said."""

    now_us: Callable[[], int] = _now_us
    """Microseconds since 1970. May jump, also back."""
    monotonic_s: Callable[[], float] = time.monotonic
    """Seconds since any moment. Never goes back."""
    start_thread: Callable[[Callable[[], None], str], None] = _start_thread
    """For work that may never end: on a thread that nobody waits for. Raises RuntimeError where there is none."""
    wait: Callable[[Event, float], object] = Event.wait
    """On a thread: until the event is set, or so many seconds have passed."""


REAL: Final = World()
