"""The archive of a topic: every sealed segment becomes a Parquet file, once, and a manifest lists them all.

    plan: sealed segments, from the floor on, without what is archived → tasks write and compare → manifest

A file counts when a manifest that is published lists it. One that was written by a run that came no further is found by
the next, compared and taken. Files that begin below the floor of their log are nobody's any more, and go; one that
crosses it is written again without what lies below.

What retention has dropped before it was archived is missing for good, and so is what a repair could not save. Readers
count on files that follow each other, so those before such a gap are kept apart (`Manifest.cut_off`), and the run says
how many records are missing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from logboom.batch import Header, read_header
from logboom.batch.tables import LOST
from logboom.broker.api import PartitionInfo, ReadRequest, SegmentInfo, Start, TopicInfo
from logboom.client.catalog import SEGMENTS_MAX, NodeCatalog
from logboom.client.remote import RemoteBroker
from logboom.errors import (
    ConfigError,
    Damage,
    LogboomError,
    PipelineError,
    RecordsLost,
    ResultsUnreadable,
    SeqnoOutOfRange,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.results.archive import FORMAT, MANIFEST, ArchivedFile, Manifest, decode_manifest, job_id, schema
from logboom.results.archive_writing import CODECS, Piece, write_file
from logboom.results.catalogue import Covered, Stored
from logboom.results.places import UNFINISHED, Place
from logboom.spark.jobs.running import Outcome, Run
from logboom.spark.jobs.tasks import run_tasks
from logboom.spark.planning import Split
from logboom.spark.reading import Job, read_split

if TYPE_CHECKING:
    import pyarrow as pa

TASK_BYTES: Final = 64 * 1024 * 1024
"""Of segments that one task archives; it takes at least one."""
ROUNDS: Final = 5
"""How often it is planned anew where retention takes away what is being read."""

logger = logging.getLogger("logboom.pipeline")
_NAME: Final = re.compile(r"(?:.*/)?(\d+)-(\d{20})-\d{20}\.parquet")


class ArchiveWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sealed segments of a topic as Parquet."""

    kind: ClassVar[str] = "archive"

    topic: str
    """Whose segments are archived."""
    codec: str = "zstd"
    """How new files are compressed: zstd, gzip, brotli, snappy, lz4 or none."""
    level: int = 3
    """Of the compression, for zstd 1 to 22, gzip 1 to 9, brotli 1 to 11: higher is smaller and slower."""

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic,)

    @property
    def id(self) -> str:
        return job_id(self.topic)

    def check(self) -> None:
        """Raises ConfigError where a field has a value that it cannot have."""
        if self.topic in ("", ".", ".."):
            raise ConfigError("topic", f"is {self.topic!r}, which cannot be the name of a directory")
        if self.codec not in CODECS:
            raise ConfigError("codec", f"is {self.codec!r}, allowed are {', '.join(CODECS)}")
        levels = CODECS[self.codec]
        if levels is not None and not levels[0] <= self.level <= levels[1]:
            raise ConfigError("level", f"is {self.level}, allowed for {self.codec} are {levels[0]} to {levels[1]}")

    def do(self, run: Run) -> Outcome:
        self.check()
        try:
            with closing(_Node(run.servers)) as node:
                return _Archiving(self, run, node).do()
        except OSError as error:
            raise PipelineError(f"nothing is published: {run.home.uri}: {error}") from error


class _Order(msgspec.Struct, frozen=True):
    """A file to write: of the log, or of a file that has more."""

    piece: Piece
    size: int
    """About how many bytes it is read from."""
    old: ArchivedFile | None = None


class _Task(msgspec.Struct, frozen=True):
    """What is the same for all files of a run."""

    home: str
    topic: str
    topic_id: str
    node_id: str
    directory: str | None
    servers: tuple[str, ...]
    codec: str
    level: int


class _Hole(msgspec.Struct, frozen=True):
    """Records that a repair has marked as lost."""

    partition: int
    seqno_from: int
    seqno_until: int


