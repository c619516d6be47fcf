"""Which names somebody may have meant who wrote one that is not there.

Near is what differs in letters' case alone, or in one place by two characters at most: a slip of the finger,
a letter too many, too few, or two that changed places. That is told by comparing beginnings and ends, once per name, so
that an answer costs little also where there are many names and whoever asks makes them up.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from itertools import islice
from typing import Final

NAMES_MAX: Final = 20_000
"""Of more than so many only the first are looked at."""
COMPARED_MAX: Final = 2_000
"""Of those that begin or end alike."""
TOLD_MAX: Final = 3
DIFFERENT_MAX: Final = 2


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """The nearest first; none of the node's own unless such a one was asked for.

    >>> near_names("ordres", ["orders", "payments", "_publish"])
    ['orders']
    """
    size, lower = len(name), name.lower()
    share = max(1, (size - DIFFERENT_MAX) // 2)  # so much at least is left of the beginning, or of the end
    front, back, mark = name[:share], name[-share:], name[:1] == "_"
    alike = (
        other
        for other in islice(names, NAMES_MAX)
        if (other[:share] == front or other[-share:] == back or (len(other) == size and other.lower() == lower))
        and (other[:1] == "_") == mark
    )
    found = []
    for other in islice(alike, COMPARED_MAX):
        different = 0 if other.lower() == lower else _difference(name, other)
        if different <= DIFFERENT_MAX:
            found.append((different, other))
    return [other for _, other in sorted(found)[:TOLD_MAX]]


def _difference(name: str, other: str) -> int:
    """How many characters stand between what both begin and end with; too many where they have little in common."""
    longer = max(len(name), len(other))
    if abs(len(name) - len(other)) > DIFFERENT_MAX:
        return longer
    begin = len(os.path.commonprefix((name, other)))  # noqa: RUF071
    end = len(os.path.commonprefix((name[begin:][::-1], other[begin:][::-1])))  # noqa: RUF071
    return longer - begin - end if 2 * (begin + end) >= longer else longer
