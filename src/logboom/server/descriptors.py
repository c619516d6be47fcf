"""How many files the process may have open, and how many of them connections may take."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

FILES_KEPT: Final = 2048
"""For segments, indexes, listeners and threads, where the limit leaves so many."""
FILES_KEPT_MIN: Final = 64
_UNLIMITED: Final = 2**30


def raise_limit() -> int:
    """The limit of open files, raised to what the system allows without privileges."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def connections_allowed(wanted: int, files_max: int) -> int:
    """What of `wanted` fits, so that connections never take the last descriptors from the logs."""
    kept = max(FILES_KEPT_MIN, min(FILES_KEPT, files_max // 4))
    return max(1, min(wanted, files_max - kept))
