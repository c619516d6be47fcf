"""Waiting until something holds: the one way for tests to wait for what another process, thread or task does.

The limit is generous, since machines are slow at times; it is there so that a test that waits in vain says for what.
Nothing is measured: whoever waits goes on at the first look that finds it so.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import time
from collections.abc import Callable
from typing import Final, TypeVar

LIMIT_S: Final = 300.0
EVERY_S: Final = 0.01

Answer = TypeVar("Answer")
What = str | Callable[[], str] | None
"""What is waited for: a function where that is only known in the end, such as the last lines of a log; None where the
line that says the condition says it."""


def wait_until(
    holds: Callable[[], Answer],
    what: What = None,
    *,
    limit_s: float = LIMIT_S,
    every_s: float = EVERY_S,
    check: Callable[[], object] | None = None,
) -> Answer:
    """The first answer that is true. `check` raises where it can never come."""
    deadline = time.monotonic() + limit_s
    while not (answer := holds()):
        if check is not None:
            check()
        _give_up_after(deadline, limit_s, what, holds)
        time.sleep(every_s)
    return answer


async def until(
    holds: Callable[[], object], what: What = None, *, limit_s: float = LIMIT_S, every_s: float = EVERY_S
) -> None:
    """The same without holding up the event loop. `holds` may be a coroutine function."""
    deadline = time.monotonic() + limit_s
    while True:
        answer = holds()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        _give_up_after(deadline, limit_s, what, holds)
        await asyncio.sleep(every_s)


def _give_up_after(deadline: float, limit_s: float, what: What, holds: Callable[[], object]) -> None:
    if time.monotonic() > deadline:
        said = _line_of(holds) if what is None else what if isinstance(what, str) else what()
        raise AssertionError(f"waited {limit_s:.0f} s in vain for: {said}")


def _line_of(holds: Callable[[], object]) -> str:
    code = getattr(holds, "__code__", None)
    if code is None:
        return repr(holds)
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return f"{line} ({code.co_filename}:{code.co_firstlineno})"
