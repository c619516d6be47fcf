"""Where a reader stands in its log, and what it makes of the chunks that come. No input, no output.

The position is behind what the caller was given last, to the record, whatever form that had. A chunk that was not read
to its end stays: the next loop begins inside it. What cannot be read has a name and is raised; with `gaps="skip"` the
position goes behind it, and `skipped` and `last_gap` tell.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from logboom.batch import KIND_DATA, KIND_LOST, Batch, Record, read_header, to_table
from logboom.batch.arrow import complete_lists, complete_tables, is_stored, stored, to_list
from logboom.batch.batch import Latch
from logboom.batch.tables import FEW, LOST
from logboom.broker.api import Chunk, Filter, LogPlace, ReadRequest, Start
from logboom.client.read.decoded_lists import decoded_lists
from logboom.errors import (
    BatchError,
    BookmarkLost,
    Damage,
    LocalProtocolError,
    LogboomError,
    RemoteProtocolError,
    SeqnoOutOfRange,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.protocols.binary.messages import Kind, Read
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark
from logboom.values.serializer import ValueCoder

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.client.read.checkpoints import CheckpointRecords

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""What is asked for at once: a table of many batches is made in vectors."""
FEW_WIDE: Final = FEW // 2
"""As FEW where a table has many columns: made one by one, each batch costs for each of them."""
_NARROW: Final = 2
TABLE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Compressed batches may grow by any factor: about so much becomes one table at most."""

Piece = TypeVar("Piece")

_TOPIC_ID: Final = re.compile("[0-9a-f]{32}")
_GAPS: Final = (SeqnoOutOfRange, Damage, BookmarkLost, TopicDeleted, TopicRecreated)


class Given(NamedTuple):
    """Records that somebody takes one by one, and how far that has come: as far as their seqnos were used."""

    start: int | None
    start_term: int | None
    seqnos: Sequence[int]
    rest: Iterator[int]
    """Of the seqnos: those of records that were not made yet."""
    given_term: int | None

    @property
    def taken(self) -> int:
        return len(self.seqnos) - length_hint(self.rest)

    @property
    def seqno(self) -> int | None:
        """Behind the last one taken."""
        taken = self.taken
        return self.seqnos[taken - 1] + 1 if taken else self.start

    @property
    def term(self) -> int | None:
        return self.given_term if self.taken else self.start_term


class ReaderCore:
    def __init__(
        self,
        topic: str,
        partition: int | None,
        start: Start,
        wanted: Filter | None = None,
        skip: bool = False,
        coder: ValueCoder | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.filter = wanted
        self.skips = skip
        self.coder = coder
        """Decodes values; None leaves them bytes."""
        self.topic_id: str | None = None
        self._seqno: int | None = None
        self._term: int | None = None
        self._given: Given | None = None
        """Records that are being taken; the position is inside them."""
        self.began: int | None = None
        """Where it was put last: found as its start, or sought."""
        self._lineage = TERM_UNKNOWN, 0
        """A term, and its lineage where the node has said it."""
        self.first = self.committed = 0
        self.skipped = 0
        self.last_gap: LogboomError | None = None
        self.current: Chunk | None = None
        """What has come and was not read to its end."""
        self.state: CheckpointRecords | None = None
        """What comes before the log's own records, as long as some of it was not given."""
        self.latch: Latch | None = None
        """Ends records that are being taken."""

    def begin(self, state: CheckpointRecords, bookmark: str) -> None:
        """Give this first, then what the log has from the bookmark on."""
        self.state, self.start = None if state.is_over else state, Start(bookmark=bookmark)

    @property
    def seqno(self) -> int | None:
        """What is read next; None until the node has said where the start is."""
        return self._seqno if self._given is None else self._given.seqno

    @property
    def term(self) -> int | None:
        """Of the record before that; None where nobody knows."""
        return self._term if self._given is None else self._given.term

    @property
    def is_located(self) -> bool:
        return self.seqno is not None

    @property
    def at_end(self) -> bool:
        """Whether everything was read, as far as the node has said."""
        return self.state is None and (self.seqno or 0) >= self.committed

    @property
    def logs(self) -> list[ReaderCore]:
        return [self]

    @property
    def end(self) -> int:
        """How far the log reaches, as far as the node has said."""
        return self.committed

    def has_reached(self, end: int) -> bool:
        return (self.seqno or 0) >= end

    @property
    def bookmark(self) -> str:
        return str(self.place)

    @property
    def place(self) -> Bookmark:
        if self.state is not None:
            raise LocalProtocolError(
                f"the reader of {self.topic} has not come to the end of the checkpoint yet: there is no place in the "
                "log to go on from"
            )
        if self.topic_id is None or self.partition is None or self.seqno is None:
            raise LocalProtocolError(
                f"the reader of {self.topic} has not been opened yet: nobody knows where it stands"
            )
        return self.place_at(self.seqno, self.term)

    def place_at(self, seqno: int, term: int | None = None) -> Bookmark:
        """Of a log that is known; `term` is that of the record before it."""
        term = TERM_UNKNOWN if term is None else term
        lineage = self._lineage[1] if term == self._lineage[0] else 0
        return Bookmark(bytes.fromhex(self.topic_id or ""), self.partition or 0, seqno, term, lineage)

    def request(self) -> ReadRequest:
        """Everything from the position on. Gaps are errors on the way: what becomes of them is decided here."""
        start = Start(bookmark=self.bookmark)
        return ReadRequest(self.topic, start, self.partition, self.topic_id, CHUNK_BYTES, filter=self.filter)

    def locate(self) -> ReadRequest:
        """Where the start is, and how far the log reaches."""
        start = self.start if self.seqno is None else Start(at="latest")
        gaps: Literal["raise", "skip"] = "skip" if self.skips else "raise"
        return ReadRequest(self.topic, start, self.partition, self.topic_id, max_bytes=1, gaps=gaps)

    def question(self) -> tuple[Kind, Read]:
        return Kind.READ, Read(self.locate())

    def answered(self, answer: Any) -> None:
        if not isinstance(answer, Chunk):
            raise RemoteProtocolError("a read was answered with something else")
        self.located(answer)

    def cursor_places(self) -> list[tuple[str, int | None, str]]:
        """Where a cursor is to stand."""
        return [(self.topic, self.partition, self.bookmark)]

    def placed(self, place: LogPlace) -> None:
        """One of several logs: where it is to begin, unless it has begun."""
        if self.seqno is None:
            self.stand_at(place.topic_id, place.seqno, place.first, place.committed, place.term)
        self.first, self.committed, self._lineage = place.first, place.committed, (place.term, place.lineage)

    def stand_at(self, topic_id: str, seqno: int, first: int, committed: int, term: int | None) -> None:
        if not _TOPIC_ID.fullmatch(topic_id):
            raise RemoteProtocolError(f"{topic_id!r} is no id of a topic")
        self.topic_id, self.first, self.committed, self.began = topic_id, first, committed, seqno
        self._move(seqno, term)

    def pass_to(self, chunk: Chunk) -> None:
        """The node has left out what is before this."""
        self._pass_over(SeqnoOutOfRange(self.seqno or 0, chunk.seqno, chunk.committed))

    def located(self, chunk: Chunk) -> None:
        """The answer to `locate`. Its records are left alone."""
        self._note(chunk)
        if self.seqno is not None:
            return
        self.began = chunk.seqno
        self._stand(chunk.seqno, chunk.term if chunk.next_seqno == chunk.seqno else None)
        wanted = self.start.seqno
        if self.start.bookmark is not None:
            bookmark = Bookmark.parse(self.start.bookmark)
            wanted = bookmark.seqno
            if bookmark.topic_id.hex() != chunk.topic_id:
                self.last_gap = TopicRecreated(self.topic, bookmark.topic_id.hex(), chunk.topic_id)
                return
        if wanted is not None and wanted < chunk.seqno:
            self.skipped += chunk.seqno - wanted
            self.last_gap = SeqnoOutOfRange(wanted, chunk.first, chunk.committed)

    def arrived(self, chunk: Chunk) -> None:
        """What was requested has come."""
        self._note(chunk)
        if self.seqno is None or chunk.seqno > self.seqno or chunk.next_seqno < self.seqno:
            raise RemoteProtocolError(f"asked for seqno {self.seqno}, got {chunk.seqno} up to {chunk.next_seqno}")
        if chunk.seqnos is not None and len(chunk.data):
            count = read_header(chunk.data).record_count
            if count != len(chunk.seqnos) // 8:
                raise RemoteProtocolError(f"{len(chunk.seqnos) // 8} seqnos came with {count} records")
        self.current = chunk

    def _note(self, chunk: Chunk) -> None:
        if not _TOPIC_ID.fullmatch(chunk.topic_id):
            raise RemoteProtocolError(f"{chunk.topic_id!r} is no id of a topic")
        if self.topic_id is not None and chunk.topic_id != self.topic_id:
            raise TopicRecreated(self.topic, self.topic_id, chunk.topic_id)
        self.topic_id, self.partition = chunk.topic_id, chunk.partition
        self.first, self.committed = chunk.first, chunk.committed
        self._lineage = chunk.term, chunk.lineage

    def failed(self, error: LogboomError) -> bool:
        """The node cannot give what was requested: raise that, or go on behind it.

        Whether to ask again at once; False where the topic is gone, and only time may bring another.
        """
        if isinstance(error, TopicNotFound) and self.topic_id is not None:
            error = TopicDeleted(self.topic, self.topic_id)
        waits = isinstance(error, TopicNotFound) and isinstance(self.last_gap, TopicDeleted)
        if not self.skips or not (waits or isinstance(error, _GAPS)):
            raise error
        if waits:
            return False
        if isinstance(error, SeqnoOutOfRange | Damage):
            self._pass_over(error)
            return True
        self.last_gap = error
        # What was lost is lost. Where the log does not reach so far any more, it goes on at its end.
        self.start = Start(bookmark=self.bookmark) if isinstance(error, BookmarkLost) and self.topic_id else Start()
        if not isinstance(error, BookmarkLost):
            self.topic_id = self.state = None
        self.current = None
        self._stand(None, None)
        return not isinstance(error, TopicDeleted)

    def seek(self, seqno: int, topic: str | None = None, partition: int | None = None) -> None:
        self.current = self.state = None
        self.began = seqno
        self._stand(seqno, None)

    def _stand(self, seqno: int | None, term: int | None) -> None:
        self._seqno, self._term, self._given = seqno, term, None

    def _move(self, seqno: int, term: int | None) -> None:
        self._stand(seqno, None if term == TERM_UNKNOWN else term)

    def _finish(self, chunk: Chunk) -> None:
        if chunk.next_seqno >= (self.seqno or 0):
            self._move(chunk.next_seqno, chunk.term)
        self.current = None

    def _pass_over(self, gap: SeqnoOutOfRange | Damage) -> None:
        """Go on behind what cannot be read, or raise."""
        seqno = self.seqno or 0
        until = getattr(gap, "first" if isinstance(gap, SeqnoOutOfRange) else "seqno_until", None)
        if not self.skips or not isinstance(until, int) or until <= seqno:
            raise gap
        self.skipped += until - seqno
        self.last_gap = gap
        self._move(until, None)

    def _before(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Of the state. With the last of it, the reader stands in the log."""
        for piece in pieces:
            if self.state is not None and self.state.is_over:
                self.state = None
            yield piece

    # What the current chunk holds, from the position on. The position moves before each piece is given.

    def records(self) -> Iterator[Iterator[Record]]:
        """Some at a time. The position follows each record that is taken, without a look at it: see Given."""
        if self.state is not None:
            records = self._before(self.state.records())
            yield records if self.coder is None else map(self.coder.decode, records)
        else:
            yield from (records for _, _, records in self._given_batches())

    def timed(self) -> Iterator[tuple[Sequence[int], Iterator[Record]]]:
        """The same, with the timestamps of the records that come. Without a checkpoint."""
        return ((batch.timestamps()[skip:], records) for batch, skip, records in self._given_batches())

    def _given_batches(self) -> Iterator[tuple[Batch, int, Iterator[Record]]]:
        chunk = self.current
        if chunk is None:
            return
        if chunk.seqnos is None:
            for batch in self._batches(chunk):
                header, start = batch.header, self.seqno or 0
                skip = max(0, start - header.base_seqno)
                yield batch, skip, self._give(batch, skip, batch.seqnos()[skip:], header.term)
                self._move(header.next_seqno, header.term)
        elif len(chunk.data):
            found = chunk.seqnos.cast("B").cast("q").tolist()
            skip = bisect_left(found, self.seqno or 0)
            if skip < len(found):
                batch = Batch.parse(chunk.data)
                yield batch, skip, self._give(batch, skip, found[skip:], None)
                self._move(found[-1] + 1, None)
        self._finish(chunk)

    def _give(self, batch: Batch, skip: int, seqnos: Sequence[int], term: int | None) -> Iterator[Record]:
        rest = iter(seqnos)
        records = batch.numbered(rest, skip, self.topic, self.partition, self.latch)
        self._given = Given(self.seqno, self.term, seqnos, rest, term)
        return records if self.coder is None else map(self.coder.decode, records)

    def batches(self) -> Iterator[Batch]:
        """As they are stored. The first may begin before the position."""
        if self.state is not None:
            raise ValueError("a checkpoint has no stored batches: take records, lists or tables")
        chunk = self.current
        if chunk is None:
            return
        if chunk.seqnos is not None:
            raise ValueError(
                "where a filter, or rules of the node, leave records out there are no stored batches: take records, "
                "lists or tables"
            )
        for batch in self._batches(chunk):
            self._move(batch.header.next_seqno, batch.header.term)
            yield batch
        self._finish(chunk)

    def lists(self, columns: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        if self.coder is None or "value" not in columns:
            return self._complete_lists(columns)
        log = self.topic, self.partition or 0
        return decoded_lists(self._complete_lists, columns, self.coder, log, partial(self._return_to, self.state))

    def _return_to(self, state: CheckpointRecords | None, row: int, seqno: int) -> None:
        """Stand inside the piece that was given last: behind so many of its rows."""
        if state is not None:
            state.return_to(row)
            self.state = None if state.is_over else state
        else:
            self._stand(seqno, self._term if self.current is None or self.current.seqnos is None else None)

    def _complete_lists(self, columns: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        if is_stored(columns):
            return self._lists(columns)
        return complete_lists(self._lists(stored(columns)), columns, self.topic, self.partition or 0)

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        if columns is None or is_stored(columns):
            return self._tables(columns)
        return complete_tables(self._tables(stored(columns)), columns, self.topic, self.partition or 0)

    def _lists(self, columns: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
        if self.state is not None:
            yield from self._before(self.state.lists(columns))
            return
        chunk = self.current
        if chunk is None:
            return
        if chunk.seqnos is not None:
            for table in self._tables(columns):
                yield tuple(to_list(name, table.column(name).combine_chunks()) for name in columns)
            return
        for batch in self._batches(chunk):
            skip = max(0, (self.seqno or 0) - batch.header.base_seqno)
            self._move(batch.header.next_seqno, batch.header.term)
            yield tuple(batch.to_list(name)[skip:] for name in columns)
        self._finish(chunk)

    def _tables(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        if self.state is not None:
            yield from self._before(self.state.tables(columns))
            return
        chunk = self.current
        if chunk is None:
            return
        found = self._filtered(chunk, columns) if chunk.seqnos is not None else self._stored(chunk, columns)
        for table in found:
            if table.num_rows:
                yield table
        self._finish(chunk)

    def _filtered(self, chunk: Chunk, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """The records that a filter, or rules of the node, have left, with their seqnos."""
        import pyarrow as pa

        if chunk.seqnos is None or not len(chunk.data):
            return
        table = pa.Table.from_batches([Batch.parse(chunk.data).to_arrow(columns)])
        seqnos = pa.Array.from_buffers(pa.int64(), len(chunk.seqnos) // 8, [None, pa.py_buffer(chunk.seqnos)])
        if "seqno" in table.column_names:
            at = table.column_names.index("seqno")
            table = table.set_column(at, table.schema.field(at), seqnos)
        if chunk.seqno < (self.seqno or 0):
            import pyarrow.compute as pc

            table = table.filter(pc.greater_equal(seqnos, self.seqno))
        self._move(chunk.next_seqno, chunk.term)
        yield table

    def _stored(self, chunk: Chunk, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        data = chunk.data
        few = FEW if columns is not None and len(columns) <= _NARROW else FEW_WIDE
        while len(data):
            try:
                header = read_header(data)
            except BatchError as error:
                self._meet(chunk, self.seqno or 0, None, str(error))
                return
            self._check_dense(chunk, header.base_seqno)
            stretch = to_table(data, header.base_seqno, header.index, columns, few, TABLE_BYTES_MAX)
            seqno = self.seqno or 0
            if stretch.next_seqno > seqno:
                self._move(stretch.next_seqno, stretch.term)
                yield stretch.table.slice(max(0, seqno - header.base_seqno))
            data = data[stretch.size :]
            failure = stretch.failure
            if failure is None:
                continue
            if failure.seqno_until is None:
                self._meet(chunk, failure.seqno_from, None, failure.reason)
                return
            if failure.seqno_until > (self.seqno or 0):
                self._meet(chunk, failure.seqno_from, failure.seqno_until, failure.reason)
            data = data[read_header(data).size :]

    def _batches(self, chunk: Chunk) -> Iterator[Batch]:
        """Every data batch that reaches beyond the position, verified. Those before it are not looked at again."""
        data, is_passing = chunk.data, False
        while len(data):
            seqno, until = self.seqno or 0, None
            try:
                batch = Batch.parse(data)
                header = batch.header
                before, data = data, data[header.size :]
                until = header.next_seqno
                if until <= seqno:
                    is_passing = True
                    continue
                if is_passing:
                    self.current, is_passing = chunk._replace(data=before), False
                batch.verify()
            except BatchError as error:
                self._meet(chunk, seqno, until, str(error))
                if until is None:
                    return
                continue
            self._check_dense(chunk, header.base_seqno)
            if header.kind == KIND_LOST:
                self._meet(chunk, max(seqno, header.base_seqno), until, LOST)
            elif header.kind == KIND_DATA:
                yield batch

    def _check_dense(self, chunk: Chunk, base_seqno: int) -> None:
        if base_seqno > (self.seqno or 0):
            self._meet(chunk, self.seqno or 0, base_seqno, "the node has left them out")

    def _meet(self, chunk: Chunk, seqno_from: int, seqno_until: int | None, reason: str) -> None:
        """Records that came and are not sound. Where their header does not say how many, the whole chunk is lost."""
        until = chunk.next_seqno if seqno_until is None else seqno_until
        self._pass_over(Damage(f"{self.topic}/{chunk.partition}", 0, seqno_from, until, reason))
