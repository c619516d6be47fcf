"""Makes archives as the pipeline does, without Spark: files, a manifest, and a result in the node's own log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from logboom.batch import Batch
from logboom.broker.api import PartitionInfo, ReadRequest, Start, TopicInfo
from logboom.broker.caller import EVERYBODY
from logboom.results.archive import FORMAT, MANIFEST, ArchivedFile, ArchiveManifest, decode_manifest, job_id, schema
from logboom.results.archive_file import ArchivePiece, write_file
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Covered, Ended, Event, Leased, PipelineState, Result
from logboom.results.places import ResultPlace
from support.brokers.any_broker import AnyBroker


async def archive(broker: AnyBroker, topic: str, place: Path) -> list[ArchivedFile]:
    """Every segment that is sealed and not archived yet; all files that count by now."""

    async def connect() -> AnyBroker:
        return broker

    ledger = PipelineLedger(connect, EVERYBODY)
    info = await broker.describe_topic(topic)
    home, job = ResultPlace(str(place)).below(job_id(topic)), job_id(topic)
    last = (await ledger.refresh()).result(job)
    files: list[ArchivedFile] = []
    if last is not None and last.manifest is not None and last.covers[topic].topic_id == info.id:
        files += decode_manifest(ResultPlace(last.place).read(last.manifest)).files
    for part in info.partitions:
        files += await _archive_log(broker, home, info, part, files)
    await _publish(ledger, home, info, files)
    return sorted(files, key=_position)


async def clip(broker: AnyBroker, topic: str, place: Path) -> None:
    """As after a trim: without files below the floor, and those that it runs through written anew; the others go."""

    async def connect() -> AnyBroker:
        return broker

    ledger = PipelineLedger(connect, EVERYBODY)
    info = await broker.describe_topic(topic)
    home = ResultPlace(str(place)).below(job_id(topic))
    last = (await ledger.refresh()).result(job_id(topic))
    assert last is not None
    assert last.manifest is not None
    files = decode_manifest(ResultPlace(last.place).read(last.manifest)).files
    floors = {part.partition: part.floor for part in info.partitions}
    kept = [file for file in files if file.seqno_from >= floors[file.partition]]
    for file in files:
        floor = floors[file.partition]
        if file.seqno_from < floor < file.seqno_until:
            table = pq.ParquetFile(place / job_id(topic) / file.path).read().slice(floor - file.seqno_from)
            terms = [(max(start, floor), term) for start, term in file.terms]
            piece = ArchivePiece(file.partition, floor, file.seqno_until, file.append_time, tuple(terms[-1:]))
            kept.append(write_file(home, info.id, piece, lambda table=table: iter(table.to_batches())))  # type: ignore[misc]
    await _publish(ledger, home, info, kept)
    for file in files:
        if file.seqno_from < floors[file.partition]:
            home.remove(file.path)


def _position(file: ArchivedFile) -> tuple[int, int]:
    return file.partition, file.seqno_from


async def _publish(ledger: PipelineLedger, home: ResultPlace, info: TopicInfo, files: list[ArchivedFile]) -> None:
    topic, job = info.name, job_id(info.name)
    files = sorted(files, key=_position)
    spans = {
        number: (min(file.seqno_from for file in its), max(file.seqno_until for file in its))
        for number in range(len(info.partitions))
        if (its := [file for file in files if file.partition == number])
    }
    run = uuid.uuid4().hex[:8]
    where = home.below(f"runs/{run}")
    stored = where.write(MANIFEST, msgspec.json.encode(ArchiveManifest(FORMAT, topic, info.id, tuple(files))))
    result = Result(run, where.uri, {topic: Covered(info.id, spans)}, stored)
    epoch = ledger.pipeline.jobs[job].epoch + 1 if job in ledger.pipeline.jobs else 1
    await ledger.put(_always(Leased(job, "archive", epoch, run, "test", 30_000, (topic,))))
    await ledger.put(_always(Ended(job, epoch, run, result)))


def _always(event: Event) -> Callable[[PipelineState], Event]:
    return lambda pipeline: event


async def _archive_log(
    broker: AnyBroker, home: ResultPlace, info: TopicInfo, part: PartitionInfo, known: list[ArchivedFile]
) -> list[ArchivedFile]:
    until = max((file.seqno_until for file in known if file.partition == part.partition), default=0)
    made = []
    for segment in await broker.segments(info.name, part.partition):
        low = max(segment.first_seqno, until, part.floor)
        if not segment.sealed or segment.next_seqno > part.committed or low >= segment.next_seqno:
            continue
        batches = await _read(broker, info, part.partition, low, segment.next_seqno)
        terms: list[tuple[int, int]] = []
        for batch in batches:
            if not terms or terms[-1][1] != batch.header.term:
                terms.append((max(low, batch.header.base_seqno), batch.header.term))
        piece = ArchivePiece(part.partition, low, segment.next_seqno, batches[-1].header.append_time, tuple(terms))
        made.append(write_file(home, info.id, piece, _Rows(info.name, piece, batches)))
    return made


async def _read(broker: AnyBroker, info: TopicInfo, partition: int, low: int, until: int) -> list[Batch]:
    batches: list[Batch] = []
    while low < until:
        chunk = await broker.read(ReadRequest(info.name, Start(seqno=low), partition, max_bytes=1 << 20))
        batches += [batch for batch in chunk.batches() if batch.header.base_seqno < until]
        low = chunk.next_seqno
    return batches


class _Rows:
    """The records of some batches, as often as they are wanted."""

    def __init__(self, topic: str, piece: ArchivePiece, batches: list[Batch]) -> None:
        self._topic = topic
        self._piece = piece
        self._batches = batches

    def __call__(self) -> Iterator[pa.RecordBatch]:
        piece, layout = self._piece, schema()
        for batch in self._batches:
            base = batch.header.base_seqno
            start, end = max(0, piece.seqno_from - base), min(len(batch), piece.seqno_until - base)
            rows = batch.to_arrow().slice(start, end - start)
            names = pa.array([self._topic] * rows.num_rows, layout.field(0).type)
            numbers = pa.array([piece.partition] * rows.num_rows, layout.field(1).type)
            yield pa.RecordBatch.from_arrays([names, numbers, *rows.columns], schema=layout)
