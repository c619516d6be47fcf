"""A stream of topics: what Spark asks for between its micro-batches.

Offsets are made here and kept by Spark (`offsets`). Each time it asks how far it may go, the logs are looked up again:
topics and partitions that have appeared begin at their first record; what has gone (records dropped, a topic deleted or
made again, the end of a log lost) stops the query with an error that says which seqnos, or is passed over when asked.
What the options name no more, or a replica does not have yet, keeps its place: the stream goes on there.

A micro-batch is what its two offsets say and nothing else: planned again after a crash, it has the same records.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logboom.client.catalog import ListedTopic, LogCatalog, LogPoint
from logboom.client.values import Bookmark, Term
from logboom.errors import (
    ConfigError,
    CursorMovedBack,
    LogboomError,
    PartitionNotFound,
    RecordsLost,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
)
from logboom.spark.read.limits import limit_spans
from logboom.spark.read.offsets import Log, OffsetMark, Offsets
from logboom.spark.read.options import Points, ReadOptions
from logboom.spark.read.planner import (
    ADVICE,
    RecordSpan,
    Split,
    choose_partitions,
    cut_spans,
    find_logs,
    find_start,
    open_catalog,
    settle,
)
from logboom.spark.read.split_read import ScanSpec, read_split
from logboom.spark.runtime.tidiness import begin_task
from logboom.spark.runtime.worker_parcel import WorkerParcel

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("logboom.spark")


class LogStreamReader(WorkerParcel, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, job: ScanSpec) -> None:
        if options.ending != Points() or options.ending_times != Points():
            raise ConfigError(
                "endingSeqno", "a stream has no end: read a table, or take what is there with availableNow"
            )
        self._options = options
        self._job = job
        self._catalog: LogCatalog | None = None
        self._checked = -1
        """The node's incarnation whose logs were compared with what was read."""
        self._initial: Offsets | None = None
        self._until: Mapping[Log, OffsetMark] | None = None
        """Where a query that takes what is available now ends."""
        self._latest: Offsets | None = None
        self._told: dict[Log, OffsetMark] = {}
        """Where the cursor stands."""

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends a copy to every task, which reads and asks nothing."""
        return {**self.__dict__, "_catalog": None, "_checked": -1}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:  # Spark asks twice, and must hear the same
            catalog, options, spans = self._open(), self._options, []
            for topic, partition in find_logs(catalog, options):
                start = find_start(catalog, options, topic, partition, "latest")
                span = RecordSpan(topic, partition, start, max(start, topic.ends[partition].committed))
                start = settle(span, options.fail_on_loss).seqno_from
                spans.append(RecordSpan(topic, partition, start, start))
            self._initial = Offsets(self._mark(spans, {}), is_initial=True, cursor=self._cursor)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark has no limit that is both; whichever it is given, both options count."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._find_ends(self._open().find(self._options.topics, self._options.pattern))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes; `start` itself where nothing has come."""
        begun = Offsets.from_json(start)
        while True:
            spans, staying = self._find_spans(begun.marks)
            if not isinstance(limit, ReadAllAvailable):
                spans = limit_spans(self._open(), self._options, spans)
            marks = {**staying, **self._mark(spans, begun.marks)}
            if self._checked == self._open().incarnation:
                break  # else the node was restarted meanwhile, and what it said before may not hold
        if _places(marks) == _places(begun.marks):
            return start
        since = {_log(span): OffsetMark(span.topic.id, span.seqno_from) for span in spans}
        if not begun.is_initial:
            known = _places(begun.marks)
            since = {log: mark for log, mark in since.items() if known.get(log) != (mark.topic_id, mark.seqno)}
        return Offsets(marks, since or None, cursor=self._cursor).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Spark asks this right behind `latestOffset`, which knows."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = Offsets.from_json(start), Offsets.from_json(end)
        if ended.is_initial:
            return []
        # After a crash in the first micro-batch `start` is where a stream would begin by now: `since` is where it did.
        origin = {**begun.marks, **(ended.since or {})}
        wanted = {
            log: (origin[log].seqno, until)
            for log, until in ended.marks.items()
            if log in origin and origin[log].topic_id == until.topic_id and origin[log].seqno < until.seqno
        }
        catalog, fail_on_loss = self._open(), self._options.fail_on_loss
        found = {topic.name: topic for topic in catalog.find(sorted({name for name, _ in wanted}))} if wanted else {}
        gone = self._find_gone(
            {log: OffsetMark(until.topic_id, seqno) for log, (seqno, until) in wanted.items()}, found
        )
        spans = []
        for (name, number), (seqno, until) in wanted.items():
            if name not in gone:
                topic = _check_there(found.get(name), name, number, ", ".join(catalog.servers))
                kept = self._find_kept(topic, number, until, self._checked != catalog.incarnation)
                span = RecordSpan(topic, number, seqno, max(seqno, kept))
                if catalog.is_copy and kept > topic.ends[number].committed:
                    settle(span, True)  # what a copy lacks comes yet: it is never passed over
                spans.append(settle(span, fail_on_loss))
        return list(cut_spans(catalog, self._options, spans))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin_task()
        if isinstance(partition, Split):
            yield from read_split(partition, self._job)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark says so late, and not of the last one: who follows the query's progress is more exact."""
        if self._options.cursor is not None:
            places = Offsets.from_json(end).marks.items()
            marks = {log: mark for log, mark in places if self._told.get(log) != mark and self._is_wanted(log[0])}
            try:
                commit_cursor(self._open(), self._options.cursor, marks)
                self._told |= marks
            except CursorMovedBack:
                self._told |= marks  # who follows the query's progress, or another query, was there before
            except LogboomError as error:
                logger.warning("cursor %s stays behind its stream: %s", self._options.cursor, error)

    def stop(self) -> None:
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _open(self) -> LogCatalog:
        if self._catalog is None:
            self._catalog = open_catalog(self._options)
        return self._catalog

    @property
    def _cursor(self) -> dict[str, str] | None:
        name = self._options.cursor
        return None if name is None else {"name": name, "servers": ",".join(self._options.servers)}

    def _find_ends(self, found: Sequence[ListedTopic]) -> dict[Log, OffsetMark]:
        logs = choose_partitions(found, self._options)
        return {(topic.name, number): OffsetMark(topic.id, topic.ends[number].committed) for topic, number in logs}

    def _find_spans(self, begun: Mapping[Log, OffsetMark]) -> tuple[list[RecordSpan], dict[Log, OffsetMark]]:
        """Everything there is behind these places; and the places of logs that are left out for now."""
        catalog, options = self._open(), self._options
        found = catalog.find(options.topics, options.pattern)
        incarnation = catalog.incarnation
        self._latest = Offsets(self._find_ends(found))
        known = {log: mark for log, mark in begun.items() if self._is_wanted(log[0])}
        gone = self._find_gone(known, {topic.name: topic for topic in found})
        spans = []
        for topic, partition in choose_partitions(found, options):
            mark = None if topic.name in gone else known.get((topic.name, partition))
            span = self._find_span(topic, partition, mark, self._checked != incarnation)
            if span is not None:
                spans.append(span)
        self._checked = incarnation
        return spans, {log: mark for log, mark in begun.items() if log[0] not in gone}

    def _is_wanted(self, topic: str) -> bool:
        """Whether the options still name it: a query may be started again with others."""
        options = self._options
        return topic in options.topics or (
            options.pattern is not None
            and not topic.startswith("_")
            and re.fullmatch(options.pattern, topic) is not None
        )

    def _find_gone(self, marks: Mapping[Log, OffsetMark], found: Mapping[str, ListedTopic]) -> set[str]:
        """The topics that are there no more, or are others by now. Raises the first, unless that is allowed."""
        gone: dict[str, LogboomError] = {}
        for (name, _), mark in marks.items():
            topic = found.get(name)
            if topic is None and self._open().is_copy:
                continue
            if topic is None:
                gone[name] = TopicDeleted(name, mark.topic_id)
            elif topic.id != mark.topic_id:
                gone[name] = TopicRecreated(name, mark.topic_id, topic.id)
        for name, error in gone.items():
            places = ", ".join(
                f"seqno {mark.seqno} of partition {number}" for (topic, number), mark in marks.items() if topic == name
            )
            error.add_note(f"The stream was at {places}; failOnDataLoss=false goes on without.")
            self._tell(error)
        return set(gone)

    def _tell(self, error: LogboomError) -> None:
        if self._options.fail_on_loss:
            raise error
        logger.warning("%s", " ".join([str(error), *getattr(error, "__notes__", ())]))

    def _find_span(
        self, topic: ListedTopic, partition: int, mark: OffsetMark | None, doubtful: bool
    ) -> RecordSpan | None:
        first, end, *_ = topic.ends[partition]
        if self._until is not None:
            last = self._until.get((topic.name, partition))
            if last is None or last.topic_id != topic.id:
                return None if mark is None else RecordSpan(topic, partition, mark.seqno, mark.seqno)
            end = min(end, last.seqno)
        if mark is None:
            return RecordSpan(topic, partition, first, max(first, end))
        start = self._find_kept(topic, partition, mark, doubtful)
        if start >= end:  # nothing is wanted: what has been dropped behind it is the next one's to tell
            return RecordSpan(topic, partition, start, start)
        return settle(RecordSpan(topic, partition, start, end), self._options.fail_on_loss)

    def _find_kept(self, topic: ListedTopic, partition: int, mark: OffsetMark, doubtful: bool) -> int:
        """Where to go on: at the mark, or before it where the log has lost what was read there, and has other records.

        An end that was lost is written anew in a later term, and terms never go back.
        """
        first, committed, newest, _ = topic.ends[partition]
        if mark.seqno > committed:
            if self._open().is_copy and not self._is_newer(topic, partition, committed, mark):
                return mark.seqno
            reason = f"the log ends before {committed}"
        elif mark.term is None or not (doubtful or newest not in (None, mark.term)):
            return mark.seqno
        else:
            found = self._find_term(topic, partition, mark.seqno)
            if found is None or not found.differs(mark.before):
                return mark.seqno
            there, read = f"term {found.number}", f"term {mark.term}"
            if found.number == mark.term:
                there, read = f"another {there}", f"the {read} that another node has begun"
            reason = f"they were lost, and what is there now is of {there}, what was read of {read}"
        low, high = min(first, mark.seqno), min(mark.seqno, committed)
        while mark.term is not None and low < high:
            middle = (low + high + 1) // 2
            newer = self._is_newer(topic, partition, middle, mark)
            low, high = (low, middle - 1) if newer else (middle, high)
        log = f"{topic.name}/{partition}"
        self._tell(RecordsLost(log, min(high, mark.seqno - 1), mark.seqno, reason, ADVICE))
        return high

    def _is_newer(self, topic: ListedTopic, partition: int, seqno: int, mark: OffsetMark) -> bool:
        found = self._find_term(topic, partition, seqno)
        if found is None or mark.term is None:
            return False
        return found.number > mark.term or (found.number == mark.term and found.differs(mark.before))

    def _find_term(self, topic: ListedTopic, partition: int, seqno: int) -> Term | None:
        return self._open().terms_before([LogPoint(topic, partition, seqno)])[0]

    def _mark(self, spans: Sequence[RecordSpan], begun: Mapping[Log, OffsetMark]) -> dict[Log, OffsetMark]:
        """Where these end; a place that was known before is kept as it is."""
        marks: dict[Log, OffsetMark] = {}
        news = []
        for span in spans:
            before = begun.get(_log(span))
            if before is not None and (before.topic_id, before.seqno) == (span.topic.id, span.seqno_until):
                marks[_log(span)] = before
            else:
                news.append(span)
        terms = self._open().terms_before([LogPoint(span.topic, span.partition, span.seqno_until) for span in news])
        for span, term in zip(news, terms, strict=True):
            marks[_log(span)] = OffsetMark(span.topic.id, span.seqno_until, *(term or (None,)))
        return marks


def commit_cursor(catalog: LogCatalog, cursor: str, marks: Mapping[Log, OffsetMark]) -> None:
    bookmarks = []
    for (topic, partition), mark in marks.items():
        bookmarks.append((topic, Bookmark(bytes.fromhex(mark.topic_id), partition, mark.seqno, *mark.before)))
    catalog.commit_cursor(cursor, bookmarks)


def _check_there(topic: ListedTopic | None, name: str, partition: int, place: str) -> ListedTopic:
    """A copy may not have it yet."""
    if topic is None:
        raise TopicNotFound(name, place)
    if partition >= len(topic.ends):
        raise PartitionNotFound(name, partition, len(topic.ends))
    return topic


def _log(span: RecordSpan) -> Log:
    return span.topic.name, span.partition


def _places(marks: Mapping[Log, OffsetMark]) -> dict[Log, tuple[str, int]]:
    return {log: (mark.topic_id, mark.seqno) for log, mark in marks.items()}
