"""`logboom acl ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from logboom.access.rule import ObjectKind, Right
from logboom.cli.access_place import administer
from logboom.cli.options import Data, Json, Server, User
from logboom.cli.show.output import show_json, show_table
from logboom.errors import ConfigError

if TYPE_CHECKING:
    from logboom.broker.api import RuleInfo

ALLOWED, FORBIDDEN = 0, 1
DETAILS = """\
A rule says who may, or may not, do what to which objects. What no rule allows is
forbidden, and deny wins over allow.

WHO is a user, group:NAME, role:NAME, '*' for all who have signed in, or
anonymous. RIGHTS are read, write, create, configure, delete, describe and
manage, separated by commas, or all; whoever has any of them may describe. KIND
is topic, cursor, transaction, pipeline, user, node, channel, tag or all. NAME is
exact, a prefix* or a pattern with * and ?; the node has none. Names that begin
with _ are the node's own: only a NAME that begins so speaks of them.

Rules for channels and tags say which records somebody may read and write, of the
topics that he may. Where some are allowed, all others are not. A channel is a
pattern, + for one level and # for the rest, with %u for the user and %c for what
the client calls itself; a tag is exact or a prefix*.

Examples:
  logboom acl allow alice read,write topic 'orders*'
  logboom acl allow alice read,write cursor 'billing*'
  logboom acl allow group:ops manage,describe node
  logboom acl deny '*' write topic orders.closed
  logboom acl allow group:sensors write channel 'devices/%u/#'
  logboom acl deny group:guests read tag secret
  logboom acl list
  logboom acl explain alice write topic orders.eu
  logboom acl explain alice read topic orders --channel eu/paid --tag secret
  logboom acl remove 3
"""
app = App(name="acl", help="Allow, deny, list, remove and explain rules.", help_epilogue=DETAILS)
NAMES = ("number", "rule", "who", "rights", "kind", "name")
Kind = Literal["topic", "cursor", "group", "transaction", "pipeline", "user", "node", "channel", "tag", "all"]
"""KINDS of access.rule, and all."""


@app.command
def allow(
    who: User,
    rights: str,
    kind: Kind,
    name: str | None = None,
    /,
    *,
    server: Server = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Add a rule that allows something. It counts at once.

    Parameters
    ----------
    who
        A user, group:NAME, role:NAME, '*' or anonymous.
    rights
        One or several, separated by commas; or all.
    kind
        Of object: topic, cursor, transaction, pipeline, user, node, channel, tag or all.
    name
        Of the object: exact, a prefix* or a pattern; '*' for all. The node has none.
    """
    _add("allow", (who, rights, kind, name), server, data, as_json)


@app.command
def deny(
    who: User,
    rights: str,
    kind: Kind,
    name: str | None = None,
    /,
    *,
    server: Server = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Add a rule that forbids something, whatever others allow. It counts at once.

    Parameters
    ----------
    who
        A user, group:NAME, role:NAME, '*' or anonymous.
    rights
        One or several, separated by commas; or all.
    kind
        Of object: topic, cursor, transaction, pipeline, user, node, channel, tag or all.
    name
        Of the object: exact, a prefix* or a pattern; '*' for all. The node has none.
    """
    _add("deny", (who, rights, kind, name), server, data, as_json)


@app.command
def remove(number: int, /, *more: int, server: Server = None, data: Data = None) -> None:
    """Remove rules.

    Parameters
    ----------
    number
        As `logboom acl list` shows it.
    more
        The numbers of others.
    """
    for each in dict.fromkeys((number, *more)):
        administer(server, data, lambda node, caller, each=each: node.remove_rule(each, caller=caller))  # type: ignore[misc]
        print(f"removed rule {each}")


@app.command(name="list")
def list_rules(*, server: Server = None, data: Data = None, as_json: Json = False) -> None:
    """List rules. The built-in one, that the role admin may do everything, is not among them."""
    found = administer(server, data, lambda node, caller: node.list_rules(caller=caller))
    if as_json:
        show_json(found)
    else:
        show_table(NAMES, map(_row, found))


@app.command
def explain(
    user: User,
    right: Right,
    kind: ObjectKind,
    name: str = "",
    /,
    *,
    group: Annotated[list[str] | None, Parameter(name="--group", negative="")] = None,
    channel: str | None = None,
    tag: Annotated[list[str] | None, Parameter(name="--tag", negative="")] = None,
    client: str = "",
    server: Server = None,
    data: Data = None,
    as_json: Json = False,
) -> int:
    """Say whether somebody may do something, and which rule decides.

    Exit code 0: he may. 1: he may not.

    Parameters
    ----------
    user
        A user, or anonymous.
    right
        What he would do.
    kind
        Of object.
    name
        Of the object; the node has none.
    group
        A group of somebody who signs in with a certificate; may be given more than once.
    channel
        Of a record of the topic.
    tag
        Of that record; may be given more than once.
    client
        What the client calls itself: %c in rules.
    """
    asked = user, right, kind, name, group or (), channel, tag or (), client
    found = administer(server, data, lambda node, caller: node.explain_access(*asked, caller=caller))
    if as_json:
        show_json(found)
    else:
        what = f"{kind} {name}" if name else kind if kind != "node" else "the node"
        record = (f"channel {channel}" if channel else "", *(f"tag {each}" for each in tag or ()))
        what = " with ".join((what, *filter(None, record)))
        print(f"{user} {'may' if found.allowed else 'may not'} {right} {what}: {found.reason}")
    return ALLOWED if found.allowed else FORBIDDEN


def _add(effect: Any, words: tuple[str, str, str, str | None], server: Any, data: Any, as_json: bool) -> None:
    from logboom.access.rule import Rule

    who, rights, kind, name = words
    if name is None and kind != "node":
        raise ConfigError("name", f"say which {kind}: a name, a prefix*, or '*' for all")
    given = tuple(right.strip() for right in rights.split(","))
    rule = Rule(effect, who, given, kind, "*" if name is None else name).check()
    made = administer(server, data, lambda node, caller: node.add_rule(rule, caller=caller))
    if as_json:
        show_json(made)
    else:
        print(f"rule {made.number}: {made.rule}")


def _row(info: RuleInfo) -> tuple[Any, ...]:
    rule = info.rule
    return info.number, rule.effect, rule.who, ",".join(rule.rights), rule.kind, rule.name
