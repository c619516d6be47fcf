"""Names that do not last, and are kept only to answer a repeat: the newest, up to a number.

A name is here from when its publish is done until it is forgotten. Which one goes is decided by age alone; that
forgetting it never lets anything be published twice is argued in docs/decisions/publish.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

KEPT: Final = 20_000
_ROOM_PART: Final = 16
"""When there are too many, this part of them goes at once: each time costs a sync."""


class UnnamedKeys:
    def __init__(self, kept: int, names: Iterable[str] = ()) -> None:
        """`names` are in the order in which they were published."""
        self.kept = max(1, kept)
        self._names: dict[str, None] = dict.fromkeys(names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def is_crowded(self) -> bool:
        """Whether some are to be forgotten."""
        return len(self._names) > self.kept

    @property
    def is_full(self) -> bool:
        """Whether no more are taken before some are forgotten."""
        return len(self._names) >= 2 * self.kept

    def note(self, name: str) -> None:
        """Something was published under this name now."""
        self._names.pop(name, None)
        self._names[name] = None

    def drop(self, name: str) -> None:
        self._names.pop(name, None)

    def surplus(self) -> list[str]:
        """The oldest, so many that there is room for others."""
        return list(islice(self._names, max(0, len(self._names) - self.kept + self.kept // _ROOM_PART)))
