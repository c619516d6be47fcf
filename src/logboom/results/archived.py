"""The archived part of a topic, read as its logs are: batches, tables, times and terms.

What a result covers is known from the pipeline's state alone. Its manifest is read when a record is first wanted, and
each file when it holds one that is wanted. A file counts only if its size and checksum are those that were published: a
record that comes from here is the one that was in the log. What is missing, or another, is Damage that names the file
and the seqnos it should hold; but first it is asked whether there is a newer result, which may have other files: one
that the floor runs through is written anew under another name, and goes.

For any threads. A bounded number of files is open, and a bounded amount of what was read last is kept.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import crc32c

from logboom.batch import build_table
from logboom.batch.arrow import ORDER
from logboom.batch.arrow import schema as record_schema
from logboom.batch.header import HEADER_SIZE, SYNCED_UNKNOWN, stamp
from logboom.batch.tables import LOST
from logboom.errors import BatchTooLarge, Damage, ResultsUnreadable
from logboom.results.archive import FORMAT, ArchivedFile, decode_manifest
from logboom.results.pipeline_state import PipelineState, Result
from logboom.results.places import ResultPlace, describe_change
from logboom.storage.config import MIB
from logboom.storage.readable_log import SeqnoRange, cut_pieces
from logboom.storage.run import Run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

KIND: Final = "archive"
FILES_MAX: Final = 16
KEPT_BYTES: Final = 64 * MIB
"""Of what was read last, in memory; the newest may be more."""
BATCH_BYTES: Final = MIB // 2
"""About how large batches are made."""
BATCH_RECORDS: Final = 65_536
"""As many as a batch may have that have nothing in them."""
_PIECE_BYTES: Final = 4 * MIB
ADVICE: Final = "restore it from a backup, or skip it"

Renew = Callable[[str, int], "ArchivedLogReader | None"]
"""What is archived of a log as of now, by topic id and partition. Called by the thread that reads."""


def find_archives(
    pipeline: PipelineState, renew: Renew | None = None, reads: Callable[[str], bool] = lambda place: True
) -> dict[tuple[str, int], ArchivedLogReader]:
    """What is archived of each log, by topic id and partition, of what is in a place that `reads` agrees to."""
    found: dict[tuple[str, int], ArchivedLogReader] = {}
    for job in pipeline.jobs.values():
        if job.kind != KIND or job.result is None or not reads(job.result.place):
            continue
        for topic, covered in job.result.covers.items():
            archive = Archive(job.result, topic, renew)
            found |= {(covered.topic_id, number): archive.log(number) for number in covered.spans}
    return found


class Archive:
    """Of one topic, as one result has it."""

    def __init__(self, result: Result, topic: str, renew: Renew | None = None) -> None:
        self._result = result
        self._renew = renew
        self._spans = result.covers[topic].spans
        self._topic_id = result.covers[topic].topic_id
        self._files: dict[int, list[ArchivedFile]] | None = None
        self._reading = threading.Lock()

    def log(self, partition: int) -> ArchivedLogReader:
        home = ResultPlace(self._result.place).above(2).uri  # of the job, in which the directory of the run is
        renew = None if self._renew is None else partial(self._renew, self._topic_id, partition)
        return ArchivedLogReader(home, *self._spans[partition], lambda: self.files(partition), self._result.run, renew)

    def files(self, partition: int) -> list[ArchivedFile]:
        """By seqno. Raises ResultsUnreadable."""
        with self._reading:
            if self._files is None:
                self._files = self._read_manifest()
        return self._files.get(partition, [])

    def _read_manifest(self) -> dict[int, list[ArchivedFile]]:
        stored, place = self._result.manifest, self._result.place
        if stored is None:
            raise ResultsUnreadable(f"{place}: the archive has no manifest")
        manifest = decode_manifest(ResultPlace(place).read(stored))
        if manifest.format != FORMAT:
            raise ResultsUnreadable(f"{place}/{stored.path} is of another format: use the release that wrote it")
        if manifest.topic_id != self._topic_id:
            raise ResultsUnreadable(f"{place}/{stored.path} is of another topic, {manifest.topic_id}")
        files: dict[int, list[ArchivedFile]] = {}
        for file in manifest.files:
            files.setdefault(file.partition, []).append(file)
        return files


class ArchivedLogReader:
    """One log's part of an archive. See broker.archived for what its readers are promised."""

    def __init__(
        self,
        home: str,
        first: int,
        until: int,
        files: Callable[[], Sequence[ArchivedFile]],
        run: str = "",
        renew: Callable[[], ArchivedLogReader | None] | None = None,
    ) -> None:
        """`files` gives those there are, by seqno, with paths below `home`; it may raise ResultsUnreadable."""
        self.first = first
        self.until = until
        self.run = run
        """Which has made it."""
        self._home = home
        self._list = files
        self._renew = renew

    def read(self, seqno: int, max_bytes: int, max_records: int | None = None) -> Run:
        file, rows = self._rows(seqno)
        each = max(1, rows.size // max(1, len(rows.seqnos)))
        room = max(1, min(rows.dense, max_bytes // each, rows.dense if max_records is None else max_records))
        pieces: list[Any] = []
        start, size, index = rows.at, 0, 0
        until = start + room
        while start < until and (not pieces or size < max_bytes):
            term, term_until = _term_at(file, int(rows.seqnos[start]))
            count = min(until - start, max(1, BATCH_BYTES // each), BATCH_RECORDS)
            if term_until is not None:
                count = min(count, term_until - int(rows.seqnos[start]))
            data, count = _encode(rows.table, start, count, max(max_bytes, BATCH_BYTES))
            index += 1
            numbers = int(rows.seqnos[start]), index, file.append_time, term, SYNCED_UNKNOWN
            pieces += (stamp(data, *numbers), data[HEADER_SIZE:])
            size += len(data)
            start += count
        held = _Held(f"{self._home}/{file.path}", b"".join(pieces))
        return Run(held, 0, size, seqno, seqno + start - rows.at, 1, 1 + index, False)

    def tables(self, seqno_from: int, seqno_until: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """A row group at a time, only what is wanted. Raises Damage."""
        names = ORDER if columns is None else tuple(columns)
        needed = names if "seqno" in names else (*names, "seqno")
        seqno, seqno_until = seqno_from, min(seqno_until, self.until)
        while seqno < seqno_until:
            _, rows = self._rows(seqno, needed, keep=False)
            count = min(rows.dense, seqno_until - seqno)
            yield rows.table.slice(rows.at, count).select(list(names))
            seqno += count

    def seqno_at(self, timestamp: int, seqno_from: int) -> int | None:
        try:
            return self._seqno_at(timestamp, seqno_from)
        except Damage:
            newer = self._newer()
            if newer is None:
                raise
            return newer._seqno_at(timestamp, max(seqno_from, newer.first))

    def _seqno_at(self, timestamp: int, seqno_from: int) -> int | None:
        import numpy as np

        for file in self._files(seqno_from):
            if file.seqno_until <= seqno_from or file.time_until is None or file.time_until < timestamp:
                continue
            seqno = max(seqno_from, file.seqno_from)
            while seqno < file.seqno_until:
                _, rows = self._find_rows(seqno, ("seqno", "timestamp"), keep=False)
                moments = rows.table.column("timestamp").cast("int64").to_numpy()[rows.at : rows.at + rows.dense]
                later = np.flatnonzero(moments >= timestamp)
                if len(later):
                    return seqno + int(later[0])
                seqno += rows.dense
        return None

    def term_before(self, seqno: int) -> int | None:
        if not seqno:
            return 0
        if not self.first < seqno <= self.until:
            return None
        try:
            return _term_at(self._file(seqno - 1), seqno - 1)[0]
        except Damage:
            return None

    def cut(self, seqno_from: int, seqno_until: int, every_bytes: int) -> list[SeqnoRange]:
        """These records in pieces of about so many bytes of files; in one, where nobody can tell."""
        files: Sequence[ArchivedFile] = ()
        with suppress(Damage):  # whoever reads it will be told
            files = self._files(seqno_from)
        stored = (SeqnoRange(file.seqno_from, file.seqno_until, file.size) for file in files)
        return cut_pieces(stored, seqno_from, seqno_until, every_bytes)

    def part(self, seqno_from: int, seqno_until: int) -> ArchivedPart:
        """These records, for whoever reads them elsewhere. Raises Damage."""
        files = self._files(seqno_from)
        held = (file for file in files if file.seqno_from < seqno_until and file.seqno_until > seqno_from)
        return ArchivedPart(self._home, seqno_from, seqno_until, tuple(held))

    def _files(self, seqno: int) -> Sequence[ArchivedFile]:
        try:
            return self._list()
        except ResultsUnreadable as error:
            raise Damage(self._home, 0, seqno, self.until, f"{error}; {ADVICE}") from None

    def _file(self, seqno: int) -> ArchivedFile:
        files = self._files(seqno)
        number = bisect_right(files, seqno, key=lambda file: file.seqno_from) - 1
        if number < 0 or seqno >= files[number].seqno_until:
            until = next((file.seqno_from for file in files if file.seqno_from > seqno), self.until)
            raise Damage(self._home, 0, seqno, until, LOST)
        return files[number]

    def _newer(self) -> ArchivedLogReader | None:
        """What another run has made since."""
        found = None if self._renew is None else self._renew()
        return found if found is not None and found.run != self.run else None

    def _rows(self, seqno: int, columns: tuple[str, ...] = ORDER, keep: bool = True) -> tuple[ArchivedFile, _Rows]:
        """The row group that holds this record, from which row on, and how many without a gap."""
        try:
            return self._find_rows(seqno, columns, keep)
        except Damage:
            newer = self._newer()
            if newer is None:
                raise
            return newer._find_rows(seqno, columns, keep)

    def _find_rows(self, seqno: int, columns: tuple[str, ...], keep: bool) -> tuple[ArchivedFile, _Rows]:
        file = self._file(seqno)
        opened = _shelf.open(self._home, file, seqno)
        rows = opened.rows(seqno, columns, keep)
        at = int(rows.seqnos.searchsorted(seqno))
        left = len(rows.seqnos) - at
        if not left or int(rows.seqnos[at]) != seqno:
            until = int(rows.seqnos[at]) if left else opened.behind(seqno)
            raise Damage(opened.path, 0, seqno, until, LOST)
        if int(rows.seqnos[-1]) - seqno == left - 1:
            return file, rows._replace(at=at, dense=left)
        gaps = (rows.seqnos[at + 1 :] - rows.seqnos[at:-1]) != 1
        return file, rows._replace(at=at, dense=1 + int(gaps.argmax()))


class ArchivedPart(NamedTuple):
    """Some of an archived log, for whoever reads it elsewhere."""

    home: str
    seqno_from: int
    seqno_until: int
    files: tuple[ArchivedFile, ...]

    def log(self) -> ArchivedLogReader:
        return ArchivedLogReader(self.home, self.seqno_from, self.seqno_until, lambda: self.files)


class _Rows(NamedTuple):
    table: pa.Table
    seqnos: Any
    size: int
    at: int = 0
    dense: int = 0


class _Held:
    """Bytes in memory, as a run has a file."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self._data = data

    def read(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]

    def map(self, end: int) -> memoryview:
        return memoryview(self._data)[:end]


class _OpenFile:
    """A file of an archive that is what was published."""

    def __init__(self, home: str, file: ArchivedFile, seqno: int) -> None:
        import pyarrow.parquet as pq

        self.path = f"{home}/{file.path}"
        self._file = file
        self._reading = threading.Lock()
        with self._blamed(seqno):
            stream = ResultPlace(home).open(file.path)
            _check(stream, file)
            self._parquet: ParquetFile = pq.ParquetFile(stream, page_checksum_verification=True)
            facts = self._parquet.metadata
            number = self._parquet.schema_arrow.get_field_index("seqno")
            groups = [facts.row_group(group).column(number).statistics for group in range(facts.num_row_groups)]
            self._lows = [file.seqno_from, *(int(group.min) for group in groups[1:])]

    def rows(self, seqno: int, columns: tuple[str, ...], keep: bool) -> _Rows:
        """The row group that holds this record, if any does."""
        group = bisect_right(self._lows, seqno) - 1
        key = self.path, self._file.crc, group, columns
        rows = _shelf.kept(key)
        if rows is None:
            with self._blamed(seqno), self._reading:
                table = self._parquet.read_row_group(group, list(columns)).cast(record_schema(columns))
            rows = _Rows(table, table.column("seqno").to_numpy(), table.nbytes)
            if keep:
                _shelf.keep(key, rows)
        return rows

    def behind(self, seqno: int) -> int:
        """Where the next row group begins."""
        number = bisect_right(self._lows, seqno)
        return self._lows[number] if number < len(self._lows) else self._file.seqno_until

    @contextmanager
    def _blamed(self, seqno: int) -> Iterator[None]:
        """Whatever is wrong with the file."""
        from pyarrow import ArrowException

        try:
            yield
        except (OSError, ArrowException, ResultsUnreadable, AttributeError, ValueError) as error:
            raise Damage(self.path, 0, seqno, self._file.seqno_until, f"{error}; {ADVICE}") from None


class _Shelf:
    """Files that are open and what was read of them, the last used last. One for the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, int], _OpenFile] = OrderedDict()
        self._rows: OrderedDict[tuple[Any, ...], _Rows] = OrderedDict()
        self._size = 0

    def open(self, home: str, file: ArchivedFile, seqno: int) -> _OpenFile:
        key = f"{home}/{file.path}", file.crc
        with self._lock:
            opened = self._files.pop(key, None)
        opened = opened or _OpenFile(home, file, seqno)
        with self._lock:
            self._files[key] = opened
            while len(self._files) > FILES_MAX:
                self._files.popitem(last=False)
        return opened

    def kept(self, key: tuple[Any, ...]) -> _Rows | None:
        with self._lock:
            rows = self._rows.get(key)
            if rows is not None:
                self._rows.move_to_end(key)
            return rows

    def keep(self, key: tuple[Any, ...], rows: _Rows) -> None:
        with self._lock:
            if key not in self._rows:
                self._size += rows.size
            self._rows[key] = rows
            while self._size > KEPT_BYTES and len(self._rows) > 1:
                self._size -= self._rows.popitem(last=False)[1].size


_shelf: Final = _Shelf()


def _check(stream: Any, file: ArchivedFile) -> None:
    """Raises ResultsUnreadable where these are not the bytes that were published."""
    size, crc = stream.size(), 0
    if size == file.size:
        while piece := stream.read(_PIECE_BYTES):
            crc = crc32c.crc32c(piece, crc)
        stream.seek(0)
    if (size, crc) != (file.size, file.crc):
        raise ResultsUnreadable(f"it {describe_change(size, file.size)}")


def _term_at(file: ArchivedFile, seqno: int) -> tuple[int, int | None]:
    """The term of a record, and where the next one begins."""
    number = bisect_right(file.terms, seqno, key=lambda entry: entry[0])
    return file.terms[max(0, number - 1)][1], file.terms[number][0] if number < len(file.terms) else None


def _encode(table: pa.Table, start: int, count: int, most: int) -> tuple[memoryview, int]:
    """A batch of so many rows, or of fewer where that would be too large."""
    while True:
        rows = table.slice(start, count)
        if count == 1 or rows.nbytes <= 2 * most:
            try:
                return build_table(rows).data, count
            except BatchTooLarge:
                if count == 1:
                    raise
        count //= 2
