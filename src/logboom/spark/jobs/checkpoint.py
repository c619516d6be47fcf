"""Makes the checkpoint of a topic: what has changed since the last one, as one more layer, or all of it anew.

    read, the latest of each key of a split → shuffled by log and hash of the key → the latest of each key, written

Records stay in Arrow all the way: what Spark moves are pieces of tables, one for each bucket, and it spills them by
itself. A task that reads holds the keys of its split, one that writes the keys of its bucket. It writes its file under
a name of its own, and the manifest lists the files of those tasks that Spark has taken the answer of.

Goes on from the last result where that is of the same logs: not of a topic that was made again since, and not of a log
that has lost records which are in it. Where that is in another directory, all of it is written anew. And where its
files are gone: a node that was restored from an older copy knows a result which later ones have swept away.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec.msgpack import Decoder

from logboom.batch import Selection
from logboom.batch.arrow import ORDER
from logboom.client.catalog import ListedTopic
from logboom.client.catalog import LogPoint as Point
from logboom.client.link.calls import Calls
from logboom.client.node_catalog import PATIENCE_S, NodeCatalog
from logboom.client.values import DescribeTopic, TopicInfo, check_name
from logboom.errors import ConfigError, InvalidTopicName, ResultsUnreadable, TopicNotFound
from logboom.results.checkpoint import (
    BYS,
    FORMAT,
    MANIFEST,
    By,
    Checkpoint,
    CheckpointManifest,
    CheckpointMark,
    Layer,
    LayerFile,
    buckets_for,
    buckets_of,
    encode_manifest,
    is_gone,
    job_id,
    latest,
    read_file,
    write_file,
)
from logboom.results.pipeline_state import Covered
from logboom.results.places import ResultPlace
from logboom.spark.jobs.job_run import RUNS, JobOutcome, JobRun, logger
from logboom.spark.jobs.tasks import watching
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.planner import RecordSpan, Split, cut_spans, settle
from logboom.spark.read.split_read import ScanSpec, read_split

if TYPE_CHECKING:
    import pyarrow as pa

    Batches = Iterator[pa.RecordBatch]

LAYERS_MAX: Final = 8
GROWTH: Final = 2
"""All is written anew when the later layers together have more than one part in so many of what the first has."""
PIECE_BYTES: Final = 4 << 20
HELD_BYTES: Final = 32 << 20
"""Of records that may be of the same keys, before that is looked at."""
GONE: Final = "files of the last one are gone"
_PIECES: Final = "place INT, piece BINARY, nameless BIGINT"
_ANSWERS: Final = "answer BINARY, nameless BIGINT"
_files: Final = msgspec.json.Decoder(LayerFile)


class CheckpointWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The latest record of each key, or channel, of every log of a topic."""

    topic: str
    """Of which to keep the state."""
    by: By = "key"
    """What a record is the latest of: its key, or its channel. A record whose value is null removes it."""
    tag: str | None = None
    """Look at records with this tag only, as if there were no others."""

    kind: ClassVar[str] = "checkpoint"

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic,)

    @property
    def id(self) -> str:
        return job_id(self.topic, self.by, self.tag)

    def check(self) -> None:
        """Raises ConfigError."""
        try:
            check_name(self.topic)
        except InvalidTopicName as error:
            raise ConfigError("topic", str(error)) from None
        if self.by not in BYS:
            raise ConfigError("by", f"is {self.by!r}, allowed are {' and '.join(BYS)}")
        if self.tag is not None and len(self.id.rpartition("/")[2]) > 255:
            raise ConfigError("tag", "is too long to be the name of a directory")

    def do(self, run: JobRun) -> JobOutcome:
        return _Making(self, run).make()


