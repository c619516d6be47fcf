"""The part of a report's page that speaks of one topic: a card for each thing that was counted."""

from __future__ import annotations

from typing import Final

from logboom.broker.wording import size_of
from logboom.results.report.account import (
    Account,
    Distribution,
    Named,
    Names,
    ProducerAccount,
    Series,
    TopicAccount,
)
from logboom.results.report.markup import Markup, bars, cells, el, fact_list, nice, nice_bytes, plot, share_bar, table
from logboom.results.report.sums import CELL
from logboom.results.report.wording import (
    about,
    counted,
    dates_of,
    less_of,
    moment,
    number_of,
    pace_of,
    part_of,
    repeated,
    share_of,
    shortened,
    span_of,
    width_of,
)

LOGS_SHOWN: Final = 200
SILENCE_US: Final = 1_000_000
"""Shorter ones are in the JSON."""
PLACES_MIN: Final = 12
"""Of a plot over time: a single bar would fill it."""


def topic_section(number: int, topic: TopicAccount) -> Markup:
    account = topic.account
    says = [counted(account.records, "record"), size_of(topic.size_bytes) + " on disk"]
    says.append(counted(len(topic.logs), "partition"))
    if topic.limit_bytes is not None:
        says.append(f"retention keeps about {size_of(topic.limit_bytes)}")
    head = el("header", el("h2", topic.name), el("p", ", ".join(says), class_="quiet"))
    if not account.records:
        return el("section", head, id=f"topic-{number}")
    cards = (
        rates_card(account),
        _sizes(account),
        _times(account),
        _names("Keys", "key", account.keys),
        _names("Channels", "channel", account.channels),
        _producers(account),
        _batches(account),
        _logs(topic) if len(topic.logs) > 1 else None,
    )
    return el("section", head, el("div", *cards, class_="cards"), id=f"topic-{number}")


def rates_card(account: Account) -> Markup:
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
    most, write = max(amounts), size_of if is_size else number_of
    top = nice_bytes(most) if is_size else nice(most)
    columns = [
        ((point.at - first) // series.width_us, amount, f"{moment(point.at)}: {write(amount)}")
        for point, amount in zip(series.points, amounts, strict=True)
    ]
    drawn = bars(columns, count, max(1, top), title, "bytes" if is_size else "")
    end = first + count * series.width_us
    dates = dates_of([first, (first + end) // 2, end], series.width_us)
    half = write(top // 2) if top > 1 else ""
    return plot(title, f"most {write(most)}", drawn, [write(top), half, "0"], dates)


def _sizes(account: Account) -> Markup:
    facts = _percentiles(account.sizes)
    extra = [("Tombstones", f"{account.tombstones:,}")] if account.tombstones else []
    return el(
        "div",
        el("h3", "Sizes of records"),
        _histogram(account.sizes, "Records by size of key and value"),
        fact_list([*facts, *extra]),
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
        (power - first, count, f"{_range(power)}: {count:,} ({share_of(count, distribution.count)})")
        for power, count in powers.items()
    ]
    drawn = bars(columns, last - first + 1, top, title)
    edges = [first, last + 1]
    if (last - first) % 2:
        edges.insert(1, (first + last + 1) // 2)
    half = number_of(top // 2) if top > 1 else ""
    return plot(title, "", drawn, [number_of(top), half, "0"], [size_of(_edge(power)) for power in edges])


def _edge(power: int) -> int:
    return 1 << power - 1 if power else 0


def _range(power: int) -> str:
    return f"{size_of(_edge(power))} up to {size_of(_edge(power + 1))}" if power else "empty"


def _times(account: Account) -> Markup:
    late, silences = account.late, account.silences
    facts = [
        ("Without a timestamp", part_of(account.without_timestamp, account.records)),
        ("Behind a record before them", part_of(late.behind, account.records)),
        (f"Late, by more than {span_of(late.threshold_us)}", part_of(late.records, account.records)),
    ]
    if late.by_us.p50 is not None and late.by_us.p99 is not None and late.by_us.most is not None:
        by = (span_of(late.by_us.p50), span_of(late.by_us.p99), span_of(late.by_us.most))
        facts.append(("By: half, 99 %, most", ", ".join(by)))
    duplicates = account.duplicates
    if duplicates.records:
        facts.append(("Duplicates", f"{repeated(duplicates)} ({share_of(duplicates.records, account.records)})"))
    else:
        facts.append(("Duplicates", "none"))
    rows = [
        el("tr", *cells(span_of(high - low), moment(low), moment(high)))
        for low, high in silences.longest
        if high - low >= SILENCE_US
    ]
    longest = table([("Silence", "num"), ("From", "num"), ("Until", "num")], rows, "silences") if rows else None
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
    return el(
        "div", el("h3", "Time"), fact_list(facts), longest, el("p", " ".join(notes), class_="note"), class_="card"
    )


def _names(title: str, noun: str, names: Names) -> Markup:
    if not names.records:
        return el("div", el("h3", title), el("p", f"No record has a {noun}.", class_="quiet"), class_="card")
    distinct = about(names.distinct, names.distinct_one_in)
    share = share_of(names.records, names.records + names.absent_records)
    says = (
        f"{distinct.capitalize()} different {noun if names.distinct == 1 else f'{noun}s'}, on {share} of the records."
    )
    rows = [_name(name, names) for name in names.by_records]
    columns = [(noun.capitalize(), ""), ("", "bar"), ("Records", "num"), ("Share", "num"), ("Size", "num")]
    parts = [el("h3", title), el("p", says), table(columns, rows, "")]
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
        *cells(records, share_of(name.records, total), size_of(name.size_bytes)),
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
    return el("div", title, el("p", says), table(columns, rows, ""), class_="card")


def _producer(name: str, producer: ProducerAccount) -> Markup:
    low, high = producer.epochs
    epochs = "" if name == "none" else f"{low}" if low == high else f"{low} to {high}"
    numbers = f"{producer.records:,}", f"{producer.batches:,}", size_of(producer.size_bytes), epochs
    return el("tr", el("td", name, class_="name mono", title=name), *cells(*numbers))


def _batches(account: Account) -> Markup:
    rows = [
        el(
            "tr",
            el("td", codec.codec),
            *cells(
                f"{codec.batches:,}",
                size_of(codec.plain_bytes),
                size_of(codec.stored_bytes),
                less_of(codec.plain_bytes, codec.stored_bytes),
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
    gain = less_of(account.plain_bytes, account.stored_bytes)
    says = f"In all {gain} than plain." if gain else "Nothing is gained by compression."
    title = el("h3", "Batches and compression")
    return el("div", title, fact_list(facts), table(columns, rows, ""), el("p", says, class_="note"), class_="card")


def _logs(topic: TopicAccount) -> Markup:
    rows = []
    for log in topic.logs[:LOGS_SHOWN]:
        account = log.account
        longest = max((high - low for low, high in account.silences.longest), default=None)
        rows.append(
            el(
                "tr",
                *cells(
                    str(log.partition),
                    f"{account.records:,}",
                    share_of(account.records, topic.account.records),
                    size_of(log.size_bytes),
                    pace_of(account.growth_per_day),
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
    return el("div", el("h3", "Partitions"), table(columns, rows, "logs"), note, class_="card wide")


def _percentiles(distribution: Distribution) -> list[tuple[str, str]]:
    numbers = (
        ("Mean", distribution.mean),
        ("Half are at most", distribution.p50),
        ("90 % are at most", distribution.p90),
        ("99 % are at most", distribution.p99),
        ("Greatest", distribution.most),
    )
    return [(name, size_of(round(number))) for name, number in numbers if number is not None]
