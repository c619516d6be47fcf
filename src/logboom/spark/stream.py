"""A stream of topics: what Spark asks for between its micro-batches.

Offsets are made here and kept by Spark (`offsets`). Each time it asks how far it may go, the logs are looked up again:
topics and partitions that have appeared begin at their first record; what has gone (records dropped, a topic deleted or
made again, the end of a log lost) stops the query with an error that says which seqnos, or is passed over when asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logboom.client.catalog import Catalog, Listed
from logboom.errors import BookmarkLost, LogboomError, TopicDeleted, TopicRecreated
from logboom.spark.offsets import Log, Mark, Offsets
from logboom.spark.options import ReadOptions
from logboom.spark.planning import (
    Span,
    Split,
    choose_partitions,
    cut_spans,
    find_logs,
    find_start,
    open_catalog,
    settle,
)
from logboom.spark.reading import Job, read_split
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("logboom.spark")


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, job: Job) -> None:
        self._options = options
        self._job = job
        self._catalog: Catalog | None = None
        self._checked = -1
        """The node's incarnation when the terms of an offset were compared last."""
        self._initial: Offsets | None = None
        self._until: Mapping[Log, Mark] | None = None
        """Where a query that takes what is available now ends."""

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends a copy to every task, which reads and asks nothing."""
        return {**self.__dict__, "_catalog": None, "_checked": -1}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:  # Spark asks twice, and must hear the same
            catalog, options = self._open(), self._options
            marks: dict[Log, Mark] = {}
            for topic, partition in find_logs(catalog, options):
                start = find_start(catalog, options, topic, partition, "latest")
                ends = topic.ends[partition]
                span = settle(Span(topic, partition, start, max(start, ends.committed)), options.fail_on_loss)
                marks[topic.name, partition] = Mark(topic.id, span.seqno_from)
            self._initial = Offsets(marks, is_initial=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark has no limit that is both; whichever it is given, both options count."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = {
            (topic.name, partition): Mark(topic.id, topic.ends[partition].committed)
            for topic, partition in find_logs(self._open(), self._options)
        }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes; `start` itself where nothing has come."""
        begun = Offsets.from_json(start)
        spans = self._find_spans(begun.marks)
        if not isinstance(limit, ReadAllAvailable):
            spans = limit_spans(self._open(), self._options, spans)
        marks = {(span.topic.name, span.partition): self._mark(span, begun.marks) for span in spans}
        if _places(marks) == _places(begun.marks):
            return start
        since = begun.marks if begun.is_initial else None
        return Offsets(marks, since, cursor=self._cursor).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        logs = choose_partitions(self._open().find(self._options.topics, self._options.pattern), self._options)
        ends = {(topic.name, number): Mark(topic.id, topic.ends[number].committed) for topic, number in logs}
        return Offsets(ends).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = Offsets.from_json(start), Offsets.from_json(end)
        if begun.is_initial and ended.since is not None:
            begun = Offsets(ended.since)  # said when this batch was planned first; "latest" may be another one by now
        spans = []
        catalog, options = self._open(), self._options
        for topic, partition in choose_partitions(catalog.find(options.topics, options.pattern), options):
            until = ended.marks.get((topic.name, partition))
            if until is None:
                continue
            if until.topic_id != topic.id:
                self._tell(TopicRecreated(topic.name, until.topic_id, topic.id))
                continue
            mark = begun.marks.get((topic.name, partition))
            first = topic.ends[partition].first
            seqno = mark.seqno if mark is not None and mark.topic_id == topic.id else min(first, until.seqno)
            spans.append(settle(Span(topic, partition, seqno, until.seqno), options.fail_on_loss))
        for name, number in ended.marks.keys() - {(span.topic.name, span.partition) for span in spans}:
            self._tell(TopicDeleted(name, ended.marks[name, number].topic_id))
        return list(cut_spans(catalog, options, spans))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Split):
            yield from read_split(partition, self._job)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark says so late, and not of the last one: who follows the query's progress is more exact."""
        if self._options.cursor is not None:
            try:
                commit_cursor(self._open(), self._options.cursor, Offsets.from_json(end).marks)
            except LogboomError as error:
                logger.warning("cursor %s stays behind its stream: %s", self._options.cursor, error)

    def stop(self) -> None:
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _open(self) -> Catalog:
        if self._catalog is None:
            self._catalog = open_catalog(self._options)
        return self._catalog

    @property
    def _cursor(self) -> dict[str, str] | None:
        name = self._options.cursor
        return None if name is None else {"name": name, "servers": ",".join(self._options.servers)}

    def _tell(self, error: LogboomError) -> None:
        if self._options.fail_on_loss:
            raise error
        logger.warning("%s", error)

    def _find_spans(self, begun: Mapping[Log, Mark]) -> list[Span]:
        """Everything there is behind these places."""
        catalog, options = self._open(), self._options
        found = catalog.find(options.topics, options.pattern)
        names = {topic.name for topic in found}
        for name, number in begun:
            if name not in names:
                self._tell(TopicDeleted(name, begun[name, number].topic_id))
        check = self._checked != catalog.incarnation
        self._checked = catalog.incarnation
        spans = []
        for topic, partition in choose_partitions(found, options):
            span = self._find_span(topic, partition, begun.get((topic.name, partition)), check)
            if span is not None:
                spans.append(span)
        return spans

    def _find_span(self, topic: Listed, partition: int, mark: Mark | None, check: bool) -> Span | None:
        first, end = topic.ends[partition]
        if mark is not None and mark.topic_id != topic.id:
            self._tell(TopicRecreated(topic.name, mark.topic_id, topic.id))
            mark = None
        if self._until is not None:
            last = self._until.get((topic.name, partition))
            if last is None or last.topic_id != topic.id:
                return None if mark is None else Span(topic, partition, mark.seqno, mark.seqno)
            end = min(end, last.seqno)
        if mark is None:
            return Span(topic, partition, first, max(first, end))
        if check and mark.term is not None and mark.seqno <= topic.ends[partition].committed:
            try:
                self._open().check_term(topic, partition, mark.seqno, mark.term)
            except BookmarkLost as error:
                self._tell(error)
        return settle(Span(topic, partition, mark.seqno, max(mark.seqno, end)), self._options.fail_on_loss)

    def _mark(self, span: Span, begun: Mapping[Log, Mark]) -> Mark:
        """Where a span ends; a place that was known before is kept as it is."""
        before = begun.get((span.topic.name, span.partition))
        if before is not None and (before.topic_id, before.seqno) == (span.topic.id, span.seqno_until):
            return before
        term = self._open().term_before(span.topic, span.partition, span.seqno_until)
        return Mark(span.topic.id, span.seqno_until, term)


