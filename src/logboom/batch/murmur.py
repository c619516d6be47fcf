"""The partitioner's hash of a whole Arrow column at once.

The same numbers as `partitioner.murmur2` has, record by record; a test holds them to it. Each step takes the next four
bytes of all strings that have them. The longest come first, so those are always the front of the column; the few that
are very long are hashed by themselves, for they would make steps in which nobody else takes part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from logboom.batch import vector
from logboom.batch.partitioner import ANYWHERE, murmur2
from logboom.errors import InvalidColumn

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Words = np.ndarray[Any, np.dtype[np.uint32]]
    Vector = np.ndarray[Any, np.dtype[np.int64]]

LONG_BYTES: Final = 512
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995


def is_hashable(column: object) -> bool:
    """Whether this is an Arrow array of bytes or text, such as `hash_column` takes."""
    pa = vector.pa
    kind = getattr(column, "type", None)
    return isinstance(column, pa.Array) and kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def partitions_of_column(column: pa.Array, partitions: int, empty: bool = True) -> Vector:
    """The partition of each entry, ANYWHERE for None; and, unless `empty` ones count, for those too."""
    np = vector.np
    chosen = ((hash_column(column) & np.uint32(0x7FFF_FFFF)) % np.uint32(partitions)).astype(np.int64)
    if column.null_count:
        chosen[np.asarray(column.is_null())] = ANYWHERE
    if not empty:
        chosen[np.diff(_offsets(column)) == 0] = ANYWHERE
    return chosen


def hash_column(column: pa.Array) -> Words:
    """murmur2 of each entry, unsigned; of a None whatever it is."""
    np = vector.np
    offsets, data = _offsets(column), _data(column)
    sizes = np.diff(offsets)
    if len(sizes) and (sizes.min() < 0 or offsets[0] < 0 or offsets[-1] > len(data)):
        raise InvalidColumn("keys or channels", "offsets that lie outside of their column")
    order = np.argsort(-(sizes >> 2), kind="stable")
    first = int(np.count_nonzero(sizes > LONG_BYTES))
    some = order[first:]
    found = np.empty(len(sizes), np.uint32)
    found[some] = _hash(data, offsets[some], sizes[some])
    for number in order[:first].tolist():
        found[number] = murmur2(data[offsets[number] : offsets[number + 1]].tobytes()) & 0xFFFF_FFFF
    return found


def _hash(data: Any, starts: Vector, sizes: Vector) -> Words:
    """Of strings whose whole words become fewer."""
    np = vector.np
    m = np.uint32(_M)
    h: Words = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    words = sizes >> 2
    everywhere = np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
    for number in range(int(words[0]) if len(words) else 0):
        count = int(np.searchsorted(-words, -number))
        k = everywhere[starts[:count] + 4 * number] * m
        h[:count] = (h[:count] * m) ^ ((k ^ (k >> np.uint32(24))) * m)
    rest = sizes & 3
    tails = starts + 4 * words
    left = np.flatnonzero(rest)
    tail = np.zeros(len(left), np.uint32)
    for number in range(3):
        has = rest[left] > number
        tail[has] |= data[tails[left[has]] + number].astype(np.uint32) << np.uint32(8 * number)
    h[left] = (h[left] ^ tail) * m
    h = (h ^ (h >> np.uint32(13))) * m
    return h ^ (h >> np.uint32(15))


def _offsets(column: pa.Array) -> Vector:
    np, pa = vector.np, vector.pa
    wide = column.type in (pa.large_binary(), pa.large_string())
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int64)
    steps = np.frombuffer(buffer, np.int64 if wide else np.int32)
    return steps[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _data(column: pa.Array) -> Any:
    buffer = column.buffers()[2]
    return vector.np.frombuffer(b"" if buffer is None else buffer, vector.np.uint8)
