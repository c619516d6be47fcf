"""`logboom head TOPIC`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Json, Server, Topic
from logboom.cli.show.moment import show_moment
from logboom.cli.show.output import show_json, show_table
from logboom.cli.target import parse_target

if TYPE_CHECKING:
    from logboom.broker.api import PartitionInfo

DETAILS = """\
first: the first seqno that can be read. committed: the seqno after the last one
that can be read. next: the seqno of the next record. newest: the time of the
last append.

Examples:
  logboom head events
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
        A topic, or one partition of it as topic/partition.
    """
    from logboom.errors import PartitionNotFound

    target = parse_target(log)
    topic = ask(server, lambda broker: broker.describe_topic(target.topic))
    found = [part for part in topic.partitions if target.partition in (None, part.partition)]
    if not found:
        raise PartitionNotFound(target.topic, target.partition, len(topic.partitions))
    if as_json:
        show_json(found)
    else:
        show_table(PARTITION, map(row_of, found))


def row_of(part: PartitionInfo) -> tuple[Any, ...]:
    return (
        *(part.partition, part.first, part.committed, part.next, part.size_bytes, part.segments),
        *(show_moment(part.newest), part.refusal),
    )
