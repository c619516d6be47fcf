"""Bodies to records: JSON, lines of JSON, bytes. Whatever is wrong is said of its row: `records[3].tags: …`.

The JSON of a record is batch.ndjson's. In a body a record may stand by itself or in an array; and where the form is
`auto` a value may stand for its record: an object with `value` and only fields of a record is a record, anything else
is itself the value. With `value` the whole body is one value, an array too; of lines, each is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from logboom.batch import Record
from logboom.batch.ndjson import decode_bytes, decode_record
from logboom.broker.append.gatherer import RecordColumns
from logboom.errors import InvalidColumn, LogboomError
from logboom.protocols.http.problem import RequestError

Form = Literal["auto", "record", "value"]

RECORDS_MAX: Final = 100_000
"""In one request."""
FIELDS: Final = frozenset({"value", "key", "timestamp", "channel", "tags", "headers", "seqno", "topic", "partition"})
_SINGULAR: Final = {"values": "value", "keys": "key", "timestamps": "timestamp", "channels": "channel"}
_AT: Final = re.compile(r" - at `\$\.?([^`]*)`")
_raw = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


class BadRecord(RequestError):
    """One record of a request cannot be."""

    def __init__(self, row: int, column: str, reason: str) -> None:
        where = f"records[{row}].{column}" if column else f"records[{row}]"
        super().__init__(f"{where}: {reason}", 400, "invalid-column")
        self.parameter = where


def decode_json(body: bytes, form: Form) -> RecordColumns:
    """Raises BadRecord, RequestError."""
    try:
        if form != "value" and body.lstrip()[:1] == b"[":
            if body.count(b",") >= RECORDS_MAX:
                _check_count(_count_entries(body))
            return decode_rows(_array.decode(body), form)
        return decode_rows((_raw.decode(body),), form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not body.strip():
            raise _no_records() from None
        raise RequestError(
            f"the body is no JSON: {error}",
            400,
            "bad-json",
            "send JSON, or say with Content-Type what it is: application/x-ndjson, or anything else for plain bytes",
        ) from None


def decode_lines(body: bytes, form: Form) -> RecordColumns:
    """Raises BadRecord, RequestError. Empty lines are passed over."""
    _check_count(body.count(b"\n"))
    rows: list[msgspec.Raw] = []
    for line in body.split(b"\n"):
        text = line.strip()
        if text:
            try:
                rows.append(_raw.decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise BadRecord(len(rows), "", f"is no JSON: {error}") from None
    return decode_rows(rows, form)


def decode_rows(rows: Sequence[msgspec.Raw], form: Form) -> RecordColumns:
    """Raises BadRecord, RequestError."""
    _check_count(len(rows))
    if not rows:
        raise _no_records()
    return columns_of([_record(row, number, form) for number, row in enumerate(rows)])


def _record(row: msgspec.Raw, number: int, form: Form) -> Record:
    try:
        if form == "record" or (form == "auto" and _is_record(bytes(row))):
            return decode_record(bytes(row))
        return Record(decode_bytes("value", row))
    except InvalidColumn as error:
        at = _AT.search(error.reason)
        column = error.column if error.column != "line" else (at[1] if at else "")
        raise BadRecord(number, column, _AT.sub("", error.reason)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(number, "", f"is no JSON: {error}") from None


def _is_record(text: bytes) -> bool:
    if text[:1] != b"{" or (b'"value"' not in text and b"\\u" not in text):
        return False
    names = _object.decode(text).keys()
    return "value" in names and names <= FIELDS


def columns_of(records: Sequence[Record]) -> RecordColumns:
    def column(name: str) -> list[Any] | None:
        entries = [getattr(record, name) for record in records]
        return entries if any(entry is not None and entry != () for entry in entries) else None

    values = [record.value for record in records]
    return RecordColumns(values, *(column(name) for name in ("key", "timestamp", "channel", "tags", "headers")))


def take(columns: RecordColumns, rows: Iterable[int]) -> RecordColumns:
    """Some of the records."""
    wanted = list(rows)
    return RecordColumns(*(None if column is None else [column[row] for row in wanted] for column in columns))  # type: ignore[arg-type]


def name_row(columns: RecordColumns, error: InvalidColumn) -> BadRecord:
    """Which record it is that no batch can be built with."""
    low, high = 0, len(columns.values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fails(take(columns, range(low, middle))) else (middle, high)
    return BadRecord(low, _SINGULAR.get(error.column, error.column), error.reason)


def _fails(columns: RecordColumns) -> bool:
    try:
        columns.build()
    except (LogboomError, ValueError, TypeError, OverflowError):
        return True
    return False


def _no_records() -> RequestError:
    return RequestError("there is no record in the body", 400, "no-records", "send at least one")


def _check_count(count: int) -> None:
    if count > RECORDS_MAX:
        raise RequestError(
            f"more than {RECORDS_MAX:,} records in one request",
            413,
            "too-many-records",
            "send them in several requests",
        )


def _count_entries(body: bytes) -> int:
    """Of the outermost array, without making any of them: a byte may stand for a record, and that takes a hundred."""
    import numpy as np

    text = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    plain = np.cumsum(text == ord('"'), dtype=np.int32) & 1 == 0
    opened = ((text == ord("[")) | (text == ord("{"))) & plain
    closed = ((text == ord("]")) | (text == ord("}"))) & plain
    depth = np.cumsum(opened.astype(np.int8) - closed.astype(np.int8), dtype=np.int32)
    return int(np.count_nonzero((text == ord(",")) & plain & (depth == 1))) + 1
