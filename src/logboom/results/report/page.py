"""A report as a page: one file with nothing from elsewhere, no script, light and dark, wide and narrow.

Everything that others wrote (names of topics, keys, channels) is shown in letters that can be printed, and escaped.
Whoever serves the page sends POLICY with it: it lets the browser load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Final

from logboom.broker.wording import size_of
from logboom.results.report.account import (
    DAY_US,
    Account,
    Forecast,
    Report,
    TopicAccount,
)
from logboom.results.report.markup import (
    Child,
    Markup,
    cells,
    el,
    line,
    nice_bytes,
    plot,
    share_bar,
    table,
)
from logboom.results.report.topic_section import rates_card, topic_section
from logboom.results.report.wording import (
    compact,
    counted,
    gain_of,
    moment,
    pace_of,
    repeated,
    share_of,
    span_of,
)

TOPICS_SHOWN: Final = 50
"""With plots, the largest first; the others have a line in the list of topics."""

STYLE: Final = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{_STYLE_HASH}'"


def make_page(report: Report) -> str:
    topics = sorted(report.topics, key=lambda topic: (-topic.size_bytes, topic.name))
    many = len(topics) != 1
    body = el(
        "main",
        _head(report),
        _tiles(report),
        _forecast(report),
        _topic_list(topics, report.whole) if many else None,
        *(topic_section(number, topic) for number, topic in enumerate(topics[:TOPICS_SHOWN])),
        _about(report),
    )
    head = el(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        el("title", f"Report {report.name}"),
        el("style", Markup(STYLE)),
    )
    return f"<!DOCTYPE html>\n{el('html', head, el('body', body), lang='en')}\n"


def _head(report: Report) -> Markup:
    whole = report.whole
    span = "" if whole.times is None else f"Records from {moment(whole.times[0])} until {moment(whole.times[1])}. "
    about = f"{span}Made at {moment(report.at)} (UTC) of node {report.node_id}."
    return el("header", el("h1", f"Report {report.name}"), el("p", about, class_="quiet"), class_="page")


def _tiles(report: Report) -> Markup:
    whole = report.whole
    duplicates = whole.duplicates
    full, why = _full(report)
    tiles = [
        ("Records", compact(whole.records), f"in {counted(len(report.topics), 'topic')}"),
        ("Keys and values", size_of(whole.size_bytes), f"{size_of(round(whole.sizes.mean))} a record"),
        ("Stored", size_of(whole.stored_bytes), gain_of(whole.plain_bytes, whole.stored_bytes)),
        ("Late", share_of(whole.late.records, whole.records), f"by more than {span_of(whole.late.threshold_us)}"),
        ("Duplicates", share_of(duplicates.records, whole.records), "same key, time, value"),
        ("Volume full", full, why),
    ]
    shown = (el("div", el("dt", name), el("dd", value), el("dd", note, class_="note")) for name, value, note in tiles)
    return el("dl", *shown, class_="tiles")


def _full(report: Report) -> tuple[str, str]:
    forecast = report.forecast
    if forecast is None:
        return "unknown", "the node does not tell"
    free = f"{size_of(forecast.free_bytes)} free"
    if report.whole.growth_per_day is None:
        return "too early", free
    if forecast.full_at is None:
        return "not in sight", free
    rest = forecast.full_at - report.at
    if rest > 36_500 * DAY_US:
        return "in over 100 years", free
    return f"in {span_of(rest)}", f"about {moment(forecast.full_at)[:10]}"


def _forecast(report: Report) -> Markup | None:
    forecast = report.forecast
    if forecast is None:
        return None
    room = max(0, forecast.free_bytes - forecast.reserve_bytes)
    window, growth = span_of(forecast.window_us), size_of(round(forecast.growth_per_day))
    free = f"The volume has {size_of(room)} left above the reserve of {size_of(forecast.reserve_bytes)}"
    if report.whole.growth_per_day is None:
        says = "There is less than a minute of records: too little to foresee anything."
    elif forecast.full_at is not None:
        until, day = _full(report)
        says = f"At the pace of the last {window} these logs grow by {growth} a day. {free}: it is full {until}, {day}."
    elif forecast.growth_per_day:
        most = size_of(round(forecast.curve[-1][1]))
        says = (
            f"These logs grow by {growth} a day, until retention holds them at about {most}. {free}: it does not fill."
        )
    else:
        says = f"Nothing grows that retention does not hold. {free}."
    drawing = _curve(report.at, forecast, room) if forecast.growth_per_day else None
    note = (
        f"Each log goes on at its pace of the last {window}, or of as long as it has records, until what its retention "
        "settings keep is reached. Other topics, and whatever else is on the volume, are taken to stay as they are."
    )
    head = el("header", el("h2", "Growth"), el("p", says))
    if drawing is None:
        return el("section", head)
    card = el("div", drawing, el("p", note, class_="note"), class_="card wide")
    return el("section", head, el("div", card, class_="cards"))


def _curve(at: int, forecast: Forecast, room: int) -> Markup:
    start = forecast.curve[0][1]
    end_at, end = forecast.curve[-1]
    if forecast.full_at is None:
        rest = max(DAY_US, (end_at - at) // 3)
        points, end_at = [*forecast.curve, (end_at + rest, end)], end_at + rest
    else:
        points = list(forecast.curve)
    top = nice_bytes(max(1.0, end))
    drawn = line([(time - at, size) for time, size in points], max(1, end_at - at), top, "size of these logs")
    about = f"{size_of(round(start))} now, {size_of(round(start + room))} when the volume is full"
    across = [moment(time)[:10] for time in (at, (at + end_at) // 2, end_at)]
    return plot("Size of these logs", about, drawn, [size_of(top), size_of(top // 2), "0"], across)


def _topic_list(topics: Sequence[TopicAccount], whole: Account) -> Markup:
    most = max((topic.size_bytes for topic in topics), default=0)
    rows = []
    for number, topic in enumerate(topics):
        account = topic.account
        name: Child = el("a", topic.name, href=f"#topic-{number}") if number < TOPICS_SHOWN else topic.name
        rows.append(
            el(
                "tr",
                el("td", name, class_="name", title=topic.name),
                el("td", share_bar(topic.size_bytes / most if most else 0), class_="bar"),
                *cells(
                    f"{account.records:,}",
                    size_of(topic.size_bytes),
                    pace_of(account.growth_per_day),
                    f"{account.late.records:,}",
                    repeated(account.duplicates),
                    "" if account.times is None else moment(account.times[1]),
                ),
            )
        )
    columns = [("Topic", ""), ("", "bar"), *((name, "num") for name in ("Records", "On disk", "A day", "Late"))]
    columns += [("Duplicates", "num"), ("Newest", "num")]
    card = el("div", table(columns, rows, "topics"), class_="card wide")
    title = el("header", el("h2", "Topics"), el("p", counted(len(topics), "topic"), class_="quiet"))
    rates = rates_card(whole) if whole.records else None
    return el("section", title, el("div", card, rates, class_="cards"))


def _about(report: Report) -> Markup:
    hidden = len(report.topics) - TOPICS_SHOWN
    more = (
        f" {counted(hidden, 'smaller topic')} have a line in the list, and all numbers in the JSON."
        if hidden > 0
        else ""
    )
    says = (
        "Counted is what could be read of each log when the report was made. Sizes of records are those of key and "
        "value; what is stored has channels, tags and headers too, and is compressed. All times are UTC."
    )
    return el("footer", el("p", says + more), el("p", "The same numbers, and more of them, are in report.json."))
