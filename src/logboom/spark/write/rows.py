"""Rows of a DataFrame on their way into a stage: what a task does with them.

Nothing is done row by row, but for values that become JSON. A row that cannot be a record is an error that names the
column, the row by its number in the task, and what it holds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from logboom.batch import build
from logboom.batch.header import BATCH_SIZE_MAX
from logboom.batch.murmur import partitions_of_column
from logboom.batch.partitioner import ANYWHERE
from logboom.errors import BatchTooLarge, InvalidColumn, LimitExceeded, PartitionNotFound, TopicError
from logboom.spark.write.json_texts import encode_rows
from logboom.spark.write.layout import PARTS, ColumnLayout
from logboom.spark.write.options import Order

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

GATHERED_BYTES: Final = 4 * 1024 * 1024
"""Spark's batches have 10,000 rows, however short: small ones are joined before they are dealt out to logs."""
SORTED_BYTES: Final = 256 * 1024 * 1024
"""What a task holds to sort it."""
_SHOWN: Final = 60
_NAMES: Final = ("keys", "channels")
"""What says where a record goes."""


def gather(batches: Iterator[pa.RecordBatch], layout: ColumnLayout) -> Iterator[pa.RecordBatch]:
    """The rows in larger pieces, in their order or as `orderBy` has it."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        more = batch.nbytes
        if not layout.order and waiting and size + more > GATHERED_BYTES:
            yield _join(waiting)
            waiting, size = [], 0
        if batch.num_rows:
            waiting.append(batch)
            size += more
        if layout.order and size > SORTED_BYTES:
            hint = (
                "the rows of a task do not fit: sort them in Spark, with sortWithinPartitions(…), and leave out orderBy"
            )
            raise LimitExceeded("orderBy bytes", SORTED_BYTES, hint)
    if waiting:
        yield _sort(_join(waiting), layout.order) if layout.order else _join(waiting)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _sort(batch: pa.RecordBatch, order: tuple[Order, ...]) -> pa.RecordBatch:
    """As Spark sorts: nulls are less, and what is not a number more, than all else."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys: dict[str, tuple[pa.Array, str]] = {}
    for number, (name, descending) in enumerate(order):
        column, way = batch.column(name), "descending" if descending else "ascending"
        keys[f"{number} valid"] = column.is_valid(), way
        if pa.types.is_floating(column.type):
            keys[f"{number} nan"] = pc.is_nan(column), way
        keys[f"{number}"] = column, way
    table = pa.table({name: column for name, (column, _) in keys.items()})
    return batch.take(pc.sort_indices(table, sort_keys=[(name, way) for name, (_, way) in keys.items()]))


class RowTarget(Protocol):
    """What rows are written to: a StageWriter, as far as it is used here."""

    def partitions(self, topic: str) -> int: ...
    def write_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        timestamps: Any = None,
        channels: Any = None,
        tags: Any = None,
        headers: Any = None,
        *,
        partition: int | None = None,
    ) -> None: ...


class RowWriter:
    """Hands the rows of one task on to a stage, each to the log where it belongs, in their order."""

    def __init__(self, stage: RowTarget, layout: ColumnLayout, task: int) -> None:
        self._stage = stage
        self._layout = layout
        self._task = task
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        rows = self._read(batch)
        self._count += batch.num_rows
        for topic, of_topic in self._split_topics(rows):
            for partition, part in self._split_partitions(topic, of_topic):
                try:
                    _check(part.columns)  # here, where the row is known: the stage may put off what is little
                    self._stage.write_many(topic, **part.columns, partition=partition)
                except (InvalidColumn, BatchTooLarge) as error:
                    raise self._blame(topic, part, error) from None

    def _read(self, batch: pa.RecordBatch) -> _Rows:
        import numpy as np
        import pyarrow as pa

        numbers = np.arange(self._count, self._count + batch.num_rows)
        columns = {}
        for name in self._layout.columns:
            column = batch.column(name)
            if name == "value" and self._layout.is_json:
                column, failed = encode_rows(column)
                if failed is not None:
                    rows = _Rows({}, None, None, numbers)
                    raise self._refuse("value", f"cannot become JSON: {failed[1]}", rows, failed[0])
            elif name in ("value", "key"):  # bytes, whoever calls them text: nobody looks whether they are UTF-8
                kinds = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
                column = column.view(kinds.get(column.type, column.type))
            columns[name] = column
        topics, partitions = columns.pop("topic", None), columns.pop("partition", None)
        return _Rows({PARTS[name]: column for name, column in columns.items()}, topics, partitions, numbers)

    def _split_topics(self, rows: _Rows) -> Iterator[tuple[str, _Rows]]:
        import numpy as np

        if self._layout.topic is not None or rows.topics is None:
            yield str(self._layout.topic), rows
            return
        if rows.topics.null_count:
            missing = int(np.flatnonzero(rows.topics.is_null())[0])
            raise self._refuse("topic", "is null, and no option says where to write", rows, missing)
        coded = rows.topics.dictionary_encode()
        names = coded.dictionary.to_pylist()
        for code, part in rows.split(np.asarray(coded.indices)):
            yield names[code], part

    def _split_partitions(self, topic: str, rows: _Rows) -> Iterator[tuple[int | None, _Rows]]:
        import numpy as np

        try:
            count = self._stage.partitions(topic)
        except TopicError as error:
            if self._layout.topic is not None:
                raise
            raise self._refuse("topic", str(error), rows, 0) from None
        given = rows.partitions
        if given is None or given.null_count == len(given):
            if count == 1 or not rows.has_names:
                yield None, rows
            else:
                yield from rows.split(rows.choose_partitions(count))
            return
        chosen = np.asarray(given.fill_null(ANYWHERE)).astype(np.int64)
        is_given = np.asarray(given.is_valid())
        strange = np.flatnonzero(is_given & ((chosen < 0) | (chosen >= count)))
        if len(strange):
            reason = str(PartitionNotFound(topic, int(chosen[strange[0]]), count))
            raise self._refuse("partition", reason, rows, int(strange[0]), topic)
        if given.null_count:
            chosen = np.where(is_given, chosen, rows.choose_partitions(count))
        yield from rows.split(chosen)

    def _blame(self, topic: str, rows: _Rows, error: InvalidColumn | BatchTooLarge) -> InvalidColumn:
        """The same, of the first row that cannot be a record by itself."""
        limit = error.limit_bytes if isinstance(error, BatchTooLarge) else BATCH_SIZE_MAX
        for position in range(len(rows.numbers)):
            try:
                size = len(build(**rows.take_one(position)).data)
            except InvalidColumn as found:
                column = next((name for name, part in PARTS.items() if part == found.column), found.column)
                return self._refuse(column, found.reason, rows, position, topic)
            except BatchTooLarge as found:
                size = found.size_bytes
            if size > limit:
                return self._refuse(
                    "value", f"a record of {size:,} bytes, allowed are {limit:,}", rows, position, topic
                )
        return InvalidColumn("value", str(error))

    def _refuse(self, column: str, reason: str, rows: _Rows, position: int, topic: str | None = None) -> InvalidColumn:
        where = f"row {rows.numbers[position]:,} of task {self._task}"
        shown = rows.show(position, topic)
        return InvalidColumn(column, f"{reason}; in {where}{f' ({shown})' if shown else ''}")


