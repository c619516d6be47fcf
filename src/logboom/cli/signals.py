"""SIGTERM ends a command as Ctrl-C does: what it holds is given back, and it says how to go on where it says so then.

Also where SIGINT was ignored when the command was started, as in every `command &` of a script: then SIGINT stays
ignored, and SIGTERM does not.

Python loses an interrupt that comes while it runs a callback of its own, of a weak reference or a destructor, as each
import does: such a signal is sent again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S: Final = 0.05
"""After so long a signal that was lost comes again: the callback that lost it has ended by then."""


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

    again: list[Timer] = []

    def send_again(lost: UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            hook(lost)
            return
        timer = Timer(AGAIN_S, os.kill, (os.getpid(), received[-1] if received else signal.SIGINT))
        timer.daemon = True
        again.append(timer)
        timer.start()

    before, hook = signal.signal(signal.SIGTERM, note), sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        yield lambda: 128 + received[0] if received else None
    finally:
        for timer in again:
            timer.cancel()
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)
