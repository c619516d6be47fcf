"""Columns as a caller gives them, taken piece by piece: what was taken is gone, and what is to come costs nothing yet.

Lists, Arrow arrays, NumPy arrays and pandas series are sliced; any other iterable is gone through, once. So a piece is
all that is ever copied or converted, however much there is. Lengths are compared before anything is taken, as far as
they are known; the others when they show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from datetime import datetime
from itertools import islice
from typing import Any, Final, Protocol

from logboom.batch import vector
from logboom.batch.encode import SHORT, is_arrow
from logboom.client.write.gathered import as_bytes
from logboom.client.write.slices import BuildColumns, sizes_of, sum_of_sizes
from logboom.errors import InvalidColumn

_ANY_SIZE: Final = float("inf")
_SAMPLE: Final = 16
"""So many records tell how many a piece may have, before there was one."""
_STEP: Final = 32
"""So many entries of an iterable are taken before somebody looks how large they are."""
_STRIDE: Final = 8
"""Every so many entries one is looked at."""


class ColumnSource:
    """The columns of `write_many`. `taken` records have become pieces."""

    def __init__(self, values: Any, **others: Any) -> None:
        self.taken = 0
        self._row_bytes = 0.0
        self._values = _column("values", values)
        self._alike: dict[str, Any] = {}
        """One entry for all."""
        self._others: dict[str, _GivenColumn] = {}
        for name, given in others.items():
            if given is None:
                continue
            if name in ("timestamps", "channels") and isinstance(given, int | datetime | str):
                self._alike[name] = given
                continue
            self._others[name] = column = _column(name, given)
            have, want = column.count, self._values.count
            if have is not None and want is not None and have != want:
                raise InvalidColumn(name, f"{have} entries for {want} records")

    @property
    def has_names(self) -> bool:
        """Whether anything says where a record goes."""
        return bool({"keys", "channels"} & {*self._others, *self._alike})

    def take(self, size_bytes: int) -> BuildColumns | None:
        """The next records: about so much, no more unless it is one record. None where there are no more.

        Where an entry cannot be part of a column nothing is taken.
        """
        rows = self._guess(size_bytes)
        while True:
            piece = self._peek(rows, size_bytes)
            if piece is None:
                return None
            if piece.size > size_bytes:
                piece = piece.up_to(size_bytes)
            elif piece.count == rows and 8 * piece.size < 7 * size_bytes:
                self._row_bytes = piece.size / piece.count
                rows = max(2 * rows, self._guess(size_bytes))
                continue
            break
        self.taken += piece.count
        self._row_bytes = piece.size / piece.count
        return piece

    def _guess(self, size_bytes: int) -> int:
        """How many records that may be: rather a few too little than one too many, which would have to be cut off."""
        return max(1, int(size_bytes * 15 / 16 / self._row_bytes)) if self._row_bytes else _SAMPLE

    def _peek(self, rows: int, size_bytes: int) -> BuildColumns | None:
        """So many records; fewer at the end, or where they are much larger than those before."""
        start = self.taken
        values = self._values.part(start, start + rows, size_bytes)
        count = len(values)
        if not count:
            self._check_end()
            return None
        entries = {"values": values, **self._alike}
        for name, column in self._others.items():
            entries[name] = part = column.part(start, start + count, _ANY_SIZE)
            if len(part) != count:
                raise InvalidColumn(name, f"{start + len(part)} entries for {start + count} records, or more")
        return BuildColumns(count, entries)

    def _check_end(self) -> None:
        for name, column in self._others.items():
            if len(column.part(self.taken, self.taken + 1, 1.0)):
                raise InvalidColumn(name, f"more entries than the {self.taken} records")


class _GivenColumn(Protocol):
    """One column, entries of which are asked for in their order; what was asked for may be asked for again."""

    @property
    def count(self) -> int | None: ...
    def part(self, start: int, until: int, size_bytes: float) -> Any:
        """A list, or an Arrow array: these entries, but not all of them where they are larger than about so much."""


def _column(name: str, given: Any) -> _GivenColumn:
    if isinstance(given, str | bytes | bytearray):
        raise InvalidColumn(name, "one string is not a column: put it in a list")
    try:
        if isinstance(given, list | tuple):
            return _Entries(name, given)
        if is_arrow(given) and hasattr(given, "__len__"):
            return _Array(name, given)
        return _Pulled(name, given)
    except TypeError as error:
        raise InvalidColumn(name, str(error)) from None


class _Entries:
    def __init__(self, name: str, given: Sequence[Any]) -> None:
        self._name = name
        self._given = given
        self.count = len(given)

    def part(self, start: int, until: int, size_bytes: float) -> Any:
        part = self._given[start:until]
        if size_bytes != _ANY_SIZE:
            part = part[: _fitting_rows(self._name, part, size_bytes)]
        return _ready(self._name, part)


class _Pulled:
    """What an iterable gives. Entries that were taken from it and are not asked for any more are forgotten."""

    def __init__(self, name: str, given: Any) -> None:
        self._name = name
        self._iterator: Iterator[Any] = iter(given)
        self.count = len(given) if isinstance(given, Sized) else None
        self._start = 0
        self._waiting: list[Any] = []

    def part(self, start: int, until: int, size_bytes: float) -> Any:
        del self._waiting[: start - self._start]
        self._start, wanted = start, until - start
        size = sum_of_sizes(self._name, self._waiting)
        while len(self._waiting) < wanted and size < size_bytes:
            more = list(islice(self._iterator, min(_STEP, wanted - len(self._waiting))))
            if not more:
                break
            self._waiting += more
            size += sum_of_sizes(self._name, more)
        return _ready(self._name, self._waiting[:wanted])


class _Array:
    """An Arrow array; or NumPy's or pandas', which becomes one in pieces."""

    def __init__(self, name: str, given: Any) -> None:
        self._name = name
        pa, np = vector.pa, vector.np
        self._slices = given.iloc if hasattr(given, "iloc") else given
        self._is_ready = isinstance(given, pa.Array | pa.ChunkedArray)
        if not self._is_ready and not hasattr(given, "iloc") and not isinstance(given, np.ndarray):
            self._slices, self._is_ready = self._convert(given), True
        self.count = len(given)

    def part(self, start: int, until: int, size_bytes: float) -> Any:
        part = self._slices[start:until]
        if not self._is_ready:
            if str(part.dtype) == "object" and size_bytes != _ANY_SIZE:
                part = part[: _fitting_rows(self._name, list(part), size_bytes)]
            part = self._convert(part)
        if isinstance(part, vector.pa.ChunkedArray):
            part = part.chunk(0) if part.num_chunks == 1 else part.combine_chunks()
        return _unfolded(part)

    def _convert(self, given: Any) -> Any:
        pa = vector.pa
        try:
            array = pa.array(given)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise InvalidColumn(self._name, str(error)) from None
        if self._name in ("values", "keys") and pa.types.is_null(array.type):
            return array.cast(pa.binary())
        return array


def _unfolded(array: Any) -> Any:
    """An array that has its entries beside it, with its entries: else nobody could say how large a part of it is."""
    types = vector.pa.types
    if types.is_dictionary(array.type):
        return _unfolded(array.dictionary_decode())
    if types.is_string_view(array.type) or types.is_binary_view(array.type):
        return array.cast(vector.pa.string() if types.is_string_view(array.type) else vector.pa.binary())
    return array


def _fitting_rows(name: str, entries: Sequence[Any], size_bytes: float) -> int:
    """How many are not much more than so much: the others would be converted for nothing. A few are looked at."""
    step = 1 if len(entries) <= SHORT else _STRIDE
    if step * sum_of_sizes(name, entries[::step]) <= 2 * size_bytes:
        return len(entries)
    return max(1, int(vector.np.searchsorted(vector.np.cumsum(sizes_of(name, entries)), size_bytes)))


def _ready(name: str, entries: Sequence[Any]) -> Any:
    """Values and keys as bytes: many of them as an Arrow array, which a batch is made of at once."""
    if name not in ("values", "keys"):
        return entries
    if len(entries) > SHORT:
        pa = vector.pa
        try:
            return pa.array(entries, pa.binary())
        except (pa.ArrowException, TypeError, OverflowError):
            pass
    return [entry if type(entry) is bytes else as_bytes(name, entry) for entry in entries]
