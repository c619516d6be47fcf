"""`logboom topic ...`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.connection import ask
from logboom.cli.names import complete_topic_settings
from logboom.cli.options import Change, Flag, Json, Server, Topic
from logboom.cli.show.output import show_json, show_pairs, show_table

if TYPE_CHECKING:
    from logboom.broker.api import PartitionInfo, TopicInfo
    from logboom.client.remote import RemoteBroker

DONE, REFUSED = 0, 2
DETAILS = """\
A topic is a name for one or more logs, its partitions. Settings take
sizes and durations such as 64MiB, 7d, 12h: retention.age,
retention.bytes, retention.records, segment.bytes, flush.policy, acks.default
and so on; `logboom topic describe` lists them all.

Examples:
  logboom topic create events --set retention.age=7d --set segment.bytes=1GiB
  logboom topic create orders --partitions 3
  logboom topic list
  logboom topic describe events
  logboom topic set events flush.policy=os retention.age=
  logboom topic trim events/0 1000
  logboom topic delete events --yes
"""
app = App(name="topic", help="Create, list, describe, set, trim and delete topics.", help_epilogue=DETAILS)
Changes = Annotated[list[str] | None, Parameter(name="--set", negative="", completer=complete_topic_settings)]


@app.command
def create(
    name: str,
    /,
    *,
    partitions: int | None = None,
    changes: Changes = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Create a topic.

    Parameters
    ----------
    name
        Up to 249 letters, digits, dots, dashes and underscores.
    partitions
        How many logs it has. This cannot be changed later. Default: the node's setting, usually 1.
    changes
        A setting, key=value; may be given more than once.
    """
    from logboom.cli.setting import apply_settings
    from logboom.storage.data.topic import Settings

    apply_settings(Settings(), changes or ())  # what is wrong in any case is told before anything is made

    async def make(broker: RemoteBroker) -> TopicInfo:
        made = await broker.create_topic(name, partitions)
        if not changes:
            return made
        try:  # only the node knows its defaults, which the changes are made to
            return await broker.configure_topic(name, apply_settings(made.settings, changes))
        except BaseException:
            await broker.delete_topic(name, made.id)
            raise

    made = ask(server, make)
    if as_json:
        show_json(made)
    else:
        print(f"created {made.name} with {len(made.partitions)} partition{'s' * (len(made.partitions) != 1)}")


@app.command(name="list")
def list_topics(prefix: Topic = "", /, *, internal: Flag = False, server: Server = None, as_json: Json = False) -> None:
    """List topics.

    Parameters
    ----------
    prefix
        Only topics whose names begin with this.
    internal
        Also internal topics, whose names begin with _.
    """
    found = ask(server, lambda broker: broker.list_topics(prefix, internal))
    if as_json:
        show_json(found)
        return
    names = ("topic", "partitions", "records", "bytes", "newest", "writes")
    show_table(names, map(_row, sorted(found, key=lambda topic: topic.name)))


@app.command
def describe(name: Topic, /, *, server: Server = None, as_json: Json = False) -> None:
    """Show a topic's partitions and settings."""
    from logboom.cli.commands.head import PARTITION, row_of
    from logboom.cli.setting import list_settings

    found = ask(server, lambda broker: broker.describe_topic(name))
    if as_json:
        show_json(found)
        return
    show_pairs((("topic", found.name), ("id", found.id), ("writes", _writes(found))))
    print()
    show_table(PARTITION, map(row_of, found.partitions))
    print()
    rows = ((key, value, "default" if same else "set") for key, value, same in list_settings(found.settings))
    show_table(("setting", "value", "from"), rows)


@app.command(name="set")
def set_settings(name: Topic, /, *changes: Change, server: Server = None, as_json: Json = False) -> int:
    """Change a topic's settings.

    Parameters
    ----------
    name
        The topic.
    changes
        key=value, or key= for the default.
    """
    from logboom.cli.setting import apply_settings

    if not changes:
        print("logboom: name at least one setting, key=value", file=sys.stderr)
        return REFUSED

    async def change(broker: RemoteBroker) -> TopicInfo:
        before = await broker.describe_topic(name)
        return await broker.configure_topic(name, apply_settings(before.settings, changes))

    found = ask(server, change)
    if as_json:
        show_json(found)
    else:
        print(f"{found.name}: {', '.join(changes)}")
    return DONE


@app.command
def trim(log: Topic, seqno: int, /, *, server: Server = None, as_json: Json = False) -> None:
    """Discard the records below a seqno, for good.

    Parameters
    ----------
    log
        A topic with one partition, or topic/partition.
    seqno
        The first record to keep. Records below it can never be read again.
    """
    from logboom.cli.target import parse_target

    target = parse_target(log)
    found = ask(server, lambda broker: broker.trim(target.topic, target.partition, seqno))
    if as_json:
        show_json(found)
    else:
        print(f"{target.topic}/{found.partition} begins at seqno {found.first}")


@app.command
def delete(
    name: Topic,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)] = False,
    server: Server = None,
) -> int:
    """Delete a topic with all its records.

    Parameters
    ----------
    name
        The topic.
    yes
        Do not ask for confirmation; needed without a terminal.
    """
    found = ask(server, lambda broker: broker.describe_topic(name))
    if not yes and not _agreed(found):
        print(f"logboom: {name} was not deleted", file=sys.stderr)
        return REFUSED
    ask(server, lambda broker: broker.delete_topic(name, found.id))
    print(f"deleted {name}")
    return DONE


def _agreed(topic: TopicInfo) -> bool:
    if not sys.stdin.isatty():
        print("logboom: no terminal to ask for confirmation: pass --yes", file=sys.stderr)
        return False
    print(
        f"Delete {topic.name} with {_records(topic.partitions):,} records? [y/N] ", end="", file=sys.stderr, flush=True
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _row(topic: TopicInfo) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    newest = max((part.newest for part in topic.partitions if part.newest is not None), default=None)
    size = sum(part.size_bytes for part in topic.partitions)
    return topic.name, len(topic.partitions), _records(topic.partitions), size, show_moment(newest), _writes(topic)


def _records(partitions: list[PartitionInfo]) -> int:
    return sum(max(0, part.committed - part.first) for part in partitions)


def _writes(topic: TopicInfo) -> str:
    if topic.refused is not None:
        return f"refused: {topic.refused or 'switched to read-only'}"
    refusal = next((part.refusal for part in topic.partitions if part.refusal is not None), None)
    return "accepted" if refusal is None else f"refused: {refusal}"
