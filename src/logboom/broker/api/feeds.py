"""What a node gives to those who copy it: the stored batches of its logs, and which topics were deleted on purpose.

A feed shows committed batches only, and ends with its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from logboom.broker.caller import Caller
from logboom.storage.data.deletions import Deletion
from logboom.storage.data.topic import Settings
from logboom.storage.readable_log import READ_BYTES


class Feeds(Protocol):
    """What a node gives to those who copy it."""

    async def feed(self, topic: str, partition: int | None, index: int, *, caller: Caller) -> Feed:
        """The stored batches of a log, from the one with this index on; 0 and 1 are the first there is.

        Where that one is gone the feed begins with the first that is not, and says so. Raises IndexOutOfRange for one
        that is not next or before.
        """
        ...

    def deleted(self, topic_ids: Sequence[str], *, caller: Caller) -> list[Deletion]:
        """Those of these topics, none of which is here, that were deleted on purpose, as far as that is remembered."""
        ...

    def access(self, version: str, *, caller: Caller) -> tuple[str, dict[bytes, bytes] | None]:
        """Users, tokens, roles, rules and quotas as they are kept, and their version; None where it is the one named.

        What is made of passwords is among them: for those who have signed in and may manage all users.
        """
        ...

    def groups(self, version: str, *, caller: Caller) -> tuple[str, dict[bytes, bytes] | None]:
        """Groups of consumers as they are kept, and their version; None where it is the one named."""
        ...


class Feed(Protocol):
    origin: FeedOrigin

    async def next(self, max_bytes: int = READ_BYTES, wait_ms: int = 1000) -> FeedPiece:
        """Committed batches as they are stored, whole, control batches too; none where nothing came in time."""
        ...

    async def close(self) -> None: ...


class FeedOrigin(msgspec.Struct, frozen=True):
    """What a copy must know of a log before its batches."""

    node_id: str
    cluster_id: str
    topic: str
    topic_id: str
    partitions: int
    partition: int
    settings: Settings
    index: int
    """Of the first batch that comes."""
    snapshot: bytes
    """A storage.tail.Snapshot, encoded: all that the log knew before that batch. Empty where the one who asks has it:
    where it asked for this very index, and that is above 1."""
    maker: str | msgspec.UnsetType = msgspec.UNSET
    """The principal that made the topic, where that is known."""


class FeedPiece(NamedTuple):
    """A piece of a feed."""

    data: memoryview
    next_index: int
    """Of the batch that comes next."""
    first: int
    committed: int
    committed_index: int
