"""Where a read ends before the log does: after so many records, at a seqno, at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logboom.cli.start import ReadEnd

if TYPE_CHECKING:
    import pyarrow as pa


class Bounds:
    """Told of each stretch of records in turn, it says how many of them are still wanted."""

    def __init__(self, end: ReadEnd, limit: int | None) -> None:
        self._end = end
        self._left = limit
        self.reached = limit is not None and limit <= 0
        """Nothing that comes later is wanted."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What has to be known of the records."""
        return ("seqno",) if self._end.time is None else ("seqno", "timestamp")

    @property
    def is_full(self) -> bool:
        """Whether there are as many records as were wanted."""
        return self._left == 0

    @property
    def has_seqno(self) -> bool:
        return self._end.seqno is not None

    def pass_to(self, seqno: int | None) -> None:
        """The reader has come so far, whether there were records or not."""
        if self._end.seqno is not None and seqno is not None and seqno >= self._end.seqno:
            self.reached = True

    def keep(self, seqnos: Sequence[int], times: Sequence[int | None] = ()) -> int:
        count = len(seqnos)
        if self._end.seqno is not None:
            count = bisect_left(seqnos, self._end.seqno)
        moment = self._end.time
        if moment is not None:
            late = (at for at, time in enumerate(times[:count]) if time is not None and time >= moment)
            count = next(late, count)
        return self._count(count, len(seqnos))

    def keep_table(self, table: pa.Table) -> int:
        """The same for a table that has the columns."""
        import pyarrow as pa
        import pyarrow.compute as pc

        count = len(table)
        if self._end.seqno is not None:
            count = pc.sum(pc.less(table.column("seqno"), self._end.seqno)).as_py() or 0
        if self._end.time is not None:
            late = pc.greater_equal(table.column("timestamp").cast(pa.int64()), self._end.time)
            first = pc.index(late, True).as_py()
            count = count if first < 0 else min(count, first)
        return self._count(count, len(table))

    def _count(self, count: int, given: int) -> int:
        if self._left is not None:
            count = min(count, self._left)
            self._left -= count
        self.reached = count < given or self._left == 0
        return count
