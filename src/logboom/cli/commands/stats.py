"""`logboom stats`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cyclopts import App

from logboom.cli.connection import ask
from logboom.cli.options import Json, Server
from logboom.cli.show.moment import show_moment
from logboom.cli.show.output import show_json, show_json_line, show_pairs
from logboom.server.units import show_duration, show_size

if TYPE_CHECKING:
    from logboom.broker.api import DiskStats, NodeStats, ReplicaStats
    from logboom.client.remote import RemoteBroker

DETAILS = """\
Counters start at 0 with the process. With --watch it prints a line every N
seconds with the rates per second since the last line.

Examples:
  logboom stats
  logboom stats --watch 1
  logboom stats --json | jq .rejections
"""
RATES: Final = ("time", "records/s", "written/s", "read/s", "syncs/s", "unsynced", "connections", "rejections")
app = App(name="stats", help_epilogue=DETAILS)


@app.default
def stats(*, watch: float | None = None, server: Server = None, as_json: Json = False) -> None:
    """What is a node doing?

    Parameters
    ----------
    watch
        Print a line every N seconds, until Ctrl-C.
    as_json
        JSON on standard output instead of text; with --watch one object a line, with counts as they are.
    """
    if watch is not None:
        ask(server, lambda broker: _watch(broker, max(0.01, watch), as_json))
        return
    found = ask(server, lambda broker: broker.stats())
    if as_json:
        show_json(found)
    else:
        show_pairs(_pairs(found))


def _pairs(found: NodeStats) -> Iterator[tuple[str, Any]]:
    yield "node", found.node_id
    yield "cluster", found.cluster_id
    yield "version", found.version
    yield "started", show_moment(found.started)
    yield "up", show_duration(found.now - found.started)
    taken = "accepted" if found.replica is None else "refused: this node is a replica"
    yield "writes", taken if found.refused is None else f"refused: {found.refused or 'switched to read-only'}"
    if found.replica is not None:
        yield from _replica_pairs(found.replica, found.now)
    yield "topics", found.topics
    yield "logs", found.logs
    yield "memory", _of(show_size(found.memory_bytes), found.memory_limit_bytes, show_size)
    yield "open files", _of(f"{found.open_files:,}", found.open_files_limit, "{:,}".format)
    if found.disk is not None:
        yield from _disk_pairs(found.disk)
    for title in ("connections", "writes", "reads", "syncs", "staging", "groups", "rejections"):
        for name, value in getattr(found, title).items():
            yield f"{title}.{name}", _short(value)
    if found.quotas is not None and found.quotas.quotas:
        yield "quotas.resting", found.quotas.resting
        for name, waited_s in found.quotas.throttled_s.items():
            yield f"quotas.{name}", f"{found.quotas.throttled[name]:,} waits, {waited_s:,.1f}s"
    if isinstance(found.upkeep, dict):
        yield "upkeep.errors", found.upkeep.get("errors", 0)
        yield "upkeep.last_error", found.upkeep.get("last_error")


def _of(now: str, limit: int, show: Callable[[int], str]) -> str:
    return f"{now} of {show(limit)}" if limit else now


def _disk_pairs(disk: DiskStats) -> Iterator[tuple[str, Any]]:
    yield "disk", f"{show_size(disk.free_bytes)} free of {show_size(disk.total_bytes)}"
    yield "disk.logs", show_size(disk.logs_bytes)
    yield "disk.reserve", f"{show_size(disk.reserve_bytes)}: with less free, writes are refused"


def _replica_pairs(replica: ReplicaStats, now: int) -> Iterator[tuple[str, Any]]:
    heard = "never" if replica.heard is None else f"{show_duration(max(0, now - replica.heard))} ago"
    yield "replica.source", replica.source
    yield "replica.connected", f"{'yes' if replica.connected else 'no'}, last heard of {heard}"
    yield "replica.lag", f"{replica.lag_records:,} records"
    for log, lag in replica.lag_logs.items():
        yield f"replica.lag.{log}", lag
    if replica.kept_topics:
        more = ", …" if replica.kept_topics > len(replica.kept) else ""
        yield "replica.kept", f"{replica.kept_topics:,} topics that the source lacks: {', '.join(replica.kept)}{more}"
    if replica.access is not None:
        yield "replica.access", replica.access
    if replica.error is not None:
        yield "replica.error", replica.error


def _short(value: float) -> float:
    return int(value) if float(value).is_integer() else round(value, 6)


async def _watch(broker: RemoteBroker, seconds: float, as_json: bool) -> None:
    before = await broker.stats()
    lines = 0
    while True:
        await asyncio.sleep(seconds)
        now = await broker.stats()
        if as_json:
            show_json_line(now)
        else:
            if lines % 20 == 0:
                print("".join(f"{name:>14}" for name in RATES))
            print("".join(f"{value:>14}" for value in rates(before, now)))
        sys.stdout.flush()
        before, lines = now, lines + 1


def rates(before: NodeStats, now: NodeStats) -> tuple[str, ...]:
    """What happened between two looks, in words; a column of RATES each."""
    seconds = max(1, now.now - before.now) / 1e6

    def rate(title: str, name: str) -> float:
        return float(getattr(now, title).get(name, 0) - getattr(before, title).get(name, 0)) / seconds

    return (
        show_moment(now.now)[11:23],
        f"{rate('writes', 'records'):,.0f}",
        show_size(int(rate("writes", "bytes"))),
        show_size(int(rate("reads", "bytes"))),
        f"{rate('syncs', 'count'):,.0f}",
        show_size(int(now.writes.get("unsynced_bytes", 0))),
        f"{sum(now.connections.values()):,}",
        f"{sum(now.rejections.values()) - sum(before.rejections.values()):,}",
    )
