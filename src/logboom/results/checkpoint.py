"""The checkpoint of a topic: the latest record of each key, or of each channel, of every log up to a seqno.

    checkpoint/<topic>/<by>/runs/<run>/<partition>-<bucket>-….parquet
    checkpoint/<topic>/<by>/runs/<run>/manifest.json

It is made of layers, the oldest first. A layer has the latest records of a stretch of each log, one for each key, in
as many files, by the hash of the key, as its size wants; what a later layer has of a key hides what those before have.
So a run adds what has changed, and writes all of it again only when that has become much. The first layer has no
tombstones. Within a file records are ordered by seqno; all of a layer are newer than all of the layer before.

What lies below the floor of its log is never given, wherever it still is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import msgspec

from logboom.batch.arrow import ORDER, schema
from logboom.batch.murmur import hash_column
from logboom.errors import CheckpointNotFound, ResultsUnreadable
from logboom.results.pipeline_state import PipelineState, Result
from logboom.results.places import ResultPlace
from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, Term

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

By = Literal["key", "channel"]
BYS: Final[tuple[By, ...]] = ("key", "channel")
MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
BUCKETS_MAX: Final = 1024
BUCKET_BYTES: Final = 128 << 20
"""Of records, in one file: what is held at once by whoever writes it."""
ROW_GROUP_BYTES: Final = 8 << 20
TABLE_ROWS: Final = 16_384
ADVICE: Final = (
    "Begin again with the newest, where newer ones were made meanwhile; else see that this place is reachable, "
    "and run the checkpoint job: it makes anew what is gone"
)


class LayerFile(msgspec.Struct, frozen=True):
    path: str
    """Below the directory of the job."""
    partition: int
    bucket: int
    records: int
    """Tombstones too."""
    size: int
    bytes: int
    """Of the records, in memory."""


class Layer(msgspec.Struct, frozen=True):
    buckets: int
    """A power of two: a file of each log has the keys of one of so many hashes."""
    files: tuple[LayerFile, ...]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    def meeting(self, partition: int, bucket: int, buckets: int) -> list[LayerFile]:
        """The files that may have keys of this bucket, of so many."""
        common = min(buckets, self.buckets)
        return [file for file in self.files if file.partition == partition and file.bucket % common == bucket % common]


class CheckpointMark(msgspec.Struct, frozen=True):
    """How far a log is in the state."""

    until: int
    term: int | None = None
    """Of the record before that, where somebody knew: what has another one there is not the same log any more."""
    lineage: int = 0
    """Of that term; 0 where nobody knew."""

    @property
    def before(self) -> Term:
        return Term(TERM_UNKNOWN if self.term is None else self.term, self.lineage)


class CheckpointManifest(msgspec.Struct, frozen=True):
    format: int
    topic: str
    topic_id: str
    by: By
    tag: str | None
    logs: dict[int, CheckpointMark]
    layers: tuple[Layer, ...]
    nameless: int = 0
    """Records without a key, or a channel, since the first layer began."""
    missed: int = 0
    """Records that were gone before any run has seen them."""

    @property
    def records(self) -> int:
        """In all files. Of a key that was written since, each layer may have one."""
        return sum(layer.records for layer in self.layers)

    @property
    def runs(self) -> list[str]:
        """The directories that its files are in."""
        return sorted({file.path.split("/")[1] for layer in self.layers for file in layer.files})


_decode: Final = msgspec.json.Decoder(CheckpointManifest).decode


def job_id(topic: str, by: By, tag: str | None = None) -> str:
    """
    >>> job_id("orders", "key"), job_id("orders", "key", "red/7")
    ('checkpoint/orders/key', 'checkpoint/orders/key/tag=red%2F7')
    """
    return f"checkpoint/{topic}/{by}" + ("" if tag is None else f"/tag={quote(tag, safe='')}")


def find_result(
    pipeline: PipelineState, topic: str, topic_id: str, by: By | None = None, tag: str | None = None
) -> Result:
    """The newest of this very topic; where `by` is None, whichever there is. Raises CheckpointNotFound."""
    found: dict[By, Result] = {}
    for kind in BYS if by is None else (by,):
        result = pipeline.result(job_id(topic, kind, tag))
        if result is not None and topic in result.covers and result.covers[topic].topic_id == topic_id:
            found[kind] = result
    if len(found) > 1:
        raise CheckpointNotFound(topic, "there is one by key and one by channel: say which")
    if not found:
        named = "" if by is None else f" by {by}"
        raise CheckpointNotFound(topic, f"none{named}{'' if tag is None else f' of tag {tag}'} was made of it yet")
    return next(iter(found.values()))


class Checkpoint:
    """A result, to be read. Everything here reads files: not for an event loop."""

    def __init__(self, home: ResultPlace, manifest: CheckpointManifest) -> None:
        self._home = home
        self.manifest = manifest

    @classmethod
    def open(cls, result: Result) -> Checkpoint:
        """Raises ResultsUnreadable."""
        if result.manifest is None:
            raise ResultsUnreadable(f"{result.place} is no checkpoint: it has no manifest")
        try:
            data = ResultPlace(result.place).read(result.manifest)
        except ResultsUnreadable as error:
            raise ResultsUnreadable(f"{error}. {ADVICE}") from None
        try:
            manifest = _decode(data)
        except msgspec.MsgspecError as error:
            raise ResultsUnreadable(f"{result.place}/{result.manifest.path} is no manifest: {error}") from None
        if manifest.format != FORMAT:
            raise ResultsUnreadable(f"{result.place} has format {manifest.format}, known is {FORMAT}: update Logboom")
        return cls(ResultPlace(result.place).above(2), manifest)

    def mark(self, partition: int) -> CheckpointMark:
        """Where the tail begins; at the first record of a log that was not there yet."""
        return self.manifest.logs.get(partition, CheckpointMark(0, 0))

    def bookmark(self, partition: int, floor: int = 0) -> str:
        """Of where the tail begins: what was trimmed since is no part of it."""
        mark = self.mark(partition)
        mark = mark if mark.until >= floor else CheckpointMark(floor)
        return str(Bookmark(bytes.fromhex(self.manifest.topic_id), partition, mark.until, *mark.before))

    def tables(self, partition: int, floor: int = 0, columns: Sequence[str] = ORDER) -> Iterator[pa.Table]:
        """The state of a log, without what is below its floor; each key once. Raises ResultsUnreadable."""
        import pyarrow as pa
        import pyarrow.compute as pc

        by, layers = self.manifest.by, self.manifest.layers
        read = tuple(dict.fromkeys((*columns, by, "seqno", "value")))
        for number, layer in enumerate(layers):
            later = layers[number + 1 :]
            hidden: tuple[list[LayerFile], pa.Array] = [], pa.array([], schema((by,)).field(0).type)
            own = [file for file in layer.files if file.partition == partition]
            # Those that are hidden by the same files follow each other.
            for file in sorted(own, key=lambda file: ([file.bucket % other.buckets for other in later], file.bucket)):
                above = [one for other in later for one in other.meeting(partition, file.bucket, layer.buckets)]
                if above != hidden[0]:
                    hidden = above, self._keys(above)
                for table in self._read(file, read):
                    shown = pc.and_(pc.greater_equal(table.column("seqno"), floor), pc.is_valid(table.column("value")))
                    if len(hidden[1]):
                        shown = pc.and_not(shown, pc.is_in(table.column(by), value_set=hidden[1]))
                    kept = table.filter(shown).select(list(columns))
                    if kept.num_rows:
                        yield kept

    def _keys(self, files: Sequence[LayerFile]) -> pa.Array:
        """Each once: what is in none of them twice need not be."""
        import pyarrow as pa

        name = self.manifest.by
        tables = [table for file in files for table in self._read(file, (name,))]
        return pa.concat_tables(tables).column(0).unique() if tables else pa.array([], schema((name,)).field(0).type)

    def _read(self, file: LayerFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from read_file(self._home, file, columns)


def is_gone(result: Result) -> bool:
    """Whether a file of it is not there any more. Raises ResultsUnreadable where one is not what was published."""
    place = ResultPlace(result.place)
    if result.manifest is not None and place.size(result.manifest.path) is None:
        return True
    layers = Checkpoint.open(result).manifest.layers
    return any(place.above(2).size(file.path) is None for layer in layers for file in layer.files)


def read_file(home: ResultPlace, file: LayerFile, columns: Sequence[str] = ORDER) -> Iterator[pa.Table]:
    """What a layer has in this file, verified. Raises ResultsUnreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with home.open(file.path) as stream:
            if stream.size() != file.size:
                raise OSError(f"{file.path} has {stream.size():,} bytes, published were {file.size:,}")
            parquet = pq.ParquetFile(stream, page_checksum_verification=True)
            for batch in parquet.iter_batches(TABLE_ROWS, columns=list(columns), use_threads=False):
                yield pa.Table.from_batches([batch]).select(list(columns))
    except (OSError, ResultsUnreadable, pa.ArrowException) as error:
        raise ResultsUnreadable(f"the checkpoint in {home.uri} cannot be read: {error}. {ADVICE}") from None


