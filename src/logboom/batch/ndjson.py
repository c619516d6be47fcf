"""Records as lines of JSON, and back: the same on the command line, over HTTP and to validators.

    {"seqno": 7, "timestamp": "2026-01-31T12:00:00.000001Z", "key": "k", "value": {"t": 21.5}, "channel": null,
     "tags": ["a"], "headers": [["name", "value"]]}

On the way in a value may be any JSON: a string stands for its text, null for a tombstone, {"base64": "..."} for these
bytes, everything else for its own JSON text, byte by byte as it came. On the way out it is the same: a value that is
the JSON of an object, array, number, true or false on one line is shown as such, other UTF-8 as a string, the rest as
base64. So whatever was read can be written again and is the same bytes. Keys and headers are strings or base64.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from logboom.batch.moment import parse_rfc3339, rfc3339
from logboom.batch.record import Record
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
_raw = msgspec.json.Decoder(msgspec.Raw)
_JSON_BEGINS: Final = frozenset(b"{[-0123456789tf")
_BRACE: Final = ord("{")
_CONTROL: Final = bytes(range(32))


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
            timestamp = parse_rfc3339(timestamp)
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
    topic: str | None = None,
    partition: int | None = None,
) -> bytes:
    """One line, without its end."""
    log = {} if topic is None else {"topic": topic, "partition": partition}
    return _encoder.encode(
        {
            **log,
            "seqno": seqno,
            "timestamp": rfc3339(timestamp),
            "key": readable(key),
            "value": show_value(value),
            "channel": channel,
            "tags": tags,
            "headers": [(name, readable(content)) for name, content in headers],
        }
    )


def show_value(value: bytes | None) -> msgspec.Raw | str | dict[str, str] | None:
    """A value as JSON holds it."""
    return msgspec.Raw(value) if value and is_json(value) else readable(value)


def is_json(value: bytes) -> bool:
    """Whether a value is shown as the JSON it is."""
    if value[0] not in _JSON_BEGINS:
        return False
    try:
        whole = len(_raw.decode(value)) == len(value)  # space around it would not come back
        return whole and _is_text(value) and (value[0] != _BRACE or not _is_base64(value))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _is_text(value: bytes) -> bool:
    """UTF-8 without control characters: what the decoder passes over unseen."""
    return (value.isascii() or bool(value.decode())) and len(value.translate(None, _CONTROL)) == len(value)


def _is_base64(value: bytes) -> bool:
    """Whether a value looks like our way of writing bytes: it must not be taken for it."""
    try:
        _base64.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def readable(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON holds them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
