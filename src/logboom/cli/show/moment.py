"""Points in time on the command line. Inside they are microseconds since 1970; text without a zone is local time."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from logboom.batch.moment import EPOCH
from logboom.batch.record import microseconds
from logboom.server.units import parse_duration


def parse_moment(text: str, now: int | None = None) -> int:
    """RFC 3339, a date, `now`, or how long ago: `-10m`. Raises ValueError.

    >>> parse_moment("1970-01-01T00:00:01Z"), parse_moment("-10s", now=15_000_000)
    (1000000, 5000000)
    """
    text = text.strip()
    if text == "now" or text.startswith("-"):
        now = time.time_ns() // 1000 if now is None else now
        return now if text == "now" else now - _parse_age(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write it as 2026-01-31T12:00:00Z, 2026-01-31 or -10m") from None
    return microseconds(moment.astimezone() if moment.tzinfo is None else moment)


def _parse_age(text: str) -> int:
    try:
        if not text[-1:].isalpha():
            raise ValueError
        return parse_duration(text) * 1000
    except ValueError:
        raise ValueError(f"{text!r} is no duration: write it as 30s, 12h or 7d") from None


def show_moment(moment: int | None) -> str:
    """ISO 8601 in local time with its zone, to the millisecond; as a number where the calendar ends."""
    if moment is None:
        return "-"
    try:
        return (EPOCH + timedelta(microseconds=moment)).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(moment)
