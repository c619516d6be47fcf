"""Records of one log on their way to becoming a batch: columns that grow.

A column begins with the first record that has it, so records that are only values cost one list. Whatever cannot be
part of a batch is refused here, when it is written, and not later together with its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import add
from typing import Any, Final, NamedTuple

from logboom.batch import Batch, Producer, build, microseconds
from logboom.errors import InvalidColumn, LogboomError

RECORD_BYTES: Final = 8
"""What a record takes besides its bytes: offsets, and a share of bitmaps."""
SMALL_BYTES: Final = 4096
_ITEM_BYTES: Final = 16
_MOMENT_BYTES: Final = 8
_MOMENT_MIN: Final = -(2**63)
_MOMENT_MAX: Final = 2**63 - 1


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
        timestamp = check_moment(timestamp)
        size += _MOMENT_BYTES
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


def check_moment(timestamp: Any) -> int:
    if not isinstance(timestamp, int | datetime):
        raise InvalidColumn("timestamp", f"{type(timestamp).__name__} is neither microseconds nor a datetime")
    moment = microseconds(timestamp)
    if not _MOMENT_MIN <= moment <= _MOMENT_MAX:
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


class Rows(NamedTuple):
    """Records as columns; None is a column that all of them lack."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    timestamps: Sequence[int | None] | None = None

    @classmethod
    def of(cls, entries: Iterable[tuple[Any, ...]]) -> Rows:
        values, *others = zip(*entries, strict=True)
        return cls(values, *(None if column.count(None) == len(values) else column for column in others))

    @property
    def size(self) -> int:
        """The sum of `sizes`, sooner."""
        size = sum(map(len, filter(None, self.values))) + RECORD_BYTES * len(self.values)
        if self.keys is not None:
            named = len(self.keys) - self.keys.count(None)
            size += sum(map(len, filter(None, self.keys))) + RECORD_BYTES * named
        if self.timestamps is not None:
            size += _MOMENT_BYTES * (len(self.timestamps) - self.timestamps.count(None))
        return size

    def sizes(self) -> Iterator[int]:
        """Of each record, about."""
        sizes: Iterator[int] = (len(value or b"") + RECORD_BYTES for value in self.values)
        if self.keys is not None:
            keys = (0 if key is None else len(key) + RECORD_BYTES for key in self.keys)
            sizes = map(add, sizes, keys)
        if self.timestamps is not None:
            sizes = map(add, sizes, (0 if moment is None else _MOMENT_BYTES for moment in self.timestamps))
        return sizes

    def part(self, start: int, until: int | None = None) -> Rows:
        columns: list[Any] = [None if column is None else column[start:until] for column in self]
        return Rows(*columns)


class Inbox:
    """Records that were written and not gathered yet: left here without the writer's lock, taken by whoever has it.

        write: look at `room`, append, look at `room` again        with the lock: `shut`, `take`, gather, open again

    That nothing is lost here hangs on three things. To append to a list is one step of the interpreter, and takers
    remove from its front only what they have seen. Who shuts takes afterwards, and who appends looks afterwards: so
    either the taker has the record, or its writer sees that there is no room and goes for the lock itself. And there is
    room only while something is gathered whose time is running: somebody will come.
    """

    __slots__ = ("entries", "has_rows", "room", "since", "size_max")

    def __init__(self) -> None:
        self.entries: list[Any] = []
        """Values; or tuples of value, key and timestamp, which the collector of garbage has nothing to do with."""
        self.has_rows = False
        """Whether there ever was anything but values."""
        self.room = 0
        """How many entries may lie here; 0 sends whoever writes to the lock."""
        self.since = 0.0
        """When there was room first: what lies here was written later, by no more than the time between two turns."""
        self.size_max = SMALL_BYTES
        """Larger records are counted at once."""

    def leave(
        self, value: Any, key: Any, timestamp: Any, channel: Any, tags: Any, headers: Any, waiter: Waiter | None
    ) -> bool:
        """Leave a record here that nobody waits for, if that may be; then who is not alone looks at `room` again."""
        if (
            len(self.entries) >= self.room
            or type(value) is not bytes
            or channel is not None
            or tags
            or headers
            or waiter is not None
            or (key is not None and type(key) is not bytes)
            or (timestamp is not None and (type(timestamp) is not int or not _MOMENT_MIN <= timestamp <= _MOMENT_MAX))
            or len(value) + (0 if key is None else len(key)) > self.size_max
        ):
            return False
        if key is None and timestamp is None:
            self.entries.append(value)
        else:
            self.has_rows = True
            self.entries.append((value, key, timestamp))
        return True

    def shut(self) -> None:
        self.room = 0

    def take(self) -> list[Any]:
        taken = self.entries[:]
        del self.entries[: len(taken)]
        return taken

    def rows(self, entries: list[Any]) -> Rows:
        """What was taken, as columns."""
        if not self.has_rows or not entries:
            return Rows(entries)
        return Rows.of(entry if type(entry) is tuple else (entry, None, None) for entry in entries)


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
        key, timestamp, channel, tags, headers, _ = fields
        if key is not None or self.keys is not None:
            self.keys = self._grown(self.keys, key, None)
        if timestamp is not None or self.timestamps is not None:
            self.timestamps = self._grown(self.timestamps, timestamp, None)
        if channel is not None or self.channels is not None:
            self.channels = self._grown(self.channels, channel, None)
        if tags or self.tags is not None:
            self.tags = self._grown(self.tags, tags, ())
        if headers or self.headers is not None:
            self.headers = self._grown(self.headers, headers, ())
        if waiter is not None:
            self.wait(waiter)
        self.values.append(value)

    def put(self, value: bytes | None, key: bytes | None, timestamp: int | None, waiter: Waiter | None) -> None:
        """A record with no more than these."""
        if self.channels is not None or self.tags is not None or self.headers is not None:
            self.add(value, Fields(key, timestamp, None, (), (), 0), waiter)
            return
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = self._grown(None, key, None)
        if self.timestamps is not None:
            self.timestamps.append(timestamp)
        elif timestamp is not None:
            self.timestamps = self._grown(None, timestamp, None)
        if waiter is not None:
            self.wait(waiter)
        self.values.append(value)

    def _grown(self, column: list[Any] | None, entry: Any, absent: Any) -> list[Any]:
        """The column with one more entry; where there was none, the records before this one lack it."""
        if column is None:
            self.plain = False
            column = [absent] * len(self.values)
        column.append(entry)
        return column

    def extend(self, rows: Rows) -> None:
        """Records with no more than these."""
        count = len(rows.values)
        self.keys = self._lengthened(self.keys, rows.keys, count, None)
        self.timestamps = self._lengthened(self.timestamps, rows.timestamps, count, None)
        self.channels = self._lengthened(self.channels, None, count, None)
        self.tags = self._lengthened(self.tags, None, count, ())
        self.headers = self._lengthened(self.headers, None, count, ())
        self.values += rows.values

    def _lengthened(self, column: list[Any] | None, more: Sequence[Any] | None, count: int, absent: Any) -> Any:
        if column is None:
            if more is None:
                return None
            self.plain = False
            column = [absent] * len(self.values)
        column += more or [absent] * count
        return column

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
