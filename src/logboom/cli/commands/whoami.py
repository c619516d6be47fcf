"""`logboom whoami`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Json, Server
from logboom.cli.show.output import show_json, show_pairs

if TYPE_CHECKING:
    from logboom.broker.api import QuotaUsage

DETAILS = """\
The principal is the user that you have signed in as; anonymous where you have
not; _operator where you run the node and call over its Unix socket.

Examples:
  logboom whoami
  logboom whoami --profile prod
  LOGBOOM_TOKEN=$(cat token.txt) logboom whoami --json | jq -r .principal
  logboom whoami --server unix:/srv/logboom/logboom.sock
"""
app = App(name="whoami", help_epilogue=DETAILS)


@app.default
def whoami(*, server: Server = None, as_json: Json = False) -> None:
    """Show who you are to a node, and how it knows."""
    found = ask(server, lambda broker: broker.whoami())
    if as_json:
        show_json(found)
        return
    facts = {
        "principal": found.principal,
        "groups": ", ".join(found.groups),
        "roles": ", ".join(found.roles),
        "by": found.by,
        "protocol": found.protocol,
        "address": found.address,
    }
    facts |= {f"quota of {usage.who}": _quota(usage) for usage in found.quotas}
    show_pairs((name, value or None) for name, value in facts.items())


def _quota(usage: QuotaUsage) -> str:
    """
    >>> from logboom.access.quota import Quota
    >>> from logboom.broker.api import QuotaUsage
    >>> _quota(QuotaUsage("bob", "bob", Quota(requests=100), {"requests": 12.5}, 0.0, 0.0))
    'requests 12.5 of 100'
    """
    parts = [f"{name} {usage.used.get(name, 0):,.10g} of {most:,}" for name, most in usage.quota.limits.items()]
    return ", ".join([*parts, *([f"waits {usage.rest_s:.1f}s"] if usage.rest_s else [])]) or "unlimited"
