"""Sizes and durations as people write them: `64MiB`, `10s`. A plain number is bytes, or milliseconds."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from logboom.errors import ConfigError

SIZES: Final = {
    "": 1,
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
DURATIONS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AMOUNT: Final = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_LENGTH_MAX: Final = 40


def parse_size(text: str) -> int:
    """Bytes. Raises ValueError.

    >>> parse_size("64MiB"), parse_size("1.5kB"), parse_size("4_096")
    (67108864, 1500, 4096)
    """
    return _whole(_amount(text.lower(), {unit.lower(): size for unit, size in SIZES.items()}, text), text)


def size_of(option: str, text: str) -> int:
    """Bytes, of an option's text. Raises ConfigError."""
    try:
        return parse_size(text)
    except ValueError:
        raise ConfigError(option, f"{text!r} is no size: write it as 4096, 64MiB or 1.5GB") from None


def parse_duration(text: str) -> int:
    """Milliseconds. Raises ValueError.

    >>> parse_duration("10s"), parse_duration("1h30m"), parse_duration("250")
    (10000, 5400000, 250)
    """
    parts = re.findall(r"[\d._]+\s*[A-Za-z]+", text)
    if len(parts) < 2 or "".join(parts) != text.strip():
        return _whole(_amount(text, DURATIONS, text), text)
    return _whole(sum((_amount(part, DURATIONS, text) for part in parts), Fraction()), text)


def _amount(part: str, units: dict[str, int], text: str) -> Fraction:
    match = _AMOUNT.fullmatch(part.strip()) if len(text) <= _LENGTH_MAX else None
    if match is None or match[2] not in units:
        raise ValueError(text)
    return Fraction(match[1].replace("_", "")) * units[match[2]]


def _whole(amount: Fraction, text: str) -> int:
    if amount.denominator != 1:
        raise ValueError(text)
    return int(amount)


def format_size(size_bytes: int) -> str:
    """The shortest exact way to write it."""
    return _format(size_bytes, [(f"{letter}iB", 1024**power) for power, letter in enumerate("KMGT", 1)])


def format_duration(duration_ms: int) -> str:
    """The shortest exact way to write it."""
    return _format(duration_ms, [(unit, DURATIONS[unit]) for unit in ("s", "m", "h", "d")])


def _format(amount: int, units: list[tuple[str, int]]) -> str:
    for unit, size in reversed(units):
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)


def show_size(size_bytes: int) -> str:
    """Rounded, for people.

    >>> show_size(67108864), show_size(999)
    ('64.0 MiB', '999 B')
    """
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} PiB"


def show_duration(microseconds: float) -> str:
    """Rounded, for people.

    >>> show_duration(1500), show_duration(2_500_000), show_duration(90_000_000), show_duration(90_000_000_000)
    ('1.50 ms', '2.50 s', '1m30s', '1d1h')
    """
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.2f} ms"
    if microseconds < 60_000_000:
        return f"{microseconds / 1_000_000:.2f} s"
    rest, parts = int(microseconds) // 1_000_000 * 1_000_000, []
    for unit in ("w", "d", "h", "m", "s"):
        count, rest = divmod(rest, DURATIONS[unit] * 1000)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
