"""Columns that a caller gives at once, cut into batches: by partition, then by size.

Long columns become Arrow arrays once, as a whole: what cannot be a column is refused before anything of it is written.
After that nothing is done record by record, unless keys or channels that are no Arrow arrays have to be dealt out to
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

from logboom.batch import Batch, Producer, build, vector
from logboom.batch.encode import SHORT, is_arrow
from logboom.batch.murmur import is_hashable, partitions_of_column
from logboom.batch.partitioner import ANYWHERE, partitions_of
from logboom.client.write.gathered import RECORD_BYTES, as_bytes
from logboom.client.write.router import Router
from logboom.errors import InvalidColumn

_ITEM_BYTES: Final = 16


class Slice(NamedTuple):
    """Some records that are to be one batch, or part of one."""

    partition: int | None
    """None: any."""
    columns: BuildColumns
    size: int
    is_rest: bool
    """Less than a batch."""

    def again(self, partitions: int, now_known: int, batch_bytes: int) -> Iterator[Slice]:
        """Itself; but where it was cut before anybody knew how many partitions there are, dealt out to them."""
        if partitions == now_known:
            yield self
        else:
            yield from self.columns.slices(now_known, batch_bytes)

    def add_to(self, routing: Router, codec: str, now: float) -> None:
        """As a batch; but what is less than one, and nothing but values, joins what is gathered."""
        values = self.columns.plain_values() if self.is_rest else None
        if values is not None:
            routing.add_values(values, self.size)
        else:
            routing.add_batch(self.partition, self.columns.make(codec), self.columns.count, now)


class BuildColumns:
    """The arguments of `batch.build`, checked for their lengths, that can be sliced together."""

    def __init__(self, count: int, entries: dict[str, Any]) -> None:
        self.count = count
        self._entries = entries

    @classmethod
    def of(cls, values: Any, **others: Any) -> BuildColumns:
        values = _column("values", values)
        count = len(values)
        entries = {"values": values}
        for name, given in others.items():
            if given is None:
                continue
            if name in ("timestamps", "channels") and isinstance(given, int | datetime | str):
                entries[name] = given
                continue
            entries[name] = _column(name, given)
            if len(entries[name]) != count:
                raise InvalidColumn(name, f"{len(entries[name])} entries for {count} records")
        return cls(count, entries)

    def make(self, codec: str) -> Callable[[Producer], Batch]:
        return lambda producer: build(**self._entries, codec=codec, producer=producer)

    def plain_values(self) -> list[bytes | None] | None:
        if len(self._entries) > 1:
            return None
        values = self._entries["values"]
        if not isinstance(values, list | tuple):
            return list(values.cast("binary").to_pylist())
        return list(values)

    def slices(self, partitions: int, batch_bytes: int) -> Iterator[Slice]:
        if partitions == 1 or not self._entries.keys() & {"keys", "channels"}:
            yield from self._cut(None, batch_bytes)
            return
        np, chosen = vector.np, self._partitions(partitions)
        for partition in np.unique(chosen).tolist():
            part = self._take(np.flatnonzero(chosen == partition))
            yield from part._cut(None if partition == ANYWHERE else partition, batch_bytes)

    def _cut(self, partition: int | None, batch_bytes: int) -> Iterator[Slice]:
        np, start = vector.np, 0
        ends = np.cumsum(self._sizes())
        total = int(ends[-1]) if self.count else 0
        done = 0
        while start < self.count:
            until = int(np.searchsorted(ends, done + batch_bytes)) + 1
            until = min(until, self.count)
            size = int(ends[until - 1]) - done
            columns = self if until - start == self.count else self._range(start, until)
            yield Slice(partition, columns, size, total - done < batch_bytes)
            start, done = until, int(ends[until - 1])

    def _range(self, start: int, until: int) -> BuildColumns:
        return BuildColumns(until - start, {name: _part(entry, start, until) for name, entry in self._entries.items()})

    def _take(self, numbers: Any) -> BuildColumns:
        entries: dict[str, Any] = {}
        for name, entry in self._entries.items():
            if isinstance(entry, int | datetime | str):
                entries[name] = entry
            elif isinstance(entry, list | tuple):
                entries[name] = [entry[number] for number in numbers.tolist()]
            else:
                entries[name] = entry.take(vector.pa.array(numbers))
        return BuildColumns(len(numbers), entries)

    def _partitions(self, partitions: int) -> Any:
        keys, channels = self._entries.get("keys"), self._entries.get("channels")
        if all(entry is None or is_hashable(entry) for entry in (keys, channels)):
            chosen = vector.np.full(self.count, ANYWHERE, vector.np.int64)
            if channels is not None:
                chosen = partitions_of_column(channels, partitions, empty=False)
            if keys is not None:
                by_key = partitions_of_column(keys, partitions)
                chosen = vector.np.where(by_key == ANYWHERE, chosen, by_key)
            return chosen
        names: list[bytes | None] = [None] * self.count
        for column in ("keys", "channels"):
            entry = self._entries.get(column)
            if isinstance(entry, str):
                entry = [entry] * self.count
            if entry is not None:
                found = entry if isinstance(entry, list | tuple) else entry.to_pylist()
                empty = None if column == "keys" else b""
                names = [
                    name if name is not None or (text := as_bytes(column, more)) == empty else text
                    for name, more in zip(names, found, strict=True)
                ]
        return partitions_of(names, partitions)

    def _sizes(self) -> Any:
        """Bytes of each record, about."""
        np = vector.np
        sizes = np.full(self.count, RECORD_BYTES, np.int64)
        for name, entry in self._entries.items():
            if isinstance(entry, int | datetime):
                continue
            if isinstance(entry, str):
                sizes += len(entry)
            elif name == "timestamps":
                sizes += 8
            elif name in ("tags", "headers"):
                sizes += _list_sizes(entry, self.count)
            else:
                sizes += _text_sizes(entry, self.count)
        return sizes


def _column(name: str, given: Any) -> Any:
    """A list, or one Arrow array."""
    pa = vector.pa
    if isinstance(given, str | bytes | bytearray):
        raise InvalidColumn(name, "one string is not a column: put it in a list")
    try:
        if is_arrow(given):
            array = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        entries = given if isinstance(given, list | tuple) else list(given)
        if name not in ("values", "keys"):
            return entries
        if len(entries) > SHORT:
            return pa.array(entries, pa.binary())
        return [entry if type(entry) is bytes else as_bytes(name, entry) for entry in entries]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        if name in ("values", "keys") and isinstance(given, list | tuple):
            return [as_bytes(name, entry) for entry in given]
        raise InvalidColumn(name, str(error)) from None


def _part(entry: Any, start: int, until: int) -> Any:
    if isinstance(entry, int | datetime | str):
        return entry
    return entry[start:until] if isinstance(entry, list | tuple) else entry.slice(start, until - start)


def _text_sizes(entry: Any, count: int) -> Any:
    np = vector.np
    if isinstance(entry, list | tuple):
        lengths = (len(text) + 4 if hasattr(text, "__len__") else 0 for text in entry)
        return np.fromiter(lengths, np.int64, count)
    import pyarrow.compute as pc

    try:
        return np.asarray(pc.binary_length(entry).fill_null(0)).astype(np.int64)
    except (vector.pa.ArrowException, TypeError) as error:
        raise InvalidColumn("values", str(error)) from None


def _list_sizes(entry: Any, count: int) -> Any:
    np = vector.np
    if not isinstance(entry, list | tuple):
        return np.full(count, entry.nbytes // max(count, 1) + RECORD_BYTES, np.int64)
    return np.fromiter(map(_items_size, entry), np.int64, count)


def _items_size(items: Sequence[Any] | None) -> int:
    if not items:
        return 0
    flat = chain.from_iterable(item if isinstance(item, tuple) else (item,) for item in items)
    return sum(len(text) for text in flat if hasattr(text, "__len__")) + _ITEM_BYTES * len(items)
