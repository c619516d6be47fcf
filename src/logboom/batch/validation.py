"""Is this batch what it says? Checked in full before a batch is accepted, and before one is read.

A body with a sound checksum and a broken structure would stop every consumer for ever, so every length, count,
offset, bitmap and text is checked: in plain Python for a few entries, vectorised for many. Both give the same
verdict. Nothing here allocates more than the limit, whatever the header claims.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from crc32c import crc32c

from logboom.batch import codec as codecs
from logboom.batch import vector
from logboom.batch.columns import ABSENT, SHORT, Columns, Text, find_columns
from logboom.batch.header import (
    ENCODING_COLUMNS,
    ENCODING_KAFKA,
    HEADER_SIZE,
    KIND_CONTROL,
    KIND_DATA,
    KIND_LOST,
    PADDING_MASK,
    SEQUENCE_MODULUS,
    STAMP_SIZE,
    VERSION,
    Header,
)
from logboom.batch.header import SIGNED_END as _SIGNED_END
from logboom.errors import BatchTooLarge, BodyCorrupt, MalformedBatch, UnsupportedBatch

EMPTY_BODY_RECORDS_MAX: Final = 65_536
"""A body without columns costs nothing on the wire, and a seqno for each record when read: so it has a limit."""

_ZEROS: Final = tuple(bytes(size) for size in range(8))


def check_crc(header: Header, data: memoryview) -> None:
    """batch_crc over bytes 40..88, the stored body and its padding. `data` is the whole batch."""
    if crc32c(data[HEADER_SIZE:], crc32c(data[STAMP_SIZE:_SIGNED_END])) != header.batch_crc:
        raise BodyCorrupt("batch_crc does not match")


def check_header(header: Header, limit_bytes: int) -> None:
    """Everything the header says about itself, before any of the body is looked at."""
    _, size, base_seqno, _, _, _, _, version, kind, encoding, codec, count, body_size, columns = header[:14]
    flags = header.flags
    if version != VERSION or flags & ~PADDING_MASK or kind > KIND_LOST or codec > codecs.ZSTD:
        raise UnsupportedBatch(f"version {version}, flags {flags:#x}, kind {kind}, codec {codec}")
    if size > limit_bytes or body_size > limit_bytes:
        raise BatchTooLarge(size if size > limit_bytes else body_size, limit_bytes)
    stored = size - HEADER_SIZE - flags
    if stored < 0 or -stored & 7 != flags:
        raise MalformedBatch(f"{flags} bytes of padding after {stored}")
    if codec == codecs.NONE and stored != body_size:
        raise MalformedBatch(f"body_size is {body_size}, {stored} bytes are stored")
    if header.producer_seq >= SEQUENCE_MODULUS:
        raise MalformedBatch(f"producer_seq {header.producer_seq} is not below 2^31")
    if kind != KIND_DATA:
        if encoding or columns or codec or (kind == KIND_CONTROL and count):
            raise MalformedBatch("a control batch holds no records")
        return
    if encoding == ENCODING_KAFKA:
        raise UnsupportedBatch("encoding 2 (Kafka record batches) is reserved")
    if encoding != ENCODING_COLUMNS:
        raise UnsupportedBatch(f"encoding {encoding}")
    if not count:
        raise MalformedBatch("a data batch without records")
    if not body_size and count > EMPTY_BODY_RECORDS_MAX:
        raise MalformedBatch(f"{count} records without a body")
    if base_seqno + count >= 2**63:
        raise MalformedBatch(f"base_seqno {base_seqno} is beyond what a log can number")


def inflated(header: Header, data: memoryview) -> memoryview:
    """The body, decompressed where it is compressed. `check_header` has passed."""
    if header.codec == codecs.NONE and not header.flags:
        return data[HEADER_SIZE:]
    end = HEADER_SIZE + header.stored_size
    if header.padding and data[end:] != _ZEROS[header.padding]:
        raise MalformedBatch("padding after the body is not zero")
    stored = data[HEADER_SIZE:end]
    if header.codec == codecs.NONE:
        return stored
    return codecs.inflate(stored, header.codec, header.body_size)


def check_body(header: Header, body: memoryview) -> Columns:
    """The structure of an encoding 1 body."""
    count = header.record_count
    columns = find_columns(body, count, header.columns)
    if columns.channel is not None:
        _check_utf8(body, columns.channel)
    if columns.tags is not None:
        _check_utf8(body, columns.tags.items[0])
    if columns.headers is not None:
        _check_utf8(body, columns.headers.items[0])
    low = high = header.min_timestamp
    if columns.timestamp != ABSENT:
        low, high = _extremes(body, count)
    if low != header.min_timestamp or high != header.max_timestamp:
        raise MalformedBatch("min_timestamp and max_timestamp do not match the records")
    return columns


def _check_utf8(body: memoryview, text: Text) -> None:
    """Each entry by itself: a character must not be torn between two."""
    content = bytes(body[text.data : text.data + text.size])
    if content.isascii():
        return
    count = text.count
    offsets = body[text.offsets : text.offsets + 4 * count + 4]
    try:
        if count > SHORT:
            pa = vector.pa
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
            pa.Array.from_buffers(pa.string(), count, buffers).validate(full=True)
        else:
            for start, end in pairwise(offsets.cast("i").tolist()):
                content[start:end].decode()
    except ValueError as error:
        raise MalformedBatch(f"text is not UTF-8: {error}") from None


def _extremes(body: memoryview, count: int) -> tuple[int, int]:
    if count > SHORT:
        column = vector.np.frombuffer(body, vector.I64, count)
        return int(column[column.argmin()]), int(column[column.argmax()])
    moments = body[: 8 * count].cast("q").tolist()
    return min(moments), max(moments)
