"""From a reader to a sink, up to its bounds, with a cursor that moves behind what was written and never before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, TypeVar

from logboom.cli.connection import ask
from logboom.cli.progress import records_read
from logboom.cli.sink import BINARY, Format, LineSink, TableSink
from logboom.errors import LogboomError
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark

if TYPE_CHECKING:
    from logboom import Reader
    from logboom.cli.bounds import Bounds

LOOK_S: Final = 1.0
"""How often the cursor is moved, and how often a reader that follows looks up when nothing comes."""

Advance = Callable[[int], None] | None
Piece = TypeVar("Piece")


class Copy:
    def __init__(self, reader: Reader, bounds: Bounds, server: str | None, cursor: str | None, follow: bool) -> None:
        self._reader = reader
        self._bounds = bounds
        self._server = server
        self._cursor = cursor
        self._follow = follow
        self._looks_up = follow and (cursor is not None or bounds.has_seqno)
        self._written = self._committed = ""
        """Bookmarks: behind what was written, and where the cursor was put."""
        self._due = time.monotonic() + LOOK_S
        self._held = False
        """What was written cannot be read before the file has its end: the cursor waits for that."""

    def run(self, file: IO[bytes], form: Format, numbers: bool, progress: bool) -> None:
        self._held = form == "parquet"
        with records_read("reading", None, progress) as advance:
            try:
                if form in BINARY:
                    self._copy_tables(TableSink(file, form), advance)
                else:
                    self._copy_lines(LineSink(file, form == "ndjson", numbers), advance)
            except BaseException:
                with suppress(LogboomError):
                    self._commit()
                raise
            self._commit()

    def _copy_lines(self, sink: LineSink, advance: Advance) -> None:
        names = tuple(dict.fromkeys((*sink.columns, *self._bounds.columns)))
        at, timed = names.index("seqno"), "timestamp" in self._bounds.columns
        for lists in self._rounds(lambda timeout_s: self._reader.lists(names, self._follow, timeout_s)):
            given = len(lists[at])
            count = self._bounds.keep(lists[at], lists[names.index("timestamp")] if timed else ())
            kept = lists if count == given else [column[:count] for column in lists]
            sink.write(kept[: len(sink.columns)])
            if self._follow or self._cursor is not None:
                sink.flush()
            self._note(count, given, lists[at][count - 1] + 1 if count else None, advance)
        sink.flush()

    def _copy_tables(self, sink: TableSink, advance: Advance) -> None:
        try:
            for table in self._rounds(lambda timeout_s: self._reader.tables(None, self._follow, timeout_s)):
                count = self._bounds.keep_table(table)
                sink.write(table.slice(0, count))
                if not self._held and (self._follow or self._cursor is not None):
                    sink.flush()
                last = table.column("seqno")[count - 1].as_py() + 1 if count else None
                self._note(count, len(table), last, advance)
        finally:
            sink.close()
            self._held = False

    def _rounds(self, read: Callable[[float | None], Iterator[Piece]]) -> Iterator[Piece]:
        """What the reader gives, until the bounds are reached."""
        while not self._bounds.reached:
            for piece in read(LOOK_S if self._looks_up else None):
                yield piece
                if self._bounds.reached:
                    return
                if time.monotonic() >= self._due:
                    self._commit()
            if not self._follow:
                return
            self._commit()
            self._bounds.pass_to(self._reader.position)

    def _note(self, count: int, given: int, next_seqno: int | None, advance: Advance) -> None:
        """So many of the records given were written, the last of them before this seqno."""
        if count == given:
            self._written = self._reader.bookmark
        elif next_seqno is not None:
            stands = Bookmark.parse(self._reader.bookmark)
            self._written = str(stands._replace(seqno=next_seqno, term=TERM_UNKNOWN))
        if advance is not None:
            advance(count)

    def _commit(self) -> None:
        """Put the cursor behind what was written."""
        self._due = time.monotonic() + LOOK_S
        cursor, bookmark = self._cursor, self._written
        if cursor is None or self._held or bookmark == self._committed:
            return
        topic, partition = self._reader.topic, Bookmark.parse(bookmark).partition
        ask(self._server, lambda broker: broker.commit_cursor(cursor, topic, partition, bookmark))
        self._committed = bookmark
