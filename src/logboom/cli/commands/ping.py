"""`logboom ping`."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Json, Server
from logboom.cli.show.output import show_json
from logboom.server.units import show_duration

if TYPE_CHECKING:
    from logboom.client.remote import RemoteBroker

DETAILS = """\
Examples:
  logboom ping
  logboom ping --server db7:1773 --count 10 --json
"""
app = App(name="ping", help_epilogue=DETAILS)


@app.default
def ping(*, count: int = 4, interval: float = 0.2, server: Server = None, as_json: Json = False) -> None:
    """Does a node answer, and how soon?

    Parameters
    ----------
    count
        How often.
    interval
        Seconds between two.
    """

    async def measure(broker: RemoteBroker) -> tuple[float, list[float]]:
        connected_s, times = time.perf_counter() - began, []
        for number in range(max(1, count)):
            if number:
                await asyncio.sleep(max(0.0, interval))
            times.append(await broker.ping())
            if not as_json:
                print(f"answer {number + 1} after {show_duration(times[-1] * 1e6)}", flush=True)
        welcome = broker.welcome
        if not as_json:
            print(f"node {welcome.node_id} of cluster {welcome.cluster_id}, {welcome.server}")
        names.update(node_id=welcome.node_id, cluster_id=welcome.cluster_id, server=welcome.server)
        return connected_s, times

    import logboom.client.remote  # noqa: F401  it takes longer than to connect

    names: dict[str, str] = {}
    began = time.perf_counter()
    connected_s, times = ask(server, measure)
    if as_json:
        show_json({**names, "connected_s": connected_s, "round_trips_s": times})
        return
    least, middle, most = min(times), median(times), max(times)
    print(
        f"connected after {show_duration(connected_s * 1e6)}; round trip least {show_duration(least * 1e6)}, "
        f"median {show_duration(middle * 1e6)}, most {show_duration(most * 1e6)}"
    )
