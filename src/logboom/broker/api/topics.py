"""Topics: made, configured, described, deleted.

A topic that is made anew under the same name has another id. A TopicInfo says where each of its logs begins and ends.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from logboom.broker.caller import Caller
from logboom.storage.data.topic import Settings

PIPELINE_TOPIC: Final = "_pipeline"
"""What the pipeline's runners tell each other, and whoever listens. Of the node's own topics the only one that others
append to, at a seqno they name: who has read all that is before it knows what he does."""


class TopicCalls(Protocol):
    """For those who look after topics."""

    async def create_topic(
        self, name: str, partitions: int | None = None, settings: Settings | None = None, *, caller: Caller
    ) -> TopicInfo:
        """The node's rules say what stands in for what is None."""
        ...

    async def configure_topic(self, name: str, settings: Settings, *, caller: Caller) -> TopicInfo: ...

    async def describe_topic(self, name: str, create: bool = False, *, caller: Caller) -> TopicInfo:
        """`create` makes it where there is none, if the node's rules let a write do that."""
        ...

    async def list_topics(self, prefix: str = "", internal: bool = False, *, caller: Caller) -> list[TopicInfo]: ...
    async def delete_topic(self, name: str, topic_id: str | None = None, *, caller: Caller) -> None: ...


class PartitionInfo(msgspec.Struct, frozen=True):
    partition: int
    first: int
    committed: int
    next: int
    floor: int = 0
    size_bytes: int = 0
    segments: int = 0
    newest: int | None = None
    """When the last batch was appended, microseconds."""
    refusal: str | None = None
    """Why this log takes no writes."""
    first_stored: int | None = None
    """The first that is in the log's own files, where that is not `first`: what is before it is archived."""


class TopicInfo(msgspec.Struct, frozen=True):
    name: str
    id: str
    partitions: list[PartitionInfo]
    settings: Settings
    refused: str | None = None
    """Why the topic takes no writes, where an operator said so."""
    unusable: dict[str, str] = {}
    """Settings that name what the node's configuration does not allow, each with the reason: `hook.delete`, whose
    segments are held, `validators.urls`, without which nothing is appended."""
