"""A topic that is not there, is another one, or cannot be made or deleted. Each names the topic."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.errors.root import LogboomError


class TopicError(LogboomError):
    """Something about a topic."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class InvalidTopicName(TopicError, ValueError):
    """A name that a topic cannot have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name, f"{name[:300]!r} is no topic name: use 1 to 249 letters, digits, dots, dashes, underscores"
        )


class TopicNotFound(TopicError):
    """No topic has this name."""

    near: Sequence[str] = ()
    """Names that may have been meant."""

    def __init__(self, name: str, where: str, near: Sequence[str] = ()) -> None:
        meant = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
        super().__init__(name, f"there is no topic {name!r} in {where}{meant}")
        if near:
            self.near = list(near)


class PartitionNotFound(TopicError):
    """The topic has no partition with this number, or has several and none was named."""

    def __init__(self, name: str, partition: int | None, partitions: int) -> None:
        which = "none was named" if partition is None else f"{partition} is not one of them"
        super().__init__(name, f"topic {name!r} has partitions 0 to {partitions - 1}: {which}")
        self.partition = partition
        self.partitions = partitions


class TopicExists(TopicError):
    """Another topic has this name already."""

    def __init__(self, name: str, topic_id: str) -> None:
        super().__init__(name, f"there is a topic {name!r} already, with id {topic_id}")
        self.topic_id = topic_id


class TopicNotAllowed(TopicError):
    """The node's rules do not let a topic have this name, or do not let a write make it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, f"topic {name!r} is not allowed: {reason}")
        self.reason = reason


class TopicDeleted(TopicError):
    """The topic that was being read is gone, and none has its name."""

    def __init__(self, name: str, topic_id: str) -> None:
        super().__init__(name, f"topic {name!r} with id {topic_id} was deleted")
        self.topic_id = topic_id


class TopicRecreated(TopicError):
    """Another topic has taken the name: its seqnos mean other records."""

    def __init__(self, name: str, topic_id: str, new_id: str) -> None:
        super().__init__(
            name, f"topic {name!r} is another one now: it had id {topic_id}, it has {new_id}; start at its beginning"
        )
        self.topic_id = topic_id
        self.new_id = new_id


class TopicBusy(TopicError):
    """A publish is under way that has records for this topic."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(
            name, f"topic {name!r}: a publish with key {key!r} is under way; delete it when that has ended"
        )
        self.key = key
