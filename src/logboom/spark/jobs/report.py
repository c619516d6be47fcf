"""The report on some topics: how much there is, of what, how fast it comes, and when the volume is full.

    report/<name>/runs/<run>/report.html  report.json  cells.msgpack.zst

Counts what is in the files of each log when it runs, and nothing else: what retention or a trim has taken is in no
number, archived or not. What goes while it is counted may have been read from the archive, which does not know who
wrote it and when: so the node is asked again, and what has gone is left out. What was counted for the last report and
is still there whole is not read again (`results/report/sums.py`). So a report is the same whether it was made of the
one before or from the beginning.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from logboom.batch import Batch
from logboom.client import FileReader, Reader
from logboom.client.link.address import Servers, list_servers
from logboom.client.remote import connect
from logboom.client.values import TERM_UNKNOWN, Bookmark, DiskStats, PartitionInfo, TopicInfo, near_names
from logboom.errors import (
    ConfigError,
    DirectoryUnusable,
    LogboomError,
    ResultsUnreadable,
    SeqnoOutOfRange,
    TopicNotFound,
    TopicRecreated,
)
from logboom.results.pipeline_state import Covered, Result, ResultFile
from logboom.results.places import ResultPlace
from logboom.results.report.account import DAY_US, Report
from logboom.results.report.forecast import LogFacts, RetentionLimit, TopicFacts, VolumeReport
from logboom.results.report.page import make_page
from logboom.results.report.report import CELLS, NUMBERS, PAGE, Wishes, make_report
from logboom.results.report.sums import CELL, FORMAT, Cell, Cells, ReportSums, add
from logboom.spark.jobs.choice import check_choice
from logboom.spark.jobs.job_run import JobOutcome, JobRun
from logboom.spark.jobs.report_count import count_cell
from logboom.spark.jobs.tasks import run_tasks

TOP_MAX: Final = 64
"""Of each cell no more are kept."""

_pack: Final = msgspec.msgpack.Encoder().encode


class ReportWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One page, and the same in numbers, on some topics or on all."""

    kind: ClassVar[str] = "report"

    name: str = "all"
    """What the report is called: letters, digits, `.`, `_` and `-`."""
    topics: tuple[str, ...] = ()
    """The topics it is on. Without any, and without a pattern, on all but the node's own."""
    pattern: str | None = None
    """And those whose whole name this regular expression matches."""
    late_ms: int = 60_000
    """A record is late whose timestamp is behind that of a record before it by more than so many milliseconds."""
    top: int = 20
    """So many keys and channels are named, the heaviest first; at most 64."""
    window_days: int = 7
    """Growth is measured over so many days before the report."""

    @property
    def id(self) -> str:
        return f"report/{self.name}"

    def check(self) -> None:
        check_choice(self.name, self.pattern)
        for key, low, high in (("late_ms", 0, 10**12), ("top", 1, TOP_MAX), ("window_days", 1, 3650)):
            if not low <= getattr(self, key) <= high:
                raise ConfigError(key, f"is {getattr(self, key)}, allowed are {low} to {high}")

    def do(self, run: JobRun) -> JobOutcome:
        self.check()
        run.progress.doing = "asks the node"
        node = _ask_node(run.servers)
        topics = self._choose(node.topics)
        before = {} if run.last is None else self._remember(run.last)
        wanted = [piece for topic in topics for piece in cut_cells(topic)]
        known = {key: before[key] for key in map(_key, wanted) if key in before}
        missing = [piece for piece in wanted if _key(piece) not in known]
        if not missing and run.last is not None and self._is_same(run.last, topics):
            return JobOutcome(summary={"topics": len(topics), "records": run.last.records, "records_read": 0})
        cells, read = list(known.values()), 0
        while missing:
            counted = self._count(run, node, missing)
            read += sum(cell.seqno_until - cell.seqno_from for cell in counted)
            topics = _without_dropped(topics, _ask_node(run.servers).topics)
            cells, missing = cut_dropped([*cells, *counted], topics)
        run.progress.doing = "writes"
        report = self._report(node, topics, cells)
        return self._publish(run, report, topics, cells, read)

    def _choose(self, topics: Sequence[TopicInfo]) -> list[TopicInfo]:
        names = {topic.name for topic in topics}
        for name in self.topics:
            if name not in names:
                raise TopicNotFound(name, "the node", near_names(name, names))
        everything = not self.topics and self.pattern is None
        pattern = re.compile("" if self.pattern is None else self.pattern)
        return [
            topic
            for topic in sorted(topics, key=lambda topic: topic.name)
            if everything
            or topic.name in self.topics
            or (self.pattern is not None and pattern.fullmatch(topic.name) is not None)
        ]

    def _remember(self, last: Result) -> dict[_Key, Cell]:
        """What the last report has counted; nothing where that cannot be read, or something else counts now."""
        import pyarrow as pa

        with suppress(ResultsUnreadable, msgspec.MsgspecError, KeyError):
            stored = ResultPlace(last.place).read(msgspec.convert(last.facts["cells"], ResultFile))
            kept = msgspec.msgpack.decode(
                pa.decompress(stored, last.facts["cells_bytes"], codec="zstd", asbytes=True), type=Cells
            )
            if (kept.format, kept.late_us) == (FORMAT, 1000 * self.late_ms):
                return {_key(cell): cell for cell in kept.cells}
        return {}

    def _is_same(self, last: Result, topics: Sequence[TopicInfo]) -> bool:
        return last.facts.get("options") == msgspec.json.encode(self).decode() and last.covers == _covers(topics)

    def _count(self, run: JobRun, node: _Node, missing: Sequence[CellSpan]) -> list[Cell]:
        pieces = [_pack(spans) for spans in _bundle(missing)]
        if not pieces:
            return []
        run.progress.doing, run.progress.total = "counts", len(pieces)
        servers = list_servers(run.servers)
        count = partial(_count_spans, node.node_id, node.directory, servers, 1000 * self.late_ms)
        answers = run_tasks(run.spark(), count, pieces, _telling(run))
        run.check()
        return [cell for answer in answers for cell in msgspec.msgpack.decode(answer, type=list[Cell])]

    def _report(self, node: _Node, topics: Sequence[TopicInfo], cells: Sequence[Cell]) -> Report:
        by_log: dict[tuple[str, int], list[Cell]] = {}
        for cell in cells:
            by_log.setdefault((cell.topic_id, cell.partition), []).append(cell)
        facts = [
            TopicFacts(
                topic.name,
                topic.id,
                _limit_of(topic),
                [_log_facts(log, by_log.get((topic.id, log.partition), [])) for log in topic.partitions],
            )
            for topic in topics
        ]
        wishes = Wishes(self.name, self.top, 1000 * self.late_ms, self.window_days * DAY_US)
        return make_report(wishes, node.now, node.node_id, facts, node.volume)

    def _publish(
        self, run: JobRun, report: Report, topics: Sequence[TopicInfo], cells: list[Cell], read: int
    ) -> JobOutcome:
        import pyarrow as pa

        kept = _pack(Cells(FORMAT, 1000 * self.late_ms, cells))
        stored = run.place.write(CELLS, pa.compress(kept, codec="zstd", asbytes=True))
        page = run.place.write(PAGE, make_page(report).encode())
        run.check()
        numbers = run.place.write(NUMBERS, msgspec.json.encode(report))
        facts: dict[str, Any] = {
            "page": msgspec.to_builtins(page),
            "cells": msgspec.to_builtins(stored),
            "cells_bytes": len(kept),
            "options": msgspec.json.encode(self).decode(),
        }
        whole = report.whole
        return JobOutcome(_covers(topics), numbers, whole.records, whole.stored_bytes, facts, _summary(report, read))