class _Answer(msgspec.Struct, frozen=True):
    files: list[ArchivedFile]
    lost: list[_Hole]
    gone: str | None = None
    """Why some of it is not there: retention or a trim was sooner."""
    error: str | None = None


_decode_orders: Final = msgspec.json.Decoder(list[_Order]).decode
_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


class _Node(NodeCatalog):
    """Also says what segments there are, and of which terms."""

    def describe(self, name: str) -> TopicInfo:
        return self._ask(lambda broker: broker.describe_topic(name))

    def segments(self, topic: str, partition: int) -> list[SegmentInfo]:
        return self._ask(lambda broker: broker.segments(topic, partition, SEGMENTS_MAX))

    def headers(self, topic: TopicInfo, partition: int, seqnos: Sequence[int]) -> list[Header]:
        """Of the batches that hold these records."""

        def ask(seqno: int) -> Callable[[RemoteBroker], Awaitable[Header]]:
            request = ReadRequest(topic.name, Start(seqno=seqno), partition, topic.id, max_bytes=1)
            return partial(_read_header, request=request)

        found = []
        for answer in self._ask_all([ask(seqno) for seqno in seqnos]):
            if isinstance(answer, LogboomError):
                raise answer
            found.append(answer)
        return found


async def _read_header(broker: RemoteBroker, request: ReadRequest) -> Header:
    return read_header((await broker.read(request)).data)


