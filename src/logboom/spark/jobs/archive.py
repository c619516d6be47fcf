"""The archive of a topic: every sealed segment becomes a Parquet file, once, and a manifest lists them all.

    plan: sealed segments, from the floor on, without what is archived → tasks write and compare → manifest

A file counts when a manifest that is published lists it. One that was written by a run that came no further is found by
the next, compared and taken. Files that begin below the floor of their log are nobody's any more, and go; one that
crosses it is written again without what lies below.

What a repair could not save is lost in the archive as it is in the log: the manifest says so (`Manifest.lost`), readers
are told, and retention need not wait for it. What retention has dropped before it was archived is missing too. Readers
count on files that follow each other, so those before such a gap are kept apart (`Manifest.cut_off`), and the run says
how many records are missing.

The directory may be another one than it was, if all that counts was copied there: the next result says where it is. A
file that is missing is written again where the log has its records; else nothing is done before somebody puts it back.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, groupby, islice, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from logboom.batch import Header, read_header
from logboom.batch.tables import LOST
from logboom.client.catalog import SEGMENTS_MAX, NodeCatalog
from logboom.client.remote import RemoteBroker
from logboom.client.values import PartitionInfo, ReadRequest, SegmentInfo, Start, TopicInfo
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
from logboom.results.archive import (
    FORMAT,
    MANIFEST,
    ArchivedFile,
    ArchiveManifest,
    LostRecords,
    decode_manifest,
    job_id,
    schema,
)
from logboom.results.archive_file import CODECS, ArchivePiece, write_file
from logboom.results.pipeline_state import Covered, Result, ResultFile
from logboom.results.places import UNFINISHED, ResultPlace
from logboom.spark.jobs.job_run import RUNS, JobOutcome, JobRun
from logboom.spark.jobs.tasks import run_tasks
from logboom.spark.read.planner import Split
from logboom.spark.read.split_read import ScanSpec, read_split

if TYPE_CHECKING:
    import pyarrow as pa

TASK_BYTES: Final = 64 * 1024 * 1024
"""Of segments that one task archives; it takes at least one."""
ROUNDS: Final = 5
"""How often it is planned anew where retention takes away what is being read."""
NAMED_MAX: Final = 20
"""Of what was lost, how many ranges a summary names."""

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

    def do(self, run: JobRun) -> JobOutcome:
        self.check()
        try:
            with closing(_Node(run.servers)) as node:
                return _Archiving(self, run, node).do()
        except OSError as error:
            raise PipelineError(f"nothing is published: {run.home.uri}: {error}") from error


class _Order(msgspec.Struct, frozen=True):
    """A file to write: of the log, or of a file that has more."""

    piece: ArchivePiece
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


class _Answer(msgspec.Struct, frozen=True):
    files: list[ArchivedFile]
    lost: list[LostRecords]
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

    def __init__(self, work: ArchiveWork, run: JobRun, node: _Node) -> None:
        self._work = work
        self._run = run
        self._node = node
        self._topic = node.describe(work.topic)
        self._is_moved = False
        self._last = self._read_last()
        self._lost: list[LostRecords] = list(self._last.lost)

    def _read_last(self) -> ArchiveManifest:
        """What is archived of this very topic."""
        last, topic = self._run.last, self._topic
        nothing = ArchiveManifest(FORMAT, topic.name, topic.id, ())
        if last is None or last.manifest is None or last.covers[topic.name].topic_id != topic.id:
            return nothing
        place = self._run.home.below(f"{RUNS}/{ResultPlace(last.place).name}")
        self._is_moved = place.uri != last.place
        if self._is_moved and place.size(last.manifest.path) is None:
            self._check_unneeded(last, place)
            return nothing
        try:
            manifest = decode_manifest(place.read(last.manifest))
        except ResultsUnreadable as error:
            advice = "put it back; or, if all of it is lost, name another directory, to begin anew there"
            raise ResultsUnreadable(f"{error}. Is a volume not mounted? Else {advice}") from None
        if manifest.format != FORMAT:
            raise ResultsUnreadable(f"{place.uri} has format {manifest.format}, known is {FORMAT}")
        return manifest

    def _check_unneeded(self, last: Result, place: ResultPlace) -> None:
        """In another directory, with nothing of what was archived: raises ResultsUnreadable where the log has less."""
        assert last.manifest is not None
        topic = self._topic
        for part in topic.partitions:
            first, until = last.covers[topic.name].spans.get(part.partition, (0, 0))
            if max(first, part.floor) < min(_own_first(part), until):
                raise ResultsUnreadable(
                    f"the archive of {topic.name} is in {ResultPlace(last.place).above(2).uri}, and {place.uri}/"
                    f"{last.manifest.path} is not there: copy all of it to {self._run.home.uri}, or name the "
                    f"directory that it was in. To do without it, trim {topic.name}/{part.partition} to seqno "
                    f"{_own_first(part)}"
                )
        logger.warning("%s begins anew in %s: the log has all that was archived", self._work.id, self._run.home.uri)

    def do(self) -> JobOutcome:
        run = self._run
        kept = sorted(self._look_for([*self._last.cut_off, *self._last.files]), key=_position)
        written: list[ArchivedFile] = []
        rounds = 0
        while True:
            gone, lost = None, list[LostRecords]()
            try:
                kept, orders = self._plan(kept)
                answers = self._write(orders)
            except (RecordsLost, SeqnoOutOfRange) as error:
                gone = str(error)
            else:
                files = [file for answer in answers for file in answer.files]
                kept, written = sorted([*kept, *files], key=_position), [*written, *files]
                gone = next((answer.gone for answer in answers if answer.gone is not None), None)
                lost = [hole for answer in answers for hole in answer.lost]
            self._look_again()
            if gone is None and not lost:
                break
            self._lost += lost
            rounds += not lost
            if rounds == ROUNDS:
                raise PipelineError(f"records go sooner than they can be archived: {gone}")
        floors = {partition.partition: partition.floor for partition in self._topic.partitions}
        cut_off, files, lost = _sever(kept, _above(self._lost, floors))
        manifest = ArchiveManifest(FORMAT, self._topic.name, self._topic.id, tuple(files), tuple(cut_off), tuple(lost))
        run.check()
        return self._publish(manifest, written)

    def _look_for(self, files: Sequence[ArchivedFile]) -> list[ArchivedFile]:
        """Those that are there. Of what the log may not have any more nothing must be missing.

        Also removes what others have left unfinished: whoever has had the lease before can publish nothing of it.
        """
        home = self._run.home
        listed = set(home.list(recursive=True))
        _remove(home, [path for path in listed if path.rpartition("/")[2].startswith(UNFINISHED)])
        logs = {partition.partition: partition for partition in self._topic.partitions}
        wanted = [file for file in files if file.seqno_until > logs[file.partition].floor]
        missing = [file for file in wanted if file.path not in listed]
        gone = [file for file in missing if not _has(logs[file.partition], file)]
        if gone:
            number = gone[0].partition
            until = max(file.seqno_until for file in gone if file.partition == number)
            more = f", nor are {len(gone) - 1:,} more" if len(gone) > 1 else ""
            raise ResultsUnreadable(
                f"{home.uri}/{gone[0].path} is not there{more}, and the log has its records no more: put it back, or "
                f"trim {self._topic.name}/{number} to seqno {until} to do without"
            )
        for file in missing:
            logger.warning("%s: %s/%s is not there, and is written again", self._work.id, home.uri, file.path)
        paths = {file.path for file in missing}
        return [file for file in files if file.path not in paths]

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
        by_log = {number: list(files) for number, files in groupby(kept, lambda file: file.partition)}
        for partition in self._topic.partitions:
            files = by_log.get(partition.partition, [])
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
        known = _join(files, [each for each in self._lost if each.partition == number])
        segments = _sealed(self._node.segments(self._topic.name, number), partition)
        spans = [
            (low, high, segment.size_bytes)
            for segment in segments
            for low, high in _without(max(segment.first_seqno, partition.first), segment.next_seqno, known)
        ]
        ends = [seqno for low, high, _ in spans for seqno in (low, high - 1)]
        headers = self._node.headers(self._topic, number, ends)
        return [
            _Order(
                ArchivePiece(number, low, high, last.append_time, self._find_terms(number, low, first, high, last)),
                size,
            )
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

    def _publish(self, manifest: ArchiveManifest, written: Sequence[ArchivedFile]) -> JobOutcome:
        run, topic = self._run, self._topic
        files = manifest.files
        doomed = self._find_doomed(manifest)
        missing = sum(map(_count, manifest.lost)) + sum(until - seqno for seqno, until in _gaps(manifest))
        spans = {
            partition: (its[0].seqno_from, its[-1].seqno_until)
            for partition, group in groupby(_join(files, manifest.lost), lambda each: each.partition)
            if (its := list(group))
        }
        ends = {part.partition: spans.get(part.partition, (part.first, part.first))[1] for part in topic.partitions}
        summary: dict[str, Any] = {
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
        if manifest.lost:
            summary["lost"] = _name(manifest.lost)
        then = partial(_remove, run.home, doomed)
        if manifest == self._last and not self._is_moved:
            return JobOutcome(summary=summary, then=then)
        if missing:
            named = f"; lost: {summary['lost']}" if manifest.lost else ""
            told = f"{missing:,} records were dropped or lost before they were archived{named}"
            logger.warning("%s: %s", self._work.id, told)
        stored = run.place.write(MANIFEST, msgspec.json.encode(manifest))
        facts = {
            "files": len(files),
            "missing": missing,
            "time_from": min((file.time_from for file in files if file.time_from is not None), default=None),
            "time_until": max((file.time_until for file in files if file.time_until is not None), default=None),
        }
        covers = {topic.name: Covered(topic.id, spans)}
        return JobOutcome(covers, stored, summary["records_total"], summary["bytes_total"], facts, summary, then)

    def _find_doomed(self, manifest: ArchiveManifest) -> list[str]:
        """What begins below the floor and counts no more, and what those have left unfinished who have no lease now.

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

    home = ResultPlace(task.home)
    files: list[ArchivedFile] = []
    lost: list[LostRecords] = []
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
                lost.append(LostRecords(piece.partition, error.seqno_from, error.seqno_until))
                continue
            log = f"{task.topic}/{piece.partition} from seqno {piece.seqno_from} to {piece.seqno_until - 1}"
            return msgspec.json.encode(_Answer(files, lost, gone, f"{log}: {error}"))
    return msgspec.json.encode(_Answer(files, lost, gone))


