"""Numbers, times and shares in the words of a report's page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from logboom.batch.moment import EPOCH
from logboom.broker.wording import size_of
from logboom.results.report.account import DAY_US, Duplicates

_SPANS: Final = (
    (365 * DAY_US, "years"),
    (DAY_US, "days"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
)
_WIDTHS: Final = {1_000_000: "second", 60_000_000: "minute", 3_600_000_000: "hour", DAY_US: "day"}


def moment(at: int) -> str:
    """
    >>> moment(0), moment(2**63 - 1)
    ('1970-01-01 00:00:00', '9,223,372,036,854,775,807 µs')
    """
    try:
        return (EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{at:,} µs"


def dates_of(times: Sequence[int], width_us: int) -> list[str]:
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


def number_of(number: float) -> str:
    return f"{round(number):,}"


def part_of(number: int, total: int) -> str:
    return f"{number:,} ({share_of(number, total)})" if number else "none"


def share_of(number: int, total: int) -> str:
    if not number or not total:
        return "none"
    share = 100 * number / total
    return "all" if number >= total else f"{share:.1f} %" if share >= 0.1 else "under 0.1 %"


def gain_of(plain: int, stored: int) -> str:
    if not stored or plain <= stored:
        return "not compressed"
    return f"{less_of(plain, stored)} than plain"


def less_of(plain: int, stored: int) -> str:
    return f"{100 * (1 - stored / plain):.0f} % less" if 0 < stored < plain else ""


def pace_of(growth: float | None) -> str:
    return "" if growth is None else size_of(round(growth))
