"""The overview of a node as lines of a terminal: who it is, how it is, what it did lately, how full it is.

Every line is a rich Text of at most the asked width. What others wrote (reasons, errors) is never read as markup,
and what a terminal would obey is made visible. Colours are the terminal's own sixteen, on its own background, and
nothing is said by a colour alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.text import Text

from logboom.broker.monitor.checkup import FREE_SHARE_MIN
from logboom.cli.show.wording import count_of, printable
from logboom.cli.top.plot import (
    bar,
    bars,
    bucket_us,
    columns,
    short_age,
    short_duration,
    short_number,
    short_size,
)
from logboom.server.units import show_duration

if TYPE_CHECKING:
    from logboom.broker.api import NodeStats, ReplicaStats
    from logboom.broker.monitor.activity import DiskStats, History, Incident
    from logboom.broker.monitor.checkup import Complaint

GOOD, BAD, WARN, FAINT, TITLE = "green", "bold red", "yellow", "dim", "bold"
PLOT: Final = "cyan"
HALF_GAP: Final = 2
FULL_SHARE, NEAR_SHARE = 0.95, 0.8
GONE_LINES: Final = 2
_STYLES: Final = {"damage": BAD, "warning": WARN, "error": BAD, "rejection": "magenta"}

Part = str | tuple[str, str]


def line(width: int, *parts: Part) -> Text:
    """The parts, each a text or a text and its style, cut to the width; whatever they hold can be shown."""
    made = Text(no_wrap=True, end="")
    for part in parts:
        text, style = (part, None) if isinstance(part, str) else part
        made.append(printable(text), style)
    made.truncate(width, overflow="ellipsis")
    return made


def beside(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Two blocks of as many lines, side by side."""
    half = max(1, (width - HALF_GAP) // 2)
    made = []
    for one, other in zip(left, right, strict=True):
        both = one.copy()
        both.truncate(half, overflow="ellipsis", pad=True)
        both.append(" " * HALF_GAP).append_text(other)
        both.truncate(width, overflow="ellipsis")
        made.append(both)
    return made


def wrapped(text: str, style: str, width: int, most: int, first: str = "", rest: str = "") -> list[Text]:
    """At most so many lines; the first begins with `first`, the others with `rest`."""
    rows, is_empty = [first], True
    room = max(2, width - max(len(first), len(rest)))
    for word in text.split():
        for piece in chop_cells(word, room):
            # Some letters take two cells.
            if not is_empty and cell_len(rows[-1]) + 1 + cell_len(piece) > width:
                rows.append(f"{rest}{piece}")
            else:
                rows[-1] += piece if is_empty else f" {piece}"
            is_empty = False
    if len(rows) > most:
        rows = [*rows[: most - 1], f"{rows[most - 1]} …"]
    return [line(width, (row, style)) for row in rows]


def clock(moment_us: int) -> str:
    """In local time."""
    try:
        return f"{datetime.fromtimestamp(moment_us / 1e6):%H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "-"


def head_line(stats: NodeStats, address: str, marks: Iterable[Part], width: int) -> Text:
    """Who it is; the time there is at the right."""
    node = stats.node_id if width >= 120 else stats.node_id[:8]
    up = show_duration(max(0, stats.now - stats.started))
    made = line(
        width,
        (f"logboom {printable(stats.version)}", TITLE),
        f"  node {printable(node)} at ",
        (printable(address), TITLE),
        f"  up {up}  ",
        *marks,
    )
    now = clock(stats.now)
    if made.cell_len + len(now) < width:
        made.append(" " * (width - made.cell_len - len(now))).append(now)
    return made


def state_line(stats: NodeStats, findings: Sequence[Complaint] | None, width: int) -> Text:
    """Whether it takes writes, what it copies, and that nothing is wrong, where nothing is."""
    parts: list[Part] = []
    if stats.replica is not None:
        parts += _replica_parts(stats.replica, stats.now)
    elif stats.refused is not None:
        parts += [("writes REFUSED: ", BAD), printable(stats.refused or "switched to read-only")]
    else:
        parts += ["writes ", ("accepted", GOOD)]
    parts.append(f"  {count_of(stats.topics, 'topic')}, {count_of(stats.logs, 'log')}  ")
    if findings is None:
        parts.append(("health: not looked at yet", FAINT))
    elif not _wrong(findings):
        notes = f", {count_of(len(findings), 'note')} (i)" if findings else ""
        parts += ["health: ", ("nothing is wrong", GOOD), notes]
    return line(width, *parts)


def _replica_parts(replica: ReplicaStats, now: int) -> list[Part]:
    parts: list[Part] = [f"replica of {printable(replica.source)} ("]
    if replica.connected:
        parts.append(("connected", GOOD))
    else:
        heard = "never heard of" if replica.heard is None else f"last heard of {short_age(now - replica.heard)} ago"
        parts.append((f"NOT CONNECTED, {heard}", BAD))
    parts.append(f", {short_number(replica.lag_records)} record{'s' * (replica.lag_records != 1)} behind)")
    return [*parts, *([(f" {printable(replica.error)}", BAD)] if replica.error else [])]


def _wrong(findings: Iterable[Complaint]) -> list[Complaint]:
    return [finding for finding in findings if finding.severity in ("damage", "warning")]


def health_lines(findings: Sequence[Complaint] | None, width: int, most: int) -> list[Text]:
    """The worst that is wrong: cause, fix, and how many more; nothing where nothing is."""
    wrong = sorted(_wrong(findings or ()), key=lambda finding: finding.severity != "damage")
    if not wrong:
        return []
    worst = wrong[0]
    more = f"({len(wrong) - 1} more: i) " if len(wrong) > 1 else ""
    text = f"{worst.severity.upper()} {more}{worst.kind}, {worst.where}: {worst.reason}; to do: {worst.advice}"
    return wrapped(printable(text), _STYLES[worst.severity], width, most)


class PlotSeries(NamedTuple):
    label: str
    values: Sequence[float | None]
    show: Callable[[float], str]


def series_of(history: History) -> list[tuple[PlotSeries, PlotSeries]]:
    """What is plotted, in pairs side by side."""
    seconds = max(1, history.interval_ms) / 1000
    refused = [count / seconds for count in history.rejections]
    return [
        (
            PlotSeries("records in/s", history.records_in, short_number),
            PlotSeries("append p99", history.append.p99, short_duration),
        ),
        (
            PlotSeries("records out/s", history.records_out, short_number),
            PlotSeries("sync p99", history.sync.p99, short_duration),
        ),
        (
            PlotSeries("bytes in/s", history.bytes_in, short_number),
            PlotSeries("read p99", history.read.p99, short_duration),
        ),
        (PlotSeries("bytes out/s", history.bytes_out, short_number), PlotSeries("rejections/s", refused, short_number)),
    ]


LABEL, NUMBER = 13, 6
"""Widths beside a plot."""


def plot_lines(history: History, width: int, tall: bool) -> list[Text]:
    """All plots, two beside each other, each of one line or of three."""
    half = (width - HALF_GAP) // 2
    room = max(1, half - LABEL - (1 if tall else 2 * NUMBER + 2))
    size_us = bucket_us(history.interval_ms, history.at, room)
    span = short_age(size_us * room)
    if tall:
        title = f"the last {span}, {short_age(size_us)} a column"
        made = [line(width, (title, FAINT))]
    else:
        heading = line(half, (f"{'':{LABEL}}{'now':>{NUMBER}} {'max':>{NUMBER}} last {span}", FAINT))
        made = beside([heading], [heading], width)
    draw = tall_plot if tall else low_plot
    for left, right in series_of(history):
        one, other = (draw(series, history.at, size_us, room) for series in (left, right))
        made += beside(one, other, width)
    return made


def _measured(series: PlotSeries, at: Sequence[int], size_us: int, room: int) -> tuple[list[float | None], str, str]:
    shown = columns(at, series.values, size_us, room)
    known = [value for value in shown if value is not None]
    now = series.values[-1] if series.values else None
    return shown, "-" if now is None else series.show(now), series.show(max(known)) if known else "-"


def low_plot(series: PlotSeries, at: Sequence[int], size_us: int, room: int) -> list[Text]:
    shown, now, most = _measured(series, at, size_us, room)
    made = Text(f"{series.label:{LABEL}}", end="")
    made.append(f"{now:>{NUMBER}}", TITLE).append(f" {most:>{NUMBER}} ")
    return [made.append(bars(shown)[0], PLOT)]


def tall_plot(series: PlotSeries, at: Sequence[int], size_us: int, room: int) -> list[Text]:
    shown, now, most = _measured(series, at, size_us, room)
    sides = [(f"{series.label:{LABEL}}", ""), (f"now {now:>{NUMBER}}", TITLE), (f"max {most:>{NUMBER}}", "")]
    made = []
    for (text, style), row in zip(sides, bars(shown, len(sides)), strict=True):
        made.append(Text(end="").append(f"{text:{LABEL}} ", style).append(row, PLOT))
    return made


class Gauge(NamedTuple):
    label: str
    used: float
    limit: float
    """0 where nobody knows."""
    show: Callable[[float], str]
    style: str | None = None
    """Where more than the share of the limit counts."""


def gauges_of(stats: NodeStats) -> list[Gauge]:
    found = []
    if (disk := stats.disk) is not None and disk.total_bytes:
        used = disk.total_bytes - disk.free_bytes
        found.append(Gauge("disk", used, disk.total_bytes, short_size, _disk_style(disk)))
    unsynced = stats.writes.get("unsynced_bytes", 0)
    return [
        *found,
        Gauge("memory", stats.memory_bytes, stats.memory_limit_bytes, short_size),
        Gauge("files", stats.open_files, stats.open_files_limit, short_number),
        Gauge("unsynced", unsynced, stats.limits.get("unsynced_bytes", 0), short_size),
    ]


def _disk_style(disk: DiskStats) -> str:
    """What counts is whether writes go on."""
    if disk.free_bytes < disk.reserve_bytes:
        return BAD
    is_near = disk.free_bytes < max(2 * disk.reserve_bytes, FREE_SHARE_MIN * disk.total_bytes)
    return WARN if is_near else GOOD


def gauge_lines(stats: NodeStats, width: int) -> list[Text]:
    """Two gauges a line, or four; then the connections, by protocol."""
    per_line = 4 if width >= 160 else 2
    room = max(1, (width - HALF_GAP * (per_line - 1)) // per_line)
    gauges, made = gauges_of(stats), []
    for first in range(0, len(gauges), per_line):
        row = Text(end="", no_wrap=True)
        for number, gauge in enumerate(gauges[first : first + per_line]):
            row.append(" " * HALF_GAP if number else "")
            row.append_text(gauge_text(gauge, room))
        row.truncate(width, overflow="ellipsis")
        made.append(row)
    total = sum(stats.connections.values())
    row = gauge_text(Gauge("clients", total, stats.limits.get("connections", 0), short_number), room)
    names = ", ".join(f"{printable(name)} {count:,}" for name, count in sorted(stats.connections.items()))
    made.append(line(width, "").append_text(row).append(f"{'':{HALF_GAP}}{names}"))
    made[-1].truncate(width, overflow="ellipsis")
    return made


def gauge_text(gauge: Gauge, room: int) -> Text:
    made = Text(f"{gauge.label:9}", end="", no_wrap=True)
    if not gauge.limit:
        made.append(gauge.show(gauge.used), TITLE)
    else:
        share = gauge.used / gauge.limit
        style = gauge.style or (BAD if share >= FULL_SHARE else WARN if share >= NEAR_SHARE else GOOD)
        text = f" {gauge.show(gauge.used):>8} of {gauge.show(gauge.limit)}"
        made.append(bar(share, max(4, room - made.cell_len - 21)), style).append(text)
    made.truncate(room, overflow="ellipsis", pad=True)
    return made


def incident_lines(incidents: Sequence[Incident], now: int, width: int, most: int) -> list[Text]:
    """The newest, one a line."""
    made = []
    for incident in incidents[:most]:
        count = f"{incident.count:,}x" if incident.count > 1 else ""
        made.append(
            line(
                width,
                f"{short_age(now - incident.last):>5} ago ",
                (f"{incident.kind} ", _STYLES.get(incident.kind, "")),
                (f"{printable(incident.name)} ", TITLE),
                f"{count} " if count else "",
                printable(incident.text),
            )
        )
    return made


def trouble_lines(
    findings: Sequence[Complaint] | None, incidents: Sequence[Incident], now: int, width: int
) -> list[Text]:
    """Everything that is or was wrong, with what to do."""
    made = [line(width, ("WHAT IS WRONG NOW", TITLE))]
    if not findings:
        made.append(line(width, "  not looked at yet" if findings is None else "  nothing"))
    for finding in findings or ():
        title = f"{finding.severity}: {finding.kind}, {finding.where}"
        made += wrapped(printable(title), _STYLES.get(finding.severity, ""), width, 3, "  ", "    ")
        made += wrapped(printable(finding.reason), "", width, 6, "    ", "    ")
        made += wrapped(f"to do: {printable(finding.advice)}", "", width, 6, "    ", "    ")
    made += [line(width, ""), line(width, ("WHAT WAS REFUSED OR WENT WRONG LATELY", TITLE))]
    if not incidents:
        made.append(line(width, "  nothing"))
    for incident in incidents:
        made += incident_lines([incident], now, width, 1)
        if made[-1].plain.endswith("…"):
            made += wrapped(printable(incident.text), "", width, 8, " " * 10, " " * 10)
    return made


def gone_lines(reason: str, since: float, width: int) -> list[Text]:
    """There is no answer any more: since when, and why."""
    age = short_age(int((time.time() - since) * 1e6))
    text = f"NO ANSWER since {clock(int(since * 1e6))} ({age}), trying again: {printable(reason)}"
    return wrapped(text, BAD, width, GONE_LINES)
