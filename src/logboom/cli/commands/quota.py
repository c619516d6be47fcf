"""`logboom quota ...`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.access_place import administer
from logboom.cli.options import Data, Flag, Json, Server, User
from logboom.cli.show.output import show_json, show_table
from logboom.errors import ConfigError

if TYPE_CHECKING:
    from logboom.broker.api import QuotaUsage

DETAILS = """\
A quota says how much somebody may take of a node. Bytes, records and requests
are per second: whoever takes more waits, and gets no error. Connections and
topics are counts at one time: one too many is refused.

WHO is a user; group:NAME, whose members share one quota; '*', which every user
who has no quota of his own has for himself; or anonymous. A user is bound by all
quotas that speak of him. The node's operator is bound by none.

Examples:
  logboom quota set bob --bytes-in 10MB/s --requests 100/s --connections 5
  logboom quota set group:analysts --bytes-out 50MB/s --records-out 200000/s
  logboom quota set '*' --requests 1000/s --topics 20
  logboom quota set replica --unlimited
  logboom quota list
  logboom quota show bob
  logboom quota remove bob
"""
app = App(name="quota", help="Set, list, show and remove quotas of users and groups.", help_epilogue=DETAILS)
NAMES = ("who", "limit", "allowed", "used", "waits", "waited")
OWNED_NAMES = ("owner", *NAMES)
Rate = Annotated[str | None, Parameter(negative="")]
Count = Annotated[int | None, Parameter(negative="")]


@app.command(name="set")
def set_quota(
    who: User,
    /,
    *,
    bytes_in: Rate = None,
    bytes_out: Rate = None,
    records_in: Rate = None,
    records_out: Rate = None,
    requests: Rate = None,
    connections: Count = None,
    topics: Count = None,
    unlimited: Flag = False,
    server: Server = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Set a quota, all of it: what is not named is not limited. It counts at once.

    Parameters
    ----------
    who
        A user, group:NAME, '*' or anonymous.
    bytes_in
        Bytes written each second, as 10MB/s, 512KiB/s or 4096.
    bytes_out
        Bytes read each second.
    records_in
        Records written each second, as 5000/s.
    records_out
        Records read each second.
    requests
        Frames, commands or HTTP requests each second.
    connections
        Connections at one time.
    topics
        Topics that he has made, at one time.
    unlimited
        No limit at all: then '*' does not bind this user either.
    """
    from logboom.access.quota import Quota

    limits = {
        "bytes_in": _rate("--bytes-in", bytes_in),
        "bytes_out": _rate("--bytes-out", bytes_out),
        "records_in": _rate("--records-in", records_in),
        "records_out": _rate("--records-out", records_out),
        "requests": _rate("--requests", requests),
        "connections": connections,
        "topics": topics,
    }
    quota = Quota(**limits).check()
    if unlimited == bool(quota.limits):
        raise ConfigError("quota", "name at least one limit, such as --requests 100/s, or --unlimited and no other")
    administer(server, data, lambda node, caller: node.set_quota(who, quota, caller=caller))
    if as_json:
        show_json({"who": who, "quota": quota})
    else:
        written = [f"{name} {_written(name, most)}" for name, most in quota.limits.items()]
        print(f"{who}: {', '.join(written) or 'unlimited'}")


@app.command
def remove(who: User, /, *, server: Server = None, data: Data = None) -> None:
    """Remove a quota. Whoever waits because of it waits no longer.

    Parameters
    ----------
    who
        A user, group:NAME, '*' or anonymous.
    """
    administer(server, data, lambda node, caller: node.remove_quota(who, caller=caller))
    print(f"removed the quota of {who}")


@app.command(name="list")
def list_quotas(*, server: Server = None, data: Data = None, as_json: Json = False) -> None:
    """List quotas, with what is in use now. Of '*' nothing is: each user has his own."""
    found = administer(server, data, lambda node, caller: node.list_quotas(caller=caller))
    if as_json:
        show_json(found)
    else:
        show_table(NAMES, (row[1:] for usage in found for row in _rows(usage)))


@app.command
def show(who: User, /, *, server: Server = None, data: Data = None, as_json: Json = False) -> None:
    """Show what is in use now: by a user, of all quotas that bind him; of '*', by those who have waited longest.

    Parameters
    ----------
    who
        A user, group:NAME, '*' or anonymous.
    """
    found = administer(server, data, lambda node, caller: node.show_quota(who, caller=caller))
    if as_json:
        show_json(found)
    else:
        show_table(OWNED_NAMES, (row for usage in found for row in _rows(usage)))


def _rate(option: str, text: str | None) -> int | None:
    """What is written as 10MB/s, or without the unit of time."""
    from logboom.server.units import parse_size

    if text is None:
        return None
    try:
        return parse_size(text.strip().removesuffix("/s"))
    except ValueError:
        raise ConfigError(option, f"{text!r} is no rate: write it as 10MB/s, 512KiB/s or 100/s") from None


def _written(name: str, amount: float) -> str:
    """As people write it; of bytes that are not round, about.

    >>> _written("bytes_in", 10_000_000), _written("bytes_out", 1234567.8), _written("requests", 7.25)
    ('10MB/s', '1.2 MiB/s', '7.2/s')
    """
    from logboom.server.units import SIZES, show_size

    if name in ("connections", "topics"):
        return f"{amount:.0f}"
    if not name.startswith("bytes"):
        return f"{amount:.1f}".removesuffix(".0") + "/s"
    units = sorted(((size, unit) for unit, size in SIZES.items() if size > 1), reverse=True)
    exact = next((f"{amount / size:.0f}{unit}" for size, unit in units if amount and not amount % size), None)
    return f"{exact or show_size(round(amount))}/s"


def _rows(usage: QuotaUsage) -> Iterator[tuple[Any, ...]]:
    """One for each limit; how long its owner waits is said once."""
    waits = f"{usage.rest_s:.1f}s", f"{usage.throttled_s:.1f}s"
    for name, most in usage.quota.limits.items() or (("unlimited", None),):
        used = usage.used.get(name)
        shown = None if most is None else _written(name, most), None if used is None else _written(name, used)
        yield usage.owner, usage.who, name, *shown, *waits
        waits = ("", "")
