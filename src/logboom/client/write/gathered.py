"""Records of one log on their way to becoming a batch: columns that grow.

A column begins with the first record that has it, so records that are only values cost one list. Whatever cannot be
part of a batch is refused here, when it is written, and not later together with its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from logboom.batch import Batch, Producer, build, microseconds
from logboom.errors import InvalidColumn, LogboomError

RECORD_BYTES: Final = 8
"""What a record takes besides its bytes: offsets, and a share of bitmaps."""
_ITEM_BYTES: Final = 16


class Written(NamedTuple):
    """Where a record went."""

    topic: str
    partition: int
    seqno: int
    append_time: int
    """Microseconds since 1970, by the node's clock. With acks=none nobody knows this or the seqno: both are -1."""


Waiter = Callable[[Written | LogboomError], None]
"""Told once where its record went, or why not."""


class Fields(NamedTuple):
    """A record's optional parts, checked."""

    key: bytes | None
    timestamp: int | None
    channel: str | None
    tags: tuple[str, ...]
    headers: tuple[tuple[str, bytes], ...]
    size: int


def check_fields(key: Any, timestamp: Any, channel: Any, tags: Any, headers: Any) -> Fields:
    if key is not None and type(key) is not bytes:
        key = as_bytes("key", key)
    size = len(key) + RECORD_BYTES if key is not None else 0
    if timestamp is not None:
        timestamp = _check_moment(timestamp)
        size += 8
    if channel is not None:
        size += len(_encode("channel", channel)) + RECORD_BYTES
    if tags:
        tags = _check_tags(tags)
        size += sum(map(len, tags)) + _ITEM_BYTES * len(tags)
    if headers:
        headers = _check_headers(headers)
        size += sum(len(name) + len(value) + _ITEM_BYTES for name, value in headers)
    return Fields(key, timestamp, channel, tags or (), headers or (), size)


def as_bytes(name: str, entry: Any) -> bytes | None:
    """What was given as a value or a key."""
    if entry is None or type(entry) is bytes:
        return entry
    if isinstance(entry, str):
        return _encode(name, entry)
    if isinstance(entry, bytes | bytearray | memoryview):
        return bytes(entry)
    raise InvalidColumn(name, f"{type(entry).__name__} is neither bytes nor text")


def _encode(name: str, text: Any) -> bytes:
    if not isinstance(text, str):
        raise InvalidColumn(name, f"{type(text).__name__} is not text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidColumn(name, f"text that UTF-8 cannot hold: {error}") from None


def _check_moment(timestamp: Any) -> int:
    if not isinstance(timestamp, int | datetime):
        raise InvalidColumn("timestamp", f"{type(timestamp).__name__} is neither microseconds nor a datetime")
    moment = microseconds(timestamp)
    if not -(2**63) <= moment < 2**63:
        raise InvalidColumn("timestamp", "microseconds since 1970 must fit 64 bits")
    return moment


def _check_tags(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidColumn("tags", "one string is not a list of tags: put it in a tuple")
    checked = tuple(tags)
    for tag in checked:
        _encode("tags", tag)
    return checked


def _check_headers(headers: Any) -> tuple[tuple[str, bytes], ...]:
    pairs = headers.items() if hasattr(headers, "items") else headers
    checked = []
    try:
        for name, value in pairs:
            _encode("headers", name)
            content = as_bytes("headers", value)
            if content is None:
                raise InvalidColumn("headers", f"{name!r} has no value")
            checked.append((name, content))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidColumn):
            raise
        raise InvalidColumn("headers", "not a list of (name, bytes)") from None
    return tuple(checked)


class Gathered:
    """The columns of one batch to be. `values` always has an entry for each record, the others have or are None."""

    __slots__ = ("channels", "headers", "keys", "plain", "since", "size", "tags", "timestamps", "values", "waiters")

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.channels: list[str | None] | None = None
        self.tags: list[Sequence[str]] | None = None
        self.headers: list[Sequence[tuple[str, bytes]]] | None = None
        self.waiters: list[tuple[int, Waiter]] | None = None
        """Who wants to know, with the number of its record in here."""
        self.plain = True
        """Nothing but values so far."""
        self.size = 0
        self.since: float | None = None
        """When the first record came; None until somebody looks at a clock."""

    def wait(self, waiter: Waiter) -> None:
        """It waits for the record that is added next."""
        if self.waiters is None:
            self.waiters = []
        self.waiters.append((len(self.values), waiter))

    def add(self, value: bytes | None, fields: Fields, waiter: Waiter | None) -> None:
        count = len(self.values)
        if waiter is not None:
            self.wait(waiter)
        self.values.append(value)
        key, timestamp, channel, tags, headers, _ = fields
        self.plain = False
        self.keys = _grown(self.keys, count, key, None)
        self.timestamps = _grown(self.timestamps, count, timestamp, None)
        self.channels = _grown(self.channels, count, channel, None)
        self.tags = _grown(self.tags, count, tags, ())
        self.headers = _grown(self.headers, count, headers, ())

    def build(self, codec: str, producer: Producer) -> Batch:
        return build(
            self.values,
            keys=self.keys,
            timestamps=self.timestamps,
            channels=self.channels,
            tags=self.tags,
            headers=self.headers,
            codec=codec,
            producer=producer,
        )


def _grown(column: list[Any] | None, count: int, entry: Any, absent: Any) -> list[Any] | None:
    if column is None:
        if not entry and entry in (None, ()):
            return None
        column = [absent] * count
    column.append(entry)
    return column
