"""What a command names: a topic, or one of its logs as `topic/partition`."""

from __future__ import annotations

from typing import NamedTuple

from logboom.errors import ConfigError


class LogTarget(NamedTuple):
    topic: str
    partition: int | None

    def __str__(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}/{self.partition}"


def parse_names(text: str) -> LogTarget:
    """The same, or several logs as `broker.read.log_names` has them: then all of it is the topic.

    >>> parse_names("events/3").partition, parse_names("orders.*,events/3").topic
    (3, 'orders.*,events/3')
    """
    from logboom.broker.read.log_names import LogNames

    names = LogNames.parse(text) if is_several(text) else ()
    return LogTarget(text, None) if names else parse_target(text)


def is_several(text: str) -> bool:
    """Whether it may name more than one topic."""
    return "," in text or "*" in text or "?" in text


def parse_target(text: str) -> LogTarget:
    """
    >>> parse_target("events/3")
    LogTarget(topic='events', partition=3)
    """
    topic, separator, partition = text.partition("/")
    if separator and not (partition.isascii() and partition.isdecimal()):
        raise ConfigError(text, f"names no log: write TOPIC, or TOPIC/PARTITION as in {topic or 'events'}/0")
    return LogTarget(topic, int(partition) if separator else None)
