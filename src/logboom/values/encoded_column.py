"""A column of values that become bytes one by one, as they are asked for. None stays None.

It has a length where the column it was made of has one, and goes through that once: through Arrow, NumPy and pandas a
piece at a time, so that never more than a piece of it are Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any, Final

from logboom.batch.encode import is_arrow
from logboom.errors import InvalidColumn
from logboom.values.serializer import ValueCoder

PIECE: Final = 1024


class _Encoded:
    def __init__(self, values: Any, coder: ValueCoder) -> None:
        self._values = values
        self._coder = coder

    def __iter__(self) -> Iterator[bytes | None]:
        return map(self._coder.encode, _entries(self._values))


class _SizedEncoded(_Encoded):
    def __len__(self) -> int:
        return len(self._values)


def encoded_column(values: Any, coder: ValueCoder) -> Any:
    """As `write_many` takes one. Raises InvalidColumn for what is one value, and no column of them."""
    if isinstance(values, str | bytes | bytearray | Mapping):
        raise InvalidColumn("values", f"one {type(values).__name__} is not a column: put it in a list")
    return _SizedEncoded(values, coder) if isinstance(values, Sized) else _Encoded(values, coder)


def _entries(values: Any) -> Iterator[Any]:
    if not is_arrow(values):
        try:
            yield from values
        except TypeError as error:
            raise InvalidColumn("values", str(error)) from None
        return
    slices = getattr(values, "iloc", values)
    for start in range(0, len(values), PIECE):
        part = slices[start : start + PIECE]
        yield from part.to_pylist() if hasattr(part, "to_pylist") else part.tolist()