class _Making:
    """One run."""

    def __init__(self, work: CheckpointWork, run: JobRun) -> None:
        self._work = work
        self._run = run
        self._catalog = NodeCatalog(run.servers)

    def make(self) -> JobOutcome:
        try:
            return self._make()
        finally:
            self._catalog.close()

    def _make(self) -> JobOutcome:
        topic, floors = self._look()
        before, anew = self._find_last(topic)
        spans, missed = self._find_spans(topic, floors, before)
        if anew == GONE and missed:
            self._check_seen()
        count = sum(span.seqno_until - span.seqno_from for span in spans)
        old_home = self._run.home if self._run.last is None else ResultPlace(self._run.last.place).above(2)
        moved = before is not None and old_home.uri != self._run.home.uri
        if before is not None and not count and len(before.logs) == len(spans) and not moved:
            return JobOutcome(summary={"read": 0, "records": before.records, "layers": len(before.layers)})
        whole = before is None or moved or _is_due(before, count)
        layer, nameless = self._write_layer(spans, before, whole, floors, old_home)
        self._run.check()
        layers = (layer,) if before is None or whole else (*before.layers, layer)
        manifest = CheckpointManifest(
            FORMAT,
            self._work.topic,
            topic.id,
            self._work.by,
            self._work.tag,
            self._marks(spans),
            tuple(layer for layer in layers if layer.files),
            nameless + (0 if before is None else before.nameless),
            missed + (0 if before is None else before.missed),
        )
        return self._publish(manifest, topic, spans, {"read": count, "written": layer.records, "anew": anew})

    def _look(self) -> tuple[ListedTopic, dict[int, int]]:
        """The topic as it is now, and the floors of its logs."""
        name = self._work.topic
        found = self._catalog.find([name])
        if not found:
            raise TopicNotFound(name, ", ".join(self._catalog.servers))
        calls = Calls(self._catalog.servers)
        try:
            told = calls.ask(DescribeTopic(name, False), Decoder(TopicInfo), PATIENCE_S)
        finally:
            calls.close()
        return found[0], {log.partition: log.floor for log in told.partitions}

    def _find_last(self, topic: ListedTopic) -> tuple[CheckpointManifest | None, str]:
        """The state to go on from; else why there is none."""
        last = self._run.last
        if last is None:
            return None, "the first one"
        if last.covers[topic.name].topic_id != topic.id:
            return None, "the topic was made again"
        if is_gone(last):
            logger.warning("%s: %s, in %s: all of it is made anew", self._work.id, GONE, last.place)
            return None, GONE
        manifest = Checkpoint.open(last).manifest
        for partition, mark in manifest.logs.items():
            if topic.ends[partition].committed < mark.until:
                return None, "a log has lost its tail"
        points = [Point(topic, partition, mark.until) for partition, mark in manifest.logs.items()]
        for mark, term in zip(manifest.logs.values(), self._catalog.terms_before(points), strict=True):
            if term is not None and term.differs(mark.before):
                return None, "a log has lost its tail"
        return manifest, ""

    def _check_seen(self) -> None:
        """What only the lost files had is given up where others are seen beside them, or in another directory. Else
        raises ResultsUnreadable."""
        last = self._run.last
        assert last is not None
        runs = ResultPlace(last.place).above(1)
        if runs.uri == self._run.home.below(RUNS).uri and not runs.list():
            advice = "put it back; or, if all of it is lost, name another directory, to begin anew there"
            raise ResultsUnreadable(f"{runs.uri} has nothing of the checkpoint. Is a volume not mounted? Else {advice}")

    def _find_spans(
        self, topic: ListedTopic, floors: dict[int, int], before: CheckpointManifest | None
    ) -> tuple[list[RecordSpan], int]:
        """What is new in each log; and how much of it nobody has any more."""
        spans, missed = [], 0
        for partition, ends in enumerate(topic.ends):
            known = CheckpointMark(0) if before is None else before.logs.get(partition, CheckpointMark(0))
            start = min(max(known.until, floors.get(partition, 0)), ends.committed)
            span = settle(RecordSpan(topic, partition, start, ends.committed), fail_on_loss=False)
            spans.append(span)
            missed += span.seqno_from - start
        return spans, missed

    def _write_layer(
        self,
        spans: list[RecordSpan],
        before: CheckpointManifest | None,
        whole: bool,
        floors: dict[int, int],
        old_home: ResultPlace,
    ) -> tuple[Layer, int]:
        """With all that was before, or only what is new. And how many new records have no key."""
        work, run = self._work, self._run
        options = ReadOptions(servers=self._catalog.servers, topics=(work.topic,))
        splits = cut_spans(self._catalog, options, spans)
        below = before.layers if before is not None and whole else ()
        sizes = dict.fromkeys((split.partition for split in splits), 0)
        for split in splits:
            sizes[split.partition] += split.size
        for file in (file for layer in below for file in layer.files):
            sizes[file.partition] = sizes.get(file.partition, 0) + file.bytes
        if not sizes:
            return Layer(1, ()), 0
        cells = _Cells(buckets_for(max(sizes.values())), tuple(sorted(sizes)))
        job = ScanSpec(ORDER, Selection(tags_all=() if work.tag is None else (work.tag,)), self._catalog.servers)
        read = _Read(cells, work.by, tuple(splits), job)
        name = f"{RUNS}/{run.place.uri.rpartition('/')[2]}"
        write = _Write(cells, work.by, run.home.uri, name, below, old_home.uri, floors if whole else None)
        pieces, run.progress.doing = len(splits) + bool(below), "reading and writing"
        run.progress.total = pieces + cells.count
        spark = run.spark()
        frame = spark.range(0, pieces, 1, pieces).mapInArrow(read, _PIECES)
        frame = frame.repartitionById(cells.count, "place").mapInArrow(write, _ANSWERS)
        with watching(spark, lambda done: setattr(run.progress, "done", done)):
            answers = frame.collect()
        found = sorted((_files.decode(row.answer) for row in answers if row.answer), key=lambda file: file.path)
        self._remove_others(found)
        return Layer(cells.buckets, tuple(found)), sum(row.nameless for row in answers)

    def _remove_others(self, files: list[LayerFile]) -> None:
        """What tasks have written that Spark has run twice. What one of them writes yet goes with the directory."""
        listed = {file.path.rpartition("/")[2] for file in files}
        for name in self._run.place.list():
            if name not in listed:
                self._run.place.remove(name)

    def _marks(self, spans: list[RecordSpan]) -> dict[int, CheckpointMark]:
        points = [Point(span.topic, span.partition, span.seqno_until) for span in spans]
        terms = self._catalog.terms_before(points)
        return {
            span.partition: CheckpointMark(span.seqno_until, *(term or (None,)))
            for span, term in zip(spans, terms, strict=True)
        }

    def _publish(
        self, manifest: CheckpointManifest, topic: ListedTopic, spans: list[RecordSpan], summary: dict[str, Any]
    ) -> JobOutcome:
        last = self._run.last
        begun = {} if last is None or summary["anew"] else last.covers[topic.name].spans
        covered = {
            span.partition: (begun.get(span.partition, (span.seqno_from, 0))[0], span.seqno_until) for span in spans
        }
        size = sum(file.size for layer in manifest.layers for file in layer.files)
        facts = {"by": manifest.by, "nameless": manifest.nameless, "missed": manifest.missed}
        shown = {"records": manifest.records, "layers": len(manifest.layers), "bytes": size, **facts}
        return JobOutcome(
            covers={topic.name: Covered(topic.id, covered)},
            manifest=self._run.place.write(MANIFEST, encode_manifest(manifest)),
            records=manifest.records,
            bytes=size,
            facts={**facts, "tag": manifest.tag, "runs": manifest.runs},
            summary={**{name: value for name, value in summary.items() if value != ""}, **shown},
        )


