"""Batches as Arrow: views that share the batch's memory.

Columns are `seqno` int64, `timestamp` microseconds in UTC, `key` and `value` binary, `channel` string, `tags` list of
string, `headers` list of struct(key, value). What a record lacks is null; tags and headers are empty, never null.
Only the types Spark takes are used. Nothing is copied but what has to be made: seqnos, filled-in timestamps,
and the bitmap of a channel column with gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logboom.batch import vector
from logboom.batch.columns import ABSENT, Columns, Text
from logboom.batch.header import NO_TIMESTAMP, Header
from logboom.errors import InvalidColumn

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from logboom.batch.batch import Batch

    _Make = Callable[["_View", pa.DataType], pa.Array]

ORDER = ("seqno", "timestamp", "key", "value", "channel", "tags", "headers")


@lru_cache(maxsize=1024)
def schema(names: tuple[str, ...] = ORDER) -> pa.Schema:
    """The Arrow schema of these columns."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "seqno": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "channel": pa.string(),
        "tags": pa.list_(pa.string()),
        "headers": pa.list_(header),
    }
    for name in names:
        if name not in types:
            raise InvalidColumn(name, f"unknown; a record has {', '.join(ORDER)}")
    return pa.schema([(name, types[name]) for name in names])


def record_batch(batch: Batch, names: Sequence[str] | None = None) -> pa.RecordBatch:
    names = ORDER if names is None else tuple(names)
    view = _view(batch)
    return vector.pa.RecordBatch.from_arrays([make(view, kind) for make, kind in _plan(names)], names)


def column(batch: Batch, name: str) -> pa.Array:
    """One column by itself."""
    ((make, kind),) = _plan((name,))
    return make(_view(batch), kind)


class _View(msgspec.Struct, gc=False):
    """A verified batch, looked up once for all its columns; `source` is its body as Arrow takes it."""

    header: Header
    columns: Columns
    body: memoryview
    source: pa.Buffer


def _view(batch: Batch) -> _View:
    body = batch.body
    return _View(batch.header, batch.columns, body, vector.pa.py_buffer(body))


@lru_cache(maxsize=1024)
def _plan(names: tuple[str, ...]) -> list[tuple[_Make, pa.DataType]]:
    """What makes each of these columns, and of which type."""
    return [(_COLUMNS[field.name], field.type) for field in schema(names)]


def first_at(batch: Batch, timestamp: int, start: int) -> int | None:
    """The offset of the first record, from `start` on, at or after this time."""
    later = _moments(_view(batch))[start:] >= timestamp
    return start + int(later.argmax()) if later.any() else None


def to_list(name: str, array: pa.Array) -> list[Any]:
    """A column as Python objects: timestamps in microseconds, tags and headers as tuples."""
    if name == "timestamp":
        return list(array.view(vector.pa.int64()).to_pylist())
    entries: list[Any] = array.to_pylist()
    if name == "tags":
        return [tuple(entry) for entry in entries]
    if name == "headers":
        return [tuple((item["key"], item["value"]) for item in entry) for entry in entries]
    return entries


_BLOCK = 16_384
_numbers: tuple[int, int, Any] = (0, 0, None)
"""The last block of consecutive seqnos made: first, after last, Arrow array. Readers go forward: the next is in it."""


def _seqno(view: _View, kind: pa.DataType) -> pa.Array:
    global _numbers
    first, after, block = _numbers
    count, base = view.header.record_count, view.header.base_seqno
    if base < first or base + count > after:
        first, after = base, max(base + count, min(base + _BLOCK, 2**63 - 1))
        block = vector.pa.array(vector.np.arange(first, after, dtype=vector.I64), kind)
        _numbers = (first, after, block)
    return block.slice(base - first, count)


def _timestamp(view: _View, kind: pa.DataType) -> pa.Array:
    count = view.header.record_count
    if view.columns.timestamp != ABSENT and view.header.min_timestamp != NO_TIMESTAMP:
        buffer = view.source.slice(view.columns.timestamp, 8 * count)
    else:
        buffer = vector.pa.py_buffer(_moments(view))
    return vector.from_buffers(kind, count, [None, buffer], 0)


