"""Structs, maps and arrays as JSON. As in Spark's to_json, fields that are null are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

Clean = Callable[[Any], Any]

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
    """Takes null fields out of an entry; None where there are none to take out."""
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
    return None


def _clean_struct(inner: dict[str, Clean]) -> Clean:
    if not inner:
        return lambda row: {name: entry for name, entry in row.items() if entry is not None}
    return lambda row: {
        name: inner[name](entry) if name in inner else entry for name, entry in row.items() if entry is not None
    }


def _or_null(clean: Clean, item: Any) -> Any:
    return None if item is None else clean(item)
