"""From the directory that a command names to the logs in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from logboom.errors import DirectoryUnusable

if TYPE_CHECKING:
    from logboom.storage.files.disk import OsDisk
    from logboom.storage.health.check import CheckTarget


def locate(directory: Path) -> tuple[OsDisk, CheckTarget]:
    """Raises DirectoryUnusable where this is nothing of ours."""
    from logboom.storage.health.check import find_place
    from logboom.storage.health.plain import PlainDisk

    path = os.path.abspath(directory)
    if not os.path.isdir(path):
        raise DirectoryUnusable(f"{path} is not a directory: name a data directory, a topic's or a log's")
    disk = PlainDisk(path)
    return disk, find_place(disk, path)
