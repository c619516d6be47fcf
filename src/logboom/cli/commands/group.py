"""`logboom group ...`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.connection import ask
from logboom.cli.options import Flag, Group, Json, Server, Topic
from logboom.cli.show.output import show_json, show_pairs, show_table
from logboom.cli.show.wording import count_of
from logboom.errors import GroupBusy, InvalidGroup

if TYPE_CHECKING:
    from logboom.broker.api import GroupDescription, GroupInfo, GroupLog, GroupReset
    from logboom.client.remote import RemoteBroker

DONE, REFUSED = 0, 2
DETAILS = """\
The members of a group share the logs of topics, and the group has one place in
each log: where it goes on after a restart, or in the hands of another member.
Lag is the number of records between these places and the ends of the logs.

A group that has members cannot be reset or deleted: stop them first, or wait
until their sessions have ended.

Examples:
  logboom group list
  logboom group describe billing
  logboom group describe billing --json | jq '.logs[] | select(.lag > 1000)'
  logboom group reset billing orders --to earliest --dry-run
  logboom group reset billing orders/2 --to 1000 --yes
  logboom group reset billing --to -1h
  logboom group delete billing
"""
app = App(name="group", help="List, describe, reset and delete groups of consumers.", help_epilogue=DETAILS)
GROUPS = ("group", "mode", "state", "members", "logs", "lag")
MEMBERS = ("member", "client", "user", "address", "logs", "joined", "silent")
LOGS = ("log", "seqno", "end", "lag", "member", "moved")
QUEUE = ("log", "seqno", "end", "lag", "in flight", "delayed", "moved")
"""Of a queue, whose members share records, and hold no log."""
RESETS = ("log", "from", "to")
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)]


@app.command(name="list")
def list_groups(prefix: str = "", /, *, server: Server = None, as_json: Json = False) -> None:
    """List groups, with their members and how far behind they are.

    Parameters
    ----------
    prefix
        Only names that begin with this.
    """
    found = ask(server, lambda broker: broker.list_groups(prefix))
    if as_json:
        show_json(found)
    else:
        show_table(GROUPS, map(_group_row, found))


@app.command
def describe(group: Group, /, *, server: Server = None, as_json: Json = False) -> None:
    """Show a group's members, and who holds each log and where the group stands in it.

    Parameters
    ----------
    group
        Its name.
    """
    found = ask(server, lambda broker: broker.describe_group(group))
    if as_json:
        show_json(found)
    else:
        _show(found)


@app.command
def reset(
    group: Group,
    topics: Topic | None = None,
    /,
    *,
    to: Annotated[str, Parameter(allow_leading_hyphen=True)],
    dry_run: Flag = False,
    yes: Yes = False,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Move a group to other places in its logs. It must have no members.

    Parameters
    ----------
    group
        Its name; created if it does not exist.
    topics
        A topic, topic/partition, a pattern as 'orders.*', or several of these with commas. Default: the topics that
        the group has places in.
    to
        earliest, latest, a time (RFC 3339, or -10m), a bookmark, cursor:NAME, or in one log a seqno.
    dry_run
        Only show where it would go.
    yes
        Do not ask for confirmation; needed without a terminal.
    """
    from logboom.cli.start import parse_start

    start = parse_start(to, "--to")

    async def see(broker: RemoteBroker) -> tuple[str, list[GroupReset]]:
        named = topics or _topics_of(await broker.describe_group(group))
        return named, await broker.reset_group(group, named, start, dry_run=True)

    named, places = ask(server, see)
    if not dry_run and not yes:
        if not as_json:
            _show_places(places)
        if not _agreed(f"Move group {group} in {count_of(len(places), 'log')}?"):
            return _left(group, "moved")
    if not dry_run:
        places = ask(server, lambda broker: broker.reset_group(group, named, start))
    if as_json:
        show_json(places)
    elif dry_run or yes:
        _show_places(places)
    return DONE


@app.command
def delete(group: Group, /, *, yes: Yes = False, server: Server = None) -> int:
    """Delete a group with its places in all logs. It must have no members.

    Parameters
    ----------
    group
        Its name.
    yes
        Do not ask for confirmation; needed without a terminal.
    """
    found = ask(server, lambda broker: broker.describe_group(group))
    if found.members:
        raise GroupBusy(group, len(found.members))
    if not yes and not _agreed(f"Delete group {group} with its places in {count_of(len(found.logs), 'log')}?"):
        return _left(group, "deleted")
    ask(server, lambda broker: broker.delete_group(group))
    print(f"deleted {group}")
    return DONE


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        print("logboom: no terminal to ask for confirmation: pass --yes", file=sys.stderr)
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _left(group: str, what: str) -> int:
    print(f"logboom: {group} was not {what}", file=sys.stderr)
    return REFUSED


def _topics_of(found: GroupDescription) -> str:
    if not found.logs:
        raise InvalidGroup(found.group, f"group {found.group!r} has no places yet: name the topics")
    return ",".join(sorted({log.topic for log in found.logs}))


def _show(found: GroupDescription) -> None:
    from logboom.cli.show.moment import show_moment

    show_pairs(
        [
            ("group", found.group),
            ("mode", found.mode),
            ("state", found.state),
            ("generation", found.generation),
            ("lag", found.lag),
        ]
    )
    if found.members:
        print()
        rows = (
            (
                f"{info.member} ({info.instance})" if info.instance else info.member,
                *(info.client or None, info.principal, info.address or None, len(info.logs)),
                *(show_moment(info.joined), f"{info.silent_ms / 1000:.1f}s"),
            )
            for info in found.members
        )
        show_table(MEMBERS, rows)
    if found.logs:
        print()
        is_queue = found.mode == "queue"
        show_table(QUEUE if is_queue else LOGS, (_log_row(log, is_queue) for log in found.logs))


def _log_row(log: GroupLog, is_queue: bool) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    holder = f"{log.member} (asked back)" if log.is_asked_back else log.member
    return (
        *(f"{log.topic}/{log.partition}", log.seqno, log.committed, log.lag),
        *((log.in_flight, log.delayed) if is_queue else (holder,)),
        None if log.updated is None else show_moment(log.updated),
    )


def _show_places(places: list[GroupReset]) -> None:
    show_table(RESETS, ((f"{each.topic}/{each.partition}", each.seqno_from, each.seqno) for each in places))


def _group_row(info: GroupInfo) -> tuple[Any, ...]:
    return info.group, info.mode, info.state, info.members, info.logs, info.lag
