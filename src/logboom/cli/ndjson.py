"""Records as lines of JSON, and back: what `read --format ndjson` prints, `write --ndjson` takes.

    {"seqno": 7, "timestamp": "2026-01-31T12:00:00.000001Z", "key": "k", "value": "text", "channel": null,
     "tags": ["a"], "headers": [["name", "value"]]}

Bytes are text where they are UTF-8, else {"base64": "..."}. On the way in a value may be any JSON: a string stands for
its text, null for a tombstone, everything else for its own JSON text, byte by byte as it came.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from logboom.batch.record import Record
from logboom.cli.moment import parse_moment, rfc3339
from logboom.errors import InvalidColumn

_MISSING = msgspec.Raw()


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw
    key: msgspec.Raw = _MISSING
    timestamp: str | int | None = None
    channel: str | None = None
    tags: list[str] | None = None
    headers: list[tuple[str, msgspec.Raw]] | dict[str, msgspec.Raw] | None = None
    seqno: Any = None
    topic: Any = None
    partition: Any = None


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: str


_line = msgspec.json.Decoder(_Line)
_base64 = msgspec.json.Decoder(_Base64)
_encoder = msgspec.json.Encoder()


def decode_record(line: bytes) -> Record:
    """The record a line stands for; its seqno, topic and partition are left to the log. Raises InvalidColumn."""
    try:
        found = _line.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidColumn(
            "line", f"{error}; it has value, and may have key, timestamp, channel, tags, headers"
        ) from None
    timestamp = found.timestamp
    if isinstance(timestamp, str):
        try:
            timestamp = parse_moment(timestamp)
        except ValueError as error:
            raise InvalidColumn("timestamp", str(error)) from None
    headers = found.headers.items() if isinstance(found.headers, dict) else found.headers or ()
    return Record(
        decode_bytes("value", found.value),
        None if found.key is _MISSING else decode_bytes("key", found.key),
        timestamp,
        found.channel or None,
        tuple(found.tags or ()),
        tuple((name, decode_bytes("headers", raw) or b"") for name, raw in headers),
    )


def decode_bytes(column: str, raw: msgspec.Raw) -> bytes | None:
    text = bytes(raw)
    if text[:1] == b'"':
        try:
            return msgspec.json.decode(text, type=str).encode()
        except (UnicodeEncodeError, msgspec.DecodeError):
            raise InvalidColumn(column, "a string that UTF-8 cannot hold") from None
    if text == b"null":
        return None
    if text[:1] == b"{":
        try:
            return base64.b64decode(_base64.decode(text).base64, validate=True)
        except msgspec.MsgspecError:
            pass
        except (binascii.Error, ValueError) as error:
            raise InvalidColumn(column, f"base64: {error}") from None
    return text


def encode_record(
    seqno: int | None,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    channel: str | None,
    tags: Any,
    headers: Any,
) -> bytes:
    """One line, without its end."""
    return _encoder.encode(
        {
            "seqno": seqno,
            "timestamp": rfc3339(timestamp),
            "key": readable(key),
            "value": readable(value),
            "channel": channel,
            "tags": tags,
            "headers": [(name, readable(content)) for name, content in headers],
        }
    )


def readable(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON holds them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
