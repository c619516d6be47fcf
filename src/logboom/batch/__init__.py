"""The batch format: build, check, read. The same bytes on disk and on the wire.

>>> batch = build([b"a", b"b"], keys=[b"k", None], tags=[["red"], []])
>>> batch.to_arrow(["key", "value"], where=Selection(tags_any=("red",))).to_pylist()
[{'key': b'k', 'value': b'a'}]
"""

from logboom.batch.arrow import schema
from logboom.batch.batch import Batch
from logboom.batch.builder import build, build_control, build_records, build_table
from logboom.batch.header import (
    BATCH_SIZE_DEFAULT,
    BATCH_SIZE_MAX,
    HEADER_SIZE,
    KIND_CONTROL,
    KIND_DATA,
    KIND_LOST,
    NO_TIMESTAMP,
    SYNCED_UNKNOWN,
    Header,
    Producer,
    read_header,
    stamp,
)
from logboom.batch.record import Record, microseconds
from logboom.batch.selection import Selection
from logboom.batch.tables import to_table

__all__ = [
    "BATCH_SIZE_DEFAULT",
    "BATCH_SIZE_MAX",
    "HEADER_SIZE",
    "KIND_CONTROL",
    "KIND_DATA",
    "KIND_LOST",
    "NO_TIMESTAMP",
    "SYNCED_UNKNOWN",
    "Batch",
    "Header",
    "Producer",
    "Record",
    "Selection",
    "build",
    "build_control",
    "build_records",
    "build_table",
    "microseconds",
    "read_header",
    "schema",
    "stamp",
    "to_table",
]
