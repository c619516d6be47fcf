"""How many files the process may have open, and who may take how many of them.

    limit = kept for what comes and goes (listeners, rolls, syncs of directories, stages, hooks)
          + connections + files of logs that were used lately + files of logs that are written and not synced

Each share is a bound that its user keeps, so connections never take the last descriptors from the logs, nor many topics
from each other.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final, NamedTuple

KEPT_MIN: Final = 48
KEPT_MAX: Final = 2048
KEPT_PART: Final = 8
"""This part of the limit is kept, within these bounds."""
FILES_MAX: Final = 512
"""Files that were used lately; more would gain nothing."""
FILES_MIN: Final = 4
FEW: Final = 256
"""With a lower limit a node does its work, slowly."""
_UNLIMITED: Final = 2**30


class Shares(NamedTuple):
    connections: int
    lingering: int
    """Refused connections that are still being told why."""
    files: int
    dirty_logs: int


def raise_limit() -> int:
    """The limit of open files, raised to what the system allows without privileges."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def share_out(limit: int, connections: int) -> Shares:
    """What of so many connections fits, and what that leaves for files."""
    kept = max(KEPT_MIN, min(KEPT_MAX, limit // KEPT_PART))
    left = max(0, limit - kept)
    connections = max(1, min(connections, left // 2))
    files = max(FILES_MIN, min(FILES_MAX, (left - connections) // 2))
    return Shares(connections, kept // 4, files, max(FILES_MIN, left - connections - files))
