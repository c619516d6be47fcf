"""Which logs a read of several is of: topics, patterns of topics, single partitions.

    orders              all partitions of a topic
    orders/2            one of them
    orders.*            of all topics whose names fit, and of those that come later

Several have commas between them. The node's own topics, whose names begin with `_`, fit only patterns that begin so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from logboom.access.rule import matches
from logboom.errors import InvalidPattern

NAMES_MAX: Final = 1_000
TEXT_MAX: Final = 64 * 1024


class TopicPattern(NamedTuple):
    topic: str
    """A name, or a pattern with `*` and `?`."""
    partition: int | None = None
    """None for all."""

    @property
    def is_pattern(self) -> bool:
        return "*" in self.topic or "?" in self.topic


class LogNames(tuple[TopicPattern, ...]):
    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> LogNames:
        """
        >>> LogNames.parse("orders.*,rooms/1")
        (TopicPattern(topic='orders.*', partition=None), TopicPattern(topic='rooms', partition=1))
        """
        parts = text[:TEXT_MAX].split(",")
        if len(text) > TEXT_MAX or len(parts) > NAMES_MAX:
            raise InvalidPattern(f"a read names {NAMES_MAX:,} topics and patterns at most")
        return cls(_parse(part.strip()) for part in parts)

    @property
    def patterns(self) -> list[TopicPattern]:
        return [name for name in self if name.is_pattern]

    @property
    def exact(self) -> list[TopicPattern]:
        return [name for name in self if not name.is_pattern]

    def fit(self, topic: str) -> bool:
        """Whether any of them means this topic, or some of it."""
        return any(_fits(name, topic) for name in self)

    def partitions_of(self, topic: str, count: int) -> Iterator[int]:
        """Which of a topic's partitions are meant, in order."""
        wanted: set[int | None] = {name.partition for name in self if _fits(name, topic)}
        return (number for number in range(count) if None in wanted or number in wanted)


def join_names(topics: str | Iterable[str]) -> str:
    """As they go over a wire. Raises InvalidPattern."""
    text = topics if isinstance(topics, str) else ",".join(topics)
    LogNames.parse(text)
    return text


def _parse(text: str) -> TopicPattern:
    topic, slash, number = text.partition("/")
    if not topic or (slash and not (number.isascii() and number.isdecimal() and len(number) < 7)):
        raise InvalidPattern(f"{text[:100]!r} names no topic: write orders, orders/2, or orders.*")
    return TopicPattern(topic, int(number) if slash else None)


def _fits(name: TopicPattern, topic: str) -> bool:
    return matches(name.topic, topic) if name.is_pattern else name.topic == topic
