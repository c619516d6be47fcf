"""One topic as a feed of changes, in the shape that clients of changeagent know.

A change is a record: its number `_id` is the seqno and one, so that 0 is before all of them; `_ts` is in nanoseconds.
`atStart` is false while the change named by `since` is still kept: only then has a client seen everything before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.batch.arrow import to_list
from logboom.batch.ndjson import decode_bytes, show_value
from logboom.broker.api import Filter, PartitionInfo, ReadRequest, Start, TopicInfo
from logboom.broker.append.gatherer import RecordColumns
from logboom.errors import PartitionNotFound, SeqnoOutOfRange, TopicNotFound
from logboom.protocols.http.formats import LINES_BYTES, cut, enclose, is_single, respond
from logboom.protocols.http.large_record import pour_value
from logboom.protocols.http.problem import BadParameter, RequestError
from logboom.protocols.http.record_page import SEQNO_MAX, PageRequest, parse_seqno, read_page, read_record, while_wanted
from logboom.protocols.http.schema.operation import (
    Content,
    Operation,
    PageLimit,
    bad_field,
    caller_of,
    check_limit,
    parse_query,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.protocols.http.front_end import HttpFrontEnd

LOOK_S: Final = 0.25
"""How often those that wait for the first change of all look for its topic."""
_MISSING: Final = msgspec.Raw()
_encoder = msgspec.json.Encoder()


class ChangesQuery(msgspec.Struct, frozen=True):
    since: Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)] = 0
    limit: PageLimit = 100
    block: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    tag: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: int = msgspec.field(name="_id")
    ts: int = msgspec.field(name="_ts")
    """Nanoseconds since 1970."""
    tags: Sequence[str] = ()
    data: Any
    """As it was posted."""


class ChangeList(msgspec.Struct, frozen=True):
    changes: list[Change]
    atStart: bool  # noqa: N815
    """Nothing from `since` back is kept, or ever was."""
    atEnd: bool  # noqa: N815
    """There is nothing more now."""


class PostedChange(msgspec.Struct, frozen=True):
    """Or any other JSON, which is then itself the data."""

    data: Any
    tags: list[str] = []


class _Posted(msgspec.Struct, frozen=True):
    data: msgspec.Raw = _MISSING
    tags: msgspec.Raw = _MISSING


async def post_change(front_end: HttpFrontEnd, request: Request) -> Response:
    began = time.perf_counter()
    value, tags = _parse(await request.body())
    topic = front_end.settings.changes_topic
    _only_log(await front_end.broker.describe_topic(topic, create=True, caller=caller_of(request)))
    size = len(value or b"") + sum(map(len, tags))
    columns = RecordColumns([value], tags=[tags] if tags else None)
    placed = await front_end.gatherer.add(topic, None, columns, size, caller=caller_of(request))
    front_end.meter.note_append(1, 1, size, time.perf_counter() - began)
    return _json(_change(placed.seqno, placed.append_time, tags, show_value(value)))


async def list_changes(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, ChangesQuery)
    check_limit(front_end, query.limit)
    if query.block != query.block:
        raise BadParameter("block", "is no number of seconds")
    until = front_end.world.monotonic_s() + min(query.block, front_end.limits.read_wait_ms / 1000)
    log = await _await_log(front_end, request, query.since, until)
    if log is None or query.since > log.committed:
        return _json(ChangeList([], atStart=log is None, atEnd=True))
    wanted = ReadRequest(
        front_end.settings.changes_topic,
        Start(seqno=max(query.since, log.first)),
        filter=Filter(query.tag) if query.tag else None,
    )
    page = await read_page(
        front_end, request, PageRequest(wanted, query.limit, wait_s=max(0.0, until - front_end.world.monotonic_s()))
    )
    facts = ChangeList([], atStart=query.since <= page.first, atEnd=page.at_end)
    pieces = enclose(facts, map(_show, cut(page.tables, LINES_BYTES)))
    return await respond(front_end.threads, pieces, page.size, "application/json", {"Cache-Control": "no-store"})


async def get_change(front_end: HttpFrontEnd, request: Request) -> Response:
    number = parse_seqno(request.path_params["id"])
    topic = front_end.settings.changes_topic
    try:
        if not number:
            raise SeqnoOutOfRange(-1, 0, 0)
        page = await read_record(front_end, request, topic, None, number - 1)
    except (SeqnoOutOfRange, TopicNotFound):
        raise RequestError(
            f"there is no change {request.path_params['id'][:100]}", 404, "change-not-found", "GET /changes lists them"
        ) from None
    pieces = (piece for table in page.tables for piece in _show(table))
    return await respond(front_end.threads, pieces, page.size, "application/json", {"Cache-Control": "no-store"})


def _parse(body: bytes) -> tuple[bytes | None, tuple[str, ...]]:
    """The value and the tags."""
    try:
        whole = msgspec.json.decode(body, type=msgspec.Raw)
        posted = _Posted() if bytes(whole)[:1] != b"{" else msgspec.json.decode(body, type=_Posted)
        if posted.data is _MISSING:
            return decode_bytes("data", whole), ()
        tags = () if posted.tags is _MISSING else msgspec.json.decode(posted.tags, type=tuple[str, ...])
        return decode_bytes("data", posted.data), tags
    except msgspec.ValidationError as error:
        raise BadParameter("tags", bad_field(error, "tags").reason) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}", 400, "bad-json") from None


def _only_log(topic: TopicInfo) -> PartitionInfo:
    """There is one order of changes, or none."""
    if len(topic.partitions) != 1:
        raise PartitionNotFound(topic.name, None, len(topic.partitions))
    return topic.partitions[0]


async def _await_log(front_end: HttpFrontEnd, request: Request, since: int, until: float) -> PartitionInfo | None:
    """The log, waited for until it has got to `since`; None where nobody has posted anything."""
    topic = front_end.settings.changes_topic
    while True:
        try:
            log = _only_log(await front_end.broker.describe_topic(topic, caller=caller_of(request)))
        except TopicNotFound:
            log = None
        rest_s = until - front_end.world.monotonic_s()
        if rest_s <= 0 or front_end.closing.is_set() or (log is not None and since <= log.committed):
            return log
        if log is None:
            await while_wanted(front_end, request, asyncio.sleep(min(rest_s, LOOK_S)))
        else:
            news = ReadRequest(topic, Start(seqno=log.committed))
            await read_page(front_end, request, PageRequest(news, 1, wait_s=rest_s))


def _show(part: pa.Table) -> Iterable[bytes]:
    """As JSON, with commas between them."""
    columns = {name: part.column(name).combine_chunks() for name in ("seqno", "timestamp", "tags", "value")}
    values = columns.pop("value")
    others = [to_list(name, column) for name, column in columns.items()]
    if is_single(part):
        (change,) = map(_change, *others, (0,))
        return _pour(change, values[0].as_buffer())
    return (_encoder.encode(list(map(_change, *others, map(show_value, values.to_pylist()))))[1:-1],)


def _pour(change: Change, value: pa.Buffer | None) -> Iterator[bytes]:
    yield _encoder.encode(change).removesuffix(b"0}")
    yield from pour_value(None if value is None else memoryview(value))
    yield b"}"


def _change(seqno: int, moment: int, tags: Sequence[str], data: Any) -> Change:
    return Change(id=seqno + 1, ts=1000 * moment, tags=tags, data=data)


def _json(answer: msgspec.Struct) -> Response:
    return Response(_encoder.encode(answer), headers={"Cache-Control": "no-store"}, media_type="application/json")


_CHANGE: Final = {"_id": 13, "_ts": 1769860800000000000, "tags": ["blue"], "data": {"hello": "world"}}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "POST",
        "/changes",
        post_change,
        "Add a change",
        "Changes",
        "The topic is the one that http.changes_topic names; the first change makes it. An object with `data` may have "
        "`tags` too; any other JSON is itself the data.",
        body={"application/json": Content(PostedChange | Any, {"data": {"hello": "world"}, "tags": ["blue"]})},
        answers={200: {"application/json": Content(Change, _CHANGE)}},
        problems=(403, 404, 413, 422, 504, 507),
    ),
    Operation(
        "GET",
        "/changes",
        list_changes,
        "List changes",
        "Changes",
        query=ChangesQuery,
        meanings={
            "since": "Only changes behind this one.",
            "limit": "No more than so many.",
            "block": "Where there is none, wait so many seconds for one; limits.read_wait_ms is the longest.",
            "tag": "Only changes with this tag; given several times, with any of them.",
        },
        answers={
            200: {"application/json": Content(ChangeList, {"changes": [_CHANGE], "atStart": False, "atEnd": True})}
        },
    ),
    Operation(
        "GET",
        "/changes/{id}",
        get_change,
        "Get one change",
        "Changes",
        meanings={"id": "Its `_id`."},
        answers={200: {"application/json": Content(Change, _CHANGE)}},
        problems=(404,),
    ),
)
