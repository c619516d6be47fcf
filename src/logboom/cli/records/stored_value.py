"""Values that somebody types, as they are stored: what `logboom write --value` checks and converts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from logboom.errors import InvalidColumn
from logboom.values.serializer import ValueCoder, ValueFormat, coder_of

if TYPE_CHECKING:
    from logboom import Record


def value_maker(form: ValueFormat | None) -> Callable[[Record], Record]:
    """For msgpack a value is given as JSON; JSON and text are stored as they were given. Raises InvalidColumn."""
    given, stored = coder_of("json" if form == "msgpack" else form), coder_of(form)
    if given is None or stored is None:
        return lambda record: record
    return lambda record: _convert(record, given, stored)


def _convert(record: Record, given: ValueCoder, stored: ValueCoder) -> Record:
    from msgspec.structs import replace

    values, error = given.decode_list([record.value])
    if error is not None:
        raise InvalidColumn("value", f"is no {given.name}: {error}")
    return record if given.name == stored.name else replace(record, value=stored.encode(values[0]))
