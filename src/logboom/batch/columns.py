"""The body of encoding 1: which buffers it holds, and where.

For each column present, in the order of its bit, its Arrow buffers follow one another, each padded with
zeros to 8 bytes. Offsets are i32, start at 0 and never go back. docs/formats/batch.md has the table.

`find_columns` walks the buffers and checks every length, offset and padding before it is used, in plain Python for
a few entries, with NumPy for many; it allocates nothing that grows with what the body claims. Whether text is UTF-8
is `validation`'s business.
"""

from __future__ import annotations

from functools import lru_cache
from operator import le
from struct import Struct
from typing import Final

import msgspec

from logboom.batch import vector
from logboom.errors import MalformedBatch, UnsupportedBatch

TIMESTAMP: Final = 1
KEY: Final = 2
VALUE: Final = 4
CHANNEL: Final = 8
TAGS: Final = 16
HEADERS: Final = 32
ALL_COLUMNS: Final = 63

NAMES: Final = {
    TIMESTAMP: "timestamp",
    KEY: "key",
    VALUE: "value",
    CHANNEL: "channel",
    TAGS: "tags",
    HEADERS: "headers",
}
ABSENT: Final = -1
_KEPT_COUNT_MAX: Final = 16_384
SHORT: Final = 16
"""Up to so many entries plain Python costs less than entering NumPy."""

_I32 = Struct("<i").unpack_from
_I32_PAIR = Struct("<ii").unpack_from
_U64 = Struct("<Q").unpack_from


class Text(msgspec.Struct, frozen=True, gc=False):
    """A column of byte strings: where its bitmap (or ABSENT), offsets and bytes begin; how many entries and bytes."""

    bitmap: int
    offsets: int
    data: int
    count: int
    size: int


class Lists(msgspec.Struct, frozen=True, gc=False):
    """A column of lists: where its offsets begin, and the columns of its items (one for tags, two for headers)."""

    offsets: int
    items: tuple[Text, ...]


class Columns(msgspec.Struct, frozen=True, gc=False):
    """Where everything lies in one body. Positions are relative to the body's start."""

    timestamp: int
    key: Text | None
    value: Text | None
    channel: Text | None
    tags: Lists | None
    headers: Lists | None


def padded(size: int) -> int:
    return (size + 7) & ~7


def all_valid(count: int) -> bytes:
    """The padded bitmap of a column without nulls. Large ones are not kept: strangers choose the count."""
    return _all_valid(count) if count <= _KEPT_COUNT_MAX else _all_valid.__wrapped__(count)


@lru_cache(maxsize=1024)
def _all_valid(count: int) -> bytes:
    bits = b"\xff" * (count >> 3)
    if count & 7:
        bits += bytes([(1 << (count & 7)) - 1])
    return bits + bytes(padded(len(bits)) - len(bits))


def find_columns(body: memoryview, count: int, columns: int) -> Columns:
    """Locate the buffers of `columns` for `count` records; the body must end exactly where they do."""
    if columns & ~ALL_COLUMNS:
        raise UnsupportedBatch(f"columns {columns:#x}")
    timestamp = ABSENT
    position = 0
    if columns & TIMESTAMP:
        timestamp = 0
        position = 8 * count
    key = value = channel = None
    tags = headers = None
    if columns & KEY:
        key, position = _find_text(body, position, count, True)
    if columns & VALUE:
        value, position = _find_text(body, position, count, True)
    if columns & CHANNEL:
        channel, position = _find_text(body, position, count, False)
    if columns & TAGS:
        tags, position = _find_lists(body, position, count, 1)
    if columns & HEADERS:
        headers, position = _find_lists(body, position, count, 2)
    if position != len(body):
        raise MalformedBatch(f"columns end at byte {position} of a body of {len(body)}")
    return Columns(timestamp, key, value, channel, tags, headers)


def _find_text(body: memoryview, position: int, count: int, nullable: bool) -> tuple[Text, int]:
    bitmap = ABSENT
    offsets = position
    if nullable:
        bitmap = position
        offsets += (count + 63) >> 6 << 3
    data, size = _find_offsets(body, offsets, count)
    end = data + ((size + 7) & ~7)
    if end > len(body):
        raise MalformedBatch(f"a column reaches byte {end} of a body of {len(body)}")
    if size & 7 and _U64(body, end - 8)[0] >> 8 * (size & 7):
        raise MalformedBatch("padding after a column is not zero")
    if nullable and count & 63 and _U64(body, offsets - 8)[0] >> (count & 63):
        raise MalformedBatch("trailing bits or padding of a bitmap are not zero")
    return Text(bitmap, offsets, data, count, size), end


def _find_lists(body: memoryview, position: int, count: int, width: int) -> tuple[Lists, int]:
    end, item_count = _find_offsets(body, position, count)
    items = []
    for _ in range(width):
        item, end = _find_text(body, end, item_count, False)
        items.append(item)
    return Lists(position, tuple(items)), end


def _find_offsets(body: memoryview, position: int, count: int) -> tuple[int, int]:
    """Where the offsets at `position` end, padding included, and the last. They start at 0 and never go back."""
    end = position + ((4 * count + 11) & ~7)
    if end > len(body):
        raise MalformedBatch(f"offsets reach byte {end} of a body of {len(body)}")
    last, padding = _I32_PAIR(body, end - 8)
    if count & 1:
        last = padding
    elif padding:
        raise MalformedBatch("padding after offsets is not zero")
    if _I32(body, position)[0]:
        raise MalformedBatch("offsets do not start at 0")
    if count > SHORT:
        steps = vector.np.frombuffer(body, vector.I32, count + 1, position)
        # A search in the bytes takes a tenth of NumPy's any().
        back = True in (steps[1:] < steps[:-1]).tobytes()
    elif count == 1:
        back = last < 0
    else:
        few = body[position : position + 4 * count + 4].cast("i").tolist()
        back = not all(map(le, few, few[1:]))
    if back:
        raise MalformedBatch("offsets go backwards")
    return end, last
