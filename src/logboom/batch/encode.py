"""Columns to bytes: the buffers of one column, each followed by its padding.

Short columns are packed in plain Python, which costs less than entering Arrow; long ones go through Arrow
and NumPy and never loop over records. Both give the same bytes; a test holds them to it. A column that every
record lacks comes back empty and is left out of the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, chain
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Final

from logboom.batch import vector
from logboom.batch.columns import all_valid, padded
from logboom.batch.header import NO_TIMESTAMP
from logboom.batch.record import microseconds
from logboom.errors import InvalidColumn

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Pieces = list[Any]
"""Buffers to be joined: bytes, or memoryviews of bytes."""

SHORT: Final = 64
"""Up to so many records plain Python costs less; and their bitmap is a single word."""
_ZEROS: Final = tuple(bytes(size) for size in range(8))
_OFFSETS: Final = tuple(Struct(f"<{n + 1}i{'4x' if n % 2 == 0 else ''}") for n in range(SHORT + 1))
_SINGLE: Final = Struct("<Qii").pack
_I32: Final = Struct("<i").unpack_from


def is_arrow(column: object) -> bool:
    """Whether this is an Arrow array or becomes one by itself, such as a NumPy array or a pandas Series."""
    if isinstance(column, (list, tuple)):
        return False
    return hasattr(column, "__arrow_array__") or hasattr(column, "__array__")


def single_text(entry: bytes) -> Pieces:
    """What `short_text` makes of one entry that is there already as bytes."""
    size = len(entry)
    return [_SINGLE(1, 0, size), entry, _ZEROS[-size & 7]]


def short_text(name: str, entries: Sequence[Any], nullable: bool) -> Pieces:
    """Byte strings of up to SHORT records. `nullable` columns have a bitmap, the others take None as empty."""
    count = len(entries)
    convert, ready = (_to_bytes, bytes) if nullable else (_to_text, None)
    data = [entry if type(entry) is ready else convert(name, entry) for entry in entries]
    missing = data.count(None)
    if missing == count or (not nullable and not any(data)):
        return []
    pieces: Pieces = []
    if nullable:
        bits = (1 << count) - 1
        if missing:
            bits = sum(1 << i for i, entry in enumerate(data) if entry is not None)
        pieces.append(bits.to_bytes(8, "little"))
    if missing:
        data = [entry or b"" for entry in data]
    return pieces + _short_buffers(data)  # type: ignore[arg-type]


def short_lists(name: str, entries: Sequence[Any]) -> Pieces:
    """Tags of up to SHORT records, as long as they are few themselves."""
    lists = [entry if type(entry) is tuple else _items(name, entry) for entry in entries]
    items = [_to_text(name, item) for item in chain.from_iterable(lists)]
    if not items:
        return []
    _refuse_missing(name, items)
    return [_pack_offsets(lists), *_short_buffers(items)]  # type: ignore[arg-type]


def short_pairs(name: str, entries: Sequence[Any]) -> Pieces:
    """Headers of up to SHORT records, as long as they are few themselves."""
    lists = [() if type(entry) is tuple and not entry else _pairs(name, entry) for entry in entries]
    pairs = list(chain.from_iterable(lists))
    if not pairs:
        return []
    keys = [_to_text(name, key) for key, _ in pairs]
    values = [_to_bytes(name, value) for _, value in pairs]
    _refuse_missing(name, keys)
    _refuse_missing(name, values)
    return [_pack_offsets(lists), *_short_buffers(keys), *_short_buffers(values)]  # type: ignore[arg-type]


def _short_buffers(data: Sequence[bytes]) -> Pieces:
    size = sum(map(len, data))
    return [_pack_offsets(data), *data, _ZEROS[-size & 7]]


def _pack_offsets(entries: Sequence[Any]) -> bytes:
    count = len(entries)
    if count == 1:
        return _OFFSETS[1].pack(0, len(entries[0]))
    pack = _OFFSETS[count] if count <= SHORT else Struct(f"<{count + 1}i{'4x' if count % 2 == 0 else ''}")
    return pack.pack(0, *accumulate(map(len, entries)))


def _to_bytes(name: str, entry: Any) -> bytes | None:
    if entry is None or type(entry) is bytes:
        return entry
    if isinstance(entry, str):
        try:
            return entry.encode()
        except UnicodeEncodeError as error:
            raise InvalidColumn(name, f"text that UTF-8 cannot hold: {error}") from None
    if isinstance(entry, bytes | bytearray | memoryview):
        return bytes(entry)
    raise InvalidColumn(name, f"{type(entry).__name__} is neither bytes nor text")


def _to_text(name: str, entry: Any) -> bytes | None:
    """As `_to_bytes`, and what comes as bytes must be UTF-8 already."""
    data = _to_bytes(name, entry)
    if type(entry) is not str and data is not None:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise InvalidColumn(name, f"bytes that are not UTF-8: {error.reason}") from None
    return data


def _items(name: str, entry: Any) -> Sequence[Any]:
    """The list of one record: any collection but a string, which would be a list of letters."""
    if entry is None:
        return ()
    if isinstance(entry, Collection) and not isinstance(entry, str | bytes | bytearray | memoryview | Mapping):
        return entry if isinstance(entry, list | tuple) else tuple(entry)
    raise InvalidColumn(name, f"{type(entry).__name__} is not a list")


def _pairs(name: str, entry: Any) -> Sequence[tuple[Any, Any]]:
    """The headers of one record: pairs, a mapping, or what Arrow gives back: {"key": ..., "value": ...} each."""
    items = entry.items() if isinstance(entry, Mapping) else _items(name, entry)
    pairs = [(item.get("key"), item.get("value")) if isinstance(item, dict) else item for item in items]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise InvalidColumn(name, "headers are pairs of a name and bytes")
    return [(key, value) for key, value in pairs]


def _refuse_missing(name: str, items: Sequence[bytes | None]) -> None:
    if None in items:
        raise InvalidColumn(name, "an item of a list is None")


def long_text(name: str, entries: Any, nullable: bool) -> Pieces:
    """Byte strings of any number of records, from a sequence or an Arrow array."""
    pa = vector.pa
    array = _array(name, entries, pa.binary() if nullable else pa.string())
    missing = array.null_count
    if missing == len(array):
        return []
    if not nullable:
        buffers = _text_buffers(array.fill_null("") if missing else array)
        return buffers if len(buffers[-2]) else []
    return [_bitmap(array) if missing else all_valid(len(array)), *_text_buffers(array)]


def long_lists(name: str, entries: Any) -> Pieces:
    import pyarrow as pa

    offsets, items = _list_parts(name, _lists_array(name, entries))
    if not len(items):
        return []
    return [*offsets, *_text_buffers(_array(name, items, pa.string()))]


def _lists_array(name: str, entries: Any) -> pa.Array:
    import pyarrow as pa

    if not is_arrow(entries) and str in map(type, entries):
        raise InvalidColumn(name, "str is not a list")
    return _array(name, entries, pa.list_(pa.string()))


def long_pairs(name: str, entries: Any) -> Pieces:
    pair = _pair_type()
    offsets, items = _list_parts(name, _pairs_array(name, entries))
    if not len(items):
        return []
    keys, values = _array(name, items, pair).flatten()
    if keys.null_count or values.null_count:
        raise InvalidColumn(name, "a header lacks its key or its value")
    return [*offsets, *_text_buffers(keys), *_text_buffers(values)]


def _pairs_array(name: str, entries: Any) -> pa.Array:
    import pyarrow as pa

    array = entries
    if not isinstance(entries, pa.Array | pa.ChunkedArray):
        # Arrow reads Python pairs as a map, which may be cast to the list of structs it is.
        try:
            array = pa.array(entries, pa.map_(pa.string(), pa.binary()))
        except (pa.ArrowException, TypeError, ValueError):
            array = _array(name, [_pairs(name, entry) for entry in entries], pa.map_(pa.string(), pa.binary()))
    return _array(name, array, pa.list_(_pair_type()))


def _pair_type() -> pa.DataType:
    import pyarrow as pa

    return pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


def as_array(name: str, entries: Any) -> pa.Array:
    """A column as `build` names it, in the type that it has in a batch. No entry of it is refused later."""
    pa = vector.pa
    if name == "timestamps":
        return pa.array(_long_timestamps(entries))
    if name == "tags":
        array = _lists_array(name, entries)
        long_lists(name, array)
    elif name == "headers":
        array = _pairs_array(name, entries)
        long_pairs(name, array)
    else:
        array = _array(name, entries, pa.string() if name == "channels" else pa.binary())
    return array


def timestamps(entries: Any, count: int) -> tuple[Pieces, int, int]:
    """The timestamp column with its minimum and maximum; no column where all are the same."""
    if entries is None:
        return [], NO_TIMESTAMP, NO_TIMESTAMP
    if isinstance(entries, (int, datetime)):
        moment = _to_microseconds(entries)
        fits_64_bits(moment, moment)
        return [], moment, moment
    if count <= SHORT and not is_arrow(entries):
        moments = [entry if type(entry) is int else _to_microseconds(entry) for entry in entries]
        _same_count("timestamps", len(moments), count)
        low, high = min(moments), max(moments)
        fits_64_bits(low, high)
        return ([] if low == high else [Struct(f"<{count}q").pack(*moments)]), low, high
    column = _long_timestamps(entries)
    _same_count("timestamps", len(column), count)
    low, high = int(column[column.argmin()]), int(column[column.argmax()])
    return ([] if low == high else [column.data.cast("B")]), low, high


def _long_timestamps(entries: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if not is_arrow(entries):
            try:
                return np.frombuffer(Struct(f"<{len(entries)}q").pack(*entries), np.int64)
            except struct_error:
                return np.fromiter(map(_to_microseconds, entries), np.int64, len(entries))
        array = entries if isinstance(entries, pa.Array | pa.ChunkedArray) else pa.array(entries)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if not pa.types.is_integer(array.type):
            moments = pa.timestamp("us", getattr(array.type, "tz", None))
            array = pc.cast(array, options=pc.CastOptions(moments, allow_time_truncate=True))
        array = array.cast(pa.int64()).fill_null(NO_TIMESTAMP)
        return np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    except InvalidColumn:
        raise
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise InvalidColumn("timestamps", str(error)) from None


def _to_microseconds(entry: Any) -> int:
    if entry is None:
        return NO_TIMESTAMP
    if isinstance(entry, datetime):
        return microseconds(entry) if entry == entry else NO_TIMESTAMP  # pandas' NaT is a datetime, and not itself
    if isinstance(entry, int) or hasattr(entry, "__index__"):
        return int(entry)
    raise InvalidColumn("timestamps", f"{type(entry).__name__} is neither microseconds nor a datetime")


def fits_64_bits(low: int, high: int) -> None:
    if not -(2**63) <= low <= high < 2**63:
        raise InvalidColumn("timestamps", "microseconds since 1970 must fit 64 bits")


def _same_count(name: str, have: int, want: int) -> None:
    if have != want:
        raise InvalidColumn(name, f"{have} entries for {want} records")


def _array(name: str, entries: Any, kind: pa.DataType) -> pa.Array:
    """One contiguous array of exactly this type, from whatever the caller has."""
    pa = vector.pa
    try:
        array = _as_arrow(name, entries, kind)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            raise InvalidColumn(name, "more than 2 GiB in one column")
        if array.type == kind or pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
            return array  # Arrow's cast of a list view to a list gives broken offsets; its items are cast later.
        _refuse_numbers(name, array.type)
        return array.cast(kind)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidColumn(name, str(error)) from None


def _as_arrow(name: str, entries: Any, kind: pa.DataType) -> Any:
    pa = vector.pa
    if is_arrow(entries):
        array = entries if isinstance(entries, pa.Array | pa.ChunkedArray) else pa.array(entries)
        array.validate(full=True)  # what is built here is trusted, so text that is not UTF-8 must not get in
        return array
    try:
        return pa.array(entries, kind)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
            raise
        return pa.array([_to_bytes(name, entry) for entry in entries], pa.binary()).cast(kind)


def _refuse_numbers(name: str, kind: pa.DataType) -> None:
    """Arrow would cast a number to its digits."""
    import pyarrow as pa

    while hasattr(kind, "value_type"):
        kind = kind.value_type
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        raise InvalidColumn(name, f"{kind} is neither bytes nor text")


def _text_buffers(array: pa.Array) -> Pieces:
    """Offsets that start at 0 and exactly the bytes they span, of a binary or string array without regard to nulls."""
    count = len(array)
    _, offsets, data = array.buffers()
    steps = memoryview(offsets)[4 * array.offset : 4 * (array.offset + count + 1)]
    (first,), (last,) = _I32(steps, 0), _I32(steps, 4 * count)
    if first:
        steps = memoryview((vector.np.frombuffer(steps, vector.I32) - vector.np.int32(first)).tobytes())
    view = b"" if data is None else memoryview(data)[first:last]
    return [steps, _ZEROS[-4 * (count + 1) & 7], view, _ZEROS[first - last & 7]]


def _list_parts(name: str, array: pa.Array) -> tuple[Pieces, pa.Array]:
    import numpy as np
    import pyarrow as pa

    try:
        items = array.flatten()
        lengths = np.asarray(array.value_lengths().fill_null(0))
    except (AttributeError, pa.ArrowException) as error:
        raise InvalidColumn(name, f"not a column of lists: {error}") from None
    if items.null_count:
        raise InvalidColumn(name, "an item of a list is None")
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return [offsets.tobytes(), _ZEROS[-4 * len(offsets) & 7]], items


def _bitmap(array: pa.Array) -> bytes:
    import numpy as np

    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    bits = np.packbits(valid, bitorder="little").tobytes()
    return bits + bytes(padded(len(bits)) - len(bits))
