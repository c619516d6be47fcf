"""`logboom top`."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from cyclopts import App

from logboom.broker.monitor.activity import ActivitySort
from logboom.cli.connection import servers_of
from logboom.cli.options import Flag, Json, Server
from logboom.cli.show.output import show_json
from logboom.errors import ConfigError

if TYPE_CHECKING:
    from logboom.cli.top.look import Looker, NodeLook, View

TERMINATED: Final = 143
INTERVAL_MIN_S: Final = 0.2
TOPICS_MAX: Final = 500
WIDTH: Final = 120
"""Of plain text, where neither a terminal nor $COLUMNS says."""
PLAIN_SIGNS: Final = str.maketrans("▁▂▃▄▅▆▇█░…▼▲", "_.:-=+*#.~v^")
"""What is drawn where the encoding of standard output has no such signs."""
DETAILS = """\
Shows the last minutes of records, bytes and latencies, the use of disk and
memory, problems and what to do about them, and the busiest topics. Press ? for the keys, q to quit.

Without a terminal, or with TERM=dumb, it prints the same once, as --once does.
--json prints once, too: stats, the last sample, topics, findings, incidents.
Colours are the terminal's own; NO_COLOR switches them off.

Examples:
  logboom top
  logboom top --server db7:1773 --sort lag
  logboom top --search orders --interval 5
  logboom top --once --limit 5
  logboom top --json | jq '.findings[] | .reason'
"""
app = App(name="top", help_epilogue=DETAILS)


@app.default
def top(
    *,
    sort: ActivitySort = "records_in",
    search: str = "",
    interval: float = 2.0,
    once: Flag = False,
    limit: int = 20,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Watch a node in the terminal: rates, latencies, health, topics.

    Parameters
    ----------
    sort
        What the topics are sorted by: names from a to z, anything else the largest first.
    search
        Only topics whose names contain all these words.
    interval
        Seconds between two updates.
    once
        Print it once as plain text, and exit.
    limit
        How many topics to print, with --once and --json.
    """
    from logboom.cli.top.look import Looker, View

    if not 1 <= limit <= TOPICS_MAX:
        raise ConfigError("--limit", f"is {limit}, allowed are 1 to {TOPICS_MAX}")
    if not interval >= INTERVAL_MIN_S:
        raise ConfigError("--interval", f"is {interval:g}, allowed are {INTERVAL_MIN_S:g} and more")
    looker = Looker(servers_of(server))
    printed = once or as_json or not _on_terminal()
    rows = limit if printed else shutil.get_terminal_size().lines
    view = View(search, sort, sort != "name", rows=rows)
    _allow_any_encoding()
    if printed:
        look = asyncio.run(_look_once(looker, view))
        _print(look, as_json)
        return 0
    return asyncio.run(_watch(looker, view, interval))


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _allow_any_encoding() -> None:
    """What cannot be encoded is drawn with plainer signs. On a terminal an error would end the thread that draws."""
    codecs.register_error("logboom-top", _draw_plainly)
    for stream in (sys.stdout, sys.__stdout__):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="logboom-top")


def _draw_plainly(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(PLAIN_SIGNS)
    return text.encode("ascii", "replace").decode(), error.end


async def _look_once(looker: Looker, view: View) -> NodeLook:
    import msgspec

    try:
        look = await looker.look(view)
        return msgspec.structs.replace(look, findings=await looker.check_up())
    finally:
        await looker.close()


def _print(look: NodeLook, as_json: bool) -> None:
    if as_json:
        show_json(_summary(look))
        return
    from logboom.cli.top.page import plain_text

    sys.stdout.write(plain_text(look, shutil.get_terminal_size((WIDTH, 0)).columns))


def _summary(look: NodeLook) -> dict[str, Any]:
    import msgspec

    history = msgspec.to_builtins(look.history)
    return {
        "stats": look.stats,
        "sample": _last(history),
        "total": look.activity.total,
        "matched": look.activity.matched,
        "topics": look.activity.topics,
        "findings": look.findings,
        "incidents": look.incidents,
    }


def _last(history: dict[str, Any]) -> dict[str, Any] | None:
    """The newest entry of each column; None where there is none yet."""
    if not history["at"]:
        return None
    interval_ms = history.pop("interval_ms")
    sample: dict[str, Any] = {"interval_ms": interval_ms}
    for name, column in history.items():
        parts = column.items() if isinstance(column, dict) else None
        sample[name] = column[-1] if parts is None else {part: values[-1] for part, values in parts}
    return sample


async def _watch(looker: Looker, view: View, interval_s: float) -> int:
    """Until somebody quits. The node must be there in the beginning; later it may come and go."""
    try:
        first = await looker.look(view)
        from logboom.cli.top.screen import TopApp

        screen, loop = TopApp(looker, first, interval_s), asyncio.get_running_loop()
        # A hang-up ends the process as it always does: there is no terminal left to put in order.
        loop.add_signal_handler(signal.SIGINT, screen.exit, 0)
        loop.add_signal_handler(signal.SIGTERM, screen.exit, TERMINATED)
        code = await screen.run_async()
        return screen.return_code or 0 if code is None else code
    finally:
        await looker.close()