def limit_spans(catalog: Catalog, options: ReadOptions, spans: list[Span]) -> list[Span]:
    """No more than the options allow, shared by what waits in each log; a log with something to give gives some."""
    waiting = sum(span.seqno_until - span.seqno_from for span in spans)
    if options.max_records is not None and waiting > options.max_records:
        spans = [_shorten(span, options.max_records / waiting) for span in spans]
    if options.max_bytes is None:
        return spans
    sizes = [
        sum(piece.size for piece in catalog.cut(span.topic, span.partition, span.seqno_from, span.seqno_until, 2**62))
        for span in spans
    ]
    total = sum(sizes)
    if total <= options.max_bytes:
        return spans
    return [_fit(catalog, span, options.max_bytes * size // total) for span, size in zip(spans, sizes, strict=True)]


def _shorten(span: Span, share: float) -> Span:
    count = int((span.seqno_until - span.seqno_from) * share)
    return replace(span, seqno_until=min(span.seqno_until, span.seqno_from + max(1, count)))


def _fit(catalog: Catalog, span: Span, size: int) -> Span:
    """The part that takes about so many bytes."""
    pieces = catalog.cut(span.topic, span.partition, span.seqno_from, span.seqno_until, max(1, size))
    if not pieces:
        return span
    piece = pieces[0]
    fitting = replace(span, seqno_until=max(piece.seqno_until, span.seqno_from))
    return fitting if piece.size <= size else _shorten(fitting, size / piece.size)


def commit_cursor(catalog: Catalog, cursor: str, marks: Mapping[Log, Mark]) -> None:
    for (topic, partition), mark in marks.items():
        term = TERM_UNKNOWN if mark.term is None else mark.term
        catalog.commit_cursor(cursor, topic, Bookmark(bytes.fromhex(mark.topic_id), partition, mark.seqno, term))


def _places(marks: Mapping[Log, Mark]) -> dict[Log, tuple[str, int]]:
    return {log: (mark.topic_id, mark.seqno) for log, mark in marks.items()}
