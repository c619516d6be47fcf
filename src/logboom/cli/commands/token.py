"""`logboom token ...`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.access_place import administer
from logboom.cli.options import Data, Json, Server, User
from logboom.cli.show.output import show_json, show_table
from logboom.errors import ConfigError

if TYPE_CHECKING:
    from logboom.broker.api import TokenInfo

DETAILS = """\
A token is what a program shows instead of a name and a password, in
$LOGBOOM_TOKEN or a profile. It can do what its user can, or less: some rights,
some topics. It is printed once, and the node does not know it afterwards: keep
it where nobody else can read it. Everybody may make and revoke his own.

Examples:
  logboom token create importer --lasts 30d --note "nightly import" > token.txt
  logboom token create importer --right write --topic 'orders*' > token.txt
  LOGBOOM_TOKEN=$(cat token.txt) logboom whoami
  logboom token list
  logboom token revoke 0f3a5b7c9d1e
"""
app = App(name="token", help="Create, list and revoke tokens.", help_epilogue=DETAILS)
NAMES = ("token", "user", "state", "expires", "used", "rights", "topics", "note")


@app.command
def create(
    user: User,
    /,
    *,
    lasts: str | None = None,
    note: str = "",
    right: Annotated[list[str] | None, Parameter(name="--right", negative="")] = None,
    topic: Annotated[list[str] | None, Parameter(name="--topic", negative="")] = None,
    server: Server = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a token; it is printed alone, on standard output.

    Parameters
    ----------
    user
        Whose rights it has.
    lasts
        How long it can be used: 12h, 30d. Default: until it is revoked.
    note
        What it is for; shown in lists.
    right
        No more than this right: read, write, create, configure, delete, describe or manage. May be given more than
        once.
    topic
        No other topics than this one: a name, a prefix* or a pattern. May be given more than once.
    """
    lasts_ms = None if lasts is None else _duration(lasts)
    made = administer(
        server,
        data,
        lambda node, caller: node.create_token(user, lasts_ms, note, right or (), topic or (), caller=caller),
    )
    if as_json:
        show_json(made)
        return
    print(made.token, flush=True)
    info = made.info
    print(f"token {info.id} of {info.user} {_lasting(info)}; this is the only time that it is shown", file=sys.stderr)


@app.command
def revoke(token: str, /, *more: str, server: Server = None, data: Data = None) -> None:
    """Revoke tokens. It counts at once, also on connections that are open.

    Parameters
    ----------
    token
        Its id, as `logboom token list` shows it.
    more
        The ids of others.
    """
    for each in dict.fromkeys((token, *more)):
        token_id = _id_of(each)
        administer(server, data, lambda node, caller, token_id=token_id: node.revoke_token(token_id, caller=caller))  # type: ignore[misc]
        print(f"revoked {token_id}")


@app.command(name="list")
def list_tokens(
    user: User | None = None, /, *, server: Server = None, data: Data = None, as_json: Json = False
) -> None:
    """List tokens, oldest first. Without the right to see those of others: your own.

    Parameters
    ----------
    user
        Only those of this user.
    """
    found = administer(server, data, lambda node, caller: node.list_tokens(user, caller=caller))
    if as_json:
        show_json(found)
    else:
        show_table(NAMES, map(_row, found))


def _id_of(text: str) -> str:
    """Whoever has the whole token may show that."""
    from logboom.access.token import TokenSecret

    secret = TokenSecret.parse(text.strip())
    return text if secret is None else secret.id


def _duration(text: str) -> int:
    from logboom.server.units import parse_duration

    try:
        lasts_ms = parse_duration(text)
        if lasts_ms <= 0 or text.strip()[-1:].isdigit():
            raise ValueError
    except ValueError:
        raise ConfigError("--lasts", f"{text!r} is no duration: write it as 12h, 30d or 52w") from None
    return lasts_ms


def _lasting(info: TokenInfo) -> str:
    from logboom.cli.show.moment import show_moment

    return "lasts until it is revoked" if info.expires is None else f"expires at {show_moment(info.expires)}"


def _row(info: TokenInfo) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    is_over = info.expires is not None and info.expires <= time.time_ns() // 1000
    expires = None if info.expires is None else show_moment(info.expires)
    used = None if info.last_used is None else show_moment(info.last_used)
    scope = ",".join(info.rights) or "all", ",".join(info.topics) or "all"
    return info.id, info.user, "expired" if is_over else "valid", expires, used, *scope, info.note or None
