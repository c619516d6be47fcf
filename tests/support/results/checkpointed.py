"""Checkpoints made by hand, without Spark: layers of records, as a job would write and publish them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from logboom.batch import Record, build_records
from logboom.broker.caller import EVERYBODY
from logboom.results.checkpoint import (
    FORMAT,
    MANIFEST,
    By,
    CheckpointManifest,
    CheckpointMark,
    Layer,
    LayerFile,
    buckets_of,
    encode_manifest,
    job_id,
    write_file,
)
from logboom.results.pipeline_ledger import PipelineLedger
from logboom.results.pipeline_state import Covered, Ended, Leased, Result
from logboom.results.places import ResultPlace
from support.brokers.any_broker import AnyBroker

Records = Mapping[int, Sequence[Record]]
"""Of each partition."""


def write_layer(home: ResultPlace, run: str, records: Records, by: By = "key", buckets: int = 1) -> Layer:
    import pyarrow as pa

    files: list[LayerFile] = []
    for partition, some in records.items():
        table = pa.Table.from_batches([build_records(some).to_arrow()])
        at = table.column_names.index("seqno")
        table = table.set_column(at, table.schema.field(at), pa.array([record.seqno for record in some], pa.int64()))
        chosen = buckets_of(table.column(by), buckets)
        for bucket in np.unique(chosen).tolist():
            path = f"runs/{run}/{partition}-{bucket}-{uuid.uuid4().hex}.parquet"
            files.append(write_file(home, path, partition, bucket, table.filter(pa.array(chosen == bucket))))
    return Layer(buckets, tuple(files))


async def publish(
    broker: AnyBroker,
    root: Path,
    topic: str,
    layers: Sequence[Records],
    until: Mapping[int, int],
    by: By = "key",
    tag: str | None = None,
    buckets: Sequence[int] = (),
) -> Result:
    """A checkpoint that says it has all up to these seqnos, and has these records."""
    info, job, run = await broker.describe_topic(topic), job_id(topic, by, tag), uuid.uuid4().hex
    home = ResultPlace(str(root)).below(job)
    made = [
        write_layer(home, run, records, by, buckets[number] if buckets else 1) for number, records in enumerate(layers)
    ]
    marks = {partition: CheckpointMark(seqno) for partition, seqno in until.items()}
    manifest = CheckpointManifest(FORMAT, topic, info.id, by, tag, marks, tuple(made))
    place = home.below(f"runs/{run}")
    covers = {topic: Covered(info.id, {partition: (0, seqno) for partition, seqno in until.items()})}
    result = Result(run, place.uri, covers, place.write(MANIFEST, encode_manifest(manifest)), manifest.records)

    async def connect() -> AnyBroker:
        return broker

    ledger = PipelineLedger(connect, EVERYBODY)
    known = (await ledger.refresh()).jobs.get(job)
    epoch = 1 if known is None else known.epoch + 1
    await ledger.put(lambda pipeline: Leased(job, "checkpoint", epoch, run, "test", 1000, (topic,)))
    await ledger.put(lambda pipeline: Ended(job, epoch, run, result))
    return result
