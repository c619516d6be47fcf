"""Cursors: named bookmarks that the node keeps, one for each partition of a topic.

What was committed survives a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from logboom.broker.caller import Caller
from logboom.errors import LimitExceeded


class CursorCalls(Protocol):
    """For those who keep where readers stand."""

    async def commit_cursor(
        self,
        cursor: str,
        topic: str,
        partition: int | None,
        bookmark: str,
        force: bool = False,
        expect: str | None = None,
        *,
        caller: Caller,
    ) -> None:
        """Durable when this returns. Raises CursorMovedBack for a place before the one where it stands, unless `force`.

        `expect` is the bookmark where the cursor must stand before, or "" where there must be none: else
        UnexpectedCursor. A repeat of what was committed is no error.
        """
        ...

    async def fetch_cursor(
        self, cursor: str, topic: str, partition: int | None = None, *, caller: Caller
    ) -> str | None:
        """Its bookmark; None where there is no such cursor."""
        ...

    async def list_cursors(self, topic: str | None = None, prefix: str = "", *, caller: Caller) -> list[CursorInfo]: ...

    async def delete_cursor(self, cursor: str, topic: str | None = None, *, caller: Caller) -> int:
        """How many partitions' cursors of this name there were."""
        ...


MOVES_MAX: Final = 500
"""Cursors that one publish may move,"""
MOVES_BYTES_MAX: Final = 40 * 1024
"""and what their names and bookmarks may take, all together: they travel in the head of one frame."""


class CursorMove(msgspec.Struct, frozen=True, array_like=True):
    """A commit that comes true with a publish, or not at all: both are one step. Fields may be added with defaults."""

    cursor: str
    topic: str
    partition: int | None
    bookmark: str
    expect: str | None = None
    """The bookmark where the cursor must stand before, or "" where there must be none. Somebody else who has moved it
    to the same place is no repeat: that is for the key of the publish to say."""
    force: bool = False
    member: str = ""
    """Of the consumer group that `cursor` then names;"""
    generation: int = 0
    """and in which of its generations."""

    @property
    def size_bytes(self) -> int:
        """At most, on its way."""
        return 32 + sum(map(len, (self.cursor, self.topic, self.bookmark, self.expect or "", self.member)))


def check_moves(moves: Sequence[CursorMove]) -> None:
    """Raises LimitExceeded where they are too many, or too large, for one publish."""
    advice = "move some with the next one"
    if len(moves) > MOVES_MAX:
        raise LimitExceeded("cursors that one publish moves", MOVES_MAX, advice)
    if sum(move.size_bytes for move in moves) > MOVES_BYTES_MAX:
        raise LimitExceeded("bytes of cursor names and bookmarks that one publish moves", MOVES_BYTES_MAX, advice)


class CursorInfo(msgspec.Struct, frozen=True):
    cursor: str
    topic: str
    topic_id: str
    partition: int
    seqno: int
    bookmark: str
    updated: int
    """When, microseconds."""
    lag: int | None = None
    """Records between it and the end of its log; None where the topic is gone."""
