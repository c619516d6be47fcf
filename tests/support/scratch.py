"""Where the files of tests are: in memory, where there is room for them.

A test syncs as often as the node that it tries, and a sync of a disk takes milliseconds (6 ms where this was measured,
on a busy machine) that all workers share. In memory tests/unit/protocols took a quarter less CPU (57 to 44 s) and a
third of the context switches. No test of real files loses power, so a sync of memory proves as much: what a power loss
leaves is seen on the simulated disk, which calls are made when by tests under strace, and what a killed process leaves
is the same in both.

What a file in memory cannot do (be out of it, be synced with its whole volume) is tested in the fixture `disk_path`.
TMPDIR says otherwise: `TMPDIR=/var/tmp make test` runs all of it on a disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
DISK: Final = Path("/var/tmp")
ROOM_BYTES: Final = 8 * 2**30
"""Many times what all runs of `make test` hold at once. Containers often have 64 MiB there, and keep to their disk."""


def settle() -> None:
    """Before anybody has made a temporary file; workers inherit it."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and has_room():
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@contextmanager
def on_disk() -> Iterator[Path]:
    """A directory on a disk, and room beside it."""
    with tempfile.TemporaryDirectory(prefix="logboom-", dir=DISK) as directory:
        path = Path(directory) / "files"
        path.mkdir()
        yield path


def has_room() -> bool:
    """Also for scripts that a test makes and runs."""
    may = os.access(MEMORY, os.W_OK | os.X_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    return may and min(shutil.disk_usage(MEMORY).free, available_bytes()) >= ROOM_BYTES


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
