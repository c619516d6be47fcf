"""A report as a page: one file with nothing from elsewhere, no script, light and dark, wide and narrow.

Everything that others wrote (names of topics, keys, channels) is shown in letters that can be printed, and escaped.
Whoever serves the page sends POLICY with it: it lets the browser load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import timedelta
from importlib import resources
from typing import Final

from logboom.batch.moment import EPOCH
from logboom.broker.wording import size_of
from logboom.results.report.markup import Child, Markup, bars, el, join, line, nice, nice_bytes, plot, share_bar
from logboom.results.report.report import (
    DAY_US,
    Account,
    Distribution,
    Duplicates,
    Forecast,
    Named,
    Names,
    ProducerAccount,
    Report,
    Series,
    TopicAccount,
)
from logboom.results.report.sums import CELL

TOPICS_SHOWN: Final = 50
"""With plots, the largest first; the others have a line in the list of topics."""
LOGS_SHOWN: Final = 200
SILENCE_US: Final = 1_000_000
"""Shorter ones are in the JSON."""
PLACES_MIN: Final = 12
"""Of a plot over time: a single bar would fill it."""

STYLE: Final = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{_STYLE_HASH}'"

_SPANS: Final = (
    (365 * DAY_US, "years"),
    (DAY_US, "days"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
)
_WIDTHS: Final = {1_000_000: "second", 60_000_000: "minute", 3_600_000_000: "hour", DAY_US: "day"}


def make_page(report: Report) -> str:
    topics = sorted(report.topics, key=lambda topic: (-topic.size_bytes, topic.name))
    many = len(topics) != 1
    body = el(
        "main",
        _head(report),
        _tiles(report),
        _forecast(report),
        _topic_list(topics, report.whole) if many else None,
        *(_topic(number, topic) for number, topic in enumerate(topics[:TOPICS_SHOWN])),
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
        ("Stored", size_of(whole.stored_bytes), _gain(whole.plain_bytes, whole.stored_bytes)),
        ("Late", _share(whole.late.records, whole.records), f"by more than {span_of(whole.late.threshold_us)}"),
        ("Duplicates", _share(duplicates.records, whole.records), "same key, time, value"),
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
                *_cells(
                    f"{account.records:,}",
                    size_of(topic.size_bytes),
                    _pace(account.growth_per_day),
                    f"{account.late.records:,}",
                    repeated(account.duplicates),
                    "" if account.times is None else moment(account.times[1]),
                ),
            )
        )
    columns = [("Topic", ""), ("", "bar"), *((name, "num") for name in ("Records", "On disk", "A day", "Late"))]
    columns += [("Duplicates", "num"), ("Newest", "num")]
    card = el("div", _table(columns, rows, "topics"), class_="card wide")
    title = el("header", el("h2", "Topics"), el("p", counted(len(topics), "topic"), class_="quiet"))
    rates = _rates(whole) if whole.records else None
    return el("section", title, el("div", card, rates, class_="cards"))


def _topic(number: int, topic: TopicAccount) -> Markup:
    account = topic.account
    says = [counted(account.records, "record"), size_of(topic.size_bytes) + " on disk"]
    says.append(counted(len(topic.logs), "partition"))
    if topic.limit_bytes is not None:
        says.append(f"retention keeps about {size_of(topic.limit_bytes)}")
    head = el("header", el("h2", topic.name), el("p", ", ".join(says), class_="quiet"))
    if not account.records:
        return el("section", head, id=f"topic-{number}")
    cards = (
        _rates(account),
        _sizes(account),
        _times(account),
        _names("Keys", "key", account.keys),
        _names("Channels", "channel", account.channels),
        _producers(account),
        _batches(account),
        _logs(topic) if len(topic.logs) > 1 else None,
    )
    return el("section", head, el("div", *cards, class_="cards"), id=f"topic-{number}")


def _rates(account: Account) -> Markup:
    series = account.rates
    width = width_of(series.width_us)
    records = _series(series, f"Records per {width}", False)
    sizes = _series(series, f"Keys and values per {width}", True)
    outside = []
    if series.before:
        outside.append(f"{counted(series.before, 'record')} from long before")
    if series.behind:
        outside.append(f"{counted(series.behind, 'record')} from long after")
    note = f"By timestamp. Not shown: {', '.join(outside)}." if outside else "By timestamp, in UTC."
    return el("div", el("div", records, sizes, class_="pair"), el("p", note, class_="note"), class_="card wide")


def _series(series: Series, title: str, is_size: bool) -> Markup:
    first, last = series.points[0].at, series.points[-1].at
    count = max(PLACES_MIN, (last - first) // series.width_us + 1)
    amounts = [point.size_bytes if is_size else point.records for point in series.points]
    most, write = max(amounts), size_of if is_size else _number
    top = nice_bytes(most) if is_size else nice(most)
    columns = [
        ((point.at - first) // series.width_us, amount, f"{moment(point.at)}: {write(amount)}")
        for point, amount in zip(series.points, amounts, strict=True)
    ]
    drawn = bars(columns, count, max(1, top), title, "bytes" if is_size else "")
    end = first + count * series.width_us
    dates = _dates([first, (first + end) // 2, end], series.width_us)
    half = write(top // 2) if top > 1 else ""
    return plot(title, f"most {write(most)}", drawn, [write(top), half, "0"], dates)


def _sizes(account: Account) -> Markup:
    facts = _percentiles(account.sizes)
    extra = [("Tombstones", f"{account.tombstones:,}")] if account.tombstones else []
    return el(
        "div",
        el("h3", "Sizes of records"),
        _histogram(account.sizes, "Records by size of key and value"),
        _facts([*facts, *extra]),
        el("p", "Percentiles are at most a sixteenth too great, and never too small.", class_="note"),
        class_="card",
    )


def _histogram(distribution: Distribution, title: str) -> Markup:
    """By powers of two."""
    powers: dict[int, int] = {}
    for low, _, count in distribution.buckets:
        powers[low.bit_length()] = powers.get(low.bit_length(), 0) + count
    first, last, most = min(powers), max(powers), max(powers.values())
    top = nice(most)
    columns = [
        (power - first, count, f"{_range(power)}: {count:,} ({_share(count, distribution.count)})")
        for power, count in powers.items()
    ]
    drawn = bars(columns, last - first + 1, top, title)
    edges = [first, last + 1]
    if (last - first) % 2:
        edges.insert(1, (first + last + 1) // 2)
    half = _number(top // 2) if top > 1 else ""
    return plot(title, "", drawn, [_number(top), half, "0"], [size_of(_edge(power)) for power in edges])


def _edge(power: int) -> int:
    return 1 << power - 1 if power else 0


def _range(power: int) -> str:
    return f"{size_of(_edge(power))} up to {size_of(_edge(power + 1))}" if power else "empty"


def _times(account: Account) -> Markup:
    late, silences = account.late, account.silences
    facts = [
        ("Without a timestamp", _part(account.without_timestamp, account.records)),
        ("Behind a record before them", _part(late.behind, account.records)),
        (f"Late, by more than {span_of(late.threshold_us)}", _part(late.records, account.records)),
    ]
    if late.by_us.p50 is not None and late.by_us.p99 is not None and late.by_us.most is not None:
        by = (span_of(late.by_us.p50), span_of(late.by_us.p99), span_of(late.by_us.most))
        facts.append(("By: half, 99 %, most", ", ".join(by)))
    duplicates = account.duplicates
    if duplicates.records:
        facts.append(("Duplicates", f"{repeated(duplicates)} ({_share(duplicates.records, account.records)})"))
    else:
        facts.append(("Duplicates", "none"))
    rows = [
        el("tr", *_cells(span_of(high - low), moment(low), moment(high)))
        for low, high in silences.longest
        if high - low >= SILENCE_US
    ]
    table = _table([("Silence", "num"), ("From", "num"), ("Until", "num")], rows, "silences") if rows else None
    notes = ["A duplicate has the key, the timestamp and the value of a record before it in its log."]
    if duplicates.one_in > 1 and (account.records > CELL or duplicates.records > duplicates.near):
        off = f", so the number is off by about {duplicates.deviation:,}" if duplicates.deviation else ""
        far = (
            f"For those that are not within the same {CELL:,} records one in {duplicates.one_in:,} was looked at{off}."
        )
        notes.append(far)
    notes.append(f"What is late is told within each {CELL:,} records: one wrong clock does not spoil the rest.")
    if silences.missed_us >= SILENCE_US:
        notes.append(f"Silences of up to {span_of(silences.missed_us)} may be missing.")
    return el("div", el("h3", "Time"), _facts(facts), table, el("p", " ".join(notes), class_="note"), class_="card")


def _names(title: str, noun: str, names: Names) -> Markup:
    if not names.records:
        return el("div", el("h3", title), el("p", f"No record has a {noun}.", class_="quiet"), class_="card")
    distinct = about(names.distinct, names.distinct_one_in)
    share = _share(names.records, names.records + names.absent_records)
    says = (
        f"{distinct.capitalize()} different {noun if names.distinct == 1 else f'{noun}s'}, on {share} of the records."
    )
    rows = [_name(name, names) for name in names.by_records]
    columns = [(noun.capitalize(), ""), ("", "bar"), ("Records", "num"), ("Share", "num"), ("Size", "num")]
    parts = [el("h3", title), el("p", says), _table(columns, rows, "")]
    heavy = [name for name in names.by_bytes if name not in names.by_records]
    if heavy:
        largest = ", ".join(f"{shortened(name.text)} ({size_of(name.size_bytes)})" for name in heavy[:5])
        parts.append(el("p", f"Heavier than some of these, with fewer records: {largest}.", class_="note"))
    if names.missed_records:
        text = f"A {noun} that is not here may have up to {names.missed_records:,} records that were not told apart."
        parts.append(el("p", text, class_="note"))
    return el("div", *parts, class_="card")


def _name(name: Named, names: Names) -> Markup:
    records = f"{name.records:,}"
    if name.records_most > name.records:
        records += f" to {name.records_most:,}"
    total = names.records + names.absent_records
    text = name.text if name.text.strip() else f"“{name.text}”"
    return el(
        "tr",
        el("td", text, class_="name mono", title=name.text),
        el("td", share_bar(name.records / total), class_="bar"),
        *_cells(records, _share(name.records, total), size_of(name.size_bytes)),
    )


def _producers(account: Account) -> Markup:
    producers = account.producers
    rows = [_producer(producer.id or "none", producer) for producer in producers.most]
    if producers.others is not None:
        rows.append(_producer("all others", producers.others))
    columns = [("Producer", ""), *((name, "num") for name in ("Records", "Batches", "Stored", "Epochs"))]
    says = f"{counted(producers.known, 'producer')} numbered what they wrote, so that nothing is doubled."
    if not producers.known:
        says = "No producer numbered what it wrote."
    title = el("h3", "Producers")
    return el("div", title, el("p", says), _table(columns, rows, ""), class_="card")


def _producer(name: str, producer: ProducerAccount) -> Markup:
    low, high = producer.epochs
    epochs = "" if name == "none" else f"{low}" if low == high else f"{low} to {high}"
    numbers = f"{producer.records:,}", f"{producer.batches:,}", size_of(producer.size_bytes), epochs
    return el("tr", el("td", name, class_="name mono", title=name), *_cells(*numbers))


def _batches(account: Account) -> Markup:
    rows = [
        el(
            "tr",
            el("td", codec.codec),
            *_cells(
                f"{codec.batches:,}",
                size_of(codec.plain_bytes),
                size_of(codec.stored_bytes),
                _less(codec.plain_bytes, codec.stored_bytes),
            ),
        )
        for codec in account.codecs
    ]
    columns = [("Codec", ""), *((name, "num") for name in ("Batches", "Plain", "Stored", "Gain"))]
    sizes, records = account.batch_bytes, account.batch_records
    facts = [
        ("Batches", f"{sizes.count:,}"),
        ("Records in one: mean, half, most", f"{records.mean:,.1f}, {records.p50 or 0:,}, {records.most or 0:,}"),
        (
            "Bytes of one: mean, half, most",
            ", ".join(size_of(round(size or 0)) for size in (sizes.mean, sizes.p50, sizes.most)),
        ),
    ]
    gain = _less(account.plain_bytes, account.stored_bytes)
    says = f"In all {gain} than plain." if gain else "Nothing is gained by compression."
    title = el("h3", "Batches and compression")
    return el("div", title, _facts(facts), _table(columns, rows, ""), el("p", says, class_="note"), class_="card")


def _logs(topic: TopicAccount) -> Markup:
    rows = []
    for log in topic.logs[:LOGS_SHOWN]:
        account = log.account
        longest = max((high - low for low, high in account.silences.longest), default=None)
        rows.append(
            el(
                "tr",
                *_cells(
                    str(log.partition),
                    f"{account.records:,}",
                    _share(account.records, topic.account.records),
                    size_of(log.size_bytes),
                    _pace(account.growth_per_day),
                    f"{log.first:,}",
                    f"{account.late.records:,}",
                    repeated(account.duplicates),
                    "" if longest is None else span_of(longest),
                    "" if account.times is None else moment(account.times[1]),
                ),
            )
        )
    names = "Partition", "Records", "Share", "On disk", "A day", "From seqno", "Late", "Duplicates", "Longest silence"
    columns = [(name, "num") for name in (*names, "Newest")]
    rest = len(topic.logs) - len(rows)
    note = el("p", f"And {counted(rest, 'more partition')}, in the JSON.", class_="note") if rest else None
    return el("div", el("h3", "Partitions"), _table(columns, rows, "logs"), note, class_="card wide")


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


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Markup], kind: str) -> Markup:
    head = el("tr", *(el("th", name, class_=kind or None, scope="col") for name, kind in columns))
    table = el("table", el("thead", head), el("tbody", *rows), class_=kind or None)
    return el("div", table, class_="scroll")


def _cells(*texts: str) -> list[Markup]:
    return [el("td", text, class_="num") for text in texts]


def _facts(facts: Sequence[tuple[str, str]]) -> Markup:
    return el("dl", *(join(el("dt", name), el("dd", value)) for name, value in facts), class_="facts")


def _percentiles(distribution: Distribution) -> list[tuple[str, str]]:
    numbers = (
        ("Mean", distribution.mean),
        ("Half are at most", distribution.p50),
        ("90 % are at most", distribution.p90),
        ("99 % are at most", distribution.p99),
        ("Greatest", distribution.most),
    )
    return [(name, size_of(round(number))) for name, number in numbers if number is not None]


def moment(at: int) -> str:
    """
    >>> moment(0), moment(2**63 - 1)
    ('1970-01-01 00:00:00', '9,223,372,036,854,775,807 µs')
    """
    try:
        return (EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{at:,} µs"


def _dates(times: Sequence[int], width_us: int) -> list[str]:
    """As short as they can be told apart."""
    texts = [moment(at) for at in times]
    if width_us >= DAY_US:
        return [text[:10] for text in texts]
    if len({text[:10] for text in texts}) > 1:
        return [text[:16] for text in texts]
    return [texts[0], *(text[11:] for text in texts[1:])]


def span_of(span_us: int) -> str:
    """
    >>> span_of(90_000_000), span_of(1_500), span_of(12), span_of(14 * 86_400_000_000)
    ('1.5 min', '1.5 ms', '12 µs', '14 days')
    """
    for size, unit in _SPANS:
        if span_us >= size * (2 if unit == "years" else 1):
            number = span_us / size
            text = f"{number:,.0f}" if number >= 10 or span_us % size == 0 else f"{number:.1f}"
            return f"{text} {unit[:-1] if text == '1' and unit.endswith('s') and len(unit) > 2 else unit}"
    return f"{span_us} µs"


def width_of(width_us: int) -> str:
    """
    >>> width_of(60_000_000), width_of(600_000_000)
    ('minute', '10 min')
    """
    return _WIDTHS.get(width_us) or span_of(width_us)


def compact(number: int) -> str:
    """
    >>> compact(950), compact(1_234_567), compact(98_000_000_000)
    ('950', '1.23 million', '98.0 billion')
    """
    for size, unit in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= size:
            scaled = number / size
            return f"{scaled:.2f} {unit}" if scaled < 10 else f"{scaled:,.1f} {unit}"
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def about(number: int, one_in: int) -> str:
    return f"{number:,}" if one_in == 1 or not number else f"about {number:,}"


def repeated(duplicates: Duplicates) -> str:
    return about(duplicates.records, 1 if duplicates.records == duplicates.near else duplicates.one_in)


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _number(number: float) -> str:
    return f"{round(number):,}"


def _part(number: int, total: int) -> str:
    return f"{number:,} ({_share(number, total)})" if number else "none"


def _share(number: int, total: int) -> str:
    if not number or not total:
        return "none"
    share = 100 * number / total
    return "all" if number >= total else f"{share:.1f} %" if share >= 0.1 else "under 0.1 %"


def _gain(plain: int, stored: int) -> str:
    if not stored or plain <= stored:
        return "not compressed"
    return f"{_less(plain, stored)} than plain"


def _less(plain: int, stored: int) -> str:
    return f"{100 * (1 - stored / plain):.0f} % less" if 0 < stored < plain else ""


def _pace(growth: float | None) -> str:
    return "" if growth is None else size_of(round(growth))
