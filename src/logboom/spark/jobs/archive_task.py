"""What an executor does for the archive: it reads a span of a log, or an archived file, and writes a new file of it.

A file is read back and compared with what was meant before it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from logboom.batch.tables import LOST
from logboom.errors import Damage, LogboomError, RecordsLost, SeqnoOutOfRange
from logboom.results.archive import ArchivedFile, LostRecords, schema
from logboom.results.archive_file import ArchivePiece, write_file
from logboom.results.pipeline_state import ResultFile
from logboom.results.places import ResultPlace
from logboom.spark.read.planner import Split
from logboom.spark.read.split_read import ScanSpec, read_split

if TYPE_CHECKING:
    import pyarrow as pa


class ArchiveOrder(msgspec.Struct, frozen=True):
    """A file to write: of the log, or of a file that has more."""

    piece: ArchivePiece
    size: int
    """About how many bytes it is read from."""
    old: ArchivedFile | None = None


class ArchiveTask(msgspec.Struct, frozen=True):
    """What is the same for all files of a run."""

    home: str
    topic: str
    topic_id: str
    node_id: str
    directory: str | None
    servers: tuple[str, ...]
    codec: str
    level: int


class ArchiveAnswer(msgspec.Struct, frozen=True):
    files: list[ArchivedFile]
    lost: list[LostRecords]
    gone: str | None = None
    """Why some of it is not there: retention or a trim was sooner."""
    error: str | None = None


_decode_orders: Final = msgspec.json.Decoder(list[ArchiveOrder]).decode
decode_answer: Final = msgspec.json.Decoder(ArchiveAnswer).decode


def write_archive(task: ArchiveTask, orders: bytes) -> bytes:
    """What an executor does."""
    import pyarrow as pa

    home = ResultPlace(task.home)
    files: list[ArchivedFile] = []
    lost: list[LostRecords] = []
    gone = None
    for order in _decode_orders(orders):
        piece = order.piece
        records = partial(_read_log, task, order) if order.old is None else partial(_read_file, home, order)
        try:
            files.append(write_file(home, task.topic_id, piece, records, task.codec, task.level))
        except (RecordsLost, SeqnoOutOfRange) as error:
            gone = str(error)
        except (LogboomError, OSError, pa.ArrowException) as error:
            if isinstance(error, Damage) and error.reason == LOST and error.seqno_until is not None:
                lost.append(LostRecords(piece.partition, error.seqno_from, error.seqno_until))
                continue
            log = f"{task.topic}/{piece.partition} from seqno {piece.seqno_from} to {piece.seqno_until - 1}"
            return msgspec.json.encode(ArchiveAnswer(files, lost, gone, f"{log}: {error}"))
    return msgspec.json.encode(ArchiveAnswer(files, lost, gone))


def _read_log(task: ArchiveTask, order: ArchiveOrder) -> Iterator[pa.RecordBatch]:
    piece = order.piece
    span = piece.partition, piece.seqno_from, piece.seqno_until
    split = Split(task.topic, task.topic_id, *span, order.size, task.node_id, task.directory)
    return read_split(split, ScanSpec(servers=task.servers, schema=schema()))


def _read_file(home: ResultPlace, order: ArchiveOrder) -> Iterator[pa.RecordBatch]:
    """The records of an archived file from a seqno on."""
    import pyarrow as pa
    from pyarrow import parquet

    assert order.old is not None
    data = home.read(ResultFile(order.old.path, order.old.size, order.old.crc))
    seqno = order.old.seqno_from
    for batch in parquet.ParquetFile(pa.BufferReader(data)).iter_batches():
        yield batch.slice(min(batch.num_rows, max(0, order.piece.seqno_from - seqno)))
        seqno += batch.num_rows
