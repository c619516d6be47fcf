"""The archive of a topic: sealed segments as Parquet, one file each, and the manifest that lists those that count.

    archive/<topic>/<topic id>/date=<day of its first record>/<partition>-<seqno from>-<seqno until>.parquet
    archive/<topic>/runs/<run>/manifest.json

A file holds the records of one segment from the log's floor on, by seqno; its name says which, so whoever writes it
writes the same. It gets its name when it is whole: the directory of a topic can be read as it is, and has no record
twice. A file that the manifest does not list was written by a run that came no further, or lies below the floor.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY: Final = 86_400_000_000


class ArchivedFile(msgspec.Struct, frozen=True):
    """A segment, or what was above the floor of one."""

    path: str
    """Below the directory of the job, `archive/<topic>`."""
    partition: int
    seqno_from: int
    seqno_until: int
    size: int
    crc: int
    """crc32c of its bytes."""
    time_from: int | None
    """The least and the greatest timestamp of its records, microseconds; of those that have none, the append time."""
    time_until: int | None
    append_time: int
    """Of its last record."""
    terms: tuple[tuple[int, int], ...]
    """Where each term begins: a seqno, and the term of the records from there on."""


class LostRecords(msgspec.Struct, frozen=True):
    """Records that a repair had marked as lost before they were archived."""

    partition: int
    seqno_from: int
    seqno_until: int


class ArchiveManifest(msgspec.Struct, frozen=True):
    """Everything that is archived of a topic. Of each partition the files, and what was lost, follow each other."""

    format: int
    topic: str
    topic_id: str
    files: tuple[ArchivedFile, ...]
    """By partition and seqno."""
    cut_off: tuple[ArchivedFile, ...] = ()
    """Older ones: between them and the others are records that were dropped before anybody archived them."""
    lost: tuple[LostRecords, ...] = ()
    """By partition and seqno."""


decode_manifest: Final = msgspec.json.Decoder(ArchiveManifest).decode


def job_id(topic: str) -> str:
    return f"archive/{topic}"


def path_of(topic_id: str, partition: int, seqno_from: int, seqno_until: int, first_time: int) -> str:
    """Below the directory of the job. `first_time` is that of the first record, microseconds; of times that
    no calendar has, the nearest day that it has."""
    day = date.fromordinal(min(max(1, _EPOCH + first_time // _DAY), date.max.toordinal()))
    return f"{topic_id}/date={day.isoformat()}/{partition}-{seqno_from:020d}-{seqno_until:020d}.parquet"


def schema() -> pa.Schema:
    """Of the files: what Spark's source gives. A record without a timestamp has its append time there."""
    import pyarrow as pa

    from logboom.batch import schema as record_schema

    return pa.schema([("topic", pa.string()), ("partition", pa.int32()), *record_schema()])
