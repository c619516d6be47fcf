"""Topics and cursors, for programs without an event loop: what `connect()` has, as plain calls of a `Client`.

A call whose connection is lost is said again. So `create_topic` may find the topic that its first try has made, and
`delete_topic` may find nothing more: both errors say so, and a program that minds them looks.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.msgpack import Decoder

from logboom.broker.api import CursorInfo, PartitionInfo, Settings, TopicInfo
from logboom.protocols.binary import messages

Result = TypeVar("Result")

_topic: Final = Decoder(TopicInfo)
_topics: Final = Decoder(list[TopicInfo])
_cursors: Final = Decoder(list[CursorInfo])
_partition: Final = Decoder(PartitionInfo)
_number: Final = Decoder(int)
_nothing: Final = Decoder(None)


class TopicAdmin:
    def _ask(self, head: messages.Call, result: Decoder[Result]) -> Result:
        raise NotImplementedError

    def create_topic(self, name: str, partitions: int | None = None, settings: Settings | None = None) -> TopicInfo:
        """Raises TopicExists. Without partitions or settings it has those of the node's configuration."""
        return self._ask(messages.CreateTopic(name, partitions, settings), _topic)

    def describe_topic(self, name: str) -> TopicInfo:
        """Its id, settings and partitions. Raises TopicNotFound."""
        return self._ask(messages.DescribeTopic(name), _topic)

    def list_topics(self, prefix: str = "", internal: bool = False) -> list[TopicInfo]:
        """All topics whose names begin so; with `internal`, the node's own too."""
        return self._ask(messages.ListTopics(prefix, internal), _topics)

    def configure_topic(self, name: str, settings: Settings) -> TopicInfo:
        """From now on it has these settings, all of them. To change some, `msgspec.structs.replace` those it has."""
        return self._ask(messages.ConfigureTopic(name, settings), _topic)

    def delete_topic(self, name: str, topic_id: str | None = None) -> None:
        """With an id, only the topic that has it. Raises TopicNotFound."""
        self._ask(messages.DeleteTopic(name, topic_id), _nothing)

    def trim(self, topic: str, seqno: int, partition: int | None = None) -> PartitionInfo:
        """Nobody reads what is before this seqno any more."""
        return self._ask(messages.Trim(topic, partition, seqno), _partition)

    def list_cursors(self, topic: str | None = None, prefix: str = "") -> list[CursorInfo]:
        """Where cursors stand, and how far behind."""
        return self._ask(messages.ListCursors(topic, prefix), _cursors)

    def delete_cursor(self, cursor: str, topic: str | None = None) -> int:
        """In this topic, or everywhere. In how many logs it stood."""
        return self._ask(messages.DeleteCursor(cursor, topic), _number)
