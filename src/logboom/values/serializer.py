"""Values as programs have them, and as the bytes that are stored: JSON, text, msgpack, or a program's own serializer.

    coder = coder_of(value)               whatever a program gave as `value=`; None where there is nothing to do
    coder.encode({"celsius": 21.5})       what is stored, or InvalidColumn
    coder.decode(record)                  the record, its value decoded; ValueUnreadable, and the record stays as it was
    coder.decode_list(values)             a column of them, up to the first that cannot be decoded

Writers and readers go through this, as does whatever else gives records to programs and takes `value=`. None is a
tombstone in both directions, and no serializer sees it. A serializer is used by as many threads as its writer or reader
is, and whatever it raises becomes one of the two errors above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol, get_args

import msgspec
from msgspec.structs import force_setattr

from logboom.batch.record import Record
from logboom.errors import ConfigError, InvalidColumn, ValueUnreadable

ValueFormat = Literal["json", "text", "msgpack", "bytes"]
FORMATS: Final[tuple[str, ...]] = get_args(ValueFormat)
REASON_MAX: Final = 300


class Serializer(Protocol):
    """What may be given as `value=`: an object that makes bytes of values, and values of bytes."""

    def encode(self, value: Any, /) -> bytes: ...

    def decode(self, data: bytes, /) -> Any: ...


class JsonSerializer:
    """Dicts, lists, text, numbers, and what msgspec makes JSON of: dataclasses, datetimes, UUIDs. NaN becomes null."""

    def __init__(self) -> None:
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


class MsgpackSerializer:
    """The same as msgpack, which also has bytes."""

    def __init__(self) -> None:
        self.encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
        self.decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


class TextSerializer:
    """`str`, as UTF-8."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError("it is not text")
        return value.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


_SERIALIZERS: Final[dict[str, Callable[[], Serializer]]] = {
    "json": JsonSerializer,
    "text": TextSerializer,
    "msgpack": MsgpackSerializer,
}


class ValueCoder:
    """One serializer, and what its failures are called. Made by `coder_of`."""

    def __init__(self, name: str, serializer: Serializer) -> None:
        self.name = name
        self._encode, self._decode = serializer.encode, serializer.decode

    def __repr__(self) -> str:
        return f"<ValueCoder {self.name}>"

    def encode(self, value: Any) -> bytes | None:
        """Raises InvalidColumn."""
        if value is None:
            return None
        try:
            data: Any = self._encode(value)
        except Exception as error:
            raise InvalidColumn("value", f"{self.name} cannot hold this {type(value).__name__}: {error}") from error
        if type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        raise InvalidColumn("value", f"{self.name} made {type(data).__name__} of it, which is not bytes")

    def decode(self, record: Record) -> Record:
        """The same record: nobody else may have it yet. Raises ValueUnreadable."""
        data = record.value
        if data is not None:
            try:
                force_setattr(record, "value", self._decode(data))
            except Exception as error:
                raise self.unreadable(record, error) from error
        return record

    def decode_list(self, values: Sequence[bytes | None]) -> tuple[list[Any], Exception | None]:
        """The values that come before the first that cannot be decoded; and why that one cannot."""
        decode = self._decode
        found: list[Any] = []
        try:
            found.extend(None if data is None else decode(data) for data in values)
        except Exception as error:
            return found, error
        return found, None

    def unreadable(self, record: Record, error: Exception) -> ValueUnreadable:
        reason = (str(error) if self.name in FORMATS else f"{type(error).__name__}: {error}")[:REASON_MAX]
        where = record.topic or "", record.partition or 0, -1 if record.seqno is None else record.seqno
        return ValueUnreadable(*where, self.name, reason, record.value)


def coder_of(value: ValueFormat | Serializer | None) -> ValueCoder | None:
    """For what a program gave as `value=`. None where values are bytes, so that nothing is done to them.

    Raises ConfigError.
    """
    if value is None or value == "bytes":
        return None
    if isinstance(value, str):
        make = _SERIALIZERS.get(value)
        if make is None:
            raise ConfigError("value", f"is {value[:100]!r}, allowed are {', '.join(FORMATS)}, or a serializer")
        return ValueCoder(value, make())
    if isinstance(value, type):
        raise ConfigError("value", f"is the class {value.__name__}: give an object of it")
    for name in ("encode", "decode"):
        if not callable(getattr(value, name, None)):
            raise ConfigError("value", f"{type(value).__name__} is no serializer: it has no {name}()")
    return ValueCoder(type(value).__name__, value)
