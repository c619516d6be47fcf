"""Records over HTTP: one, several, or plain bytes; answered when the promise is kept.

Single records are gathered with those of other connections. A request that must be compared (expect_seqno) or
recognised (Idempotency-Key) goes alone, behind what came before it. An Idempotency-Key makes its request a producer of
its own, whose only batch in each log is the first: the log's own table then answers a repeat as the first time, after
a restart too. For that the same records must go to the same partitions again, and they do.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from logboom.batch import Batch, Producer, build
from logboom.batch.header import own_id
from logboom.batch.moment import parse_rfc3339
from logboom.batch.partitioner import partition_of
from logboom.broker.api import Acks, Appended
from logboom.broker.append.gatherer import Placed, RecordColumns
from logboom.broker.caller import Caller
from logboom.errors import InvalidColumn, LogboomError
from logboom.protocols.http.codec import Form, decode_json, decode_lines, name_row, take
from logboom.protocols.http.problem import BadParameter, PartFailed
from logboom.protocols.http.schema.operation import (
    Content,
    Operation,
    caller_of,
    parse_headers,
    parse_query,
    parse_texts,
    topic_of,
)
from logboom.storage.data.topic import check_name

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

INLINE_BYTES: Final = 256 * 1024
"""A larger body is taken apart on a thread."""
QUICK_BYTES: Final = 64 * 1024
QUERY_BYTES: Final = 256
"""Of queries that are remembered."""
KEY_CHARACTERS_MAX: Final = 255
JSON: Final = "application/json"
JSON_TYPES: Final = frozenset({"", JSON, "application/x-www-form-urlencoded"})
"""The last is what curl says where nobody told it."""
LINES_TYPES: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_FRONT: Final = "/topics/"
_BACK: Final = "/records"
_SURPRISES: Final = frozenset(
    {
        b"content-encoding",
        b"transfer-encoding",
        b"expect",
        b"idempotency-key",
        b"origin",
        b"sec-fetch-site",
        b"upgrade",
        b"cookie",
        b"authorization",
    }
)

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_KEY_LENGTH: Final = msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": KEY_CHARACTERS_MAX})


class WriteQuery(msgspec.Struct, frozen=True):
    acks: Acks | None = None
    partition: Number | None = None
    expect_seqno: Number | None = None
    form: Form = msgspec.field(default="auto", name="as")


class WriteHeaders(msgspec.Struct, frozen=True):
    idempotency_key: Annotated[str, _KEY_LENGTH] | None = msgspec.field(default=None, name="Idempotency-Key")
    key: str | None = msgspec.field(default=None, name="Logboom-Key")
    tags: str | None = msgspec.field(default=None, name="Logboom-Tags")
    channel: str | None = msgspec.field(default=None, name="Logboom-Channel")
    timestamp: str | None = msgspec.field(default=None, name="Logboom-Timestamp")

    @property
    def describes(self) -> str | None:
        """A header that describes the record, if any does."""
        found = (("Key", self.key), ("Tags", self.tags), ("Channel", self.channel), ("Timestamp", self.timestamp))
        return next((f"Logboom-{name}" for name, value in found if value is not None), None)


class WrittenRecords(msgspec.Struct, frozen=True):
    """Where each record went, in the order of the request."""

    partitions: list[int | None]
    seqnos: list[int | None]


class Write(NamedTuple):
    caller: Caller
    topic: str
    query: WriteQuery
    idempotency_key: str | None = None
    authorization: bytes = b""
    """What says who else than the caller it is."""

    def __repr__(self) -> str:
        return f"<Write to {self.topic}>"


_encoder = msgspec.json.Encoder()


async def write_records(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, WriteQuery)
    headers = parse_headers(request, WriteHeaders)
    write = Write(caller_of(request), topic_of(request), query, _checked_key(headers.idempotency_key))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if len(body) > INLINE_BYTES:
        columns = await asyncio.to_thread(_decode, body, kind, query.form, headers)
    else:
        columns = _decode(body, kind, query.form, headers)
    status, answer = await append(front_end, write, columns, len(body))
    return Response(answer, status, media_type=JSON)


def plain_write(front_end: HttpFrontEnd, scope: Scope) -> Write | None:
    """What a small JSON body without anything special is for; None where there is something special, or wrong."""
    path: str = scope["path"]
    if not path.startswith(_FRONT) or not path.endswith(_BACK) or len(scope["query_string"]) > QUERY_BYTES:
        return None
    topic, length, authorization = path[len(_FRONT) : -len(_BACK)], 0, b""
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = int(value)
        elif name == b"content-type":
            if value.decode("latin-1") not in JSON_TYPES:
                return None
        elif name == b"authorization" and not authorization:
            authorization = value or b" "
        elif name in _SURPRISES or name.startswith(b"logboom-"):
            return None
    if not 0 < length <= min(QUICK_BYTES, front_end.settings.body_bytes) or "/" in topic:
        return None
    try:
        query = _plain_query(scope["query_string"])
        return Write(scope["caller"], check_name(topic), query, authorization=authorization)
    except LogboomError:
        return None


@lru_cache(1024)
def _plain_query(query: bytes) -> WriteQuery:
    return parse_texts(parse_qsl(query.decode("latin-1"), keep_blank_values=True), WriteQuery, "query")


async def write_plainly(front_end: HttpFrontEnd, write: Write, receive: Receive) -> tuple[int, bytes] | None:
    """The status and JSON of the answer; None where the client has gone."""
    body, is_over = b"", False
    try:
        while not is_over:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message["body"]
            is_over = not message["more_body"]
            front_end.hold(len(message["body"]))
        return await append(front_end, write, decode_json(body, write.query.form), len(body))
    finally:
        front_end.hold(-len(body))


async def append(front_end: HttpFrontEnd, write: Write, columns: RecordColumns, size: int) -> tuple[int, bytes]:
    """Append, and say where in JSON. Raises why not; PartFailed where that is true of some records only."""
    began, query, count = time.perf_counter(), write.query, len(columns.values)
    try:
        if write.idempotency_key is not None or query.expect_seqno is not None:
            written = await _append_alone(front_end, write, columns)
        elif query.partition is None and (columns.keys or columns.channels):
            written = await _append_dealt(front_end, write, columns, size)
        else:
            adding = front_end.gatherer.add(
                write.topic, query.partition, columns, size, query.acks, caller=write.caller
            )
            written = _tell(await adding)
    except InvalidColumn as error:
        raise name_row(columns, error) from None
    front_end.meter.note_append(1, count, size, time.perf_counter() - began)
    return 202 if query.acks == "none" else 200, written


def _tell(placed: Placed) -> bytes:
    if placed.record_count == 1:
        return b'{"partitions":[%d],"seqnos":[%d]}' % (placed.partition, placed.seqno)
    seqnos = list(range(placed.seqno, placed.seqno + placed.record_count))
    return _encoder.encode({"partitions": [placed.partition] * placed.record_count, "seqnos": seqnos})


async def _append_dealt(front_end: HttpFrontEnd, write: Write, columns: RecordColumns, size: int) -> bytes:
    """Each record to the partition of its key or channel; those without either to any, together."""
    topic, acks, caller, gatherer = write.topic, write.query.acks, write.caller, front_end.gatherer
    partitions = len((await front_end.broker.describe_topic(topic, create=True, caller=caller)).partitions)
    if partitions == 1:
        return _tell(await gatherer.add(topic, None, columns, size, acks, caller=caller))
    dealt = deal(columns, partitions, None)
    shares = [take(columns, rows) for _, rows in dealt]
    if len(shares) > 1:
        for share in shares:
            share.build()  # what is wrong with one record is found before others are appended
    each = size // len(columns.values)
    futures = [
        gatherer.add(topic, partition, share, each * len(rows), acks, caller=caller)
        for (partition, rows), share in zip(dealt, shares, strict=True)
    ]
    answers = await asyncio.gather(*futures, return_exceptions=True)
    return _gather([rows for _, rows in dealt], [_placed_or_error(answer) for answer in answers])


def _placed_or_error(answer: Placed | BaseException) -> tuple[int, int] | LogboomError:
    if isinstance(answer, Placed):
        return answer.partition, answer.seqno
    if isinstance(answer, LogboomError):
        return answer
    raise answer


async def _append_alone(front_end: HttpFrontEnd, write: Write, columns: RecordColumns) -> bytes:
    query, key = write.query, write.idempotency_key
    producer = Producer() if key is None else Producer(_producer_id(write.topic, key))
    if key is None or query.partition is not None or query.expect_seqno is not None:
        dealt = [(query.partition, list(range(len(columns.values))))]
    else:
        info = await front_end.broker.describe_topic(write.topic, create=True, caller=write.caller)
        partitions = len(info.partitions)
        dealt = deal(columns, partitions, producer.id % partitions)
    batches = [build_batch(take(columns, rows), producer) for _, rows in dealt]
    futures = [
        front_end.gatherer.append_alone(
            write.topic, partition, batch, query.acks, query.expect_seqno, caller=write.caller
        )
        for (partition, _), batch in zip(dealt, batches, strict=True)
    ]
    answers = [(await future)[0] for future in futures]
    places = [
        (partition or 0, answer.base_seqno) if isinstance(answer, Appended) else answer
        for (partition, _), answer in zip(dealt, answers, strict=True)
    ]
    return _gather([rows for _, rows in dealt], places)


def deal(columns: RecordColumns, partitions: int, anywhere: int | None) -> list[tuple[int | None, list[int]]]:
    """The rows for each partition, by the common partitioner."""
    dealt: dict[int | None, list[int]] = {}
    for row in range(len(columns.values)):
        key = columns.keys[row] if columns.keys is not None else None
        channel = columns.channels[row] if columns.channels is not None else None
        if key is None and channel:
            key = channel.encode(errors="surrogatepass")
        partition = anywhere if key is None else partition_of(key, partitions)
        dealt.setdefault(partition, []).append(row)
    return list(dealt.items())


def _gather(dealt: list[list[int]], places: list[tuple[int, int] | LogboomError]) -> bytes:
    """One answer for all rows, from one for each partition's."""
    count = sum(map(len, dealt))
    written = WrittenRecords([None] * count, [None] * count)
    failures: list[LogboomError] = []
    for rows, place in zip(dealt, places, strict=True):
        if isinstance(place, LogboomError):
            failures.append(place)
            continue
        for number, row in enumerate(rows):
            written.partitions[row], written.seqnos[row] = place[0], place[1] + number
    if not failures:
        return _encoder.encode(written)
    if len(failures) == len(places):
        raise failures[0]
    raise PartFailed(failures[0], written.partitions, written.seqnos)