def _read_log(task: _Task, order: _Order) -> Iterator[pa.RecordBatch]:
    piece = order.piece
    span = piece.partition, piece.seqno_from, piece.seqno_until
    split = Split(task.topic, task.topic_id, *span, order.size, task.node_id, task.directory)
    return read_split(split, ScanSpec(servers=task.servers, schema=schema()))


def _read_file(home: ResultPlace, order: _Order) -> Iterator[pa.RecordBatch]:
    """The records of an archived file from a seqno on."""
    import pyarrow as pa
    from pyarrow import parquet

    assert order.old is not None
    data = home.read(ResultFile(order.old.path, order.old.size, order.old.crc))
    seqno = order.old.seqno_from
    for batch in parquet.ParquetFile(pa.BufferReader(data)).iter_batches():
        yield batch.slice(min(batch.num_rows, max(0, order.piece.seqno_from - seqno)))
        seqno += batch.num_rows


def _clip(file: ArchivedFile, floor: int) -> _Order:
    """What of it lies above the floor."""
    before = max(start for start, _ in file.terms if start <= floor)
    terms = tuple((max(start, floor), term) for start, term in file.terms if start >= before)
    return _Order(ArchivePiece(file.partition, floor, file.seqno_until, file.append_time, terms), file.size, file)


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