def _moments(view: _View) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The timestamps as readers see them: one may stand for all, and records without one show the append time."""
    np, header = vector.np, view.header
    if view.columns.timestamp == ABSENT:
        moment = header.append_time if header.min_timestamp == NO_TIMESTAMP else header.min_timestamp
        return np.full(header.record_count, moment, np.int64)
    moments = np.frombuffer(view.body, np.int64, header.record_count)
    if header.min_timestamp != NO_TIMESTAMP:
        return moments
    return np.where(moments == NO_TIMESTAMP, np.int64(header.append_time), moments)


def _key(view: _View, kind: pa.DataType) -> pa.Array:
    return _text(view, view.columns.key, kind)


def _value(view: _View, kind: pa.DataType) -> pa.Array:
    return _text(view, view.columns.value, kind)


def _channel(view: _View, kind: pa.DataType) -> pa.Array:
    np, pa = vector.np, vector.pa
    text = view.columns.channel
    array = _text(view, text, kind)
    if text is None:
        return array
    steps = np.frombuffer(view.body, np.int32, text.count + 1, text.offsets)
    named = steps[1:] > steps[:-1]
    if named.all():
        return array
    bitmap = pa.py_buffer(np.packbits(named, bitorder="little"))
    return vector.from_buffers(kind, text.count, [bitmap, *array.buffers()[1:]])


def _text(view: _View, text: Text | None, kind: pa.DataType) -> pa.Array:
    if text is None:
        return absent(kind, view.header.record_count)
    count, source = text.count, view.source
    bitmap = None if text.bitmap == ABSENT else source.slice(text.bitmap, (count + 7) >> 3)
    buffers = [bitmap, source.slice(text.offsets, 4 * count + 4), source.slice(text.data, text.size)]
    return vector.from_buffers(kind, count, buffers)


def _tags(view: _View, kind: pa.DataType) -> pa.Array:
    tags, count = view.columns.tags, view.header.record_count
    if tags is None:
        return absent(kind, count)
    items = _text(view, tags.items[0], kind.value_type)
    return _lists(view, tags.offsets, kind, items)


def _headers(view: _View, kind: pa.DataType) -> pa.Array:
    headers, count = view.columns.headers, view.header.record_count
    if headers is None:
        return absent(kind, count)
    pair = kind.value_type
    children = [_text(view, text, pair.field(i).type) for i, text in enumerate(headers.items)]
    pairs = vector.from_buffers(pair, headers.items[0].count, [None], 0, children=children)
    return _lists(view, headers.offsets, kind, pairs)


def _lists(view: _View, offsets: int, kind: pa.DataType, items: pa.Array) -> pa.Array:
    count = view.header.record_count
    buffers = [None, view.source.slice(offsets, 4 * count + 4)]
    return vector.from_buffers(kind, count, buffers, 0, children=[items])


def absent(kind: pa.DataType, count: int) -> pa.Array:
    """A column that no record has: nulls, or empty lists."""
    return _absent_block(kind).slice(0, count) if count <= _BLOCK else _make_absent(kind, count)


@lru_cache(maxsize=len(ORDER))
def _absent_block(kind: pa.DataType) -> pa.Array:
    return _make_absent(kind, _BLOCK)


def _make_absent(kind: pa.DataType, count: int) -> pa.Array:
    pa = vector.pa
    if not kind.num_fields:
        return pa.nulls(count, kind)
    items = pa.array([], kind.value_type)
    return vector.from_buffers(kind, count, [None, pa.py_buffer(bytes(4 * count + 4))], 0, children=[items])


_COLUMNS: dict[str, _Make] = {
    "seqno": _seqno,
    "timestamp": _timestamp,
    "key": _key,
    "value": _value,
    "channel": _channel,
    "tags": _tags,
    "headers": _headers,
}


# Columns that a log does not hold, because all of its records have the same there.

TOPIC: Final = "topic"
PARTITION: Final = "partition"
_COUNTED: Final = "seqno"
"""Where nothing else is wanted, this says how many there are."""


def stored(columns: Sequence[str]) -> tuple[str, ...]:
    """Those of them that the log holds: at least one."""
    return tuple(name for name in columns if name not in (TOPIC, PARTITION)) or (_COUNTED,)


def is_stored(columns: Sequence[str] | None) -> bool:
    """Whether the log holds all of them."""
    return columns is None or (TOPIC not in columns and PARTITION not in columns)


def complete_lists(
    found: Iterator[tuple[list[Any], ...]], columns: Sequence[str], topic: str, partition: int
) -> Iterator[tuple[list[Any], ...]]:
    """`found` has the columns that are `stored`; what comes out has all."""
    for lists in found:
        have = dict(zip(stored(columns), lists, strict=True))
        count = len(lists[0])
        have[TOPIC], have[PARTITION] = [topic] * count, [partition] * count
        yield tuple(have[name] for name in columns)


def complete_tables(
    found: Iterator[pa.Table], columns: Sequence[str], topic: str, partition: int
) -> Iterator[pa.Table]:
    pa = vector.pa
    number = pa.scalar(partition, pa.int32())
    for table in found:
        same = {TOPIC: pa.repeat(topic, len(table)), PARTITION: pa.repeat(number, len(table))}
        arrays = [same[name] if name in same else table.column(name) for name in columns]
        yield pa.Table.from_arrays(arrays, names=list(columns))
