"""Long lists, a slice at a time: whoever goes through one on the event loop lets others have their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar

SLICE: Final = 256
"""Topics or cursors that are looked at in one go."""
RUN: Final = 1024
"""Things that are sorted in one go."""
Thing = TypeVar("Thing")


async def slices(things: Sequence[Thing], size: int = SLICE) -> AsyncIterator[Sequence[Thing]]:
    for start in range(0, len(things), size):
        if start:
            await asyncio.sleep(0)
        yield things[start : start + size]


async def in_order(things: Sequence[Thing], key: Callable[[Thing], Any]) -> list[Thing]:
    """Sorted; those that are equal stay as they are."""
    runs = [sorted(some, key=key) async for some in slices(things, RUN)]
    if len(runs) < 2:
        return runs[0] if runs else []
    merged, found = merge(*runs, key=key), list[Thing]()
    while some := list(islice(merged, SLICE)):
        found += some
        await asyncio.sleep(0)
    return found
