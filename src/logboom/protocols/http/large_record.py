"""The JSON of a record that is large, piece by piece.

It is what the encoder gives for the whole record, byte by byte. No piece is much larger than PIECE_BYTES, although text
may grow sixfold and bytes by a third; each takes a moment only, so that other threads have their turn.
"""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from logboom.batch.arrow import ORDER, to_list
from logboom.batch.moment import rfc3339
from logboom.batch.ndjson import is_json

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES: Final = 96 * 1024
"""Divisible by three: base64 can be cut there."""
_LOG: Final = (b"topic", b"partition")
_encoder = msgspec.json.Encoder()
_decoder = getincrementaldecoder("utf-8")

Bytes = bytes | memoryview


def pour_record(table: pa.Table) -> Iterator[bytes]:
    """The only record of a table, which has the columns of `batch.arrow.ORDER`, and may have topic and partition."""
    columns = {name: table.column(name).combine_chunks() for name in ORDER}
    value = columns.pop("value")[0].as_buffer()
    fields = {name: to_list(name, column)[0] for name, column in columns.items()}
    log = [table.column(name)[0].as_py() for name in ("topic", "partition") if name in table.column_names]
    return _gather(_pour_fields(value=None if value is None else memoryview(value), log=log, **fields))


def _pour_fields(
    seqno: int,
    timestamp: int | None,
    key: bytes | None,
    value: memoryview | None,
    channel: str | None,
    tags: Iterable[str],
    headers: Iterable[tuple[str, bytes]],
    log: Sequence[object],
) -> Iterator[bytes]:
    yield b'{"seqno":%d,"timestamp":%b,"key":' % (seqno, _encoder.encode(rfc3339(timestamp)))
    yield from _pour_bytes(key)
    yield b',"value":'
    yield from pour_value(value)
    yield b',"channel":'
    yield from _pour_bytes(None if channel is None else channel.encode())
    yield b',"tags":['
    for number, tag in enumerate(tags):
        yield b"," if number else b""
        yield from _pour_bytes(tag.encode())
    yield b'],"headers":['
    for number, (name, content) in enumerate(headers):
        yield b",[" if number else b"["
        yield from _pour_bytes(name.encode())
        yield b","
        yield from _pour_bytes(content)
        yield b"]"
    yield b"]%b}" % b"".join(b',"%b":%b' % (name, _encoder.encode(of)) for name, of in zip(_LOG, log, strict=False))


def pour_value(value: Bytes | None) -> Iterator[bytes]:
    """As `batch.ndjson.show_value` shows it."""
    return _cut(value) if value and is_json(bytes(value)) else _pour_bytes(value)


def _pour_bytes(data: Bytes | None) -> Iterator[bytes]:
    """As `batch.ndjson.readable` shows them."""
    if data is None:
        yield b"null"
    elif _is_text(data):
        decoder = _decoder()
        yield b'"'
        for part in _cut(data):
            yield _encoder.encode(decoder.decode(part))[1:-1]
        yield b'"'
    else:
        yield b'{"base64":"'
        yield from map(b64encode, _cut(data))
        yield b'"}'


def _is_text(data: Bytes) -> bool:
    decoder = _decoder()
    try:
        for part in _cut(data):
            decoder.decode(part)
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        return False
    return True


def _cut(data: Bytes) -> Iterator[bytes]:
    return (bytes(data[start : start + PIECE_BYTES]) for start in range(0, len(data), PIECE_BYTES))


def _gather(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Small ones together."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)
