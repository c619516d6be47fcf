"""`logboom head TOPIC`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Json, Server, Topic
from logboom.cli.show.moment import show_moment
from logboom.cli.show.output import show_json, show_table
from logboom.cli.target import is_several, parse_names
from logboom.errors import PartitionNotFound

if TYPE_CHECKING:
    from logboom.broker.api import PartitionInfo, TopicInfo
    from logboom.broker.read.log_names import LogNames
    from logboom.client.remote import RemoteBroker

DETAILS = """\
first: the first seqno that can be read. committed: the seqno after the last one
that can be read. next: the seqno of the next record. newest: the time of the
last append.

Examples:
  logboom head events
  logboom head 'orders.*,events'
  logboom head events/2 --json | jq '.[0].committed'
"""
PARTITION: Final = ("partition", "first", "committed", "next", "bytes", "segments", "newest", "refusal")
app = App(name="head", help_epilogue=DETAILS)


@app.default
def head(log: Topic, /, *, server: Server = None, as_json: Json = False) -> None:
    """Where do a topic's logs begin and end?

    Parameters
    ----------
    log
        A topic, one partition of it as topic/partition, a pattern as 'orders.*', or several of these with commas.
    """
    target = parse_names(log)
    if is_several(target.topic):
        from logboom.broker.read.log_names import LogNames

        _show_several(LogNames.parse(target.topic), server, as_json)
        return
    topic = ask(server, lambda broker: broker.describe_topic(target.topic))
    found = [part for part in topic.partitions if target.partition in (None, part.partition)]
    if not found:
        raise PartitionNotFound(target.topic, target.partition, len(topic.partitions))
    if as_json:
        show_json(found)
    else:
        show_table(PARTITION, map(row_of, found))


def _show_several(names: LogNames, server: str | None, as_json: bool) -> None:
    """As above, each row with its topic."""
    rows = [(topic.name, part) for topic in ask(server, partial(_find_topics, names)) for part in _wanted(names, topic)]
    if as_json:
        show_json([{"topic": topic, **msgspec.to_builtins(part)} for topic, part in rows])
    else:
        show_table(("topic", *PARTITION), ((topic, *row_of(part)) for topic, part in rows))


async def _find_topics(names: LogNames, broker: RemoteBroker) -> list[TopicInfo]:
    """In the order of their names. Raises TopicNotFound for one that is named and not there."""
    found = {}
    if names.patterns:
        internal = any(name.topic.startswith("_") for name in names.patterns)
        found = {topic.name: topic for topic in await broker.list_topics("", internal) if names.fit(topic.name)}
    for name in names.exact:
        if name.topic not in found:
            found[name.topic] = await broker.describe_topic(name.topic)
    return [found[name] for name in sorted(found)]


def _wanted(names: LogNames, topic: TopicInfo) -> list[PartitionInfo]:
    for name in names.exact:
        if name.topic == topic.name and name.partition is not None and name.partition >= len(topic.partitions):
            raise PartitionNotFound(topic.name, name.partition, len(topic.partitions))
    numbers = set(names.partitions_of(topic.name, len(topic.partitions)))
    return [part for part in topic.partitions if part.partition in numbers]


def row_of(part: PartitionInfo) -> tuple[Any, ...]:
    return (
        *(part.partition, part.first, part.committed, part.next, part.size_bytes, part.segments),
        *(show_moment(part.newest), part.refusal),
    )