def _without(low: int, high: int, files: Sequence[ArchivedFile | LostRecords]) -> Iterator[tuple[int, int]]:
    """The parts of a span that none of these holds. They follow each other by seqno."""
    for file in islice(files, bisect_right(files, low, key=lambda each: each.seqno_until), None):
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
    size = 0
    for order in orders:
        if task and size + order.size > TASK_BYTES:
            yield task
            task, size = [], 0
        task.append(order)
        size += order.size
    if task:
        yield task


def _own_first(partition: PartitionInfo) -> int:
    """The first record that the log has in its own files."""
    return partition.first if partition.first_stored is None else partition.first_stored


def _has(log: PartitionInfo, file: ArchivedFile) -> bool:
    """Whether all records of a file that still count are in the log itself too."""
    return max(file.seqno_from, log.floor) >= _own_first(log)


def _position(each: ArchivedFile | LostRecords) -> tuple[int, int]:
    return each.partition, each.seqno_from


def _join(
    some: Iterable[ArchivedFile | LostRecords], others: Iterable[ArchivedFile | LostRecords]
) -> list[ArchivedFile | LostRecords]:
    return sorted([*some, *others], key=_position)


def _above(lost: Iterable[LostRecords], floors: Mapping[int, int]) -> Iterator[LostRecords]:
    """What of it is above the floor of its log."""
    for each in lost:
        low = max(each.seqno_from, floors[each.partition])
        if low < each.seqno_until:
            yield msgspec.structs.replace(each, seqno_from=low)


def _sever(
    files: Iterable[ArchivedFile], lost: Iterable[LostRecords]
) -> tuple[list[ArchivedFile], list[ArchivedFile], list[LostRecords]]:
    """Of each partition the files before the last gap; and what follows it, files and what was lost between them."""
    cut_off: list[ArchivedFile] = []
    kept: list[ArchivedFile | LostRecords] = []
    for _, group in groupby(_join(files, lost), lambda each: each.partition):
        whole: list[ArchivedFile | LostRecords] = []
        for each in group:
            if whole and whole[-1].seqno_until != each.seqno_from:
                cut_off += [before for before in whole if isinstance(before, ArchivedFile)]
                whole = []
            whole.append(each)
        kept += whole
    return (
        cut_off,
        [each for each in kept if isinstance(each, ArchivedFile)],
        [each for each in kept if isinstance(each, LostRecords)],
    )


def _gaps(manifest: ArchiveManifest) -> Iterator[tuple[int, int]]:
    """Where records of a partition are missing that were dropped."""
    for before, after in pairwise(_join([*manifest.cut_off, *manifest.files], manifest.lost)):
        if before.partition == after.partition and before.seqno_until < after.seqno_from:
            yield before.seqno_until, after.seqno_from


def _name(lost: Sequence[LostRecords]) -> str:
    """By partition and seqnos."""
    named = [f"{each.partition}/{each.seqno_from}-{each.seqno_until - 1}" for each in lost[:NAMED_MAX]]
    return ", ".join(named) + (f", and {len(lost) - NAMED_MAX:,} more" if len(lost) > NAMED_MAX else "")


def _count(file: ArchivedFile | LostRecords) -> int:
    return file.seqno_until - file.seqno_from


def _remove(home: ResultPlace, paths: Iterable[str]) -> None:
    for path in paths:
        home.remove(path)
