"""SIGTERM ends a runner as Ctrl-C does: what it runs is given back, and nothing of it is published."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ending_as_interrupted() -> Iterator[Callable[[], int | None]]:
    """Gives what to ask for the exit code that SIGTERM means, None where there was none."""
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)  # whoever handles that by now: Python, asyncio, Spark

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: 128 + received[0] if received else None
    finally:
        signal.signal(signal.SIGTERM, before)
