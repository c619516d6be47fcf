"""From a reader to a sink, up to its bounds, with a cursor that moves behind what was written and never before it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from logboom.cli.show.sink import LineSink, TableSink
from logboom.errors import CursorMovedBack, LogboomError

if TYPE_CHECKING:
    from logboom import Reader
    from logboom.cli.records.bounds import Bounds

LOOK_S: Final = 1.0
"""How often the cursor is moved, and how often a reader that follows looks up when nothing comes."""

Piece = TypeVar("Piece")


class RecordPump:
    def __init__(
        self,
        reader: Reader,
        bounds: Bounds,
        sink: LineSink | TableSink,
        follow: bool,
        advance: Callable[[int], None] | None,
        may_go_back: bool = False,
    ) -> None:
        self._reader = reader
        self._bounds = bounds
        self._sink = sink
        self._follow = follow
        self._advance = advance
        self._looks_up = follow and (reader.cursor is not None or bounds.has_seqno)
        self._written = self._committed = reader.seqno or 0
        """Seqnos: behind what was written, and where the cursor was put."""
        self._in_state = reader.seqno is None
        """Whether records of a checkpoint come, which are no places in the log."""
        self._may_go_back = may_go_back
        """Whether whoever named a place to begin at wants the cursor there, wherever it was: for the first time."""
        self._is_behind = False
        self._due = time.monotonic() + LOOK_S

    def run(self) -> None:
        try:
            if isinstance(self._sink, LineSink):
                self._copy_lines(self._sink)
            else:
                self._copy_tables(self._sink)
        except BaseException:
            with suppress(LogboomError, OSError):
                self._sink.close()
                self._commit()
            raise
        self._sink.close()
        self._commit()

    def _copy_lines(self, sink: LineSink) -> None:
        names = tuple(dict.fromkeys((*sink.columns, *self._bounds.columns)))
        at, timed = names.index("seqno"), "timestamp" in self._bounds.columns
        for lists in self._rounds(lambda timeout_s: self._reader.lists(names, self._follow, timeout_s)):
            seqnos = lists[at]
            count = self._bounds.keep(seqnos, lists[names.index("timestamp")] if timed else ())
            sink.write([column[:count] for column in lists[: len(sink.columns)]])
            self._note(count, seqnos[count - 1] if 0 < count < len(seqnos) else None)

    def _copy_tables(self, sink: TableSink) -> None:
        for table in self._rounds(lambda timeout_s: self._reader.tables(None, self._follow, timeout_s)):
            count = self._bounds.keep_table(table)
            sink.write(table.slice(0, count))
            self._note(count, table.column("seqno")[count - 1].as_py() if 0 < count < len(table) else None)

    def _rounds(self, read: Callable[[float | None], Iterator[Piece]]) -> Iterator[Piece]:
        """What the reader gives, until the bounds are reached."""
        while not self._bounds.reached:
            for piece in read(LOOK_S if self._looks_up else None):
                yield piece
                if self._bounds.reached:
                    return
                if self._follow:
                    self._sink.flush()
                if time.monotonic() >= self._due:
                    self._commit()
            if not self._follow:
                return
            self._commit()
            self._bounds.pass_to(self._reader.seqno)

    def _note(self, count: int, cut_at: int | None) -> None:
        """So many records were written; `cut_at` is the last one, where others came with it that were not."""
        in_state, self._in_state = self._in_state, self._reader.seqno is None
        if cut_at is not None:
            self._written = self._written if in_state else cut_at + 1
        elif count:
            self._written = self._reader.seqno or 0
        if self._advance is not None:
            self._advance(count)

    def _commit(self) -> None:
        """Put the cursor behind what was written, where what was written can be read already."""
        self._rest()
        if self._reader.cursor is None or self._written == self._committed or not self._sink.flush():
            return
        if self._reader.seqno != self._written:
            self._reader.seek(self._written)
        self._put_cursor()
        self._committed = self._written

    def _rest(self) -> None:
        """Not again so soon."""
        self._due = time.monotonic() + LOOK_S

    def _put_cursor(self) -> None:
        try:
            self._reader.commit(force=self._may_go_back)
        except CursorMovedBack as error:  # another reader is ahead: that is no reason to stop
            if not self._is_behind:
                print(f"logboom: the cursor stays where it is: {error}", file=sys.stderr)
            self._is_behind = True
        self._may_go_back = False
