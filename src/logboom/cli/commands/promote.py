"""`logboom promote`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Json, Server
from logboom.cli.show.output import show_json

if TYPE_CHECKING:
    from logboom.broker.api import NodeStats
    from logboom.client.remote import RemoteBroker

DETAILS = """\
The replica stops copying, syncs what it has received, begins a new term in
every log, and takes writes. Records that its source acknowledged
and that the replica has not received are missing. It cannot become a replica
again: stop the old source, or make sure that no client writes to it.

Exit code 0: it takes writes. 1: it is not a replica.

Examples:
  logboom promote --server copy7:1773
  logboom stats --server copy7:1773 | grep replica && logboom promote --server copy7:1773
"""
app = App(name="promote", help_epilogue=DETAILS)


@app.default
def promote(*, server: Server = None, as_json: Json = False) -> int:
    """Let a replica take over: it copies its source no more, and takes writes."""

    async def take_over(broker: RemoteBroker) -> NodeStats:
        before = await broker.stats()
        if before.replica is not None:
            await broker.promote()
        return before

    before = ask(server, take_over)
    was = before.replica
    if was is None:
        print(f"logboom: node {before.node_id} is not a replica: it takes writes already", file=sys.stderr)
        return 1
    if as_json:
        show_json({"node_id": before.node_id, "source": was.source, "lag_records": was.lag_records})
    else:
        behind = f"{was.lag_records:,} records behind" if was.lag_records else "not behind, as far as it had heard"
        print(f"node {before.node_id} takes writes; it was a replica of {was.source}, {behind}")
    return 0
