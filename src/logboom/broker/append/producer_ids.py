"""Producer ids that a node gives to writers: each once, and in rising order, whatever becomes of the node or its clock.

They are counted up. Before one is given out, a file says durably that it may have been: `reserve` puts its bound ahead,
so a start goes on behind everything that can have been given, and the clock, and what any log has seen. Where the bound
cannot be moved no ids are given, and writers make their own.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from logboom.batch.header import ISSUED_END, ISSUED_IDS
from logboom.storage.files import envelope
from logboom.storage.files.disk import Disk, read_file, replace_file

MAGIC: Final = b"LGPI"
FILE: Final = "producers"
"""Below DATA/internal."""
AHEAD: Final = 100_000
"""So many ids the file is ahead."""
_EPOCH_MS: Final = 1_577_836_800_000  # 2020; an id is a millisecond at least, so that nodes begin at different ones


class Reserved(msgspec.Struct, frozen=True):
    """What the file says."""

    until: int
    """No id from here on was given out."""


_reserved: Final = msgspec.msgpack.Decoder(Reserved)


class ProducerIds:
    def __init__(self, disk: Disk, path: str, start: int) -> None:
        self._disk = disk
        self._path = path
        self._next = self._until = start

    @classmethod
    def open(cls, disk: Disk, root: str, now_ms: int, seen: int) -> ProducerIds:
        """`seen` is the highest that any log knows."""
        path = f"{root}/internal/{FILE}"
        try:
            data = read_file(disk, path)
            until = 0 if data is None else envelope.unpack(MAGIC, data, _reserved).until
        except (OSError, ValueError):
            until = 0
        return cls(disk, path, max(until, seen + 1, ISSUED_IDS + max(1, now_ms - _EPOCH_MS)))

    @property
    def highest(self) -> int:
        """The highest that was given out, or could have been before this start."""
        return self._next - 1

    @property
    def is_low(self) -> bool:
        """Whether it is time to `reserve`."""
        return self._until - self._next < AHEAD // 2

    def next(self) -> int:
        """One that nobody has; 0 where there is none."""
        if self._next >= min(self._until, ISSUED_END):
            return 0
        self._next += 1
        return self._next - 1

    def outrun(self, seen: int) -> None:
        """Logs know an id as high as this."""
        self._next = max(self._next, seen + 1)

    def reserve(self) -> None:
        """On a thread, one at a time. Raises OSError."""
        until = self._next + AHEAD
        self._disk.make_directory(os.path.dirname(self._path))
        replace_file(self._disk, self._path, envelope.pack(MAGIC, Reserved(until)))
        self._until = max(self._until, until)
