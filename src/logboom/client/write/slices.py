"""Records as columns that can be sliced together, and slices of them that are to be batches.

Nothing is done record by record, unless keys or channels that are no Arrow arrays have to be dealt out to partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

from logboom.batch import Batch, Producer, build, encode, vector
from logboom.batch.murmur import is_hashable, partitions_of_column
from logboom.batch.partitioner import ANYWHERE, partitions_of
from logboom.client.write.gathered import RECORD_BYTES, as_bytes
from logboom.client.write.router import Router

_ITEM_BYTES: Final = 16
_TEXTS: Final = ("values", "keys", "channels")


class Slice(NamedTuple):
    """Some records that are to be one batch, or part of one."""

    partition: int | None
    """None: any."""
    columns: BuildColumns
    partitions: int
    """So many were known when it was cut; 1 where it did not matter."""
    is_rest: bool
    """Less than half a batch."""

    @property
    def size(self) -> int:
        return self.columns.size

    def add_to(self, routing: Router, batch_bytes: int, codec: str, now: float) -> None:
        """As a batch; but what is less than one, and nothing but values, joins what is gathered.

        What was cut before anybody knew how many partitions there are is dealt out to them.
        """
        known, columns = routing.partitions, self.columns
        if self.partitions != known and columns.has_names:
            for partition, part in columns.deal(known):
                for piece in part.cut(batch_bytes):
                    routing.add_batch(partition, piece.make(codec), piece.count, now)
            return
        values = columns.plain_values() if self.is_rest else None
        if values is not None:
            routing.add_values(values, columns.size)
        else:
            routing.add_batch(self.partition, columns.make(codec), columns.count, now)


class BuildColumns:
    """The arguments of `batch.build`, with an entry for each of `count` records, or one for all."""

    def __init__(self, count: int, entries: dict[str, Any]) -> None:
        self.count = count
        self._entries = entries

    @property
    def has_names(self) -> bool:
        """Whether anything says where a record goes."""
        return bool(self._entries.keys() & {"keys", "channels"})

    @cached_property
    def size(self) -> int:
        """Bytes of all records, about."""
        total = RECORD_BYTES * self.count
        for name, entry in self._entries.items():
            total += len(entry) * self.count if isinstance(entry, str) else sum_of_sizes(name, entry)
        return total

    def make(self, codec: str) -> Callable[[Producer], Batch]:
        return lambda producer: build(**self._entries, codec=codec, producer=producer)

    def plain_values(self) -> list[bytes | None] | None:
        if len(self._entries) > 1:
            return None
        values = self._entries["values"]
        if not isinstance(values, list | tuple):
            return list(values.cast("binary").to_pylist())
        return list(values)

    def deal(self, partitions: int) -> Iterator[tuple[int | None, BuildColumns]]:
        """By partition, each with its records in their order. None of them holds on to the memory of the others."""
        if partitions == 1 or not self.has_names:
            yield None, self
            return
        np, chosen = vector.np, self._partitions(partitions).astype(vector.np.int16)
        order = np.argsort(chosen, kind="stable")
        chosen = chosen[order]
        starts = [0, *(np.flatnonzero(np.diff(chosen)) + 1).tolist(), self.count]
        for start, until in pairwise(starts):
            partition = int(chosen[start])
            yield None if partition == ANYWHERE else partition, self._take(order[start:until])

    def cut(self, batch_bytes: int) -> Iterator[BuildColumns]:
        """Evenly: none is larger than so much, unless it is one record."""
        if self.size <= batch_bytes:
            yield self
            return
        np, start, done = vector.np, 0, 0
        ends = np.cumsum(self._sizes())
        while start < self.count:
            left = int(ends[-1]) - done
            until = int(np.searchsorted(ends, done + left / -(-left // batch_bytes), "right"))
            until = max(until, start + 1)
            yield self._range(start, until)
            start, done = until, int(ends[until - 1])

    def up_to(self, size_bytes: float) -> BuildColumns:
        """The first of them: so much, or one record."""
        ends = vector.np.cumsum(self._sizes())
        return self._range(0, max(1, int(vector.np.searchsorted(ends, size_bytes, "right"))))

    def checked(self) -> BuildColumns:
        """The same as Arrow arrays, each of the type that it has in a batch: no entry is refused later."""
        entries = {
            name: entry if _is_single(entry) else encode.as_array(name, entry) for name, entry in self._entries.items()
        }
        return BuildColumns(self.count, entries)

    def _range(self, start: int, until: int) -> BuildColumns:
        return BuildColumns(until - start, {name: _part(entry, start, until) for name, entry in self._entries.items()})

    def _take(self, numbers: Any) -> BuildColumns:
        entries: dict[str, Any] = {}
        for name, entry in self._entries.items():
            if _is_single(entry):
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
        sizes = vector.np.full(self.count, RECORD_BYTES, vector.np.int64)
        for name, entry in self._entries.items():
            sizes += len(entry) if isinstance(entry, str) else sizes_of(name, entry)
        return sizes


def sum_of_sizes(name: str, entries: Any) -> int:
    """Bytes of the entries of a column, about."""
    if _is_single(entries):
        return 0
    if not isinstance(entries, list | tuple):
        return max(0, int(entries.nbytes) - (4 * len(entries) if name in _TEXTS else 0))
    if name == "timestamps":
        return 8 * len(entries)
    if name in ("tags", "headers"):
        return sum(map(_items_size, entries))
    try:
        return sum(map(len, entries))
    except TypeError:
        return sum(map(_text_size, entries))


def sizes_of(name: str, entries: Any) -> Any:
    """Bytes of each entry, about."""
    if _is_single(entries):
        return 0
    np, count = vector.np, len(entries)
    if isinstance(entries, list | tuple):
        size_of = {"timestamps": lambda _: 8, "tags": _items_size, "headers": _items_size}.get(name, _text_size)
        return np.fromiter(map(size_of, entries), np.int64, count)
    if name in _TEXTS:
        import pyarrow.compute as pc

        try:
            return np.asarray(pc.binary_length(entries).fill_null(0)).astype(np.int64)
        except (vector.pa.ArrowException, TypeError):
            pass  # a column of no such type: whoever builds a batch of it says so
    return np.full(count, entries.nbytes // max(count, 1), np.int64)


def _text_size(text: Any) -> int:
    return len(text) if hasattr(text, "__len__") else 0


def _items_size(items: Any) -> int:
    if not items or not isinstance(items, Collection):
        return 0
    pairs = items.items() if isinstance(items, Mapping) else items
    flat = chain.from_iterable(item if isinstance(item, tuple) else (item,) for item in pairs)
    return sum(len(text) for text in flat if hasattr(text, "__len__")) + _ITEM_BYTES * len(items)


def _is_single(entry: Any) -> bool:
    """Whether it is one for all records."""
    return isinstance(entry, int | datetime | str)


def _part(entry: Any, start: int, until: int) -> Any:
    if _is_single(entry):
        return entry
    return entry[start:until] if isinstance(entry, list | tuple) else entry.slice(start, until - start)
