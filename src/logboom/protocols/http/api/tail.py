"""Following logs as server-sent events: one event for each record, as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import ReadRequest, Start
from logboom.broker.caller import Caller
from logboom.errors import InvalidBookmark, LogboomError, PartitionNotFound
from logboom.protocols.http.formats import StreamedResponse
from logboom.protocols.http.problem import BadParameter
from logboom.protocols.http.record_page import MEANINGS, Which, parse_start
from logboom.protocols.http.schema.operation import Content, Operation, Text, caller_of, parse_query, topics_of
from logboom.protocols.http.tail_events import TailEvents, error_event
from logboom.protocols.http.topics_page import is_several
from logboom.protocols.http.topics_tail import TopicsTail
from logboom.storage.bookmark import BookmarkSet

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

MEDIA_TYPE: Final = "text/event-stream"


class TailQuery(Which, frozen=True, kw_only=True):
    start: Text = msgspec.field(default="latest", name="from")


class TailHeaders(msgspec.Struct, frozen=True):
    last_event_id: str | None = msgspec.field(default=None, name="Last-Event-ID")


async def tail_records(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, TailQuery)
    last = request.headers.get("last-event-id")
    wanted = query.request(topics_of(request), parse_start(query.start) if not last else _resume(last))
    try:
        tail = await _begin(front_end, caller_of(request), wanted)
    except LogboomError as error:
        if not last:
            raise
        front_end.rejections.note(error)
        return _respond(_one_error(error))  # a browser that comes back shows its page nothing else
    return _respond(tail.events())


async def _begin(front_end: HttpFrontEnd, caller: Caller, wanted: ReadRequest) -> TailEvents:
    """Of one log, or of all those that are meant."""
    if is_several(wanted):
        return await TopicsTail.begin(front_end, caller, wanted)
    try:
        return await TailEvents.begin(front_end, caller, wanted)
    except PartitionNotFound:
        if wanted.partition is not None:
            raise
    return await TopicsTail.begin(front_end, caller, wanted)


def _resume(last: str) -> Start:
    try:
        return Start(bookmark=str(BookmarkSet.parse(last)))
    except InvalidBookmark as error:
        raise BadParameter("Last-Event-ID", str(error), "give the id of the last event as it came") from None


def _respond(events: AsyncGenerator[bytes, None]) -> Response:
    return StreamedResponse(events, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, MEDIA_TYPE)


async def _one_error(error: LogboomError) -> AsyncGenerator[bytes, None]:
    yield error_event(error)


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/topics/{topic}/tail",
        tail_records,
        "Follow records as they come",
        "Read",
        "Server-sent events, of one partition, of a whole topic, or of several (with commas, or a pattern with * "
        "and ?). The data of an event is a record, its id the bookmark behind it; after a lost connection "
        "the `Last-Event-ID` header goes on there, and no record is missed or comes twice. Where it cannot go on (the "
        "topic is gone or another one, what was read there is lost) an event named error has the problem as its data, "
        "and is the last.",
        query=TailQuery,
        headers=TailHeaders,
        meanings={
            **MEANINGS,
            "from": "Where to begin: a seqno, earliest, latest, a time as 2026-01-31T12:00:00Z, or a bookmark. "
            "Default: latest, which is only what is still to come.",
            "Last-Event-ID": "The id of the last event that came. Counts more than `from`.",
        },
        answers={200: {MEDIA_TYPE: Content(str)}},
        problems=(404, 410, 416),
    ),
)
