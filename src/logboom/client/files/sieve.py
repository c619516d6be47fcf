"""What is wanted of a run of stored batches: headers tell which of them are read at all, columns which rows.

A batch that cannot hold a record that is wanted is passed over with a look at its header. Rows are chosen on columns;
columns that only the choice needs are dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from logboom.batch import Selection, read_header, vector
from logboom.batch.arrow import ORDER
from logboom.errors import BatchError
from logboom.storage.run import Run

if TYPE_CHECKING:
    import pyarrow as pa


class BatchStretch(NamedTuple):
    """Neighbouring batches that may hold what is wanted: where in the run, and the numbers of the first."""

    offset: int
    size: int
    base_seqno: int
    first_index: int


def sift(run: Run, view: memoryview, wanted: Selection | None) -> Iterator[BatchStretch]:
    """The parts of a run to be read. From a header that is not sound on, all the rest: whoever reads it is told."""
    if wanted is None:
        yield BatchStretch(0, run.size, run.base_seqno, run.first_index)
        return
    start: tuple[int, int, int] | None = None
    offset, seqno, index = 0, run.base_seqno, run.first_index
    while offset < run.size:
        try:
            header = read_header(view, offset)
            if (header.base_seqno, header.index) != (seqno, index) or header.size > run.size - offset:
                raise BatchError
        except BatchError:
            start = start or (offset, seqno, index)
            offset = run.size
            break
        if wanted.may_hold(header):
            start = start or (offset, seqno, index)
        elif start is not None:
            yield BatchStretch(start[0], offset - start[0], *start[1:])
            start = None
        offset, seqno, index = offset + header.size, header.next_seqno, header.index + 1
    if start is not None:
        yield BatchStretch(start[0], offset - start[0], *start[1:])


def columns_for(columns: Sequence[str] | None, wanted: Selection | None) -> tuple[str, ...] | None:
    """What has to be read to give these columns of the rows that are wanted."""
    if wanted is None or columns is None:
        return None if columns is None else tuple(columns)
    return (*columns, *(name for name in wanted.columns if name not in columns))


def choose(table: pa.Table, columns: Sequence[str] | None, wanted: Selection | None) -> pa.Table:
    """These columns of the rows that are wanted; seqnos are not asked for."""
    if wanted is None:
        return table
    masks = wanted.match(lambda name: table.column(name).combine_chunks())
    if masks:
        table = table.filter(vector.pa.array(reduce(lambda one, other: one & other, masks)))
    return table.select(list(ORDER if columns is None else columns))