def _is_due(before: CheckpointManifest, count: int) -> bool:
    """Whether so many more records are reason to write all of it anew."""
    first, *later = before.layers or (Layer(1, ()),)
    grown = sum(layer.records for layer in later)
    return len(later) + 1 >= LAYERS_MAX or grown * GROWTH > first.records or count > first.records


@dataclass(frozen=True)
class _Cells:
    """Which task writes which bucket of which log."""

    buckets: int
    partitions: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.buckets * len(self.partitions)

    def first(self, partition: int) -> int:
        return self.partitions.index(partition) * self.buckets

    def cell(self, place: int) -> tuple[int, int]:
        return self.partitions[place // self.buckets], place % self.buckets


class _Latest:
    """The latest of each key of what was added. Holds little more than that."""

    def __init__(self, by: By) -> None:
        self._by = by
        self._tables: list[pa.Table] = []
        self._size = 0
        self._limit = HELD_BYTES

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._tables.append(table)
            self._size += table.nbytes
        if self._size > self._limit:
            self.take()
            self._limit = max(HELD_BYTES, 2 * self._size)

    def take(self) -> pa.Table | None:
        import pyarrow as pa

        if self._tables:
            table = latest(pa.concat_tables(self._tables), self._by)
            self._tables, self._size = [table], table.nbytes
        return self._tables[0] if self._tables else None


@dataclass(frozen=True)
class _Read:
    """Of each split the latest of each key, in pieces for those who write. The number behind the last split is for who
    writes although nothing is new."""

    cells: _Cells
    by: By
    splits: tuple[Split, ...]
    job: ScanSpec

    def __call__(self, numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                if number < len(self.splits):
                    yield from self._read(self.splits[number])
                else:
                    count = self.cells.count
                    yield _row_batch(list(range(count)), [b""] * count, [0] * count)

    def _read(self, split: Split) -> Batches:
        import pyarrow as pa
        import pyarrow.compute as pc

        held, nameless = _Latest(self.by), 0
        for batch in read_split(split, self.job):
            named = pc.is_valid(batch.column(self.by))
            kept = batch.filter(named) if named.false_count else batch
            nameless += batch.num_rows - kept.num_rows
            held.add(pa.Table.from_batches([kept]))
        first = self.cells.first(split.partition)
        yield _row_batch([first], [b""], [nameless])
        table = held.take()
        for bucket, part in () if table is None else self._cut(table):
            rows = max(1, part.num_rows * PIECE_BYTES // max(1, part.nbytes))
            for start in range(0, part.num_rows, rows):
                yield _row_batch([first + bucket], [_packed(part.slice(start, rows))], [0])

    def _cut(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        import numpy as np

        if self.cells.buckets == 1:
            yield 0, table
            return
        buckets = buckets_of(table.column(self.by), self.cells.buckets)
        sorted_table = table.take(np.argsort(buckets, kind="stable"))
        ends = np.cumsum(np.bincount(buckets, minlength=self.cells.buckets)).tolist()
        for bucket, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                yield bucket, sorted_table.slice(start, end - start)


@dataclass(frozen=True)
class _Write:
    """Of each bucket the latest of each key, as a file; with all that is in the layers below, where there are any."""

    cells: _Cells
    by: By
    home: str
    run: str
    """The directory of the run, below that of the job."""
    below: tuple[Layer, ...]
    below_home: str
    """The directory of the job when those were written."""
    floors: dict[int, int] | None
    """Where all is written anew: what lies below, and tombstones, are left out."""

    def __call__(self, batches: Batches) -> Batches:
        import pyarrow as pa

        held: dict[int, _Latest] = {}
        nameless = 0
        for batch in batches:
            for place, piece, count in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                nameless += count
                latest_ones = held.setdefault(place, _Latest(self.by))
                if piece:
                    latest_ones.add(pa.ipc.open_stream(piece).read_all())
        answers = [self._write(*self.cells.cell(place), held.pop(place)) for place in sorted(held)]
        columns = [pa.array([b"", *answers], pa.binary()), pa.array([nameless, *[0] * len(answers)], pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, ["answer", "nameless"])

    def _write(self, partition: int, bucket: int, held: _Latest) -> bytes:
        import pyarrow.compute as pc

        home, below_home = ResultPlace(self.home), ResultPlace(self.below_home)
        for layer in self.below:
            for file in layer.meeting(partition, bucket, self.cells.buckets):
                for table in read_file(below_home, file):
                    if layer.buckets < self.cells.buckets:
                        table = table.filter(buckets_of(table.column(self.by), self.cells.buckets) == bucket)
                    held.add(table)
        found = held.take()
        if found is not None and self.floors is not None:
            lasting = pc.greater_equal(found.column("seqno"), self.floors.get(partition, 0))
            found = found.filter(pc.and_(lasting, pc.is_valid(found.column("value"))))
        if found is None or not found.num_rows:
            return b""
        path = f"{self.run}/{partition}-{bucket:04d}-{uuid.uuid4().hex}.parquet"
        return msgspec.json.encode(write_file(home, path, partition, bucket, found))


def _row_batch(places: list[int], pieces: list[bytes], nameless: list[int]) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [pa.array(places, pa.int32()), pa.array(pieces, pa.binary()), pa.array(nameless, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, ["place", "piece", "nameless"])


def _packed(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())
