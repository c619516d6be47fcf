"""A long run of stored batches as one Arrow table, every byte of it verified.

Most batches of a scan are plain and are checked all together (`facts`). Every other one, and a plain one with something
wrong, goes through `Batch.verify`. So what is refused is refused by `Batch`, and the verdict is the same for any bytes.

Keys and values are not copied, only their offsets are: counted from the start of the stretch they form one array over
its memory, of which each batch is a slice. The table keeps that memory alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logboom.batch import vector
from logboom.batch.arrow import ORDER, absent, schema
from logboom.batch.batch import Batch
from logboom.batch.columns import KEY, VALUE
from logboom.batch.facts import BatchFacts, Plain, find_batches, gather, read_valid, room, sweep
from logboom.batch.header import KIND_DATA, KIND_LOST
from logboom.errors import BatchError

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.batch.facts import Aside, Vector

    _Kinds = Mapping[str, pa.DataType]
    _Tables = Mapping[int, pa.RecordBatch]

FEW: Final = 24
"""Below so many batches vectors are not worth their while."""
_BLOCK: Final = 32_768
LOST: Final = "lost, says repair"
_BITS: Final = {"key": KEY, "value": VALUE}


class BatchFailure(NamedTuple):
    """The batch at which reading stops. `seqno_until` is None where its header does not say how far it goes."""

    offset: int
    seqno_from: int
    seqno_until: int | None
    reason: str


class TableStretch(NamedTuple):
    """The records before the first failure, and what comes next behind them."""

    table: pa.Table
    next_seqno: int
    next_index: int
    term: int
    """Of the last batch; 0 where there is none."""
    size: int
    failure: BatchFailure | None


def to_table(
    data: memoryview,
    base_seqno: int,
    first_index: int,
    columns: Sequence[str] | None = None,
    few: int = FEW,
    budget_bytes: int = 2**62,
    aside: Aside | None = None,
) -> TableStretch:
    """Read whole consecutive batches, the first of which must have these numbers. `columns` as in `Batch.to_arrow`.

    Up to `few` batches are read one by one. Ends, without a failure, before a table would take more memory than
    `budget_bytes`; compressed batches may grow by any factor. What `aside` is: see `facts.sweep`.
    """
    layout = schema(ORDER if columns is None else tuple(columns))
    bounds, over_budget = find_batches(data, budget_bytes)
    if over_budget:
        data = data[: bounds[-1]]
    if len(bounds) <= few:
        return _read_few(data, layout, base_seqno, first_index)
    facts = gather(data, bounds, base_seqno, first_index)
    plain = sweep(data, facts, "timestamp" in layout.names, aside)
    rest = _read_others(data, bounds, facts, base_seqno, first_index)
    sound, rows = rest.sound, int(facts.before[rest.sound])
    kept = int(vector.np.searchsorted(plain.numbers, sound))
    plain = plain._replace(numbers=plain.numbers[:kept], counts=plain.counts[:kept], firsts=plain.firsts[:kept])
    kinds = {field.name: field.type for field in layout}
    others = {number: batch.to_arrow(tuple(kinds)) for number, batch in rest.batches.items()}
    found = _texts(data, facts, kinds, plain, others)
    if "seqno" in kinds:
        found["seqno"] = _integers(kinds["seqno"], _count_up(base_seqno, rows))
    for field in layout:
        if field.name not in found:
            found[field.name] = _made(field, plain, others)
    return TableStretch(
        vector.pa.Table.from_arrays([found[name] for name in layout.names], schema=layout),
        base_seqno + rows,
        first_index + sound,
        int(facts.terms[sound - 1]) if sound else 0,
        bounds[sound],
        rest.failure,
    )


def join_tables(tables: Iterable[pa.Table], columns: Sequence[str] | None) -> pa.Table:
    """All of them as one; without any, an empty one with these columns."""
    found = list(tables)
    return (
        vector.pa.concat_tables(found) if found else schema(ORDER if columns is None else tuple(columns)).empty_table()
    )


class _Others(NamedTuple):
    """Data batches that are not plain, by number; how many batches are sound, plain ones included; why not more."""

    batches: dict[int, Batch]
    sound: int
    failure: BatchFailure | None = None


def _read_others(data: memoryview, bounds: list[int], facts: BatchFacts, base_seqno: int, first_index: int) -> _Others:
    batches: dict[int, Batch] = {}
    numbers = vector.np.flatnonzero(~facts.plain).tolist()
    if bounds[-1] < len(data):
        numbers.append(len(bounds) - 1)
    for number in numbers:
        found = _read_batch(data, bounds[number], base_seqno + int(facts.before[number]), first_index + number)
        if isinstance(found, BatchFailure):
            return _Others(batches, number, found)
        if found.header.kind == KIND_DATA:
            batches[number] = found
    return _Others(batches, len(bounds) - 1)


def _read_batch(data: memoryview, offset: int, seqno: int, index: int) -> Batch | BatchFailure:
    """The batch at this offset, verified, if it is the one with these numbers."""
    until = None
    try:
        batch = Batch.parse(data[offset:])
        header = batch.header
        if header.base_seqno != seqno or header.index != index:
            raise BatchError(f"batch {header.index} stands where {index} must be")
        until = header.next_seqno
        batch.verify()
    except BatchError as error:
        return BatchFailure(offset, seqno, until, str(error))
    if header.kind == KIND_LOST and header.record_count:
        return BatchFailure(offset, seqno, until, LOST)
    return batch


def _read_few(data: memoryview, layout: pa.Schema, seqno: int, index: int) -> TableStretch:
    """One by one."""
    names, offset, term, rows = tuple(layout.names), 0, 0, []
    failure = None
    while offset < len(data):
        found = _read_batch(data, offset, seqno, index)
        if isinstance(found, BatchFailure):
            failure = found
            break
        header = found.header
        if header.kind == KIND_DATA:
            rows.append(found.to_arrow(names))
        offset, seqno, index, term = offset + header.size, header.next_seqno, header.index + 1, header.term
    return TableStretch(vector.pa.Table.from_batches(rows, layout), seqno, index, term, offset, failure)


def _texts(data: memoryview, facts: BatchFacts, kinds: _Kinds, plain: Plain, others: _Tables) -> dict[str, Any]:
    """Keys and values of plain batches where some hold them. To slice a record batch costs less than its arrays."""
    layout = schema(tuple(name for name in kinds if _BITS.get(name, 0) in facts.texts))
    if not layout.names or not len(plain.numbers):
        return {}
    if not plain.offsets:
        return {field.name: _join(plain, _stored_texts(data, facts, field, plain), others, field) for field in layout}
    whole = _joined_texts(data, facts, layout, plain)
    parts: Iterable[Any] = map(whole.slice, plain.firsts.tolist(), plain.counts.tolist())
    if others:
        parts = _merge(plain, parts, {number: table.select(layout.names) for number, table in others.items()})
    table = vector.pa.Table.from_batches(parts, layout)
    return dict(zip(layout.names, table.columns, strict=True))


def _joined_texts(data: memoryview, facts: BatchFacts, layout: pa.Schema, plain: Plain) -> pa.RecordBatch:
    """All batches as one, with a row too many between two of them."""
    source, size = vector.pa.py_buffer(data), int(plain.firsts[-1] + plain.counts[-1])
    arrays = []
    for name, kind in zip(layout.names, layout.types, strict=True):
        valid = read_valid(facts, _BITS[name], plain)
        bitmap = None if valid is None else vector.pa.py_buffer(valid)
        offsets = vector.pa.py_buffer(plain.offsets[_BITS[name]])
        arrays.append(vector.from_buffers(kind, size, [bitmap, offsets, source], 0 if valid is None else -1))
    return vector.pa.RecordBatch.from_arrays(arrays, schema=layout)


def _stored_texts(data: memoryview, facts: BatchFacts, field: pa.Field, plain: Plain) -> Iterator[pa.Array]:
    """Each batch by itself, over its own offsets."""
    bit, kind, numbers, cut = _BITS[field.name], field.type, plain.numbers, vector.pa.py_buffer(data).slice
    texts, held = facts.texts[bit], facts.columns[numbers] & bit > 0
    places = (column[numbers].tolist() for column in texts)
    for holds, count, bitmap, offsets, content in zip(held.tolist(), plain.counts.tolist(), *places, strict=True):
        if holds:
            buffers = [cut(bitmap, offsets - bitmap), cut(offsets, content - offsets), cut(content)]
            yield vector.from_buffers(kind, count, buffers)
        else:
            yield absent(kind, count)


def _join(plain: Plain, parts: Iterable[pa.Array], others: _Tables, field: pa.Field) -> pa.ChunkedArray:
    """A chunk of every batch, in the order of the batches."""
    tables = {number: table.column(field.name) for number, table in others.items()}
    return vector.pa.chunked_array(_merge(plain, parts, tables) if others else list(parts), field.type)


def _made(field: pa.Field, plain: Plain, others: _Tables) -> pa.ChunkedArray:
    """Timestamps, or a column that no plain batch has: in one piece, or a chunk per batch where others lie between."""
    name, kind = field.name, field.type
    rows = int(plain.counts.sum())
    moments = plain.moments[:rows]
    if not others:
        made = _moments(kind, moments) if name == "timestamp" else _repeated(_absent_block(name), rows)
        return vector.pa.chunked_array(made, kind)
    counts = plain.counts.tolist()
    if name == "timestamp":
        whole = _integers(kind, vector.np.ascontiguousarray(moments))
        parts = list(map(whole.slice, accumulate(counts, initial=0), counts))
    else:
        parts = [absent(kind, count) for count in counts]
    return _join(plain, parts, others, field)


def _merge(plain: Plain, parts: Iterable[Any], others: dict[int, Any]) -> list[Any]:
    """Pieces of every batch, in the order of the batches."""
    everything = others | dict(zip(plain.numbers.tolist(), parts, strict=False))
    return [everything[number] for number in sorted(everything)]


def _integers(kind: pa.DataType, numbers: Vector) -> pa.Array:
    return vector.from_buffers(kind, len(numbers), [None, vector.pa.py_buffer(numbers)], 0)


def _count_up(start: int, count: int) -> Vector:
    block, numbers = _first_numbers(), room(count, vector.I64)
    for at in range(0, count, _BLOCK):
        part = numbers[at : at + _BLOCK]
        vector.np.add(block[: len(part)], start + at, out=part)
    return numbers


@lru_cache(maxsize=1)
def _first_numbers() -> Vector:
    return vector.np.arange(_BLOCK, dtype=vector.I64)


def _moments(kind: pa.DataType, moments: Vector) -> list[pa.Array]:
    if not len(moments) or moments.strides[0]:
        return [_integers(kind, moments)]
    return _repeated(_integers(kind, vector.np.full(_BLOCK, moments[0])), len(moments))


def _repeated(block: pa.Array, count: int) -> list[pa.Array]:
    """A column of so many rows of which all are alike: the same block over and over."""
    blocks, rest = divmod(count, _BLOCK)
    return [block] * blocks + [block.slice(0, rest)] * (rest > 0)


@lru_cache(maxsize=len(ORDER))
def _absent_block(name: str) -> pa.Array:
    """A column that no record has."""
    return absent(schema((name,)).types[0], _BLOCK)
