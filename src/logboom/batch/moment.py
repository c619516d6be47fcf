"""Points in time as text: RFC 3339. Inside they are microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from logboom.batch.record import microseconds

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_rfc3339(text: str) -> int:
    """A date with a time and a zone. Raises ValueError.

    >>> parse_rfc3339("1970-01-01T00:00:01Z")
    1000000
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:100]!r} is no time: write it as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text[:100]!r} has no time zone: write it as 2026-01-31T12:00:00Z")
    return microseconds(moment)


def rfc3339(moment: int | None) -> str | int | None:
    """Exactly, in UTC; the number itself where the calendar ends.

    >>> rfc3339(1)
    '1970-01-01T00:00:00.000001Z'
    """
    if moment is None:
        return None
    try:
        return (EPOCH + timedelta(microseconds=moment)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return moment
