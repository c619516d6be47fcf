"""Text of others, sizes and spans of time, in words that people and terminals can take."""

from __future__ import annotations

from typing import Final

_SPANS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_SIZES: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def printable(text: str) -> str:
    """What somebody else wrote, without what a terminal would obey.

    >>> printable(chr(27) + "[0m")
    '\\\\x1b[0m'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines, which may have tabs.

    >>> printable_lines("a\\tb" + chr(13) + chr(10))
    'a\\tb\\\\r\\n'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" else printable(letter) for letter in text)


def age_of(span_us: int) -> str:
    """How long that is, in the largest unit that fits, rounded down.

    >>> age_of(5_400_000_000), age_of(1_000_000), age_of(-7)
    ('1 hour', '1 second', '0 seconds')
    """
    span_s = max(0, span_us) // 1_000_000
    size, unit = next((entry for entry in _SPANS if span_s >= entry[0]), _SPANS[-1])
    number = span_s // size
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def size_of(size_bytes: int) -> str:
    """How much that is, in the largest unit that fits.

    >>> size_of(1_610_612_736), size_of(700)
    ('1.5 GiB', '700 bytes')
    """
    for factor, unit in _SIZES:
        if size_bytes >= factor:
            return f"{size_bytes / factor:,.1f} {unit}"
    return f"{size_bytes:,} bytes"