def write_file(home: ResultPlace, path: str, partition: int, bucket: int, table: pa.Table) -> LayerFile:
    """One of a layer: records of one log, ordered here."""
    import pyarrow.parquet as pq

    ordered = table.select(list(ORDER)).sort_by("seqno")
    rows = max(1, ordered.num_rows * ROW_GROUP_BYTES // max(1, ordered.nbytes))
    with home.writing(path) as stream:
        pq.write_table(
            ordered,
            stream,
            row_group_size=rows,
            compression="zstd",
            use_dictionary=False,
            write_statistics=["seqno", "timestamp"],
            write_page_checksum=True,
        )
    size = home.size(path)
    assert size is not None
    return LayerFile(path, partition, bucket, ordered.num_rows, size, ordered.nbytes)


def buckets_for(size: int) -> int:
    """Into how many files so many bytes of records go.

    >>> buckets_for(0), buckets_for(BUCKET_BYTES + 1), buckets_for(2**62)
    (1, 2, 1024)
    """
    return min(BUCKETS_MAX, 1 << max(0, -(-size // BUCKET_BYTES) - 1).bit_length())


def buckets_of(names: pa.ChunkedArray, buckets: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bucket of each key. The partitioner has used up the low bits of the same hash."""
    return (hash_column(names.combine_chunks()).astype("int64") >> 16) % buckets


def latest(table: pa.Table, by: By) -> pa.Table:
    """The record with the highest seqno of each key: of one log, all of them with a key."""
    import pyarrow.compute as pc

    best = table.select([by, "seqno"]).group_by(by, use_threads=False).aggregate([("seqno", "max")])
    if best.num_rows == table.num_rows:
        return table
    return table.filter(pc.is_in(table.column("seqno"), value_set=best.column("seqno_max").combine_chunks()))


def encode_manifest(manifest: CheckpointManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)
