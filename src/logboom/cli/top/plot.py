"""Numbers, plots and gauges for a terminal: plain text of a given width, of which nothing is wider.

A plot has a column for so much time, its newest at the right; a column shows the largest of its samples, and nothing
where there was none. What is zero is a line at the bottom, what is not is above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
FULL, EMPTY = "█", "░"
SPAN_US: Final = 300_000_000
"""What a plot shows, unless there is room for more."""
SAMPLES_PER_COLUMN_MIN: Final = 2
"""Samples come a little early or late: with one for each column some columns would have none."""


def short_number(value: float) -> str:
    """At most six characters, rounded.

    >>> short_number(0), short_number(0.25), short_number(999), short_number(12_345), short_number(1_999_999)
    ('0', '0.2', '999', '12.3k', '2.00M')
    """
    if value < 1000:
        return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:.0f}"
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P", "E"))


def short_size(size_bytes: float) -> str:
    """At most eight characters, rounded.

    >>> short_size(1023), short_size(1024), short_size(64 << 20), short_size(1023.9 * 1024)
    ('1023 B', '1.00 KiB', '64.0 MiB', '1.00 MiB')
    """
    return _scaled(size_bytes, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"))


def _scaled(value: float, step: int, units: Sequence[str]) -> str:
    unit = 0
    while value >= step - 0.5 and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    if not unit or value >= 99.95:
        return f"{value:.0f}{units[unit]}"
    return f"{value:.2f}{units[unit]}" if value < 9.995 else f"{value:.1f}{units[unit]}"


def short_duration(seconds: float) -> str:
    """At most six characters, rounded.

    >>> short_duration(0.00025), short_duration(0.0123), short_duration(2.5), short_duration(400)
    ('250us', '12.3ms', '2.50s', '6.7m')
    """
    for unit, size in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        value = seconds / size
        if value < 999.5 and (unit != "s" or value < 99.5):
            decimals = 0 if unit == "us" or value >= 99.95 else 2 if value < 9.995 else 1
            return f"{value:.{decimals}f}{unit}"
    return f"{seconds / 60:.1f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"


def short_age(microseconds: int) -> str:
    """How long ago, in the largest unit.

    >>> short_age(-5), short_age(59_999_999), short_age(3_600_000_000), short_age(86_400_000_000 * 400)
    ('0s', '59s', '1h', '400d')
    """
    seconds = max(0, microseconds) // 1_000_000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def bucket_us(interval_ms: int, at: Sequence[int], width: int) -> int:
    """How much time a column of a plot this wide stands for: whole samples, of which it takes few while it is young.

    >>> bucket_us(2000, [0, 10_000_000], 10), bucket_us(2000, [0, 600_000_000], 10)
    (4000000, 32000000)
    """
    interval_us = max(1, interval_ms) * 1000
    span_us = min(SPAN_US, at[-1] - at[0]) if at else 0
    samples = SAMPLES_PER_COLUMN_MIN
    while samples * interval_us * width < span_us:
        samples += samples // 2 if samples.bit_count() == 1 else samples // 3
    return samples * interval_us


def columns(at: Sequence[int], values: Sequence[float | None], size_us: int, width: int) -> list[float | None]:
    """The largest value of each stretch of time, the newest last. The stretches stay where they are as time goes on."""
    found: list[float | None] = [None] * width
    if not at:
        return found
    last = at[-1] // size_us
    for moment, value in zip(at, values, strict=True):
        place = width - 1 - (last - moment // size_us)
        if value is not None and 0 <= place < width:
            before = found[place]
            found[place] = value if before is None else max(before, value)
    return found


def bars(values: Sequence[float | None], height: int = 1, top: float | None = None) -> list[str]:
    """A bar for each value, as `height` lines, the upper first. `top` is as high as they go."""
    highest = max(top or 0.0, max(_known(values), default=0.0))
    steps = height * len(BLOCKS)
    levels = [_level(value, highest, steps) for value in values]
    rows = range(height - 1, -1, -1)
    return ["".join(_block(level - row * len(BLOCKS)) for level in levels) for row in rows]


def recent(counts: Sequence[int], width: int) -> str:
    """The last counts as one line of bars, one for each."""
    shown = list(counts[-width:]) if width > 0 else []
    return bars(shown)[0].rjust(width)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _level(value: float | None, highest: float, steps: int) -> int:
    if value is None:
        return 0
    if value <= 0 or highest <= 0:
        return 1
    return 1 + max(1, round(min(1.0, value / highest) * (steps - 1)))


def _block(level: int) -> str:
    return " " if level <= 0 else BLOCKS[min(level, len(BLOCKS)) - 1]


def bar(share: float, width: int) -> str:
    """A gauge: something is to be seen of whatever is not nothing.

    >>> bar(0.5, 4), bar(0.001, 4), bar(7, 4)
    ('██░░', '█░░░', '████')
    """
    share = min(1.0, max(0.0, share))
    full = max(round(share * width), 1 if share > 0 else 0)
    return FULL * full + EMPTY * (width - full)
