"""Records for any topics, and moves of cursors, in one request: all of it, once, or nothing.

For what is little: it is one publish without a stage (docs/decisions/publish.md). Sent again with the same name and
number it is answered as the first time, and does nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.batch import Batch, Producer
from logboom.broker.api import CursorMove, Part, Publication, PublishedPart, PublishKey
from logboom.broker.append.gatherer import RecordColumns
from logboom.errors import InvalidColumn
from logboom.protocols.http.api.write import INLINE_BYTES, JSON, Number, build_batch, deal
from logboom.protocols.http.codec import decode_rows, name_row, take
from logboom.protocols.http.schema.operation import Content, NoQuery, Operation, caller_of, parse_json, parse_query
from logboom.storage.bookmark import Bookmark
from logboom.storage.data.topic import check_name

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd


class RecordsPut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records for one topic."""

    topic: str
    records: list[Any]
    """As in POST /topics/{topic}/records."""
    partition: Number | None = None
    """All go there. Without it they go where their key or channel belongs, else anywhere."""


class MovePut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cursor, and where it is to stand."""

    cursor: str
    topic: str
    bookmark: str
    partition: Number | None = None
    expect: str | None = None
    """The bookmark where the cursor must stand, or an empty one where there must be no cursor."""
    force: bool = False
    """Move it back, too."""
    member: str = ""
    """Of the consumer group that `cursor` then names."""
    generation: Number = 0


class PublishPut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What comes true in one step."""

    name: str
    number: Number
    """Of one name numbers rise; one that is not above all before is a repeat."""
    records: list[RecordsPut] = []
    moves: list[MovePut] = []
    digest: str = ""
    """Of what is published: the same number with another one is refused."""


class _RowsPut(RecordsPut, frozen=True, kw_only=True):
    records: list[msgspec.Raw]
    """As they were sent: values keep their own words."""


class _RawPut(PublishPut, frozen=True, kw_only=True):
    records: list[_RowsPut] = []  # type: ignore[assignment]


class _Wanted(NamedTuple):
    put: PublishPut
    columns: list[RecordColumns]


async def publish_records(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    caller, body, began = caller_of(request), await request.body(), time.perf_counter()
    wanted = _decode(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(_decode, body)
    put, parts = wanted.put, []
    for records, columns in zip(put.records, wanted.columns, strict=True):
        info = await front_end.broker.describe_topic(check_name(records.topic), create=True, caller=caller)
        partitions = 1 if records.partition is not None else len(info.partitions)
        for partition, rows in deal(columns, partitions, put.number % partitions):
            place = partition if records.partition is None else records.partition
            parts.append(Part(records.topic, [_batch(columns, rows)], place, None, info.id))
    moves = [_move(each) for each in put.moves]
    key = PublishKey(put.name, put.number, True, put.digest)
    done = await front_end.broker.publish_batches(key, parts, moves, caller=caller)
    count = sum(len(columns.values) for columns in wanted.columns)
    front_end.meter.note_append(1, count, len(body), time.perf_counter() - began)
    return Response(msgspec.json.encode(done), media_type=JSON, headers={"Cache-Control": "no-store"})


def _decode(body: bytes) -> _Wanted:
    """Raises BadParameter, BadRecord, RequestError."""
    put: PublishPut
    try:
        put = _raw.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        put = parse_json(body, PublishPut)
    return _Wanted(put, [decode_rows([_row(row) for row in each.records], "auto") for each in put.records])


def _row(row: Any) -> msgspec.Raw:
    return row if isinstance(row, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(row))


def _batch(columns: RecordColumns, rows: list[int]) -> Batch:
    try:
        return build_batch(take(columns, rows), Producer())
    except InvalidColumn as error:
        raise name_row(columns, error) from None


def _move(put: MovePut) -> CursorMove:
    where = put.cursor, put.topic, put.partition, put.bookmark
    return CursorMove(*where, put.expect, put.force, put.member, put.generation)


_raw: Final = msgspec.json.Decoder(_RawPut)
_TOPIC_ID: Final = "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d"
_BOOKMARK: Final = str(Bookmark(bytes.fromhex(_TOPIC_ID), 0, 13, 1))
_EXAMPLE: Final = {
    "name": "orders/copy",
    "number": 7,
    "records": [{"topic": "lines", "records": [{"value": {"chairs": 2}, "key": "17"}]}],
    "moves": [{"cursor": "copy", "topic": "orders", "bookmark": _BOOKMARK}],
}
_DONE: Final = Publication("orders/copy", 7, False, [PublishedPart("lines", _TOPIC_ID, 0, 4, 5, 1)])

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "POST",
        "/publish",
        publish_records,
        "Publish records and cursors",
        "Staging",
        "Records for any topics, up to 256 KiB in 64 partitions, and moves of cursors, up to 500: all of it comes true "
        "in one step, or nothing. Cursors move as PUT of one moves it; a move that is refused refuses the rest. The "
        "answer comes when all of it is synced. The same name and number again is answered as the first time, and does "
        "nothing.",
        query=NoQuery,
        body={JSON: Content(PublishPut, _EXAMPLE)},
        answers={200: {JSON: Content(Publication, msgspec.to_builtins(_DONE))}},
        problems=(403, 404, 409, 410, 413, 415, 422, 429, 503, 504, 507),
    ),
)
