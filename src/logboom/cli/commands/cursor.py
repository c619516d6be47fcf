"""`logboom cursor ...`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.connection import ask
from logboom.cli.options import Cursor, Json, Server, Topic
from logboom.cli.show.output import show_json, show_table
from logboom.cli.target import parse_target
from logboom.errors import CursorNotFound

if TYPE_CHECKING:
    from logboom.broker.api import CursorInfo
    from logboom.client.remote import RemoteBroker

DONE, REFUSED = 0, 2
NAMED_MAX = 10
"""So many topics are named in a question."""
DETAILS = """\
A cursor is a named bookmark that the node stores for each partition: a reader
of that name continues there.

Examples:
  logboom cursor list events
  logboom cursor show billing
  logboom cursor set billing events/0 1000
  logboom cursor set billing events latest
  logboom cursor set billing events/0 earliest --force
  logboom cursor delete billing events
  logboom cursor delete billing --all-topics
"""
app = App(name="cursor", help="List, show, set and delete cursors.", help_epilogue=DETAILS)
NAMES = ("cursor", "log", "seqno", "lag", "updated")


@app.command(name="list")
def list_cursors(
    topic: Topic | None = None, /, *, prefix: str = "", server: Server = None, as_json: Json = False
) -> None:
    """List cursors and how far behind they are.

    Parameters
    ----------
    topic
        Only those of this topic.
    prefix
        Only cursors whose names begin with this.
    """
    _show(ask(server, lambda broker: broker.list_cursors(topic, prefix)), as_json)


@app.command
def show(cursor: Cursor, topic: Topic | None = None, /, *, server: Server = None, as_json: Json = False) -> None:
    """Show a cursor's position in each log.

    Parameters
    ----------
    cursor
        Its name.
    topic
        Only in this topic.
    """
    found = [info for info in ask(server, lambda b: b.list_cursors(topic, cursor)) if info.cursor == cursor]
    if not found:
        raise CursorNotFound(cursor, topic)
    _show(found, as_json)


@app.command(name="set")
def set_cursor(
    cursor: Cursor,
    log: Topic,
    place: str,
    /,
    *,
    force: bool = False,
    expect: str | None = None,
    server: Server = None,
) -> None:
    """Move a cursor to a place in a log.

    Parameters
    ----------
    cursor
        Its name; created if it does not exist.
    log
        A topic with one partition, or topic/partition.
    place
        earliest, latest, a seqno, a time (RFC 3339, or -10m), a bookmark, or cursor:NAME.
    force
        Allow moving it back.
    expect
        Only if it is at this bookmark; "" for a cursor that does not exist yet.
    """
    from logboom.broker.api import ReadRequest
    from logboom.cli.start import parse_start

    target, start = parse_target(log), parse_start(place, "place")

    async def move(broker: RemoteBroker) -> tuple[int, int]:
        # A read of nothing but the place: it checks that the place exists, and knows its bookmark.
        from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark

        chunk = await broker.read(ReadRequest(target.topic, start, target.partition, max_bytes=1, max_records=1))
        bookmark = Bookmark(bytes.fromhex(chunk.topic_id), chunk.partition, chunk.seqno, TERM_UNKNOWN)
        await broker.commit_cursor(cursor, target.topic, chunk.partition, str(bookmark), force, expect)
        return chunk.partition, chunk.seqno

    partition, seqno = ask(server, move)
    print(f"{cursor} stands at seqno {seqno} of {target.topic}/{partition}")


@app.command
def delete(
    cursor: Cursor,
    /,
    topic: Topic | None = None,
    *,
    all_topics: Annotated[
        bool, Parameter(name=["--all-topics", "--yes", "-y"], negative="", show_default=False)
    ] = False,
    server: Server = None,
) -> int:
    """Delete a cursor, in one topic or in all topics.

    Parameters
    ----------
    cursor
        Its name.
    topic
        Only in this topic.
    all_topics
        In all its topics, without confirmation. Without a terminal, this or a topic is needed.
    """
    if topic is None and not all_topics:
        infos = ask(server, lambda broker: broker.list_cursors(None, cursor))
        topics = sorted({info.topic for info in infos if info.cursor == cursor})
        if topics and not _agreed(cursor, topics):
            return REFUSED
    count = ask(server, lambda broker: broker.delete_cursor(cursor, topic))
    if not count:
        raise CursorNotFound(cursor, topic)
    print(f"deleted {cursor} in {count} partition{'s' * (count != 1)}")
    return DONE


def _agreed(cursor: str, topics: list[str]) -> bool:
    names = ", ".join([*topics[:NAMED_MAX], f"{len(topics) - NAMED_MAX:,} more"] if topics[NAMED_MAX:] else topics)
    if not sys.stdin.isatty():
        print(f"logboom: {cursor} stands in {names}: name one with --topic, or say --all-topics", file=sys.stderr)
        return False
    print(f"Delete {cursor} in {names}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print(f"logboom: {cursor} was not deleted", file=sys.stderr)
    return False


def _show(cursors: list[CursorInfo], as_json: bool) -> None:
    if as_json:
        show_json(cursors)
    else:
        show_table(NAMES, map(_row, cursors))


def _row(info: CursorInfo) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    lag = "topic gone" if info.lag is None else info.lag
    return info.cursor, f"{info.topic}/{info.partition}", info.seqno, lag, show_moment(info.updated)
