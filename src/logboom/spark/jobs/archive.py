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
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from logboom.batch import Header, read_header
from logboom.client.node_catalog import SEGMENTS_MAX, NodeCatalog
from logboom.client.remote import RemoteBroker
from logboom.client.values import PartitionInfo, ReadRequest, SegmentInfo, Start, TopicInfo
from logboom.errors import (
    ConfigError,
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
)
from logboom.results.archive_file import CODECS, ArchivePiece
from logboom.results.pipeline_state import Covered, Result
from logboom.results.places import UNFINISHED, ResultPlace
from logboom.spark.jobs.archive_spans import (
    above,
    clip,
    count_of,
    gaps_of,
    group_orders,
    has_file,
    join_files,
    name_lost,
    own_first,
    position_of,
    sealed,
    sever,
    without,
)
from logboom.spark.jobs.archive_task import ArchiveAnswer, ArchiveOrder, ArchiveTask, decode_answer, write_archive
from logboom.spark.jobs.job_run import RUNS, JobOutcome, JobRun
from logboom.spark.jobs.tasks import run_tasks

if TYPE_CHECKING:
    pass

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

    def do(self, run: JobRun) -> JobOutcome:
        self.check()
        try:
            with closing(_Node(run.servers)) as node:
                return _Archiving(self, run, node).do()
        except OSError as error:
            raise PipelineError(f"nothing is published: {run.home.uri}: {error}") from error


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
            if max(first, part.floor) < min(own_first(part), until):
                raise ResultsUnreadable(
                    f"the archive of {topic.name} is in {ResultPlace(last.place).above(2).uri}, and {place.uri}/"
                    f"{last.manifest.path} is not there: copy all of it to {self._run.home.uri}, or name the "
                    f"directory that it was in. To do without it, trim {topic.name}/{part.partition} to seqno "
                    f"{own_first(part)}"
                )
        logger.warning("%s begins anew in %s: the log has all that was archived", self._work.id, self._run.home.uri)

    def do(self) -> JobOutcome:
        run = self._run
        kept = sorted(self._look_for([*self._last.cut_off, *self._last.files]), key=position_of)
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
                kept, written = sorted([*kept, *files], key=position_of), [*written, *files]
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
        cut_off, files, lost = sever(kept, above(self._lost, floors))
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
        gone = [file for file in missing if not has_file(logs[file.partition], file)]
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

    def _plan(self, kept: Sequence[ArchivedFile]) -> tuple[list[ArchivedFile], list[ArchiveOrder]]:
        """What stays as it is, and what is to be written."""
        stays: list[ArchivedFile] = []
        orders: list[ArchiveOrder] = []
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
            orders += [clip(file, partition.floor) for file in files if file.seqno_from < partition.floor]
            orders += self._order(partition, files)
        return stays, orders

    def _order(self, partition: PartitionInfo, files: Sequence[ArchivedFile]) -> list[ArchiveOrder]:
        """What is sealed and in none of these files."""
        number = partition.partition
        known = join_files(files, [each for each in self._lost if each.partition == number])
        segments = sealed(self._node.segments(self._topic.name, number), partition)
        spans = [
            (low, high, segment.size_bytes)
            for segment in segments
            for low, high in without(max(segment.first_seqno, partition.first), segment.next_seqno, known)
        ]
        ends = [seqno for low, high, _ in spans for seqno in (low, high - 1)]
        headers = self._node.headers(self._topic, number, ends)
        return [
            ArchiveOrder(
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

    def _write(self, orders: Sequence[ArchiveOrder]) -> list[ArchiveAnswer]:
        if not orders:
            return []
        run, node, work = self._run, self._node, self._work
        tasks = list(group_orders(orders))
        records = [sum(order.piece.seqno_until - order.piece.seqno_from for order in task) for task in tasks]
        before = list(accumulate(records, initial=0))
        run.progress.doing = f"writing {len(orders):,} files"
        run.progress.total, run.progress.done = before[-1], 0

        def show(done: int) -> None:
            run.progress.done = before[min(done, len(tasks))]

        place = node.node_id, node.directory, node.servers
        task = ArchiveTask(run.home.uri, self._topic.name, self._topic.id, *place, work.codec, work.level)
        pieces = [msgspec.json.encode(orders) for orders in tasks]
        answers = [
            decode_answer(answer) for answer in run_tasks(run.spark(), partial(write_archive, task), pieces, show)
        ]
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
        missing = sum(map(count_of, manifest.lost)) + sum(until - seqno for seqno, until in gaps_of(manifest))
        spans = {
            partition: (its[0].seqno_from, its[-1].seqno_until)
            for partition, group in groupby(join_files(files, manifest.lost), lambda each: each.partition)
            if (its := list(group))
        }
        ends = {part.partition: spans.get(part.partition, (part.first, part.first))[1] for part in topic.partitions}
        summary: dict[str, Any] = {
            "files": len(written),
            "records": sum(map(count_of, written)),
            "bytes": sum(file.size for file in written),
            "files_total": len(files),
            "records_total": sum(map(count_of, files)),
            "bytes_total": sum(file.size for file in files),
            "removed": len(doomed),
            "missing": missing,
            "waiting": sum(max(0, part.committed - ends[part.partition]) for part in topic.partitions),
        }
        if manifest.lost:
            summary["lost"] = name_lost(manifest.lost)
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


def _remove(home: ResultPlace, paths: Iterable[str]) -> None:
    for path in paths:
        home.remove(path)
