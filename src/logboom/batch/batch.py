"""A batch: 96 bytes of header and a body, over memory that somebody else may own.

`Batch.parse` takes bytes from anywhere and checks the header; the first look at the body (or `verify`) checks
the rest, once. So nothing here ever reads through an offset that was not validated. A batch never copies its
body: Arrow views share the memory it was parsed from, and keep it alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from logboom.batch import arrow
from logboom.batch.columns import ABSENT, Columns, Lists, Text, find_columns
from logboom.batch.header import (
    BATCH_SIZE_MAX,
    KIND_DATA,
    NO_TIMESTAMP,
    Buffer,
    Header,
    read_header,
)
from logboom.batch.record import Record
from logboom.batch.validation import check_body, check_crc, check_header, inflated
from logboom.errors import BatchTooLarge, InvalidColumn, NotABatch, UnsupportedBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.batch.selection import Selection

_FEW: Final = 8
_CHUNK: Final = 1024
_ORDER: Final = ("value", "key", "timestamp", "channel", "tags", "headers")


class Latch:
    """Ends records that somebody takes one by one, from another thread: exactly before the one that comes next.

    Records are made by `map`, which asks for the value first. The latch has the values that are being used, and empties
    them when it is shut: of the record that was not made no seqno was taken either. Nothing is asked for each record.

    >>> latch, values = Latch(), [1, 2, 3]
    >>> latch.hold(values)
    True
    >>> taking = iter(values)
    >>> next(taking)
    1
    >>> latch.shut()
    >>> list(taking)
    []
    """

    __slots__ = ("_values", "is_shut")

    def __init__(self) -> None:
        self._values: list[Any] = []
        self.is_shut = False

    def hold(self, values: list[Any]) -> bool:
        """Whether these may be used: nobody else does. In this order, since `shut` may be called meanwhile."""
        self._values = values
        return not self.is_shut

    def shut(self) -> None:
        self.is_shut = True
        self._values.clear()

    def open(self) -> None:
        self.is_shut = False


class Batch:
    """Records that travel, are stored and are checksummed together."""

    __slots__ = ("_body", "_columns", "_header", "_verified", "data")

    def __init__(self, header: Header | None, data: memoryview, verified: bool) -> None:
        self._header = header
        self.data = data
        self._verified = verified
        self._body: memoryview | None = None
        self._columns: Columns | None = None

    @classmethod
    def parse(cls, data: Buffer) -> Batch:
        """The batch at the start of `data`, which may go on behind it. Checks the header, not yet the body."""
        header = read_header(data)
        if header.size > len(data):
            raise NotABatch(f"{len(data)} bytes hold only a part of a batch of {header.size}")
        view = data if type(data) is memoryview else memoryview(data)
        return cls(header, view if header.size == len(view) else view[: header.size], False)

    @classmethod
    def trusted(cls, data: Buffer) -> Batch:
        """A batch this process has just built."""
        return cls(None, memoryview(data), True)

    @property
    def header(self) -> Header:
        if self._header is None:
            self._header = read_header(self.data)
        return self._header

    def verify(self, limit_bytes: int = BATCH_SIZE_MAX) -> None:
        """Check everything: header, checksum, and the structure of the body. The second time, only the limit."""
        header = self.header
        if self._verified:
            if header.size > limit_bytes or header.body_size > limit_bytes:
                raise BatchTooLarge(max(header.size, header.body_size), limit_bytes)
            return
        check_header(header, limit_bytes)
        check_crc(header, self.data)
        self._body = body = inflated(header, self.data)
        if header.kind == KIND_DATA:
            self._columns = check_body(header, body)
        self._verified = True

    @property
    def body(self) -> memoryview:
        """The body, decompressed, verified."""
        if not self._verified:
            self.verify()
        if self._body is None:
            self._body = inflated(self.header, self.data)
        return self._body

    @property
    def columns(self) -> Columns:
        """Where the columns lie in the body."""
        if self._columns is None or not self._verified:
            body = self.body
            if self.header.kind != KIND_DATA:
                raise UnsupportedBatch(f"a batch of kind {self.header.kind} has no columns")
            self._columns = find_columns(body, self.header.record_count, self.header.columns)
        return self._columns

    def __len__(self) -> int:
        return self.header.record_count

    def __repr__(self) -> str:
        h = self.header
        return f"<Batch {h.index} with seqnos {h.base_seqno}..{h.next_seqno - 1}, {h.size} bytes>"

    def to_arrow(self, columns: Sequence[str] | None = None, where: Selection | None = None) -> pa.RecordBatch:
        """The records as Arrow, sharing this batch's memory. `columns` names and orders what is wanted, default all."""
        table = arrow.record_batch(self, columns)
        if where is None:
            return table
        mask = where.mask(self)
        return table if mask is None else table.filter(mask)

    def records(
        self, where: Selection | None = None, topic: str | None = None, partition: int | None = None
    ) -> Iterator[Record]:
        """The records, made one by one as they are asked for. They say that they are of this log."""
        if where is None:
            return self.numbered(iter(self.seqnos()), 0, topic, partition)
        rows = self.to_arrow((*_ORDER, "seqno"), where)
        *columns, seqnos = rows.columns
        return chain.from_iterable(_runs(columns, iter(seqnos.to_pylist()), 0, rows.num_rows, topic, partition))

    def numbered(
        self,
        seqnos: Iterator[int],
        skip: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        latch: Latch | None = None,
    ) -> Iterator[Record]:
        """The records behind the first `skip`, with these seqnos: each record takes one when it is made, no sooner.

        No more are made once the latch is shut.
        """
        count = self.header.record_count
        if count <= _FEW:
            entries = [self._few(name)[skip:] for name in _ORDER]
            if latch is not None and not latch.hold(entries[0]):
                return iter(())
            return map(Record, *entries, seqnos, repeat(topic), repeat(partition))
        columns = [self._constant(name) or arrow.column(self, name) for name in _ORDER]
        return chain.from_iterable(_runs(columns, seqnos, skip, count, topic, partition, latch))

    def _constant(self, name: str) -> repeat[Any] | None:
        """What every record has in this column, where the batch has no column for it. Of values there is a column."""
        columns, header = self.columns, self.header
        if name == "timestamp":
            moment = header.append_time if header.min_timestamp == NO_TIMESTAMP else header.min_timestamp
            return repeat(moment) if columns.timestamp == ABSENT else None
        if name == "value" or getattr(columns, name) is not None:
            return None
        return repeat(() if name in ("tags", "headers") else None)

    def values(self) -> list[bytes | None]:
        return self.to_list("value")

    def keys(self) -> list[bytes | None]:
        return self.to_list("key")

    def timestamps(self) -> list[int]:
        """Microseconds since 1970; the append time where a record has none."""
        return self.to_list("timestamp")

    def channels(self) -> list[str | None]:
        return self.to_list("channel")

    def tags(self) -> list[tuple[str, ...]]:
        return self.to_list("tags")

    def headers(self) -> list[tuple[tuple[str, bytes], ...]]:
        return self.to_list("headers")

    def seqnos(self) -> range:
        return range(self.header.base_seqno, self.header.next_seqno)

    def first_at(self, timestamp: int, seqno_from: int = 0) -> int | None:
        """The seqno of the first record, from `seqno_from` on, at or after this time."""
        start = max(0, seqno_from - self.header.base_seqno)
        if len(self) <= _FEW:
            later = (offset for offset, moment in enumerate(self._moments()) if offset >= start and moment >= timestamp)
            offset = next(later, None)
        else:
            offset = arrow.first_at(self, timestamp, start)
        return None if offset is None else self.header.base_seqno + offset

    def to_list(self, name: str) -> list[Any]:
        """One column, by its name, as Python objects."""
        if self.header.record_count <= _FEW:
            return self._few(name)
        return arrow.to_list(name, arrow.column(self, name))

    def _few(self, name: str) -> list[Any]:
        """A column of a batch so small that Arrow would cost more than the loop."""
        if name == "timestamp":
            return self._moments()
        if name == "seqno":
            return list(self.seqnos())
        if name not in _ORDER:
            raise InvalidColumn(name, f"unknown; a record has seqno, {', '.join(_ORDER)}")
        column = getattr(self.columns, name)
        if name == "tags":
            return [tuple(tag.decode() for (tag,) in row) for row in self._rows(column)]
        if name == "headers":
            return [tuple((name.decode(), value) for name, value in row) for row in self._rows(column)]
        if name == "channel":
            return [channel.decode() if channel else None for channel in self._strings(column)]
        return self._strings(column)

    def _moments(self) -> list[int]:
        header = self.header
        if self.columns.timestamp == ABSENT:
            moment = header.append_time if header.min_timestamp == NO_TIMESTAMP else header.min_timestamp
            return [moment] * header.record_count
        moments = self.body[: 8 * header.record_count].cast("q").tolist()
        if header.min_timestamp == NO_TIMESTAMP:
            moments = [header.append_time if moment == NO_TIMESTAMP else moment for moment in moments]
        return moments

    def _strings(self, text: Text | None) -> list[Any]:
        if text is None:
            return [None] * self.header.record_count
        body = self.body
        steps = body[text.offsets : text.offsets + 4 * text.count + 4].cast("i").tolist()
        data = bytes(body[text.data : text.data + text.size])
        entries: list[bytes | None] = [data[steps[i] : steps[i + 1]] for i in range(text.count)]
        if text.bitmap != ABSENT:
            bits = int.from_bytes(body[text.bitmap : text.offsets], "little")
            if bits != (1 << text.count) - 1:
                entries = [entry if bits >> i & 1 else None for i, entry in enumerate(entries)]
        return entries

    def _rows(self, lists: Lists | None) -> list[list[tuple[Any, ...]]]:
        count = self.header.record_count
        if lists is None:
            return [[]] * count
        steps = self.body[lists.offsets : lists.offsets + 4 * count + 4].cast("i").tolist()
        items = list(zip(*map(self._strings, lists.items), strict=True))
        return [items[steps[i] : steps[i + 1]] for i in range(count)]


def _runs(
    columns: list[Any],
    seqnos: Iterator[int],
    start: int,
    until: int,
    topic: str | None = None,
    partition: int | None = None,
    latch: Latch | None = None,
) -> Iterator[Iterator[Record]]:
    """Records of these columns, in `_ORDER`, some at a time: what is decoded is still in the cache when it is used.

    `map` makes them, so that no bytecode runs between two records. It asks for the value first: where there is none
    left no seqno is taken.
    """
    for first in range(start, until, _CHUNK):
        count = min(_CHUNK, until - first)
        entries: list[Any] = [
            column if isinstance(column, repeat) else arrow.to_list(name, column.slice(first, count))
            for name, column in zip(_ORDER, columns, strict=True)
        ]
        if latch is not None and not latch.hold(entries[0]):
            return
        yield map(Record, *entries, seqnos, repeat(topic), repeat(partition))