def build_batch(columns: RecordColumns, producer: Producer) -> Batch:
    values, keys, timestamps, channels, tags, headers = columns
    return build(
        values,
        keys=keys,
        timestamps=timestamps,
        channels=channels,
        tags=tags,
        headers=headers,
        producer=producer,
    )


def _producer_id(topic: str, key: str) -> int:
    text = f"{topic}\n{key}".encode(errors="surrogatepass")
    return own_id(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def _checked_key(key: str | None) -> str | None:
    if key is not None and not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        raise BadParameter("Idempotency-Key", f"has {len(key)} characters, allowed are 1 to {KEY_CHARACTERS_MAX}")
    return key


def _decode(body: bytes, kind: str, form: Form, headers: WriteHeaders) -> RecordColumns:
    is_lines = kind in LINES_TYPES
    if not is_lines and kind not in JSON_TYPES:
        return _plain_bytes(body, form, headers)
    if headers.describes is not None:
        raise BadParameter(headers.describes, "is for bodies of plain bytes; in JSON it is a field of the record")
    return decode_lines(body, form) if is_lines else decode_json(body, form)


def _plain_bytes(body: bytes, form: Form, headers: WriteHeaders) -> RecordColumns:
    if form == "record":
        raise BadParameter("as", "a body that is neither JSON nor lines of JSON is a value, not a record")
    tags = [tag.strip() for tag in (headers.tags or "").split(",")]
    columns: dict[str, Any] = {
        "keys": None if headers.key is None else [headers.key.encode("latin-1")],
        "timestamps": None if headers.timestamp is None else [_moment(headers.timestamp)],
        "channels": [_text("Logboom-Channel", headers.channel)] if headers.channel else None,
        "tags": [[_text("Logboom-Tags", tag) for tag in tags if tag]] if headers.tags else None,
    }
    return RecordColumns([body], **columns)


def _text(header: str, value: str) -> str:
    """Servers hand on headers as bytes in disguise."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise BadParameter(header, "is no UTF-8") from None


def _moment(text: str) -> int:
    try:
        return int(text) if text.removeprefix("-").isdecimal() else parse_rfc3339(text)
    except ValueError as error:
        raise BadParameter("Logboom-Timestamp", f"{error}, or as microseconds since 1970") from None


_EXAMPLE: Final = {"value": {"t": 21.5}, "key": "site-7", "tags": ["outdoor"]}

OPERATIONS: Final = (
    Operation(
        "POST",
        "/topics/{topic}/records",
        write_records,
        summary="Write records",
        tag="Write",
        description=(
            "One record or several: JSON, lines of JSON, or plain bytes of any other type, whose key, tags, channel "
            "and timestamp are in headers. An object with `value` and only fields of a record is a record, anything "
            "else is itself the value; an array is several. The answer comes when the promise of `acks` is kept, "
            "and says where each record went."
        ),
        query=WriteQuery,
        headers=WriteHeaders,
        meanings={
            "topic": "Made by the first write, where the node's rules allow that.",
            "acks": "When to answer: none and leader when it is written, durable when it is synced. "
            "The topic's default stands in for it.",
            "partition": "All records go there. Without it they go where their key or channel belongs, else anywhere.",
            "expect_seqno": "Append only if the first record gets this seqno.",
            "as": "What JSON in the body is: records, values (an array too is one), or either, by its looks.",
            "Idempotency-Key": "At most 255 characters. The same request with the same key again is not appended "
            "again, and is answered as the first time.",
            "Logboom-Key": "Of a body of plain bytes.",
            "Logboom-Tags": "Of a body of plain bytes, separated by commas.",
            "Logboom-Channel": "Of a body of plain bytes.",
            "Logboom-Timestamp": "Of a body of plain bytes: RFC 3339, or microseconds since 1970.",
        },
        body={
            JSON: Content(Any, _EXAMPLE),
            LINES_TYPES[0]: Content(str, '{"value": 1}\n{"value": 2}\n'),
            "application/octet-stream": Content(bytes, "any bytes"),
        },
        answers={
            200: {JSON: Content(WrittenRecords, {"partitions": [0, 0], "seqnos": [12, 13]})},
            202: {JSON: Content(WrittenRecords, {"partitions": [0], "seqnos": [14]})},
        },
        problems=(403, 404, 409, 413, 415, 422, 503, 504, 507),
    ),
)
