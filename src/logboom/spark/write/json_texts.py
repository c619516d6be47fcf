"""Structs, maps and arrays as JSON, as Spark's to_json makes it: fields that are null are left out, a `float` is the
shortest number that stands for it, and what is no number is one of the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

Clean = Callable[[Any], Any]

_NOT_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_encode = msgspec.json.Encoder(decimal_format="number").encode


def encode_rows(column: pa.Array) -> tuple[pa.Array, tuple[int, str] | None]:
    """Text for each row, null for null. Where one cannot be said, also which, and why."""
    import pyarrow as pa

    try:
        clean, rows = _cleaner(column), column.to_pylist(maps_as_pydicts="strict")
        if clean is not None:
            rows = [_or_null(clean, row) for row in rows]
        return pa.array([None if row is None else _encode(row) for row in rows], pa.binary()), None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, pa.ArrowException):
        return pa.nulls(len(column), pa.binary()), _find_failed(column)


def _find_failed(column: pa.Array) -> tuple[int, str]:
    for number, entry in enumerate(column):
        try:
            _encode(entry.as_py(maps_as_pydicts="strict"))
        except Exception as error:
            return number, str(error)
    return 0, "all together are too much"


def _cleaner(array: pa.Array) -> Clean | None:
    """Makes an entry what JSON has for it, without null fields; None where it is that already."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_struct(kind):
        children = array.flatten()
        inner = {
            field.name: clean
            for field, child in zip(kind, children, strict=True)
            if (clean := _cleaner(child)) is not None
        }
        return _clean_struct(inner) if inner or any(child.null_count for child in children) else None
    if pa.types.is_map(kind):
        of_items = _cleaner(array.items)
        return None if of_items is None else lambda row: {key: _or_null(of_items, item) for key, item in row.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_values = _cleaner(array.flatten())
        return None if of_values is None else lambda row: [_or_null(of_values, item) for item in row]
    if pa.types.is_floating(kind):
        return _number_cleaner(array)
    return None


def _number_cleaner(array: pa.Array) -> Clean | None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_float64(array.type):
        shorter = np.float32 if pa.types.is_float32(array.type) else np.float16
        return lambda number: float(str(shorter(number))) if isfinite(number) else _NOT_NUMBERS[str(number)]
    if pc.all(pc.is_finite(array), min_count=0).as_py():
        return None
    return lambda number: number if isfinite(number) else _NOT_NUMBERS[str(number)]


def _clean_struct(inner: dict[str, Clean]) -> Clean:
    if not inner:
        return lambda row: {name: entry for name, entry in row.items() if entry is not None}
    return lambda row: {
        name: inner[name](entry) if name in inner else entry for name, entry in row.items() if entry is not None
    }


def _or_null(clean: Clean, item: Any) -> Any:
    return None if item is None else clean(item)
