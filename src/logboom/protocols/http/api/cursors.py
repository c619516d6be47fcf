"""Cursors: named places in a log, kept by the node, to be gone on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import CursorInfo, ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.broker.slices import in_order
from logboom.errors import CursorNotFound, InvalidBookmark, TopicRecreated
from logboom.protocols.http.problem import RequestError
from logboom.protocols.http.record_page import MEANINGS, SEQNO_MAX, Seqno, term_before
from logboom.protocols.http.schema.operation import (
    Content,
    NoQuery,
    Operation,
    caller_of,
    parse_body,
    parse_query,
    topic_of,
)
from logboom.storage.bookmark import Bookmark

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

_encoder = msgspec.json.Encoder()


class TopicCursorsQuery(msgspec.Struct, frozen=True):
    prefix: str = ""
    sort: Literal["name", "lag"] = "name"
    offset: Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


class CursorsQuery(TopicCursorsQuery, frozen=True):
    topic: str | None = None


class CursorQuery(msgspec.Struct, frozen=True):
    partition: int | None = None


class CursorList(msgspec.Struct, frozen=True):
    cursors: list[CursorInfo]
    total: int
    """Of those asked for, on all pages."""


class CursorPlace(msgspec.Struct, frozen=True):
    """Where a cursor stands in one log."""

    cursor: str
    topic: str
    partition: int
    seqno: int
    """Of the record that is read next."""
    bookmark: str
    lag: int | None
    """Records between it and the end of its log; null where it is left over from another topic of this name."""


class CursorPut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bookmark or a seqno, one of both."""

    rule: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": ["bookmark"], "properties": {"bookmark": {"type": "string"}}},
            {"required": ["seqno"], "properties": {"seqno": {"type": "integer"}}},
        ]
    }
    bookmark: str | None = None
    """As it came in `next` of a page, or as the id of an event."""
    seqno: Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)] | None = None
    """Of the record that is to be read next."""
    force: bool = False
    """Move the cursor back, too: to a place before the one where it stands."""
    expect: str | None = None
    """The bookmark where the cursor must stand, or an empty one where there must be no cursor: else nothing happens."""


async def list_cursors(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, CursorsQuery)
    return _json(await _page(front_end, caller_of(request), query.topic, query))


async def list_topic_cursors(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, TopicCursorsQuery)
    topic = await front_end.broker.describe_topic(topic_of(request), caller=caller_of(request))
    return _json(await _page(front_end, caller_of(request), topic.name, query))


async def _page(front_end: HttpFrontEnd, caller: Caller, topic: str | None, query: TopicCursorsQuery) -> CursorList:
    found = await front_end.broker.list_cursors(topic, query.prefix, caller=caller)
    if query.sort == "lag":
        found = await in_order(found, lambda info: 1 if info.lag is None else -info.lag)
    return CursorList(found[query.offset : query.offset + query.limit], len(found))


async def get_cursor(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, CursorQuery)
    topic, cursor, caller = topic_of(request), request.path_params["cursor"], caller_of(request)
    bookmark = await front_end.broker.fetch_cursor(cursor, topic, query.partition, caller=caller)
    if bookmark is None:
        raise CursorNotFound(cursor, topic)
    return _json(await _place(front_end, caller, cursor, topic, bookmark))


async def put_cursor(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, CursorQuery)
    topic, cursor, caller = topic_of(request), request.path_params["cursor"], caller_of(request)
    put = await parse_body(request, CursorPut)
    if put.bookmark is not None and put.seqno is None:
        bookmark = put.bookmark
        await _check(front_end, caller, topic, query.partition, Bookmark.parse(bookmark))
    elif put.seqno is not None and put.bookmark is None:
        bookmark = await bookmark_at(front_end, caller, topic, query.partition, put.seqno)
    else:
        raise RequestError("the body has a bookmark or a seqno, one of both", fix='send {"seqno": 12}, for example')
    await front_end.broker.commit_cursor(cursor, topic, query.partition, bookmark, put.force, put.expect, caller=caller)
    return _json(await _place(front_end, caller, cursor, topic, bookmark))


