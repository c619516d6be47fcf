"""Whose copy a data directory is: `DATA/internal/replica.json`, there only in a directory that was begun as a replica.

    source      where it copies from, as it was last told
    node_id     of the source: another node's logs are never mixed with its own
    cluster_id  of both
    promoted    it has taken over: it copies no more, and never again
    settled     every log has the term that began with that; until then the next start sees to it

Replaced whole and synced. One that cannot be read is an error: who took it for none would let a copy be written to.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.errors import DirectoryUnusable
from logboom.storage.files.disk import Disk, read_file, replace_file
from logboom.storage.files.envelope import UNREADABLE

FILE: Final = "replica.json"
"""Below DATA/internal."""


class Role(msgspec.Struct, frozen=True):
    source: str
    node_id: str
    cluster_id: str
    promoted: bool = False
    settled: bool = False


def read_role(disk: Disk, root: str) -> Role | None:
    """None for a directory that never was a replica."""
    path = f"{root}/internal/{FILE}"
    data = read_file(disk, path)
    try:
        return None if data is None else msgspec.json.decode(data, type=Role)
    except UNREADABLE as error:
        raise DirectoryUnusable(
            f"{path} cannot be read, so the node cannot tell whether it is a replica: {error}; restore it from a backup"
        ) from None


def write_role(disk: Disk, root: str, role: Role) -> None:
    disk.make_directory(f"{root}/internal")
    replace_file(disk, f"{root}/internal/{FILE}", msgspec.json.format(msgspec.json.encode(role), indent=2) + b"\n")


def is_copying(role: Role | None) -> bool:
    return role is not None and not role.promoted
