"""Writes one file of an archive: records go in by seqno, and are compared with what can be read back.

Whoever writes the same records with the same settings writes the same bytes: row groups are cut by what the records
hold, never by how they came. So it does no harm where one who was thought to be gone writes a file again that others
count on. A file that is there already is compared, and stays if it holds the records.

The records are read twice, once to write and once to compare, and never held all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import crc32c
import msgspec

from logboom.errors import PipelineError
from logboom.results.archive import ArchivedFile, path_of, schema
from logboom.results.places import ResultPlace

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Records = Callable[[], Iterator[pa.RecordBatch]]
    """From the first one on, whenever it is called."""
    Sizes = np.ndarray[Any, np.dtype[np.int64]]

CODECS: Final = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (1, 11), "snappy": None, "lz4": None, "none": None}
"""Each with its levels."""
GROUP_BYTES: Final = 32 * 1024 * 1024
"""Of keys, values and labels; a row group ends with the record that reaches it."""
GROUP_ROWS: Final = 256 * 1024
READ_BYTES: Final = 8 * 1024 * 1024
_DICTIONARIES: Final = ["topic", "partition", "key", "channel", "tags.list.element", "headers.list.element.key"]
_STEPS: Final = {"seqno": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
_STATISTICS: Final = ["topic", "partition", "seqno", "timestamp", "key", "channel"]


class ArchivePiece(msgspec.Struct, frozen=True):
    """Records of one log that become a file."""

    partition: int
    seqno_from: int
    seqno_until: int
    append_time: int
    terms: tuple[tuple[int, int], ...]


def write_file(
    home: ResultPlace, topic_id: str, piece: ArchivePiece, records: Records, codec: str = "zstd", level: int | None = 3
) -> ArchivedFile:
    """The file of these records, below the directory of the job. Raises PipelineError where it cannot be relied on."""
    groups = _cut_groups(records(), piece)
    first = next(groups)
    path = path_of(topic_id, piece.partition, piece.seqno_from, piece.seqno_until, _moments(first)[0].as_py())
    times = None if home.size(path) is None else _compare(home, path, _cut_groups(records(), piece))
    if times is None:
        _write(home, path, first, groups, codec, level)
        times = _compare(home, path, _cut_groups(records(), piece))
        if times is None:
            raise PipelineError(f"{home.uri}/{path} does not hold what was written to it")
    size, crc = _checksum(home, path)
    span = piece.partition, piece.seqno_from, piece.seqno_until
    return ArchivedFile(path, *span, size, crc, *times, piece.append_time, piece.terms)


def _write(
    home: ResultPlace, path: str, first: pa.Table, rest: Iterator[pa.Table], codec: str, level: int | None
) -> None:
    from pyarrow import parquet

    layout = schema()
    with (
        home.writing(path) as stream,
        parquet.ParquetWriter(
            stream,
            layout,
            compression=codec,
            compression_level=level if CODECS[codec] else None,
            use_dictionary=_DICTIONARIES,
            column_encoding=_STEPS,
            write_statistics=_STATISTICS,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[parquet.SortingColumn(layout.get_field_index("seqno"))],
        ) as writer,
    ):
        writer.write_table(first, first.num_rows)
        for group in rest:
            writer.write_table(group, group.num_rows)


def _compare(home: ResultPlace, path: str, groups: Iterator[pa.Table]) -> tuple[int, int] | None:
    """The least and the greatest timestamp, if the file holds exactly these records."""
    from pyarrow import compute

    least, greatest = 2**63 - 1, -(2**63)
    for group, stored in zip_longest(groups, _read_groups(home, path)):
        if group is None or stored is None or not stored.equals(group):
            return None
        found = compute.min_max(_moments(group)).as_py()
        least, greatest = min(least, found["min"]), max(greatest, found["max"])
    return least, greatest


def _read_groups(home: ResultPlace, path: str) -> Iterator[pa.Table]:
    """As many as can be read."""
    import pyarrow as pa
    from pyarrow import parquet

    with home.open(path) as stream, suppress(pa.ArrowException, OSError):
        file = parquet.ParquetFile(stream)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number)


def _moments(table: pa.Table) -> pa.ChunkedArray:
    import pyarrow as pa

    return table.column("timestamp").cast(pa.int64())


def _checksum(home: ResultPlace, path: str) -> tuple[int, int]:
    size = crc = 0
    with home.open(path) as stream:
        while data := stream.read(READ_BYTES):
            size, crc = size + len(data), crc32c.crc32c(data, crc)
    return size, crc


def _cut_groups(batches: Iterator[pa.RecordBatch], piece: ArchivePiece) -> Iterator[pa.Table]:
    """The records in row groups, each in one piece of memory. Raises PipelineError where not all come, or others."""
    import numpy as np
    import pyarrow as pa

    layout, seqno = schema(), piece.seqno_from
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        last = seqno + batch.num_rows - 1
        if (batch.column("seqno")[0].as_py(), batch.column("seqno")[-1].as_py()) != (seqno, last):
            raise PipelineError(f"partition {piece.partition} does not go on with seqno {seqno}")
        seqno = last + 1
        sizes = np.cumsum(_sizes(batch))
        start = before = 0
        while True:
            full = int(np.searchsorted(sizes, before + GROUP_BYTES - size)) + 1
            end = min(full, start + GROUP_ROWS - rows)
            if end > batch.num_rows:
                break
            yield pa.Table.from_batches([*waiting, batch.slice(start, end - start)], layout).combine_chunks()
            start, before, waiting, rows, size = end, int(sizes[end - 1]), [], 0, 0
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            rows, size = rows + batch.num_rows - start, size + int(sizes[-1]) - before
    if waiting:
        yield pa.Table.from_batches(waiting, layout).combine_chunks()
    if seqno != piece.seqno_until:
        raise PipelineError(f"partition {piece.partition} ends before seqno {seqno}, not {piece.seqno_until}")


def _sizes(batch: pa.RecordBatch) -> Sizes:
    """How many bytes of its own each record holds."""
    import numpy as np

    total = np.zeros(batch.num_rows, np.int64)
    for name in ("key", "value", "channel"):
        total += _lengths(batch.column(name))
    for name in ("tags", "headers"):
        lists = batch.column(name)
        items = lists.flatten()
        if not len(items):
            continue
        parts = [items] if name == "tags" else items.flatten()
        lengths = sum((_lengths(part) for part in parts), np.zeros(len(items), np.int64))
        before = np.concatenate(([0], np.cumsum(lengths)))
        offsets = lists.offsets.to_numpy()
        total += np.diff(before[offsets - offsets[0]])
    return total


def _lengths(texts: pa.Array) -> Sizes:
    import numpy as np
    from pyarrow import compute

    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64)
    found: Sizes = compute.fill_null(compute.binary_length(texts), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found
