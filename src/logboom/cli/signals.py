"""SIGTERM ends a command as Ctrl-C does: what it holds is given back, and it says how to go on where it says so then.

Also where SIGINT was ignored when the command was started, as in every `command &` of a script: then SIGINT stays
ignored, and SIGTERM does not.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ending_as_interrupted() -> Iterator[Callable[[], int | None]]:
    """Gives what to ask for the exit code that SIGTERM means, None where there was none."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)  # whoever handles that by now: Python, asyncio, Spark
        else:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: 128 + received[0] if received else None
    finally:
        signal.signal(signal.SIGTERM, before)