class CellSpan(msgspec.Struct, frozen=True):
    """A cell, or what can be read of one."""

    topic: str
    topic_id: str
    partition: int
    seqno_from: int
    seqno_until: int


_Key = tuple[str, int, int, int]


def _key(cell: CellSpan | Cell) -> _Key:
    return cell.topic_id, cell.partition, cell.seqno_from, cell.seqno_until


def cut_cells(topic: TopicInfo) -> Iterator[CellSpan]:
    for log in topic.partitions:
        first = _first(log)
        for start in range(first // CELL * CELL, log.committed, CELL):
            span = max(start, first), min(start + CELL, log.committed)
            yield CellSpan(topic.name, topic.id, log.partition, *span)


def _first(log: PartitionInfo) -> int:
    """What is archived and in no file of the log any more is not counted: it takes no room there."""
    return log.first if log.first_stored is None else log.first_stored


def _without_dropped(topics: Sequence[TopicInfo], now: Sequence[TopicInfo]) -> list[TopicInfo]:
    """The topics as they were, each log from the first that it still has."""
    firsts = {(topic.id, log.partition): _first(log) for topic in now for log in topic.partitions}

    def cut(topic_id: str, log: PartitionInfo) -> PartitionInfo:
        first = max(_first(log), firsts.get((topic_id, log.partition), 0))
        return msgspec.structs.replace(log, first=min(first, log.committed), first_stored=None)

    return [
        msgspec.structs.replace(topic, partitions=[cut(topic.id, log) for log in topic.partitions]) for topic in topics
    ]


def cut_dropped(cells: Sequence[Cell], topics: Sequence[TopicInfo]) -> tuple[list[Cell], list[CellSpan]]:
    """Those that are still there whole; and what is left of those that are not, to be counted again."""
    logs = {(topic.id, log.partition): (topic.name, _first(log)) for topic in topics for log in topic.partitions}
    whole, left = [], []
    for cell in cells:
        name, first = logs[cell.topic_id, cell.partition]
        if cell.seqno_from >= first:
            whole.append(cell)
        elif cell.seqno_until > first:
            left.append(CellSpan(name, cell.topic_id, cell.partition, first, cell.seqno_until))
    return whole, left


def _bundle(spans: Sequence[CellSpan]) -> Iterator[list[CellSpan]]:
    """For one task each: a cell, or many small ones."""
    bundle: list[CellSpan] = []
    records = 0
    for span in spans:
        if bundle and records + span.seqno_until - span.seqno_from > CELL:
            yield bundle
            bundle, records = [], 0
        bundle.append(span)
        records += span.seqno_until - span.seqno_from
    if bundle:
        yield bundle


def _telling(run: JobRun) -> Callable[[int], None]:
    def tell(done: int) -> None:
        run.progress.done = min(done, run.progress.total)

    return tell


def _covers(topics: Sequence[TopicInfo]) -> dict[str, Covered]:
    return {
        topic.name: Covered(topic.id, {log.partition: (_first(log), log.committed) for log in topic.partitions})
        for topic in topics
    }


def _log_facts(log: PartitionInfo, cells: Sequence[Cell]) -> LogFacts:
    sums = add([cell.sums for cell in cells]) if cells else ReportSums()
    return LogFacts(log.partition, _first(log), log.committed, log.size_bytes, sums)


def _limit_of(topic: TopicInfo) -> RetentionLimit:
    kept = topic.settings.retention
    sizes = [size for size in (kept.bytes, kept.hard_bytes) if size is not None]
    return RetentionLimit(min(sizes, default=None), None if kept.age_ms is None else 1000 * kept.age_ms, kept.records)


def _summary(report: Report, read: int) -> dict[str, Any]:
    whole, forecast = report.whole, report.forecast
    full = None if forecast is None or forecast.full_at is None else (forecast.full_at - report.at) / DAY_US
    return {
        "topics": len(report.topics),
        "records": whole.records,
        "records_read": read,
        "bytes": whole.size_bytes,
        "stored_bytes": whole.stored_bytes,
        "late": whole.late.records,
        "duplicates": whole.duplicates.records,
        "days_until_full": None if full is None else round(full, 1),
    }


class _Node(msgspec.Struct, frozen=True):
    node_id: str
    directory: str | None
    now: int
    """By its own clock, which append times are of."""
    topics: list[TopicInfo]
    disk: DiskStats | None

    @property
    def volume(self) -> VolumeReport | None:
        disk = self.disk
        if disk is None:
            return None
        return VolumeReport(disk.total_bytes, disk.free_bytes, disk.reserve_bytes, disk.logs_bytes)


def _ask_node(servers: Servers) -> _Node:
    async def ask() -> _Node:
        async with connect(servers) as broker:
            topics, stats = await broker.list_topics(), await broker.stats()
            return _Node(broker.welcome.node_id, broker.welcome.directory, stats.now, topics, stats.disk)

    with ThreadPoolExecutor(1) as thread:  # the caller's may have a loop that is running, as in a notebook
        return thread.submit(asyncio.run, ask()).result()


def _count_spans(node_id: str, directory: str | None, servers: tuple[str, ...], late_us: int, piece: bytes) -> bytes:
    """What a task does."""
    spans = msgspec.msgpack.decode(piece, type=list[CellSpan])
    cells = (count_span(span, node_id, directory, servers, late_us) for span in spans)
    return _pack([cell for cell in cells if cell is not None])


def count_span(
    span: CellSpan, node_id: str, directory: str | None, servers: tuple[str, ...], late_us: int
) -> Cell | None:
    """None where it was dropped meanwhile."""
    while span.seqno_from < span.seqno_until:
        batches = _batches(span, node_id, directory, servers)
        place = span.seqno_from, span.seqno_until
        try:
            sums = count_cell(batches, *place, span.topic_id, span.partition, late_us)
        except SeqnoOutOfRange as gone:
            if gone.first <= span.seqno_from:
                raise
            span = msgspec.structs.replace(span, seqno_from=min(gone.first, span.seqno_until))
            continue
        return Cell(span.topic_id, span.partition, *place, sums)
    return None


def _batches(span: CellSpan, node_id: str, directory: str | None, servers: tuple[str, ...]) -> Iterator[Batch]:
    """From the files, where they are here; else, or from where they give out, from a server."""
    seqno = span.seqno_from
    if directory is not None:
        with suppress(LogboomError, OSError), FileReader(directory, span.topic, span.partition, seqno=seqno) as files:
            if files.node_id != node_id or files.stated < span.seqno_until:
                raise DirectoryUnusable(f"{directory} is not what node {node_id} has, or not all of it")
            if files.topic.id != span.topic_id:
                raise TopicRecreated(span.topic, span.topic_id, files.topic.id)
            for batch in files.batches():
                yield batch
                seqno = batch.header.next_seqno
                if seqno >= span.seqno_until:
                    return
    start = Bookmark(bytes.fromhex(span.topic_id), span.partition, seqno, TERM_UNKNOWN)
    with Reader(span.topic, servers, span.partition, bookmark=start) as reader:
        for batch in reader.batches():
            yield batch
            if batch.header.next_seqno >= span.seqno_until:
                return