def _check(columns: Mapping[str, pa.Array]) -> None:
    """What the types of columns do not say. Values and keys are bytes, and any will do."""
    import pyarrow as pa

    for name in ("channels", "tags", "headers"):
        column = columns.get(name)
        if column is None:
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidColumn(name, str(error)) from None
        items = [] if name == "channels" else [column.flatten()]
        if name == "headers":
            items += items[0].flatten()
        if any(item.null_count for item in items):
            raise InvalidColumn(name, "an item of a list is null")


class _Rows:
    """Some rows: their columns as `write_many` takes them, where they go, and their numbers in the task."""

    def __init__(
        self, columns: dict[str, pa.Array], topics: pa.Array | None, partitions: pa.Array | None, numbers: Numbers
    ) -> None:
        self.columns = columns
        self.topics = topics
        self.partitions = partitions
        self.numbers = numbers

    def split(self, codes: Numbers) -> Iterator[tuple[int, _Rows]]:
        """Each code with the rows that have it, in their order."""
        import numpy as np

        if len(codes) and codes.min() == codes.max():
            yield int(codes[0]), self
            return
        if codes.max(initial=0) < 2**15:
            codes = codes.astype(np.int16)  # which NumPy sorts in one pass
        order = np.argsort(codes, kind="stable")
        found, dealt = codes[order], self._take(order)
        ends = [*(np.flatnonzero(found[1:] != found[:-1]) + 1).tolist(), len(found)]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            yield int(found[start]), dealt._slice(start, end - start)

    def _take(self, positions: Numbers) -> _Rows:
        import pyarrow as pa

        chosen = pa.array(positions)
        columns = {name: column.take(chosen) for name, column in self.columns.items()}
        topics = None if self.topics is None else self.topics.take(chosen)
        partitions = None if self.partitions is None else self.partitions.take(chosen)
        return _Rows(columns, topics, partitions, self.numbers[positions])

    def _slice(self, start: int, count: int) -> _Rows:
        columns = {name: column.slice(start, count) for name, column in self.columns.items()}
        topics = None if self.topics is None else self.topics.slice(start, count)
        partitions = None if self.partitions is None else self.partitions.slice(start, count)
        return _Rows(columns, topics, partitions, self.numbers[start : start + count])

    def take_one(self, position: int) -> dict[str, pa.Array]:
        return {name: column.slice(position, 1) for name, column in self.columns.items()}

    @property
    def has_names(self) -> bool:
        """Whether the partitioner has anything to say."""
        return any(name in self.columns and self.columns[name].null_count < len(self.numbers) for name in _NAMES)

    def choose_partitions(self, count: int) -> Numbers:
        """What the common partitioner says; and one for all that may go anywhere."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = self.columns.get("keys", pa.nulls(len(self.numbers), pa.binary())).cast(pa.binary())
        if "channels" in self.columns:
            channels = self.columns["channels"].cast(pa.binary())
            names = pc.coalesce(names, pc.if_else(pc.equal(pc.binary_length(channels), 0), None, channels))
        chosen = partitions_of_column(names, count)
        chosen[chosen == ANYWHERE] = random.randrange(count)
        return chosen

    def show(self, position: int, topic: str | None) -> str:
        shown = []
        if topic is None and self.topics is not None:
            topic = self.topics[position].as_py()
        if topic is not None:
            shown.append(f"topic {topic[:_SHOWN]!r}")
        for name in ("key", "value"):
            column = self.columns.get(PARTS[name])
            content = None if column is None else column[position].as_py()
            if content is not None:
                shown.append(f"{name} {content[:_SHOWN]!r}{'…' if len(content) > _SHOWN else ''}")
        return ", ".join(shown)
