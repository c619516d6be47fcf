"""Sizes and durations in words, and what is wrong with those that cannot be read."""

from __future__ import annotations

from logboom.errors import ConfigError
from logboom.server.units import DURATIONS, parse_size


def size_of(option: str, text: str) -> int:
    """Bytes, of an option's text. Raises ConfigError."""
    try:
        return parse_size(text)
    except ValueError:
        raise ConfigError(option, f"{text!r} is no size: write it as 4096, 64MiB or 1.5GB") from None


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
