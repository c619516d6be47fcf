"""Who of the machine's users may read the files: the one who runs the node, and a group that the configuration names.

The data directory lets nobody else in, so what lies in it is closed too, whatever modes it has from before. With a
group, everything that is made below belongs to it and can be read by it: for FileReader and Spark, which read files as
another user does. What was made before the group was named gets it once, when the node starts. What the node keeps of
users and passwords is nobody's but its own.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import re
import stat
from typing import Final

from logboom.broker.access.access_state import TOPIC as ACCESS_TOPIC
from logboom.errors import ConfigError

ALONE: Final = 0o700
WITH_GROUP: Final = 0o2750
"""What is made in such a directory belongs to its group."""
_OWN: Final = re.compile(rf"topics/{ACCESS_TOPIC}~[^/]*|internal")
"""Directories in which there is something of passwords."""
logger = logging.getLogger("logboom.server")


def umask_of(group: str | None) -> int:
    """For the whole process of a node."""
    return 0o077 if group is None else 0o027


def protect(directory: str, group: str | None) -> None:
    """A node's own directory. Raises ConfigError where there is no such group, or it cannot be given."""
    mode = ALONE if group is None else WITH_GROUP
    number = None if group is None else _find_group(group)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.stat(directory)
    if stat.S_IMODE(found.st_mode) == mode and number in (None, found.st_gid):
        return
    if found.st_uid != os.geteuid():
        logger.warning("%s belongs to another user: who may read it is left as it is", directory)
        return
    if number is not None:
        _give(directory, number, group or "")
    os.chmod(directory, mode)


def conceal(directory: str) -> None:
    """What is the node's own, of the directory of a node that is open: a new one has made it just now."""
    for name in (*(f"topics/{topic}" for topic in os.listdir(f"{directory}/topics")), "internal"):
        path = f"{directory}/{name}"
        if _OWN.fullmatch(name) and os.path.isdir(path) and stat.S_IMODE(os.stat(path).st_mode) != ALONE:
            with contextlib.suppress(PermissionError):  # another user's, who decides
                os.chmod(path, ALONE)


def _find_group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError("access.files_group", f"there is no group {name!r} on this machine") from None


def _give(directory: str, group: int, name: str) -> None:
    """Everything below, to this group. Links are left alone."""
    try:
        for path, _, files, handle in os.fwalk(directory, follow_symlinks=False):
            os.chown(handle, -1, group)
            if path != directory:  # that one is opened last
                is_own = _OWN.fullmatch(os.path.relpath(path, directory)) is not None
                os.chmod(handle, ALONE if is_own else WITH_GROUP)
            for file in files:
                mode = os.stat(file, dir_fd=handle, follow_symlinks=False).st_mode
                if stat.S_ISREG(mode):
                    os.chown(file, -1, group, dir_fd=handle, follow_symlinks=False)
                    os.chmod(file, stat.S_IMODE(mode) & 0o700 | 0o040, dir_fd=handle)
    except PermissionError:
        raise ConfigError(
            "access.files_group", f"this user is not in group {name!r}, and cannot give files to it"
        ) from None
