"""Reads a log straight from its files, beside the writer and without asking it.

A `FileReader` stands at a seqno and goes forward. It shows what is committed and nothing else; the state file tells how
far that is, and waking it is the writer's only part. It follows the log across rolls, retention, recompression, and the
end and restart of the writer. It survives whatever happens to the files: data that is gone is an error with a name
(`SeqnoOutOfRange`, `Damage`, `TopicDeleted`, `TopicRecreated`, `BookmarkLost`), or is passed over when asked. What was
dropped and is archived is read from the archive.

Works on local file systems only: readers share the writer's page cache. One thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from logboom.batch import KIND_DATA, KIND_LOST, Batch, Record, Selection
from logboom.batch.tables import BatchFailure, join_tables, to_table
from logboom.client.files.file_runs import FileRuns
from logboom.client.files.sieve import choose, columns_for, sift
from logboom.client.keywords import explained
from logboom.client.read.decoded_lists import decoded_lists
from logboom.client.read.start import At, Gaps, check_start
from logboom.errors import Damage, LogboomError
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.topic import Topic
from logboom.storage.readable_log import READ_BYTES, SeqnoRange
from logboom.storage.run import Run
from logboom.values.serializer import Serializer, ValueFormat, coder_of

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_BYTES: Final = 64 * 1024 * 1024


class FileReader:
    """
    with FileReader("data", "events", timestamp=datetime(2026, 1, 1, tzinfo=UTC)) as reader:
        for table in reader.tables(["seqno", "value"]):
            ...

    Starts at `seqno`, at the first record at or after `timestamp`, at a `bookmark`, or `at` the earliest record or the
    latest. With `gaps="skip"` a reader goes on behind what is gone: records that retention dropped, damage, a topic
    that was deleted and made again (there with the first record). `skipped` counts, `last_gap` tells. `value` says how
    values were written, as in `Reader`: records and lists have them decoded, batches and tables have bytes.
    """

    @explained()
    def __init__(
        self,
        directory: str | os.PathLike[str],
        topic: str,
        partition: int | None = None,
        *,
        seqno: int | None = None,
        timestamp: datetime | int | None = None,
        bookmark: str | Bookmark | None = None,
        at: At | None = None,
        gaps: Gaps = "raise",
        value: ValueFormat | Serializer | None = None,
    ) -> None:
        check_start(at, gaps, seqno=seqno, timestamp=timestamp, bookmark=bookmark)
        self._runs = FileRuns(
            directory,
            topic,
            partition,
            seqno=seqno,
            timestamp=timestamp,
            bookmark=bookmark,
            at_end=at == "latest",
            skip_gaps=gaps == "skip",
        )
        self._coder = coder_of(value)
        self.bytes_read = 0
        """Of the files, for tables: what was verified and looked at."""

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FileReader {self.topic.name}/{self.partition} at {self.seqno}>"

    def close(self) -> None:
        self._runs.close()

    @property
    def directory(self) -> str:
        return self._runs.directory

    @property
    def node_id(self) -> str:
        return self._runs.node_id

    @property
    def partition(self) -> int:
        return self._runs.partition

    @property
    def skipped(self) -> int:
        """Records that were passed over."""
        return self._runs.skipped

    @property
    def last_gap(self) -> LogboomError | None:
        return self._runs.last_gap

    @property
    def topic(self) -> Topic:
        """The topic as its file says; another one after it was made again."""
        return self._runs.topic

    @property
    def seqno(self) -> int | None:
        """The seqno that is read next; None while no writer has opened the log yet."""
        return self._runs.seqno

    @property
    def first(self) -> int:
        """The first readable seqno, at the last look."""
        return self._runs.first

    @property
    def committed(self) -> int:
        """The seqno behind the last readable one, at the last look."""
        return self._runs.committed

    @property
    def stated(self) -> int:
        """As `committed`, by the state file alone: more than that where the end of the log is damaged."""
        return self._runs.stated

    @property
    def bookmark(self) -> str:
        """Where the reader stands, to be given to a later one. Inside a loop: behind what the loop was given last."""
        return self._runs.bookmark

    def seek(self, seqno: int) -> None:
        """The next call of `records`, `tables` and so on begins there."""
        self._runs.seek(seqno)

    def batches(self, follow: bool = False, timeout_s: float | None = None) -> Iterator[Batch]:
        """Batches as they are stored. The first may begin before the position.

        With `follow` this waits for more, for ever, or until nothing has come for `timeout_s`.
        """
        for batch in self._batches(follow, timeout_s):
            self._runs.move(batch.header.next_seqno, batch.header.term)
            yield batch

    def records(
        self, follow: bool = False, timeout_s: float | None = None, where: Selection | None = None
    ) -> Iterator[Record]:
        """Record by record; `where` leaves out what is not wanted."""
        records = self._records(follow, timeout_s, where)
        return records if self._coder is None else map(self._coder.decode, records)

    def _records(self, follow: bool, timeout_s: float | None, where: Selection | None) -> Iterator[Record]:
        runs = self._runs
        for batch in self._batches(follow, timeout_s):
            start = runs.seqno or 0
            for record in batch.records(where, self.topic.name, self.partition):
                if record.seqno is not None and record.seqno >= start:
                    runs.move(record.seqno + 1, batch.header.term)
                    yield record
            runs.move(batch.header.next_seqno, batch.header.term)

    def lists(
        self, columns: Sequence[str] = ("value",), follow: bool = False, timeout_s: float | None = None
    ) -> Iterator[tuple[list[Any], ...]]:
        """Some columns as lists of Python objects, a batch at a time."""
        if self._coder is None or "value" not in columns:
            return self._lists(columns, follow, timeout_s)
        log = self.topic.name, self.partition
        read = partial(self._lists, follow=follow, timeout_s=timeout_s)
        return decoded_lists(read, columns, self._coder, log, lambda row, seqno: self._runs.return_to(seqno))

    def _lists(self, columns: Sequence[str], follow: bool, timeout_s: float | None) -> Iterator[tuple[list[Any], ...]]:
        for batch in self._batches(follow, timeout_s):
            skip = max(0, (self._runs.seqno or 0) - batch.header.base_seqno)
            self._runs.move(batch.header.next_seqno, batch.header.term)
            yield tuple(batch.to_list(name)[skip:] for name in columns)

    def tables(
        self,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        timeout_s: float | None = None,
        max_bytes: int = TABLE_BYTES,
        until: int | None = None,
        where: Selection | None = None,
    ) -> Iterator[pa.Table]:
        """Arrow tables of about `max_bytes`, in memory shared with the mapped files: the fastest way to read much.

        Ends before the seqno `until`. `where` leaves out what is not wanted: segments and batches that cannot hold it
        are passed over, and of the others `bytes_read` counts what was looked at.
        """
        runs = self._runs
        end = runs.until(follow)
        if until is not None:
            end = until if end is None else min(end, until)
        needed = columns_for(columns, where)
        one_by_one = 0  # batches below this seqno
        while True:
            size = 1 if (runs.seqno or 0) < one_by_one else max_bytes
            if (run := runs.next(size, follow, timeout_s, end, until, where)) is None:
                return
            try:
                view = self._view_of(run)
                if view is None:
                    one_by_one = run.next_seqno
                    continue
                for stretch in sift(run, view, where):
                    runs.pass_to(stretch.base_seqno)
                    start, part = runs.seqno or 0, view[stretch.offset : stretch.offset + stretch.size]
                    found = to_table(
                        part, stretch.base_seqno, stretch.first_index, needed, budget_bytes=2 * max_bytes, aside=_aside
                    )
                    self.bytes_read += found.size
                    stop = found.next_seqno if end is None else min(end, found.next_seqno)
                    if stop > start:
                        runs.move(stop, found.term)
                        table = found.table
                        if stop - start < len(table):
                            table = table.slice(start - stretch.base_seqno, stop - start)
                        yield choose(table, columns, where)
                    if found.failure is not None:
                        raise _damage(run, stretch.offset, found.failure)
                    if found.size < stretch.size:
                        break  # the rest would take too much memory now
                else:
                    runs.pass_to(run.next_seqno if end is None else min(end, run.next_seqno))
                runs.end_read(run.size)
            except Damage as damage:
                runs.pass_over(damage)

    def _view_of(self, run: Run) -> memoryview | None:
        """None where it cannot be read and has several batches: some of them may be readable."""
        try:
            return run.view()
        except Damage:
            if run.next_index == run.first_index + 1:
                raise
            self._runs.forget_last()
            return None

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Everything from the position to the end of the log as one table."""
        return join_tables(self.tables(columns), columns)

    def seqno_at(self, timestamp: datetime | int) -> int:
        """The first record at or after this time; behind the last one where there is none."""
        return self._runs.seqno_at(timestamp)

    def term_before(self, seqno: int) -> int | None:
        """The term of the record before this one; None where nobody knows any more."""
        return self._runs.term_before(seqno)

    def lineage_of(self, term: int) -> int:
        """Which of all terms of this number the log has; 0 where nobody knows."""
        return self._runs.lineage_of(term)

    def cut(self, seqno_from: int, seqno_until: int, every_bytes: int) -> list[SeqnoRange]:
        """What there is of these records, in pieces of about so many bytes, for several to read."""
        return self._runs.cut(seqno_from, seqno_until, every_bytes)

    def refresh(self) -> bool:
        """Look where the log stands now; whether that is news. Reading does this by itself."""
        return self._runs.refresh()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until there is something to read; False where nothing has come for `timeout_s`."""
        return self._runs.wait(timeout_s)

    def _batches(self, follow: bool, timeout_s: float | None) -> Iterator[Batch]:
        """Every data batch from the position on; whoever takes one moves the position."""
        until = self._runs.until(follow)
        while (run := self._runs.next(READ_BYTES, follow, timeout_s, until)) is not None:
            try:
                for batch in run.batches():
                    header = batch.header
                    if header.kind == KIND_LOST and header.record_count:
                        raise Damage(run.file.path, 0, header.base_seqno, header.next_seqno, "lost, says repair")
                    if header.kind == KIND_DATA:
                        yield batch
            except Damage as damage:
                self._runs.pass_over(damage)


def _aside(call: Callable[[], None]) -> Callable[[], None]:
    """On a thread of its own: it is one for many MiB, and most of them are read once."""
    thread = Thread(target=call, name="logboom-checksum", daemon=True)
    thread.start()
    return thread.join


def _damage(run: Run, offset: int, failure: BatchFailure) -> Damage:
    position = run.position + offset + failure.offset
    return Damage(run.file.path, position, failure.seqno_from, failure.seqno_until, failure.reason)
