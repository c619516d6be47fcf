"""Long lists, a slice at a time: whoever goes through one on the event loop lets others have their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

SLICE: Final = 256
"""Topics or cursors that are looked at in one go."""
Thing = TypeVar("Thing")


async def slices(things: Sequence[Thing], size: int = SLICE) -> AsyncIterator[Sequence[Thing]]:
    for start in range(0, len(things), size):
        if start:
            await asyncio.sleep(0)
        yield things[start : start + size]
