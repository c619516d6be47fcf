"""The topics of an overview as a table: as many columns as there is room for, and a line of bars.

The name gives way first to the columns that are always there, then the others come in the order of their weight; what
is left goes to the bars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from logboom.cli.top.lines import BAD, FAINT, PLOT, TITLE, WARN, line
from logboom.cli.top.plot import recent, short_age, short_number, short_size
from logboom.server.units import format_duration, format_size

if TYPE_CHECKING:
    from logboom.broker.monitor.activity import Activity, ActivitySort, TopicActivity
    from logboom.cli.top.look import View
    from logboom.storage.data.topic import RetentionSettings

NAME_MIN, NAME_MAX = 20, 60
BARS_MIN, BARS_MAX = 8, 120
MARK_WIDTH: Final = 2
SORTS: Final[tuple[ActivitySort, ...]] = (
    "records_in",
    "records_out",
    "bytes_in",
    "bytes_out",
    "size",
    "records",
    "newest",
    "lag",
    "name",
)
"""In the order that a key goes through them."""


class Column(NamedTuple):
    title: str
    width: int
    show: Callable[[TopicActivity, int], str]
    """Of a topic, at the time there is."""
    sorts: tuple[ActivitySort, ...] = ()
    weight: int = 0
    """Those with more go first where there is no room; 0 stays."""


def show_retention(retention: RetentionSettings) -> str:
    """
    >>> from logboom.storage.data.topic import RetentionSettings
    >>> show_retention(RetentionSettings(age_ms=86_400_000, bytes=1 << 30)), show_retention(RetentionSettings())
    ('1d 1GiB', 'all')
    """
    parts = []
    if retention.age_ms is not None:
        parts.append(format_duration(retention.age_ms))
    if retention.bytes is not None:
        parts.append(format_size(retention.bytes))
    if retention.records is not None:
        parts.append(f"{short_number(retention.records)}rec")
    if retention.hard_bytes is not None:
        parts.append(f"<{format_size(retention.hard_bytes)}")
    return " ".join(parts) or "all"


def short_name(name: str, width: int) -> str:
    """Names of topics often differ at both ends.

    >>> short_name("orders.eu-west.returned", 12), short_name("orders", 12)
    ('order…turned', 'orders')
    """
    if len(name) <= width:
        return name
    tail = width // 2
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def _newest(topic: TopicActivity, now: int) -> str:
    return "-" if topic.newest is None else short_age(now - topic.newest)


def _lag(topic: TopicActivity, _: int) -> str:
    return "-" if topic.lag is None else short_number(topic.lag)


_BYTES_OUT: Final = Column("BOUT/s", 8, lambda topic, _: short_size(topic.bytes_out), ("bytes_out",))
_COLUMNS: Final = (
    Column("IN/s", 6, lambda topic, _: short_number(topic.records_in), ("records_in",)),
    Column("OUT/s", 6, lambda topic, _: short_number(topic.records_out), ("records_out",)),
    Column("BYTES/s", 8, lambda topic, _: short_size(topic.bytes_in), ("bytes_in",)),
    Column("SIZE", 8, lambda topic, _: short_size(topic.size_bytes), ("size",)),
    Column("RECORDS", 7, lambda topic, _: short_number(topic.records), ("records",), 1),
    Column("NEWEST", 7, _newest, ("newest",)),
    Column("KEPT", 10, lambda topic, _: show_retention(topic.retention), (), 2),
    Column("CURS", 4, lambda topic, _: short_number(topic.cursors), (), 3),
    Column("LAG", 6, _lag, ("lag",)),
)


class TablePlan(NamedTuple):
    """How wide everything is."""

    name: int
    columns: Sequence[Column]
    bars: int


def plan_table(width: int, names: Sequence[str], sort: ActivitySort) -> TablePlan:
    wanted = min(NAME_MAX, max(NAME_MIN, *map(len, names), 0))
    chosen = [_BYTES_OUT if sort == "bytes_out" and column.title == "BYTES/s" else column for column in _COLUMNS]
    by_weight = sorted((column for column in chosen if column.weight), key=lambda column: -column.weight)
    while _used(chosen) + NAME_MIN + BARS_MIN > width and by_weight:
        chosen.remove(by_weight.pop(0))
    left = max(NAME_MIN, width - _used(chosen))
    name = min(wanted, max(NAME_MIN, left - BARS_MIN))
    return TablePlan(name, chosen, max(0, min(BARS_MAX, left - name)))


def _used(chosen: Sequence[Column]) -> int:
    """By everything but the name and the bars, gaps included."""
    return MARK_WIDTH + 1 + sum(column.width + 1 for column in chosen)


def title_line(activity: Activity, view: View, width: int, rows: int) -> Text:
    """How many topics there are, and which of them these are."""
    last = view.offset + min(rows, len(activity.topics))
    places = f" {view.offset + 1:,} to {last:,} of {activity.matched:,}" if activity.topics else " none"
    found = f" that match {view.search!r}, of {activity.total:,}" if view.search else ""
    return line(width, ("TOPICS", TITLE), places, found, (f"  by {_order(view)}", FAINT))


def _order(view: View) -> str:
    if view.sort == "name":
        return "name, backwards" if view.descending else "name"
    last, first = ("latest", "oldest") if view.sort == "newest" else ("largest", "smallest")
    return f"{view.sort.replace('_', ' ')}, {last if view.descending else first} first"


def table_lines(
    activity: Activity, view: View, now: int, width: int, rows: int, selected: int | None = None
) -> list[Text]:
    """The titles, and a line for each topic: `rows` + 1 lines, the last ones perhaps empty."""
    topics = activity.topics[:rows]
    plan = plan_table(width, [topic.name for topic in topics], view.sort)
    made = [_titles(plan, view, width)]
    for number, topic in enumerate(topics):
        row = _row(topic, plan, now, width)
        if number == selected:
            row = Text(row.plain, "reverse", no_wrap=True, end="")
            row.truncate(width, pad=True)
        made.append(row)
    return made + [Text(end="")] * (rows - len(topics))


def _titles(plan: TablePlan, view: View, width: int) -> Text:
    arrow = "▼" if view.descending else "▲"

    def title(text: str, sorts: tuple[ActivitySort, ...]) -> str:
        return f"{arrow}{text}" if view.sort in sorts else text

    cells = [f"{'':{MARK_WIDTH}}{title('NAME', ('name',)):{plan.name}}"]
    cells += [f"{title(column.title, column.sorts):>{column.width}}" for column in plan.columns]
    return line(width, (" ".join([*cells, "RECENT"[: plan.bars]]).ljust(width), "underline"))


def _row(topic: TopicActivity, plan: TablePlan, now: int, width: int) -> Text:
    mark, style = ("X ", BAD) if topic.damaged else ("! ", WARN) if topic.refused is not None else ("  ", "")
    cells = [_cell(column.show(topic, now), column.width) for column in plan.columns]
    return line(
        width,
        (f"{mark}{short_name(topic.name, plan.name):{plan.name}}", style),
        *((cell, FAINT if cell.strip() in ("0", "0 B", "-") else "") for cell in cells),
        (f" {recent(topic.recent_in, plan.bars)}", PLOT),
    )


def _cell(text: str, width: int) -> str:
    return f" {text:>{width}}" if len(text) <= width else f" {text[: width - 1]}…"
