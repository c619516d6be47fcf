"""One topic as lines of a terminal: its logs, what it did lately, its own settings, its cursors.

Bounded: of very many partitions or cursors the first ones are shown, and how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from logboom.cli.setting import list_settings
from logboom.cli.show.wording import count_of, printable
from logboom.cli.top.lines import BAD, FAINT, GOOD, HALF_GAP, LABEL, PLOT, TITLE, PlotSeries, beside, line, tall_plot
from logboom.cli.top.plot import bars, bucket_us, columns, short_age, short_number, short_size

if TYPE_CHECKING:
    from logboom.broker.api import CursorInfo, PartitionInfo, TopicInfo
    from logboom.broker.monitor.activity import TopicHistory
    from logboom.cli.top.look import Detail

ROWS_MAX: Final = 500
CURSOR_NAME: Final = 28


def detail_lines(detail: Detail, now: int, width: int) -> list[Text]:
    info = detail.info
    if info is None:
        return [line(width, ("TOPIC ", TITLE), detail.name), line(width, ("there is no such topic any more", BAD))]
    made = _about(info, width)
    if detail.history is not None:
        made += _plots(detail.history, width)
    made += _settings(info, width)
    made += _cursors(detail.cursors, detail.history, now, width)
    made += _partitions(info.partitions, now, width)
    return made


def _about(info: TopicInfo, width: int) -> list[Text]:
    records = sum(part.committed - part.first for part in info.partitions)
    size = sum(part.size_bytes for part in info.partitions)
    segments = sum(part.segments for part in info.partitions)
    writes = ("accepted", GOOD) if info.refused is None else (f"REFUSED: {printable(info.refused) or 'read-only'}", BAD)
    counts = ", ".join((count_of(len(info.partitions), "partition"), count_of(records, "record"), short_size(size)))
    facts = f"{counts}, {count_of(segments, 'segment')}"
    return [
        line(width, ("TOPIC ", TITLE), (info.name, TITLE), (f"  id {info.id}", FAINT)),
        line(width, f"{facts}  writes ", writes),
        line(width, ""),
    ]


def _plots(history: TopicHistory, width: int) -> list[Text]:
    seconds = max(1, history.interval_ms) / 1000
    half = (width - HALF_GAP) // 2
    room = max(1, half - LABEL - 1)
    size_us = bucket_us(history.interval_ms, history.at, room)
    pair = [
        tall_plot(PlotSeries(label, [count / seconds for count in counts], short_number), history.at, size_us, room)
        for label, counts in (("records in/s", history.records_in), ("records out/s", history.records_out))
    ]
    return [*beside(pair[0], pair[1], width), line(width, "")]


def _settings(info: TopicInfo, width: int) -> list[Text]:
    made = [line(width, ("SETTINGS that are not the default", TITLE))]
    for name, value, is_default in list_settings(info.settings):
        if not is_default:
            made.append(line(width, f"  {name:26} {printable(value)}"))
    if len(made) == 1:
        made.append(line(width, ("  none", FAINT)))
    return [*made, line(width, "")]


def _cursors(cursors: Sequence[CursorInfo], history: TopicHistory | None, now: int, width: int) -> list[Text]:
    made = [line(width, (f"CURSORS {len(cursors):,}", TITLE))]
    if cursors:
        titles = f"  {'NAME':{CURSOR_NAME}} {'PART':>5} {'SEQNO':>14} {'LAG':>7} {'MOVED':>8}  LAG LATELY"
        made.append(line(width, (titles, FAINT)))
    lags = {} if history is None else {(entry.cursor, entry.partition): entry.lag for entry in history.cursors}
    room = max(1, min(60, width - len(titles) + len("LAG LATELY"))) if cursors else 1
    for cursor in cursors[:ROWS_MAX]:
        name = line(CURSOR_NAME, printable(cursor.cursor))
        name.truncate(CURSOR_NAME, overflow="ellipsis", pad=True)
        lag = "-" if cursor.lag is None else short_number(cursor.lag)
        moved = f"{short_age(now - cursor.updated)} ago"
        row = line(width, "  ").append_text(name)
        row.append(f" {cursor.partition:>5} {cursor.seqno:>14,} {lag:>7} {moved:>8}  ")
        known = lags.get((cursor.cursor, cursor.partition))
        if known is not None and history is not None:
            shown = columns(history.at, known, bucket_us(history.interval_ms, history.at, room), room)
            row.append(bars(shown)[0], PLOT)
        row.truncate(width, overflow="ellipsis")
        made.append(row)
    made += _more(len(cursors), width)
    return [*made, line(width, "")]


def _partitions(partitions: Sequence[PartitionInfo], now: int, width: int) -> list[Text]:
    titles = f"  {'PART':>5} {'FIRST':>14} {'NEXT':>14} {'RECORDS':>8} {'SIZE':>8} {'SEGMENTS':>8} {'NEWEST':>7}"
    made = [line(width, (f"PARTITIONS {len(partitions):,}", TITLE)), line(width, (titles, FAINT))]
    for part in partitions[:ROWS_MAX]:
        newest = "-" if part.newest is None else short_age(now - part.newest)
        made.append(
            line(
                width,
                f"  {part.partition:>5} {part.first:>14,} {part.committed:>14,} "
                f"{short_number(part.committed - part.first):>8} {short_size(part.size_bytes):>8} "
                f"{part.segments:>8,} {newest:>7}",
                (f"  takes no writes: {printable(part.refusal)}" if part.refusal is not None else "", BAD),
            )
        )
    return [*made, *_more(len(partitions), width)]


def _more(count: int, width: int) -> Iterator[Text]:
    if count > ROWS_MAX:
        yield line(width, (f"  and {count - ROWS_MAX:,} more", FAINT))
