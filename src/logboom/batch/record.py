"""One record, as people write and read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Record(msgspec.Struct, frozen=True, gc=False):
    """A value and what is known about it. Immutable.

    `timestamp` is in microseconds since 1970; None lets the log's append time stand in for it.
    `value` is bytes, or what a reader with `value=` has made of them; None is a tombstone. `seqno`, `topic` and
    `partition` say where a reader has found it, and are None before.

    >>> Record(b"21.5", channel="site/7/temp", tags=("outdoor",)).tags
    ('outdoor',)
    """

    value: Any
    key: bytes | None = None
    timestamp: int | None = None
    channel: str | None = None
    tags: tuple[str, ...] = ()
    headers: tuple[tuple[str, bytes], ...] = ()
    seqno: int | None = None
    topic: str | None = None
    partition: int | None = None

    @property
    def time(self) -> datetime | None:
        """The timestamp as an aware datetime; None also where the calendar of `datetime` does not reach."""
        try:
            return None if self.timestamp is None else _EPOCH + timedelta(microseconds=self.timestamp)
        except OverflowError:
            return None


def microseconds(moment: datetime | int) -> int:
    """A datetime as microseconds since 1970, which an int is already; one without a time zone is UTC, as in Arrow."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
