"""Reads a split: what an executor does.

From the files, where they are of the node, the topic and the length that the driver was told of, or from those of the
archive, where the driver has named them; else, or from where the files give out, from a server. All show whole,
verified records only, with the same names for what is gone. Tables come in memory shared with the mapped files, and go
on as record batches of the schema that Spark expects.
"""

from __future__ import annotations

import os
import socket
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from logboom.batch import Selection, schema
from logboom.batch.arrow import ORDER
from logboom.client import FileReader, Reader
from logboom.client.file_catalog import FileCatalog
from logboom.client.files.sieve import choose, columns_for
from logboom.client.node_catalog import NodeCatalog
from logboom.client.values import TERM_UNKNOWN, Bookmark
from logboom.errors import (
    Damage,
    DirectoryUnusable,
    LogboomError,
    RecordsLost,
    SeqnoOutOfRange,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.spark.read.options import Access
from logboom.spark.read.planner import ADVICE
from logboom.spark.read.scan import Scan, noted

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.spark.read.planner import Split

COLUMNS: Final = ("topic", "partition", *ORDER)
TABLE_BYTES: Final = 16 * 1024 * 1024
"""Of a log, read and verified at once."""
SMALL_BYTES: Final = 64 * 1024
BATCH_BYTES: Final = 1024 * 1024
"""Smaller pieces than SMALL_BYTES, as many small batches make them, are joined to record batches of this size."""
READERS_MAX: Final = 8
_BLOCK: Final = 32_768
_BYTES: Final = ("key", "value")

_Identity = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ScanSpec:
    """What is the same for all splits of a read."""

    columns: tuple[str, ...] = COLUMNS
    wanted: Selection = field(default_factory=Selection)
    servers: tuple[str, ...] = ()
    access: Access = "auto"
    fail_on_loss: bool = True
    skip_damage: bool = False
    schema: Any = None
    """The Arrow schema to give, where Spark has one of its own for these columns."""


def read_split(split: Split, job: ScanSpec) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    layout = job.schema or arrow_schema(job.columns)
    names = [name for name in job.columns if name not in ("topic", "partition")] or ["seqno"]
    scan = Scan(split.topic, split.partition, split.seqno_from, split.seqno_until, split.size)
    with noted(scan):
        for table in _joined(_SplitRead(split, job, names, scan).tables()):
            scan.records += table.num_rows
            for batch in _batches(table):
                columns = [_column(field, batch, split) for field in layout]
                yield pa.RecordBatch.from_arrays(columns, schema=layout)


@lru_cache(maxsize=64)
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    kinds = {"topic": pa.string(), "partition": pa.int32()}
    return pa.schema([(name, kinds[name]) if name in kinds else schema((name,)).field(0) for name in columns])


class _SplitRead:
    """The tables of one split: where it has come to, whatever they come from."""

    def __init__(self, split: Split, job: ScanSpec, names: Sequence[str], scan: Scan) -> None:
        self._split = split
        self._job = job
        self._names = names
        self._scan = scan
        self._where = None if job.wanted == Selection() else job.wanted
        self._seqno = split.seqno_from
        self._may_ask = job.access == "auto" and bool(job.servers)

    def tables(self) -> Iterator[pa.Table]:
        try:
            yield from self._tables()
        except (TopicDeleted, TopicNotFound, TopicRecreated):
            if self._job.fail_on_loss or not self._is_gone():
                raise
            self._scan.lost += self._split.seqno_until - self._seqno

    def _is_gone(self) -> bool:
        """Whether the node that planned the read says so: another may be a copy that is behind, or a stranger."""
        split, job = self._split, self._job
        with_files = job.access == "files" or not job.servers
        catalog = FileCatalog(split.directory or "") if with_files else NodeCatalog(job.servers)
        try:
            found = catalog.find([split.topic])
            return catalog.node_id == split.node_id and all(topic.id != split.topic_id for topic in found)
        finally:
            catalog.close()

    def _tables(self) -> Iterator[pa.Table]:
        if self._job.access == "server":
            yield from self._from_server()
        elif not self._may_ask:
            yield from self._from_archive() if self._split.archive is not None else self._from_files()
        else:
            try:
                yield from self._from_archive() if self._split.archive is not None else self._from_files()
            except (LogboomError, OSError):
                # Not that node's files, or not enough of them: the server knows, or has the last word.
                began = self._seqno > self._split.seqno_from
                self._scan.source = f"{self._scan.source}, server" if began else "server"
                yield from self._from_server()

    def _from_files(self) -> Iterator[pa.Table]:
        split = self._split
        with _file_reader(split) as reader:
            before = reader.bytes_read
            while self._seqno < split.seqno_until:
                reader.seek(self._seqno)
                try:
                    for table in reader.tables(
                        self._names, max_bytes=TABLE_BYTES, until=split.seqno_until, where=self._where
                    ):
                        self._seqno = reader.seqno or 0
                        yield table
                    self._seqno = reader.seqno or 0
                    if self._seqno < split.seqno_until:
                        raise DirectoryUnusable(f"{reader.directory} has lost {split.log} from seqno {self._seqno} on")
                except (Damage, SeqnoOutOfRange) as gap:
                    self._seqno = reader.seqno or 0
                    if isinstance(gap, Damage) and gap.seqno_until is None and self._may_ask:
                        raise  # the node may know how far it goes
                    self._pass_over(gap)
                finally:
                    self._scan.bytes_read += reader.bytes_read - before
                    before = reader.bytes_read

    def _from_archive(self) -> Iterator[pa.Table]:
        split, where = self._split, self._where
        assert split.archive is not None
        self._scan.source = "archive"
        archived, needed = split.archive.log(), columns_for(self._names, where)
        while self._seqno < split.seqno_until:
            try:
                for table in archived.tables(self._seqno, split.seqno_until, needed):
                    self._seqno += table.num_rows
                    self._scan.bytes_read += table.nbytes
                    yield choose(table, self._names, where)
            except Damage as damage:
                if self._may_ask:
                    raise  # the node may have other files by now
                self._pass_over(damage)

    def _from_server(self) -> Iterator[pa.Table]:
        split, job = self._split, self._job
        self._scan.source = self._scan.source if "server" in self._scan.source else "server"
        times = Selection(time_from=job.wanted.time_from, time_until=job.wanted.time_until)
        where = None if times == Selection() else times
        needed = columns_for(self._names if "seqno" in self._names else (*self._names, "seqno"), where)
        doubted = -1
        while self._seqno < split.seqno_until:
            try:
                with self._reader() as reader:
                    try:
                        for table in reader.tables(needed, until=split.seqno_until):
                            self._scan.bytes_read += table.nbytes
                            self._seqno = min(reader.seqno or 0, split.seqno_until)
                            yield choose(_before(table, split.seqno_until), self._names, where).select(self._names)
                            if self._seqno >= split.seqno_until:
                                return
                    finally:
                        self._seqno = min(reader.seqno or 0, split.seqno_until)
                    if self._seqno < split.seqno_until:
                        raise self._ended(reader.committed)
            except (Damage, SeqnoOutOfRange) as gap:
                if isinstance(gap, Damage) and doubted != self._seqno:
                    doubted = self._seqno  # asked for what begins there, the node says how far the damage goes
                    continue
                self._pass_over(gap)

    def _reader(self) -> Reader:
        split, wanted = self._split, self._job.wanted
        return Reader(
            split.topic,
            self._job.servers,
            split.partition,
            bookmark=Bookmark(bytes.fromhex(split.topic_id), split.partition, self._seqno, TERM_UNKNOWN),
            tags_any=wanted.tags_any,
            tags_all=wanted.tags_all,
            channel=wanted.channel,
            key=wanted.key,
        )

    def _pass_over(self, gap: Damage | SeqnoOutOfRange) -> None:
        """Go on behind what cannot be read, and count it; or raise."""
        split, job = self._split, self._job
        if isinstance(gap, Damage):
            # Where nobody knows how far it goes, no record behind it was found.
            until = split.seqno_until if gap.seqno_until is None else gap.seqno_until
            if not job.skip_damage or until <= self._seqno:
                where = f"topic {split.topic}, partition {split.partition}: {gap.path}"
                raise Damage(where, gap.position, gap.seqno_from, gap.seqno_until, gap.reason) from None
            behind = min(until, split.seqno_until)
            self._scan.damaged += behind - max(self._seqno, gap.seqno_from)  # before that none was wanted
        else:
            if gap.seqno >= gap.first:
                raise self._ended(gap.next) from None
            behind = min(gap.first, split.seqno_until)
            if job.fail_on_loss:
                reason = f"the log begins with {gap.first}"
                raise RecordsLost(split.log, self._seqno, behind, reason, ADVICE) from None
            self._scan.lost += behind - self._seqno
        self._seqno = behind

    def _ended(self, committed: int) -> RecordsLost:
        """Never passed over: who has less than the driver was told of may be a copy that is behind."""
        reason = f"the log ends before {committed}, and did not when the read was planned"
        return RecordsLost(self._split.log, self._seqno, self._split.seqno_until, reason, "read it again")


_readers: OrderedDict[tuple[str, _Identity, str, int], FileReader] = OrderedDict()
"""Open ones that nobody uses now: the next task of this process need not find its way again."""


@contextmanager
def _file_reader(split: Split) -> Iterator[FileReader]:
    """A reader of exactly this log, which has all of the split. Raises what is wrong with the files here."""
    if split.directory is None:
        raise DirectoryUnusable(f"node {split.node_id} does not say where its files are")
    key = split.directory, _identify(split.directory), split.topic_id, split.partition
    reader = _readers.pop(key, None)
    try:
        if reader is None:
            reader = FileReader(split.directory, split.topic, split.partition, at="earliest")
        reader.seek(split.seqno_from)  # what stands before the end of the last split is nothing to this one
        reader.refresh()
        _check_files(reader, split)
    except BaseException:
        if reader is not None:
            reader.close()
        raise
    try:
        yield reader
    except (LogboomError, OSError):
        reader.close()
        raise
    else:
        _readers[key] = reader
    while len(_readers) > READERS_MAX:
        _readers.popitem(last=False)[1].close()


def _identify(directory: str) -> _Identity:
    """Another one where another directory has taken the name, or another node the directory."""
    try:
        found = os.stat(f"{directory}/node.json")
    except OSError:
        return 0, 0, 0  # whoever opens it is told
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _check_files(reader: FileReader, split: Split) -> None:
    host = socket.gethostname()
    if reader.node_id != split.node_id:
        raise DirectoryUnusable(
            f"{reader.directory} on {host} belongs to node {reader.node_id}, to be read is node {split.node_id}: "
            "give logboom://host:port, and executors read from the node"
        )
    if reader.topic.id != split.topic_id:
        raise TopicRecreated(split.topic, split.topic_id, reader.topic.id)
    if reader.stated < split.seqno_until:
        raise DirectoryUnusable(
            f"{reader.directory} on {host} has {split.topic}/{split.partition} up to seqno {reader.stated}, "
            f"to be read is up to {split.seqno_until}: give logboom://host:port, and executors read from the node"
        )


def _before(table: pa.Table, seqno: int) -> pa.Table:
    """The rows below this seqno; they ascend."""
    if not table.num_rows or table.column("seqno")[-1].as_py() < seqno:
        return table
    import numpy as np

    return table.slice(0, int(np.searchsorted(table.column("seqno").to_numpy(), seqno)))


def _joined(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Small ones together: a filter may leave little of each."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            waiting.append(table)
            size += table.nbytes
        if size >= BATCH_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """In pieces that are worth their way."""
    if not table.num_rows:
        return
    chunks = max(column.num_chunks for column in table.columns)
    if chunks > 1 and table.nbytes < chunks * SMALL_BYTES:
        rows = max(1, table.num_rows * BATCH_BYTES // max(1, table.nbytes))
        for start in range(0, table.num_rows, rows):
            yield from table.slice(start, rows).combine_chunks().to_batches()
    else:
        yield from table.to_batches()


def _column(field: pa.Field, batch: pa.RecordBatch, split: Split) -> pa.Array:
    if field.name == "topic":
        return _repeated(split.topic, batch.num_rows)
    if field.name == "partition":
        return _repeated(split.partition, batch.num_rows)
    column = batch.column(field.name)
    # Bytes that are asked for as text are given as they are: nobody looks whether they are UTF-8, as in a cast.
    return column.view(field.type) if column.type != field.type and field.name in _BYTES else column


def _repeated(value: str | int, count: int) -> pa.Array:
    return _block(value, -(-count // _BLOCK) * _BLOCK).slice(0, count)


@lru_cache(maxsize=16)
def _block(value: str | int, count: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int32()), count)
