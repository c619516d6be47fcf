"""Which columns a DataFrame may have to be written, and what becomes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from logboom.errors import InvalidColumn
from logboom.spark.write.options import Order, WriteOptions

PARTS: Final = {
    "value": "values",
    "key": "keys",
    "timestamp": "timestamps",
    "channel": "channels",
    "tags": "tags",
    "headers": "headers",
}
"""Columns that become parts of a record, and what a batch calls them."""
COLUMNS: Final = (*PARTS, "topic", "partition")
IGNORED: Final = "seqno"
"""The log gives new ones: what was read may be written."""
_NESTED: Final = (StructType, MapType, ArrayType)
_FORMS: Final[Mapping[str, tuple[str, Callable[[DataType], bool]]]] = {
    "value": ("binary, string, or a struct, map or array, which become JSON", lambda kind: _is_text(kind, *_NESTED)),
    "key": ("binary or string", lambda kind: _is_text(kind)),
    "timestamp": ("timestamp", lambda kind: isinstance(kind, TimestampType)),
    "channel": ("string", lambda kind: isinstance(kind, StringType)),
    "tags": ("array<string>", lambda kind: isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)),
    "headers": (
        "array<struct<key:string,value:binary>>",
        lambda kind: kind.simpleString() == "array<struct<key:string,value:binary>>",
    ),
    "topic": ("string", lambda kind: isinstance(kind, StringType)),
    "partition": ("int", lambda kind: isinstance(kind, IntegerType)),
}


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """What becomes of the columns of a DataFrame."""

    columns: tuple[str, ...]
    """Those that are used, of COLUMNS."""
    topic: str | None
    """For all rows, whatever their column says."""
    is_json: bool
    order: tuple[Order, ...]


def plan_layout(schema: StructType, options: WriteOptions) -> ColumnLayout:
    """Raises InvalidColumn, which says what a column may be."""
    names = schema.fieldNames()
    sorted_by = {order.column for order in options.order}
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise InvalidColumn(field.name, "two columns have this name: leave one out")
        if field.name in _FORMS:
            form, fits = _FORMS[field.name]
            if not fits(field.dataType):
                raise InvalidColumn(field.name, _say_type(field.name, field.dataType, form))
        elif field.name not in sorted_by and field.name != IGNORED:
            near = get_close_matches(field.name.lower(), COLUMNS, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else "put what belongs to the value into a struct"
            raise InvalidColumn(field.name, f"no part of a record; there are {', '.join(COLUMNS)}: {hint}")
        if field.name in sorted_by and not isinstance(field.dataType, AtomicType):
            raise InvalidColumn(field.name, f"rows cannot be sorted by {field.dataType.simpleString()}")
    for name in sorted_by - set(names):
        raise InvalidColumn(name, f"orderBy names it, and there is none; there are {', '.join(names)}")
    if "value" not in names:
        raise InvalidColumn("value", f"a record needs one, and there is none; there are {', '.join(names)}")
    if options.topic is None and "topic" not in names:
        raise InvalidColumn("topic", "where to write is not said: option('topic', 'events'), or a column topic")
    columns = tuple(name for name in COLUMNS if name in names and (name != "topic" or options.topic is None))
    return ColumnLayout(columns, options.topic, isinstance(schema["value"].dataType, _NESTED), options.order)


def _is_text(kind: DataType, *others: type[DataType]) -> bool:
    return isinstance(kind, (BinaryType, StringType, *others))


def _say_type(name: str, kind: DataType, form: str) -> str:
    said = f"is {kind.simpleString()}, allowed is {form}: cast it"
    return f"{said} to string, or make JSON of it: to_json(struct(…))" if name == "value" else said
