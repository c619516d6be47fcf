"""Reads a log from a node, in the calling thread: no event loop, no thread of its own.

A `Reader` stands at a seqno and goes forward. It shows what is committed and nothing else. A lost connection or a
restarted node it survives: it connects again, to the next server where there are several, and goes on exactly behind
what it has given. What is gone is an error with a name (`SeqnoOutOfRange`, `Damage`, `TopicDeleted`, `TopicRecreated`,
`BookmarkLost`), or is passed over when asked. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from logboom.batch import Batch, Record
from logboom.batch.tables import join_tables
from logboom.broker.api import CursorMove
from logboom.client.read.blocking_steps import BlockingSteps
from logboom.client.read.reader_state import ReaderState, need_pandas
from logboom.client.read.start import check_seqno

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Piece = TypeVar("Piece")


class Reader(ReaderState, BlockingSteps):
    """
    with Reader("events", "localhost:1773", timestamp=datetime(2026, 1, 1, tzinfo=UTC)) as reader:
        for record in reader.records(follow=True):
            print(record.seqno, record.value)

    Loops go from where the reader stands up to where the log ended when the loop began. With `follow` they wait for
    more, for ever, or until nothing has come for `timeout_s`.
    """

    def _begin(self) -> None:
        try:
            self._run(self._fetching.open(self._connect_timeout_s))
        except BaseException:
            self._drop(connection=True)
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def close(self) -> None:
        """Where it stands is still known afterwards; a loop would connect again."""
        self._run(self._fetching.close())

    def records(self, follow: bool = False, timeout_s: float | None = None) -> Iterator[Record]:
        """Record by record."""
        return chain.from_iterable(self._pieces(methodcaller("records"), follow, timeout_s))

    def lists(
        self, columns: Sequence[str] = ("value",), follow: bool = False, timeout_s: float | None = None
    ) -> Iterator[tuple[list[Any], ...]]:
        """Some columns as lists of Python objects, a batch at a time."""
        return self._pieces(methodcaller("lists", columns), follow, timeout_s)

    def batches(self, follow: bool = False, timeout_s: float | None = None) -> Iterator[Batch]:
        """Batches as they are stored. The first may begin before the position. Not with a filter."""
        return self._pieces(methodcaller("batches"), follow, timeout_s)

    def tables(
        self,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        timeout_s: float | None = None,
        until: int | None = None,
    ) -> Iterator[pa.Table]:
        """Arrow tables as they come, in the memory they were received in: the fastest way to read much.

        Ends with the one that reaches the seqno `until`; it may go on behind that.
        """
        return self._pieces(methodcaller("tables", columns), follow, timeout_s, until)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Everything from the position to the end of the log as one table."""
        return join_tables(self.tables(columns), columns)

    def frames(
        self, columns: Sequence[str] | None = None, follow: bool = False, timeout_s: float | None = None
    ) -> Iterator[pd.DataFrame]:
        """The same as pandas frames."""
        need_pandas()
        return (table.to_pandas() for table in self.tables(columns, follow, timeout_s))

    def refresh(self) -> None:
        """Ask the node where the log begins and ends now."""
        self._run(self._fetching.until())

    def seek(self, seqno: int, topic: str | None = None, partition: int | None = None) -> None:
        """The next loop begins there; where several logs are read, in the one that is named."""
        self._run(self._fetching.seek(check_seqno(seqno), topic, partition))
        self._marks.forget()

    def commit(self, *, force: bool = False, expect: str | None = None) -> None:
        """Let the cursor stand where the reader does: behind what the loop was given last.

        Raises CursorMovedBack where it stands further on already, because another reader has the same one; `force`
        moves it back. With `expect`, a bookmark, or "" for none, UnexpectedCursor where it stands elsewhere.
        """
        self._run(self._fetching.commit(self._cursor(), force, expect))
        self._marks.forget()

    def moves(self) -> list[CursorMove]:
        """What a publish is to do so that the cursor stands where the reader does: behind what the loop was given last.

        For the transaction that has what was made of these records (`Transaction.commit_cursor`). Each expects the
        cursor where this reader has found it, or moved it (`moved`): where somebody else has, UnexpectedCursor.
        """
        found: list[CursorMove] = self._run(self._fetching.moves(self._cursor(), self._marks))
        return found

    def _pieces(
        self,
        take: Callable[[Any], Iterator[Piece]],
        follow: bool,
        timeout_s: float | None,
        limit: int | None = None,
    ) -> Iterator[Piece]:
        reading, fetching = self._reading, self._fetching
        until = None if follow else self._run(fetching.until())
        if limit is not None and until is not None:
            until = min(until, limit)
        deadline: float | None = None
        while True:
            came = False
            if reading.state is not None:
                reading.state.fill()
            for piece in take(reading):
                came = True
                yield piece
            if reading.state is not None:
                continue
            if not follow and (until is None or reading.has_reached(until)):
                return
            # At the end of the log, what a filter has left nothing of is nothing.
            if came or deadline is None or not self.at_end:
                deadline = fetching.deadline(timeout_s)
            elif fetching.is_late(deadline):
                return
            if not self._run(fetching.next(follow, deadline)):
                return
