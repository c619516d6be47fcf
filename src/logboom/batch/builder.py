"""Batches from what the caller has: values, records, Arrow tables, pandas frames.

One builder. It takes the cheap path by size: a batch of one record never enters Arrow, a batch of ten
thousand is never looped over. What it returns is sound by construction and needs no validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from crc32c import crc32c

from logboom.batch import codec as codecs
from logboom.batch import columns as c
from logboom.batch import encode, vector
from logboom.batch.batch import Batch
from logboom.batch.header import (
    BATCH_SIZE_MAX,
    ENCODING_COLUMNS,
    HEADER_SIZE,
    KIND_CONTROL,
    KIND_DATA,
    NO_TIMESTAMP,
    SEQUENCE_MODULUS,
    Buffer,
    Producer,
    pack_signed,
    pack_unstamped,
)
from logboom.batch.record import Record
from logboom.batch.validation import EMPTY_BODY_RECORDS_MAX
from logboom.errors import BatchTooLarge, InvalidColumn

NOBODY = Producer()
LARGE_BYTES: Final = 32 * 1024
"""What the C library would give back to the system as often as not."""


def build(
    values: Any,
    *,
    keys: Any = None,
    timestamps: Any = None,
    channels: Any = None,
    tags: Any = None,
    headers: Any = None,
    codec: str = "none",
    producer: Producer = NOBODY,
) -> Batch:
    """A batch from columns: lists, any other iterables, Arrow or NumPy arrays, pandas series.

    `values` and `keys` hold bytes, or text that becomes UTF-8; None is a tombstone, or no key.
    `timestamps` are microseconds since 1970 or datetimes, `channels` text; both may be one for all records.
    `tags` holds a list of text per record, `headers` a list of (name, bytes) per record.

    >>> build([b"on", b"off"], channels="hall/lamp").header.record_count
    2
    """
    values = _column("values", values)
    count = len(values)
    if not count:
        raise InvalidColumn("values", "a batch needs at least one record")
    if count == 1 and channels is None and tags is None and headers is None:
        single = _build_single(values, keys, timestamps, codec, producer)
        if single is not None:
            return single
    if isinstance(channels, str):
        channels = [channels] * count
    if timestamps is not None and not isinstance(timestamps, (int, datetime)):
        timestamps = _column("timestamps", timestamps)
    pieces, low, high = encode.timestamps(timestamps, count)
    present = c.TIMESTAMP if pieces else 0
    for bit, name, entries in (
        (c.KEY, "keys", keys),
        (c.VALUE, "values", values),
        (c.CHANNEL, "channels", channels),
        (c.TAGS, "tags", tags),
        (c.HEADERS, "headers", headers),
    ):
        if entries is None:
            continue
        column = _encode(bit, name, _column(name, entries), count)
        if column:
            present |= bit
            pieces += column
    if not present and count > EMPTY_BODY_RECORDS_MAX:
        raise InvalidColumn("values", f"more than {EMPTY_BODY_RECORDS_MAX} records with nothing in them")
    return _assemble(KIND_DATA, ENCODING_COLUMNS, count, present, pieces, low, high, codec, producer)


def build_records(records: Iterable[Record], *, codec: str = "none", producer: Producer = NOBODY) -> Batch:
    """A batch from records with any mix of columns. Their seqnos, if any, are not kept: the log gives new ones.

    >>> build_records([Record(b"1", key=b"a"), Record(None, key=b"b")]).values()
    [b'1', None]
    """
    rows = records if isinstance(records, Sequence) else list(records)
    strangers = {type(row).__name__ for row in rows if not isinstance(row, Record)}
    if strangers:
        raise InvalidColumn("records", f"{', '.join(sorted(strangers))} is not a Record")
    return build(
        [row.value for row in rows],
        keys=[row.key for row in rows],
        timestamps=[row.timestamp for row in rows],
        channels=[row.channel for row in rows],
        tags=[row.tags for row in rows],
        headers=[row.headers for row in rows],
        codec=codec,
        producer=producer,
    )


def build_table(table: Any, *, codec: str = "none", producer: Producer = NOBODY) -> Batch:
    """A batch from an Arrow table or record batch, or a pandas frame, with columns named as in `Record`.

    `value` or `key` must be there; `seqno`, `topic` and `partition` are left out: what was read may be written again.
    """
    return build(**table_columns(table), codec=codec, producer=producer)


def table_columns(table: Any) -> dict[str, Any]:
    """The columns of such a table, as `build` takes them."""
    import pyarrow as pa

    if isinstance(table, pa.Table | pa.RecordBatch):
        names, count, column_of = table.schema.names, table.num_rows, table.column
    elif hasattr(table, "columns"):
        names, count, column_of = [str(name) for name in table.columns], len(table), table.__getitem__
    else:
        raise InvalidColumn("table", f"{type(table).__name__} is neither an Arrow table nor a pandas frame")
    unknown = set(names) - set(c.NAMES.values()) - {"seqno", "topic", "partition"}
    if unknown:
        raise InvalidColumn(", ".join(sorted(unknown)), f"unknown; a record has {', '.join(c.NAMES.values())}")
    if len(set(names)) < len(names):
        raise InvalidColumn("table", "two columns have the same name")
    if "value" not in names and "key" not in names:
        raise InvalidColumn("value", "the table has neither a value nor a key column")
    column = {name: column_of(name) for name in c.NAMES.values() if name in names}
    return {
        "values": column["value"] if "value" in column else pa.nulls(count, pa.binary()),
        "keys": column.get("key"),
        "timestamps": column.get("timestamp"),
        "channels": column.get("channel"),
        "tags": column.get("tags"),
        "headers": column.get("headers"),
    }


def build_control(body: msgspec.Struct, kind: int = KIND_CONTROL, record_count: int = 0) -> Batch:
    """A batch with a typed msgpack body instead of records: written by the log itself, refused from clients."""
    packed = msgspec.msgpack.encode(body)
    return _assemble(kind, 0, record_count, 0, [packed], NO_TIMESTAMP, NO_TIMESTAMP, "none", NOBODY)


def _column(name: str, entries: Any) -> Any:
    if isinstance(entries, (list, tuple)):
        return entries
    if encode.is_arrow(entries) and hasattr(entries, "__len__"):
        return entries
    if isinstance(entries, str | bytes | bytearray):
        raise InvalidColumn(name, "one string is not a column: put it in a list")
    try:
        return list(entries)
    except TypeError:
        raise InvalidColumn(name, f"{type(entries).__name__} is not a column") from None


def _build_single(values: Any, keys: Any, timestamps: Any, codec: str, producer: Producer) -> Batch | None:
    """One record that is bytes and microseconds already: the same batch, sooner. None leaves it to the general way."""
    moment = NO_TIMESTAMP if timestamps is None else timestamps
    if type(moment) is list and len(moment) == 1:
        moment = moment[0]
    if type(moment) is not int or type(values) is not list or type(values[0]) is not bytes:
        return None
    encode.fits_64_bits(moment, moment)
    pieces, present = encode.single_text(values[0]), c.VALUE
    if keys is not None:
        if type(keys) is not list or len(keys) != 1 or type(keys[0]) is not bytes:
            return None
        pieces, present = encode.single_text(keys[0]) + pieces, c.KEY | c.VALUE
    return _assemble(KIND_DATA, ENCODING_COLUMNS, 1, present, pieces, moment, moment, codec, producer)


def _encode(bit: int, name: str, entries: Any, count: int) -> encode.Pieces:
    if len(entries) != count:
        raise InvalidColumn(name, f"{len(entries)} entries for {count} records")
    short = count <= encode.SHORT and not encode.is_arrow(entries)
    if bit == c.TAGS:
        return encode.short_lists(name, entries) if short else encode.long_lists(name, entries)
    if bit == c.HEADERS:
        return encode.short_pairs(name, entries) if short else encode.long_pairs(name, entries)
    nullable = bit != c.CHANNEL
    return encode.short_text(name, entries, nullable) if short else encode.long_text(name, entries, nullable)


def _assemble(
    kind: int,
    encoding: int,
    count: int,
    columns: int,
    pieces: encode.Pieces,
    low: int,
    high: int,
    codec_name: str,
    producer: Producer,
) -> Batch:
    codec = codecs.CODECS.get(codec_name, -1)
    if codec < 0:
        raise InvalidColumn("codec", f"{codec_name!r} is not one of {', '.join(codecs.CODECS)}")
    if not (0 <= producer.seq < SEQUENCE_MODULUS and 0 <= producer.epoch < 2**16 and 0 <= producer.id < 2**64):
        raise InvalidColumn("producer", f"{producer} does not fit: seq is below 2^31, epoch below 2^16, id below 2^64")
    if count <= encode.SHORT:
        pieces = [b"".join(pieces)]
        body_size = len(pieces[0])
    else:
        body_size = sum(map(len, pieces))
    if body_size + HEADER_SIZE > BATCH_SIZE_MAX:
        raise BatchTooLarge(body_size + HEADER_SIZE, BATCH_SIZE_MAX)
    stored_size = body_size
    if codec:
        packed = codecs.deflate(_joined(pieces, body_size), codec)
        if c.padded(len(packed)) < body_size:
            pieces, stored_size = [packed], len(packed)
        else:
            codec = codecs.NONE
    padding = -stored_size & 7
    if padding:
        pieces.append(bytes(padding))
    signed = pack_signed(kind, encoding, codec, count, body_size, columns, low, high, producer, padding)
    crc = crc32c(signed)
    for piece in pieces:
        crc = crc32c(piece, crc)
    front = pack_unstamped(HEADER_SIZE + stored_size + padding, signed, crc)
    return Batch.trusted(_joined((front, *pieces), HEADER_SIZE + stored_size + padding))


def _joined(pieces: Sequence[Any], size_bytes: int) -> Buffer:
    """As one. Much is put into memory of Arrow's, if that is there: its pool keeps what is given back for the next."""
    if size_bytes < LARGE_BYTES or "pa" not in vars(vector):
        return b"".join(pieces)
    whole, at = memoryview(vector.pa.allocate_buffer(size_bytes)).cast("B"), 0
    for piece in pieces:
        end = at + len(piece)
        whole[at:end] = memoryview(piece).cast("B")
        at = end
    return whole
