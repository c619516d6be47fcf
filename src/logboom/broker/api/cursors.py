"""Cursors: named bookmarks that the node keeps, one for each partition of a topic.

What was committed survives a crash.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from logboom.broker.caller import Caller


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


class CursorMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit that comes true with a publish, or not at all: both are one step."""

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
