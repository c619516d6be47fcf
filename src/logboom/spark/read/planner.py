"""Which records a read covers, and how they are cut into splits: what the driver decides.

A split is (topic id, partition, from, until): who reads it finds the records, in the files or at a server. Cuts are
made by the index, about `split_bytes` apart. What lies before the log's own first record is archived: splits of that
name the files of the archive, which never change, and whoever reads them needs no node. `settle` gives up what nobody
has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pyspark.sql.datasource import InputPartition

from logboom.client.catalog import ListedTopic, LogCatalog
from logboom.client.file_catalog import FileCatalog
from logboom.client.node_catalog import NodeCatalog
from logboom.client.values import SeqnoRange, near_names
from logboom.errors import (
    Damage,
    PartitionNotFound,
    RecordsLost,
    TopicDeleted,
    TopicNotFound,
    TopicRecreated,
    Unavailable,
)
from logboom.results.archived import ArchivedLogReader, ArchivedPart
from logboom.spark.read.options import Points, ReadOptions

logger = logging.getLogger("logboom.spark")

ADVICE = "failOnDataLoss=false goes on behind them"


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Records of one log."""

    topic: ListedTopic
    partition: int
    seqno_from: int
    seqno_until: int

    @property
    def log(self) -> str:
        return f"{self.topic.name}/{self.partition}"

    @property
    def stored(self) -> int:
        """Where the log's own records begin."""
        ends = self.topic.ends[self.partition]
        return ends.first if ends.stored is None else ends.stored


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads."""

    topic: str
    topic_id: str
    partition: int
    seqno_from: int
    seqno_until: int
    size: int
    """About how many bytes of files that is."""
    node_id: str
    directory: str | None
    """Where the files of that node are, on its machine; others may have a directory of that name too."""
    archive: ArchivedPart | None = None
    """What has all of it, where that is not the log."""

    @property
    def log(self) -> str:
        return f"{self.topic}/{self.partition}"


def open_catalog(options: ReadOptions) -> LogCatalog:
    if options.servers:
        try:
            return NodeCatalog(options.servers, options.directory, options.timeout_s, options.timeout_s)
        except Unavailable as error:
            waited = f"waited for {options.timeout_s:g} s; option('timeout', '5m') waits longer"
            raise Unavailable(f"{error}; {waited}") from None
    assert options.directory is not None
    return FileCatalog(options.directory)


def find_logs(catalog: LogCatalog, options: ReadOptions) -> list[tuple[ListedTopic, int]]:
    """Every log that is to be read. Raises TopicNotFound for a topic that was named and is not there."""
    found = catalog.find(options.topics, options.pattern)
    names = {topic.name for topic in found}
    for name in options.topics:
        if name not in names:
            others = [topic.name for topic in catalog.find(pattern="[^_].*")]
            raise TopicNotFound(name, options.directory or ", ".join(options.servers), near_names(name, others))
    for topic in found:
        _check_points(topic, options)
    return list(choose_partitions(found, options))


def _check_points(topic: ListedTopic, options: ReadOptions) -> None:
    """A place in a partition that there is not is most likely one in another."""
    for points in (options.starting, options.ending, options.starting_times, options.ending_times):
        named = points.topics.get(topic.name)
        for number in named if isinstance(named, dict) else ():
            if number >= len(topic.ends):
                raise PartitionNotFound(topic.name, number, len(topic.ends))


def choose_partitions(topics: Iterable[ListedTopic], options: ReadOptions) -> Iterator[tuple[ListedTopic, int]]:
    for topic in topics:
        numbers: Sequence[int] = range(len(topic.ends))
        if options.partitions is not None:
            numbers = options.partitions.get(topic.name, ())
        for number in numbers:
            if number >= len(topic.ends):
                raise PartitionNotFound(topic.name, number, len(topic.ends))
            yield topic, number


def find_spans(catalog: LogCatalog, options: ReadOptions) -> list[RecordSpan]:
    """What a batch read covers: by default everything that is committed now."""
    spans = []
    for topic, partition in find_logs(catalog, options):
        start = find_start(catalog, options, topic, partition, "earliest")
        end = _find_point(catalog, options, options.ending, options.ending_times, topic, partition, "latest")
        # A number for all logs says nothing of each: one that does not reach so far has no such records.
        committed = topic.ends[partition].committed
        start = min(start, committed) if options.starting.default is not None else start
        end = min(end, committed) if options.ending.default is not None else end
        spans.append(settle(RecordSpan(topic, partition, start, end), options.fail_on_loss))
    return spans


def find_start(catalog: LogCatalog, options: ReadOptions, topic: ListedTopic, partition: int, default: str) -> int:
    """Where a read begins; `default` counts where no option says anything, and earliest for logs that it leaves out."""
    if options.starting != Points() or options.starting_times != Points():
        default = "earliest"
    seqno = _find_point(catalog, options, options.starting, options.starting_times, topic, partition, default)
    if options.beyond == "error" and seqno == topic.ends[partition].committed:
        moment = options.starting_times.of(topic.name, partition)
        if moment is not None:
            reason = "no record is so new, and startingTimestampStrategy is error"
            raise RecordsLost(f"{topic.name}/{partition}", seqno, seqno + 1, reason, "start earlier")
    return seqno


def _find_point(
    catalog: LogCatalog,
    options: ReadOptions,
    seqnos: Points,
    times: Points,
    topic: ListedTopic,
    partition: int,
    default: str,
) -> int:
    moment = times.of(topic.name, partition)
    if moment is not None:
        # What was appended since the ends were looked up is none of this read's.
        seqno = catalog.seqno_at(topic, partition, moment, "skip" if options.skip_damage else "raise")
        return min(seqno, topic.ends[partition].committed)
    point: Any = seqnos.of(topic.name, partition)
    point = default if point is None else point
    ends = topic.ends[partition]
    if point == "earliest":
        return ends.first
    return ends.committed if point == "latest" else int(point)


def settle(span: RecordSpan, fail_on_loss: bool) -> RecordSpan:
    """The part that is there. Raises RecordsLost where that is not all of it, unless that is allowed."""
    first, committed, *_ = span.topic.ends[span.partition]
    start, end = span.seqno_from, span.seqno_until
    lost: tuple[int, int, str] | None = None
    if start < first and start < end:
        lost = start, min(first, end), f"the log begins with {first}"
    elif max(start, end) > committed:
        lost = committed, max(start, end), f"the log ends before {committed}"
    if lost is not None:
        error = RecordsLost(span.log, *lost, ADVICE)
        if fail_on_loss:
            raise error
        logger.warning("%s", error)
    start, end = max(start, first), min(end, committed)
    return RecordSpan(span.topic, span.partition, min(start, committed), max(min(start, committed), end))


def cut_spans(catalog: LogCatalog, options: ReadOptions, spans: Sequence[RecordSpan]) -> list[Split]:
    """All of it, in splits; those of different logs take turns."""
    pieces = [_cut(catalog, span, options.split_bytes) for span in spans]
    count, size = sum(map(len, pieces)), sum(piece.size for cut in pieces for piece in cut)
    if 0 < count < options.min_splits and size:
        pieces = [_cut(catalog, span, max(1, size // options.min_splits)) for span in spans]
    if 0 < sum(map(len, pieces)) < options.min_splits:  # one batch may hold much
        records = sum(span.seqno_until - span.seqno_from for span in spans) // options.min_splits
        pieces = [[part for piece in cut for part in _chop(piece, max(1, records))] for cut in pieces]
    if options.split_records is not None:
        pieces = [[part for piece in cut for part in _chop(piece, options.split_records)] for cut in pieces]
    splits = [_make_splits(catalog, span, cut) for span, cut in zip(spans, pieces, strict=True)]
    return [split for turn in zip_longest(*splits) for split in turn if split is not None]


def _make_splits(catalog: LogCatalog, span: RecordSpan, pieces: Sequence[SeqnoRange]) -> list[Split]:
    place = catalog.node_id, catalog.directory
    archived = _archived(catalog, span)
    return [
        Split(
            *(span.topic.name, span.topic.id, span.partition, *piece, *place),
            _part(archived, piece) if archived is not None and piece.seqno_until <= span.stored else None,
        )
        for piece in pieces
    ]


def _archived(catalog: LogCatalog, span: RecordSpan) -> ArchivedLogReader | None:
    return catalog.archived(span.topic, span.partition) if span.seqno_from < span.stored else None


def _part(archived: ArchivedLogReader, piece: SeqnoRange) -> ArchivedPart | None:
    """None where that cannot be told here: then the node is asked for the records."""
    with suppress(Damage):
        return archived.part(piece.seqno_from, piece.seqno_until)
    return None


def find_pieces(catalog: LogCatalog, span: RecordSpan, every_bytes: int) -> list[SeqnoRange]:
    """What there is of it; nothing where the topic has gone meanwhile: whoever reads it is told.

    None holds both records of the log and such as only the archive has.
    """
    pieces: list[SeqnoRange] = []
    archived, own = _archived(catalog, span), max(span.seqno_from, min(span.stored, span.seqno_until))
    if span.seqno_from < own:
        low = SeqnoRange(span.seqno_from, own, 0)
        pieces += [low] if archived is None else archived.cut(span.seqno_from, own, every_bytes)
    if own < span.seqno_until:
        with suppress(TopicDeleted, TopicNotFound, TopicRecreated):
            found = catalog.cut(span.topic, span.partition, own, span.seqno_until, every_bytes)
            if pieces and found:  # what was dropped since the ends were looked up is missing here
                found[0] = found[0]._replace(seqno_from=own)
            pieces += found
    return pieces


def _cut(catalog: LogCatalog, span: RecordSpan, every_bytes: int) -> list[SeqnoRange]:
    if span.seqno_from >= span.seqno_until:
        return []
    pieces = find_pieces(catalog, span, every_bytes)
    if not pieces:
        return [SeqnoRange(span.seqno_from, span.seqno_until, 0)]
    # What was dropped since the ends were looked up is missing here; whoever reads it notices, and knows what to do.
    first, last = pieces[0], pieces[-1]
    pieces[0] = first._replace(seqno_from=span.seqno_from)
    pieces[-1] = pieces[-1]._replace(seqno_until=max(span.seqno_until, last.seqno_until))
    return pieces


def _chop(piece: SeqnoRange, records: int) -> Iterator[SeqnoRange]:
    count = piece.seqno_until - piece.seqno_from
    parts = -(-count // records)
    for number in range(parts):
        low, high = (piece.seqno_from + count * edge // parts for edge in (number, number + 1))
        yield SeqnoRange(low, high, piece.size // parts)