class _Archiving:
    """One run."""

    def __init__(self, work: ArchiveWork, run: Run, node: _Node) -> None:
        self._work = work
        self._run = run
        self._node = node
        self._topic = node.describe(work.topic)
        self._last = self._read_last()
        self._holes: list[_Hole] = []

    def _read_last(self) -> Manifest:
        """What is archived of this very topic."""
        last, topic = self._run.last, self._topic
        if last is None or last.manifest is None or last.covers[topic.name].topic_id != topic.id:
            return Manifest(FORMAT, topic.name, topic.id, ())
        manifest = decode_manifest(Place(last.place).read(last.manifest))
        if manifest.format != FORMAT:
            raise ResultsUnreadable(f"{last.place} has format {manifest.format}, known is {FORMAT}")
        return manifest

    def do(self) -> Outcome:
        run = self._run
        self._check_there()
        kept = [*self._last.cut_off, *self._last.files]
        written: list[ArchivedFile] = []
        rounds = 0
        while True:
            gone, lost = None, list[_Hole]()
            try:
                kept, orders = self._plan(kept)
                answers = self._write(orders)
            except (RecordsLost, SeqnoOutOfRange) as error:
                gone = str(error)
            else:
                files = [file for answer in answers for file in answer.files]
                kept, written = _join(kept, files), [*written, *files]
                gone = next((answer.gone for answer in answers if answer.gone is not None), None)
                lost = [hole for answer in answers for hole in answer.lost]
            self._look_again()
            if gone is None and not lost:
                break
            self._holes += lost
            rounds += not lost
            if rounds == ROUNDS:
                raise PipelineError(f"records go sooner than they can be archived: {gone}")
        cut_off, files = _sever(kept)
        manifest = Manifest(FORMAT, self._topic.name, self._topic.id, tuple(files), tuple(cut_off))
        run.check()
        return self._publish(manifest, written)

    def _check_there(self) -> None:
        """Of what the log may not have any more nothing must be missing here."""
        floors = {partition.partition: partition.floor for partition in self._topic.partitions}
        listed = set(self._run.home.list(self._topic.id, recursive=True))
        for file in (*self._last.cut_off, *self._last.files):
            if file.seqno_until > floors[file.partition] and file.path.removeprefix(f"{self._topic.id}/") not in listed:
                advice = f"put it back, or trim the log to seqno {file.seqno_until} to do without it"
                raise ResultsUnreadable(f"{self._run.home.uri}/{file.path} is not there: {advice}")

    def _look_again(self) -> None:
        """How far the logs go now. Raises TopicDeleted or TopicRecreated."""
        name, topic_id = self._topic.name, self._topic.id
        try:
            self._topic = self._node.describe(name)
        except TopicNotFound:
            raise TopicDeleted(name, topic_id) from None
        if self._topic.id != topic_id:
            raise TopicRecreated(name, topic_id, self._topic.id)

    def _plan(self, kept: Sequence[ArchivedFile]) -> tuple[list[ArchivedFile], list[_Order]]:
        """What stays as it is, and what is to be written."""
        stays: list[ArchivedFile] = []
        orders: list[_Order] = []
        for partition in self._topic.partitions:
            files = [file for file in kept if file.partition == partition.partition]
            if files and files[-1].seqno_until > partition.committed:
                raise PipelineError(
                    f"{self._topic.name}/{partition.partition} is archived up to seqno {files[-1].seqno_until}, and "
                    f"ends before {partition.committed}: is this an older copy of it, or a replica that is behind?"
                )
            files = [file for file in files if file.seqno_until > partition.floor]
            stays += [file for file in files if file.seqno_from >= partition.floor]
            orders += [_clip(file, partition.floor) for file in files if file.seqno_from < partition.floor]
            orders += self._order(partition, files)
        return stays, orders

    def _order(self, partition: PartitionInfo, files: Sequence[ArchivedFile]) -> list[_Order]:
        """What is sealed and in none of these files."""
        number = partition.partition
        holes = [hole for hole in self._holes if hole.partition == number]
        known: list[ArchivedFile | _Hole] = [*files, *holes]
        known.sort(key=lambda each: each.seqno_from)
        segments = _sealed(self._node.segments(self._topic.name, number), partition)
        spans = [
            (low, high, segment.size_bytes)
            for segment in segments
            for low, high in _without(max(segment.first_seqno, partition.first), segment.next_seqno, known)
        ]
        ends = [seqno for low, high, _ in spans for seqno in (low, high - 1)]
        headers = self._node.headers(self._topic, number, ends)
        return [
            _Order(Piece(number, low, high, last.append_time, self._find_terms(number, low, first, high, last)), size)
            for (low, high, size), first, last in zip(spans, headers[::2], headers[1::2], strict=True)
        ]

    def _find_terms(
        self, partition: int, low: int, first: Header, high: int, last: Header
    ) -> tuple[tuple[int, int], ...]:
        """Where each term begins, between the batches that hold the first and the last record: terms never go back."""
        found = [(low, first.term)]
        while found[-1][1] != last.term:
            term, known, beyond = found[-1][1], found[-1][0], last
            while known + 1 < beyond.base_seqno:
                (middle,) = self._node.headers(self._topic, partition, [(known + beyond.base_seqno) // 2])
                if middle.term == term:
                    known = middle.next_seqno - 1
                else:
                    beyond = middle
            found.append((beyond.base_seqno, beyond.term))
        return tuple(found)

    def _write(self, orders: Sequence[_Order]) -> list[_Answer]:
        if not orders:
            return []
        run, node, work = self._run, self._node, self._work
        tasks = list(_group(orders))
        records = [sum(order.piece.seqno_until - order.piece.seqno_from for order in task) for task in tasks]
        before = list(accumulate(records, initial=0))
        run.progress.doing = f"writing {len(orders):,} files"
        run.progress.total, run.progress.done = before[-1], 0

        def show(done: int) -> None:
            run.progress.done = before[min(done, len(tasks))]

        place = node.node_id, node.directory, node.servers
        task = _Task(run.home.uri, self._topic.name, self._topic.id, *place, work.codec, work.level)
        pieces = [msgspec.json.encode(orders) for orders in tasks]
        answers = [_decode_answer(answer) for answer in run_tasks(run.spark(), partial(_archive, task), pieces, show)]
        errors = [answer.error for answer in answers if answer.error is not None]
        if errors:
            more = f"; and {len(errors) - 1} more" if len(errors) > 1 else ""
            raise PipelineError(f"nothing is published: {errors[0]}{more}")
        run.progress.done = before[-1]
        return answers

    def _publish(self, manifest: Manifest, written: Sequence[ArchivedFile]) -> Outcome:
        run, topic = self._run, self._topic
        files = manifest.files
        doomed = self._find_doomed(manifest)
        missing = sum(after.seqno_from - before.seqno_until for before, after in _gaps(manifest))
        spans = {
            partition: (its[0].seqno_from, its[-1].seqno_until)
            for partition, group in groupby(files, lambda file: file.partition)
            if (its := list(group))
        }
        ends = {part.partition: spans.get(part.partition, (part.first, part.first))[1] for part in topic.partitions}
        summary = {
            "files": len(written),
            "records": sum(map(_count, written)),
            "bytes": sum(file.size for file in written),
            "files_total": len(files),
            "records_total": sum(map(_count, files)),
            "bytes_total": sum(file.size for file in files),
            "removed": len(doomed),
            "missing": missing,
            "waiting": sum(max(0, part.committed - ends[part.partition]) for part in topic.partitions),
        }
        then = partial(_remove, run.home, doomed)
        if manifest == self._last:
            return Outcome(summary=summary, then=then)
        if missing:
            logger.warning(
                "%s: %s records were dropped or lost before they were archived", self._work.id, f"{missing:,}"
            )
        stored = run.place.write(MANIFEST, msgspec.json.encode(manifest))
        facts = {
            "files": len(files),
            "missing": missing,
            "time_from": min((file.time_from for file in files if file.time_from is not None), default=None),
            "time_until": max((file.time_until for file in files if file.time_until is not None), default=None),
        }
        covers = {topic.name: Covered(topic.id, spans)}
        return Outcome(covers, stored, summary["records_total"], summary["bytes_total"], facts, summary, then)

    def _find_doomed(self, manifest: Manifest) -> list[str]:
        """What begins below the floor and counts no more, and what others have left unfinished.

        Listed while the lease is ours: whoever has it next may begin what is not in this list.
        """
        floors = {partition.partition: partition.floor for partition in self._topic.partitions}
        listed = {file.path for file in (*manifest.cut_off, *manifest.files)}
        doomed = []
        for name in self._run.home.list(self._topic.id, recursive=True):
            path, found = f"{self._topic.id}/{name}", _NAME.fullmatch(name)
            is_below = found is not None and int(found[2]) < floors.get(int(found[1]), 0)
            if (is_below and path not in listed) or name.rpartition("/")[2].startswith(UNFINISHED):
                doomed.append(path)
        return doomed


def _archive(task: _Task, orders: bytes) -> bytes:
    """What an executor does."""
    import pyarrow as pa

    home = Place(task.home)
    files: list[ArchivedFile] = []
    lost: list[_Hole] = []
    gone = None
    for order in _decode_orders(orders):
        piece = order.piece
        records = partial(_read_log, task, order) if order.old is None else partial(_read_file, home, order)
        try:
            files.append(write_file(home, task.topic_id, piece, records, task.codec, task.level))
        except (RecordsLost, SeqnoOutOfRange) as error:
            gone = str(error)
        except (LogboomError, OSError, pa.ArrowException) as error:
            if isinstance(error, Damage) and error.reason == LOST and error.seqno_until is not None:
                lost.append(_Hole(piece.partition, error.seqno_from, error.seqno_until))
                continue
            log = f"{task.topic}/{piece.partition} from seqno {piece.seqno_from} to {piece.seqno_until - 1}"
            return msgspec.json.encode(_Answer(files, lost, gone, f"{log}: {error}"))
    return msgspec.json.encode(_Answer(files, lost, gone))


def _read_log(task: _Task, order: _Order) -> Iterator[pa.RecordBatch]:
    piece = order.piece
    span = piece.partition, piece.seqno_from, piece.seqno_until
    split = Split(task.topic, task.topic_id, *span, order.size, task.node_id, task.directory)
    return read_split(split, Job(servers=task.servers, schema=schema()))


def _read_file(home: Place, order: _Order) -> Iterator[pa.RecordBatch]:
    """The records of an archived file from a seqno on."""
    import pyarrow as pa
    from pyarrow import parquet

    assert order.old is not None
    data = home.read(Stored(order.old.path, order.old.size, order.old.crc))
    seqno = order.old.seqno_from
    for batch in parquet.ParquetFile(pa.BufferReader(data)).iter_batches():
        yield batch.slice(min(batch.num_rows, max(0, order.piece.seqno_from - seqno)))
        seqno += batch.num_rows


def _clip(file: ArchivedFile, floor: int) -> _Order:
    """What of it lies above the floor."""
    before = max(start for start, _ in file.terms if start <= floor)
    terms = tuple((max(start, floor), term) for start, term in file.terms if start >= before)
    return _Order(Piece(file.partition, floor, file.seqno_until, file.append_time, terms), file.size, file)


def _sealed(segments: Sequence[SegmentInfo], partition: PartitionInfo) -> list[SegmentInfo]:
    """Those with committed records that will never change. What is before the first is cut as if it were like these."""
    found = [segment for segment in segments if segment.sealed and segment.next_seqno <= partition.committed]
    found = [segment for segment in found if max(segment.first_seqno, partition.first) < segment.next_seqno]
    if not found or found[0].first_seqno <= partition.first or len(segments) < SEGMENTS_MAX:
        return found
    step = max(1, (found[-1].next_seqno - found[0].first_seqno) // len(found))
    size = sum(segment.size_bytes for segment in found) // len(found)
    edges = [*range(partition.first, found[0].first_seqno, step), found[0].first_seqno]
    unlisted = [
        msgspec.structs.replace(found[0], first_seqno=low, next_seqno=high, size_bytes=size)
        for low, high in pairwise(edges)
    ]
    return [*unlisted, *found]


def _without(low: int, high: int, files: Iterable[ArchivedFile | _Hole]) -> Iterator[tuple[int, int]]:
    """The parts of a span that none of these holds. They come by seqno."""
    for file in files:
        if file.seqno_from >= high:
            break
        if low < file.seqno_from:
            yield low, file.seqno_from
        low = max(low, file.seqno_until)
    if low < high:
        yield low, high


def _group(orders: Sequence[_Order]) -> Iterator[list[_Order]]:
    """Small ones together."""
    task: list[_Order] = []
    for order in orders:
        if task and sum(each.size for each in task) + order.size > TASK_BYTES:
            yield task
            task = []
        task.append(order)
    if task:
        yield task


def _join(kept: Iterable[ArchivedFile], files: Iterable[ArchivedFile]) -> list[ArchivedFile]:
    return sorted([*kept, *files], key=lambda file: (file.partition, file.seqno_from))


def _sever(files: Sequence[ArchivedFile]) -> tuple[list[ArchivedFile], list[ArchivedFile]]:
    """Of each partition what lies before the last gap, and what follows it."""
    cut_off: list[ArchivedFile] = []
    kept: list[ArchivedFile] = []
    for file in files:
        if kept and kept[-1].partition == file.partition and kept[-1].seqno_until != file.seqno_from:
            behind = [each for each in kept if each.partition == file.partition]
            cut_off += behind
            del kept[-len(behind) :]
        kept.append(file)
    return cut_off, kept


def _gaps(manifest: Manifest) -> Iterator[tuple[ArchivedFile, ArchivedFile]]:
    """Files of one partition between which records are missing."""
    files = _join(manifest.cut_off, manifest.files)
    for before, after in pairwise(files):
        if before.partition == after.partition and before.seqno_until < after.seqno_from:
            yield before, after


def _count(file: ArchivedFile) -> int:
    return file.seqno_until - file.seqno_from


def _remove(home: Place, paths: Iterable[str]) -> None:
    for path in paths:
        home.remove(path)
