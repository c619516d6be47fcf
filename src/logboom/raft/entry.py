"""What the core knows of an entry, and what it asks of the journal that keeps it.

An entry is a round of the journal; its body stays there. (index, term) stands for one content for ever. Entries of
kind "empty" and "membership" are made by the core: the driver writes their bodies from what is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from logboom.raft.membership import Membership

EntryKind = Literal["data", "empty", "membership"]

ENTRY_COST: Final = 32
"""What an entry counts for besides its size, so that empty ones are bounded too."""


class RaftEntry(msgspec.Struct, frozen=True, gc=False):
    index: int
    term: int
    size: int = 0
    kind: EntryKind = "data"
    membership: Membership | None = None
    """Of a membership entry alone."""


class RaftSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint that stands for all entries up to an index; what is in it is the driver's."""

    index: int
    term: int
    membership: Membership


class KeptEntries(Protocol):
    """The journal as the core asks it: what was written and is not forgotten, `first_index` to `last_index`.

    It is asked for what was persisted only; entries that wait to be written or synced the core has itself.
    """

    @property
    def first_index(self) -> int:
        """Of the first entry that is kept; one more than `last_index` where there is none."""
        ...

    @property
    def last_index(self) -> int: ...

    def term(self, index: int) -> int:
        """Of any entry that is kept, and of the one before the first."""
        ...

    def entries(self, first: int, last: int, bytes_max: int) -> Sequence[RaftEntry]:
        """From `first`, at least one, no further than `last`, and as many as have that many bytes together."""
        ...

    def membership(self, index: int) -> tuple[int, Membership]:
        """The newest one at or below an index, and the index where it was written."""
        ...

    def snapshot(self) -> RaftSnapshot | None:
        """The newest checkpoint, for who needs entries before the first; None where it is not to be had now."""
        ...