async def delete_cursor(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    topic, cursor, caller = topic_of(request), request.path_params["cursor"], caller_of(request)
    await front_end.broker.describe_topic(topic, caller=caller)
    if not await front_end.broker.delete_cursor(cursor, topic, caller=caller):
        raise CursorNotFound(cursor, topic)
    return Response(status_code=204)


async def _check(front_end: HttpFrontEnd, caller: Caller, topic: str, partition: int | None, place: Bookmark) -> None:
    """Whose bookmark it is comes before where that lies: a place of another log says nothing of this one."""
    topic_id = (await front_end.broker.describe_topic(topic, caller=caller)).id
    if place.topic_id.hex() != topic_id:
        raise TopicRecreated(topic, place.topic_id.hex(), topic_id)
    if partition not in (None, place.partition):
        raise InvalidBookmark(f"the bookmark is of partition {place.partition}, not {partition}")


async def bookmark_at(front_end: HttpFrontEnd, caller: Caller, topic: str, partition: int | None, seqno: Seqno) -> str:
    """Raises SeqnoOutOfRange where the log has no such place."""
    chunk = await front_end.broker.read(ReadRequest(topic, Start(seqno=seqno), partition, max_bytes=1), caller=caller)
    term = await term_before(front_end.broker, caller, topic, chunk, seqno)
    return chunk.bookmark_at(seqno, term)


async def _place(front_end: HttpFrontEnd, caller: Caller, cursor: str, topic: str, bookmark: str) -> CursorPlace:
    place, info = Bookmark.parse(bookmark), await front_end.broker.describe_topic(topic, caller=caller)
    lag = None
    if place.topic_id.hex() == info.id:
        log = next((log for log in info.partitions if log.partition == place.partition), None)
        lag = None if log is None else max(0, log.committed - place.seqno)
    return CursorPlace(cursor, topic, place.partition, place.seqno, bookmark, lag)


def _json(answer: msgspec.Struct) -> Response:
    return Response(_encoder.encode(answer), headers={"Cache-Control": "no-store"}, media_type="application/json")


_TOPIC_ID: Final = "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d"
_BOOKMARK: Final = str(Bookmark(bytes.fromhex(_TOPIC_ID), 0, 13, 1))
_PLACE: Final = {
    "cursor": "billing",
    "topic": "events",
    "partition": 0,
    "seqno": 13,
    "bookmark": _BOOKMARK,
    "lag": 2,
}
_LIST: Final = {"cursors": [{**_PLACE, "topic_id": _TOPIC_ID, "updated": 1769860800000000}], "total": 1}
_MEANINGS: Final = {
    "topic": MEANINGS["topic"],
    "cursor": "The cursor's name.",
    "partition": "Needed where the topic has several.",
    "prefix": "Only cursors whose names begin so.",
    "sort": "`name`, or `lag`: those that lag most come first.",
    "offset": "Leave out so many.",
    "limit": "How many at most.",
}
_PATH: Final = "/topics/{topic}/cursors/{cursor:path}"

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/cursors",
        list_cursors,
        "List cursors",
        "Cursors",
        query=CursorsQuery,
        meanings={**_MEANINGS, "topic": "Only cursors of this topic."},
        answers={200: {"application/json": Content(CursorList, _LIST)}},
    ),
    Operation(
        "GET",
        "/topics/{topic}/cursors",
        list_topic_cursors,
        "List the cursors of a topic",
        "Cursors",
        query=TopicCursorsQuery,
        meanings=_MEANINGS,
        answers={200: {"application/json": Content(CursorList, _LIST)}},
        problems=(404,),
    ),
    Operation(
        "GET",
        _PATH,
        get_cursor,
        "See where a cursor stands",
        "Cursors",
        "GET /topics/{topic}/records?cursor= reads from there on.",
        query=CursorQuery,
        meanings=_MEANINGS,
        answers={200: {"application/json": Content(CursorPlace, _PLACE)}},
        problems=(404,),
    ),
    Operation(
        "PUT",
        _PATH,
        put_cursor,
        "Put a cursor somewhere",
        "Cursors",
        "It is durable when this is answered. A place before the one where it stands is refused, unless `force` is "
        "true; with `expect`, so is any place while it stands elsewhere. A bookmark of another topic or partition is "
        "refused.",
        query=CursorQuery,
        meanings=_MEANINGS,
        body={"application/json": Content(CursorPut, {"bookmark": _BOOKMARK})},
        answers={200: {"application/json": Content(CursorPlace, _PLACE)}},
        problems=(404, 409, 410, 416),
    ),
    Operation(
        "DELETE",
        _PATH,
        delete_cursor,
        "Delete a cursor",
        "Cursors",
        "In every partition of the topic.",
        query=NoQuery,
        meanings=_MEANINGS,
        answers={204: {}},
        problems=(404,),
    ),
)
