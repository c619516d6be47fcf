"""Reading records: a page from any place of a log, or one record.

A page says everything a reader needs to decide what to do next: `next` is where to go on, always; `at_end` that there
is nothing more now, so wait; `at_start` that nothing before it is kept any more. Large pages are sent in pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import Start
from logboom.broker.caller import Caller
from logboom.errors import CursorNotFound, PartitionNotFound, SeqnoOutOfRange
from logboom.protocols.http.formats import (
    MEDIA_TYPES,
    Format,
    RecordShown,
    RecordSource,
    choose,
    encode,
    respond,
    show,
)
from logboom.protocols.http.problem import BadParameter, RequestError
from logboom.protocols.http.record_page import (
    MEANINGS,
    PageRequest,
    RecordPage,
    Which,
    parse_end,
    parse_seqno,
    parse_start,
    read_page,
    read_record,
)
from logboom.protocols.http.schema.operation import (
    Content,
    Operation,
    PageLimit,
    Text,
    caller_of,
    check_limit,
    parse_query,
    topic_of,
    topics_of,
)
from logboom.protocols.http.topics_page import TopicsPage, is_several, read_topics
from logboom.storage.bookmark import Bookmark

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd


OCTETS: Final = "application/octet-stream"
VALUE_BYTES: Final = 256 * 1024
"""Of a large value so much is sent at once."""
_HARMLESS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
"""A value may be anything, a page with scripts too: no browser is to take it for one of ours."""


class RecordsQuery(Which, frozen=True, kw_only=True):
    start: Text | None = msgspec.field(default=None, name="from")
    until: Text | None = None
    limit: PageLimit | None = None
    wait: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    cursor: Text | None = None
    format: Format | None = None


class RecordQuery(msgspec.Struct, frozen=True):
    partition: int | None = None


class Links(msgspec.Struct, frozen=True):
    self: str
    next: str | None
    """Null where `until` was reached: nothing will ever come."""
    previous: str | None
    """As many records before this page; with a filter, those that match of so many. Null at the start."""


class RecordsPage(msgspec.Struct, frozen=True):
    records: list[RecordShown]
    topic: str
    topic_id: str | None
    """This, and what else is a place in one log, is null where there are several."""
    partition: int | None
    first: int | None
    """The first seqno of the log that can be read."""
    committed: int | None
    """The seqno behind the last one that can be read."""
    next: str
    """A bookmark: where to go on, whatever the page held."""
    next_seqno: int | None
    at_start: bool
    """The page begins with the first record that is kept: what was before it is gone, or never was."""
    at_end: bool
    """There is nothing more now, or nothing more before `until`."""
    links: Links


class RecordNotFound(RequestError):
    """It was dropped, is not written yet, or rules leave it out for whoever asks."""

    def __init__(self, error: SeqnoOutOfRange) -> None:
        is_there = error.first <= error.seqno < error.next
        words = f"record {error.seqno} is not for you: rules leave it out" if is_there else str(error)
        super().__init__(words, 404, "record-not-found", "data.first and data.next say what there is")
        self.seqno, self.first, self.next = error.seqno, error.first, error.next


async def read_records(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, RecordsQuery)
    choice = choose(", ".join(request.headers.getlist("accept")), query.format)
    wanted = await _wanted(front_end, caller_of(request), topics_of(request), query)
    page = await _read(front_end, request, wanted)
    if isinstance(page, TopicsPage):
        facts, source = _topics_facts(request, page), RecordSource(page.topic, 0)
    else:
        facts = _facts(request, page, wanted.limit)
        source = RecordSource(page.topic, page.partition)
    pieces = encode(choice.format, page.tables, source, facts)
    return await respond(front_end.threads, pieces, page.size, choice.media_type, _headers(facts))


async def _read(front_end: HttpFrontEnd, request: Request, wanted: PageRequest) -> RecordPage | TopicsPage:
    """Of one log, or of all those that are meant."""
    if is_several(wanted.request):
        return await read_topics(front_end, request, wanted)
    try:
        return await read_page(front_end, request, wanted)
    except PartitionNotFound:
        if wanted.request.partition is not None:
            raise
    if wanted.until.seqno is not None:
        raise BadParameter("until", "is a place in one log: name a time, or a partition")
    return await read_topics(front_end, request, wanted)


async def read_one_record(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, RecordQuery)
    seqno = path_seqno(request, "seqno")
    try:
        page = await read_record(front_end, request, topic_of(request), query.partition, seqno)
    except SeqnoOutOfRange as error:
        raise RecordNotFound(error) from None
    pieces = (piece for table in page.tables for piece in show(table))
    return await respond(front_end.threads, pieces, page.size, "application/json", {"Cache-Control": "no-store"})


async def read_value(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, RecordQuery)
    seqno, topic = path_seqno(request, "seqno"), topic_of(request)
    try:
        page = await read_record(front_end, request, topic, query.partition, seqno)
    except SeqnoOutOfRange as error:
        raise RecordNotFound(error) from None
    buffer = page.tables[0].column("value")[0].as_buffer()
    if buffer is None:
        return Response(status_code=204, headers=_HARMLESS)
    value = memoryview(buffer)
    pieces = (bytes(value[start : start + VALUE_BYTES]) for start in range(0, len(value), VALUE_BYTES))
    headers = {
        **_HARMLESS,
        "Content-Disposition": f'attachment; filename="{topic}-{page.partition}-{seqno}.bin"',
        "Content-Length": str(len(value)),
    }
    return await respond(front_end.threads, pieces, len(value), OCTETS, headers)


def path_seqno(request: Request, name: str) -> int:
    text = request.path_params[name]
    seqno = parse_seqno(text)
    if seqno is None:
        raise BadParameter(name, f"{text[:100]!r} is no number from 0 on")
    return seqno


async def _wanted(front_end: HttpFrontEnd, caller: Caller, topic: str, query: RecordsQuery) -> PageRequest:
    settings = front_end.settings
    usual = min(settings.page_records, settings.page_records_max)
    limit = usual if query.limit is None else check_limit(front_end, query.limit)
    if query.wait != query.wait:
        raise BadParameter("wait", "is no number of seconds")
    end = parse_end(query.until)
    start = await _start(front_end, caller, topic, query)
    return PageRequest(query.request(topic, start), limit, end, query.wait)


async def _start(front_end: HttpFrontEnd, caller: Caller, topic: str, query: RecordsQuery) -> Start:
    start = None if query.start is None else parse_start(query.start)
    if query.cursor is None:
        return start or Start()
    everywhere = Start(cursor=query.cursor, at="earliest" if start is None else start.at)
    if is_several(query.request(topic, Start())):
        return everywhere
    try:
        bookmark = await front_end.broker.fetch_cursor(query.cursor, topic, query.partition, caller=caller)
    except PartitionNotFound:
        if query.partition is not None:
            raise
        return everywhere
    if bookmark is not None:
        return Start(bookmark=bookmark)
    if start is None:
        raise CursorNotFound(query.cursor, topic)
    return start


def _facts(request: Request, page: RecordPage, limit: int) -> RecordsPage:
    """Everything but the records."""
    following = None if page.is_over else _link(request, {"from": page.bookmark})
    links = Links(_link(request, {}), following, _previous(request, page, limit))
    return RecordsPage(
        [],
        page.topic,
        page.topic_id,
        page.partition,
        page.first,
        page.committed,
        page.bookmark,
        page.next_seqno,
        page.at_start,
        page.at_end,
        links,
    )


def _topics_facts(request: Request, page: TopicsPage) -> RecordsPage:
    following = None if page.is_over else _link(request, {"from": page.bookmark})
    links, nothing = Links(_link(request, {}), following, None), (None, None, None, None)
    return RecordsPage([], page.topic, *nothing, page.bookmark, None, page.at_start, page.at_end, links)


def _previous(request: Request, page: RecordPage, limit: int) -> str | None:
    count = min(limit, page.start - page.first)
    if count <= 0:
        return None
    start = str(page.start - count)
    if page.has_gaps:
        return _link(request, {"from": start, "until": str(page.start)})
    return _link(request, {"from": start, "limit": str(count)})


def _link(request: Request, changes: dict[str, str]) -> str:
    """The same request with other parameters. One that began at a cursor goes on from where it began."""
    left_out = {*changes, *({"cursor"} if "from" in changes else ())}
    kept = [(name, text) for name, text in request.query_params.multi_items() if name not in left_out]
    query = urlencode([*changes.items(), *kept])
    return quote(request.scope["path"]) + (f"?{query}" if query else "")


def _headers(facts: RecordsPage) -> dict[str, str]:
    links = {"next": facts.links.next, "prev": facts.links.previous}
    seqnos = {
        "Logboom-Next-Seqno": facts.next_seqno,
        "Logboom-First": facts.first,
        "Logboom-Committed": facts.committed,
    }
    shown = [f'<{link}>; rel="{name}"' for name, link in links.items() if link is not None]
    return {
        "Cache-Control": "no-store",
        "Logboom-Next": facts.next,
        "Logboom-At-Start": str(facts.at_start).lower(),
        "Logboom-At-End": str(facts.at_end).lower(),
        **{name: str(seqno) for name, seqno in seqnos.items() if seqno is not None},
        "Vary": "Accept",
        **({"Link": ", ".join(shown)} if shown else {}),
    }


_RECORD: Final = {
    "seqno": 12,
    "timestamp": "2026-01-31T12:00:00.000000Z",
    "key": "sensor-7",
    "value": {"t": 21.5},
    "channel": "site/7/temp",
    "tags": ["outdoor"],
    "headers": [],
}
_TOPIC_ID: Final = "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d"
_NEXT: Final = str(Bookmark(bytes.fromhex(_TOPIC_ID), 0, 13, 1))
_PAGE: Final = {
    "records": [_RECORD],
    "topic": "events",
    "topic_id": _TOPIC_ID,
    "partition": 0,
    "first": 0,
    "committed": 13,
    "next": _NEXT,
    "next_seqno": 13,
    "at_start": False,
    "at_end": True,
    "links": {
        "self": "/topics/events/records?from=12",
        "next": f"/topics/events/records?from={_NEXT}",
        "previous": "/topics/events/records?from=0&limit=12",
    },
}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/topics/{topic}/records",
        read_records,
        "Read a page of records",
        "Read",
        "A page may hold fewer records than the limit, or none, before the end: it is also bounded in bytes, and with "
        "a filter in time. `next` says where to go on, always. At the end, `at_end` is true: ask again from `next`, "
        "with `wait`. Where `from` lies before what is kept, the problem is `seqno-out-of-range` and says what is. "
        "Where the topic has several partitions and none is named, or where there are several topics (with commas, or "
        "a pattern with * and ?), records of all of them come, in order inside each partition; each says its topic and "
        "partition, and `next` stands for all. "
        "Arrow and Parquet have the columns topic, partition, seqno, timestamp, key, value, channel, tags, headers; "
        "what JSON says besides the records is in headers that begin with Logboom-, and in Link.",
        query=RecordsQuery,
        meanings={
            **MEANINGS,
            "from": "Where to begin: a seqno, earliest, latest, a time as 2026-01-31T12:00:00Z (the first record at or "
            "after it), or a bookmark. Default: earliest.",
            "until": "Where to end: before this seqno, or where `from` this time would begin; so pages from one time "
            "until the next have every record once.",
            "limit": "Return no more than so many records, exactly. 0 only tells where the log stands.",
            "wait": "Where there is nothing, wait so many seconds for a record; limits.read_wait_ms is the longest.",
            "cursor": "Begin where this cursor stands; where there is none, at `from`, or it is a problem.",
            "format": "What Accept says otherwise.",
        },
        answers={
            200: {
                MEDIA_TYPES["json"][0]: Content(RecordsPage, _PAGE),
                MEDIA_TYPES["ndjson"][0]: Content(RecordShown, _RECORD),
                MEDIA_TYPES["arrow"][0]: Content(bytes),
                MEDIA_TYPES["parquet"][0]: Content(bytes),
            }
        },
        problems=(404, 406, 410, 416),
        answer_headers={
            "Logboom-Next": "A bookmark: where to go on.",
            "Logboom-Next-Seqno": "The seqno there.",
            "Logboom-At-Start": "`true` where the page begins with the first record that is kept.",
            "Logboom-At-End": "`true` where there is nothing more now.",
            "Logboom-First": "The first seqno of the log that can be read.",
            "Logboom-Committed": "The seqno behind the last one that can be read.",
            "Link": "The next and the previous page.",
        },
    ),
    Operation(
        "GET",
        "/topics/{topic}/records/{seqno}",
        read_one_record,
        "Read one record",
        "Read",
        query=RecordQuery,
        meanings={
            "topic": MEANINGS["topic"],
            "partition": "Needed where the topic has several.",
            "seqno": "The record's number.",
        },
        answers={200: {"application/json": Content(RecordShown, _RECORD)}},
        problems=(404,),
    ),
    Operation(
        "GET",
        "/topics/{topic}/records/{seqno}/value",
        read_value,
        "Read the value of one record",
        "Read",
        "Its bytes exactly as they were written, as a file to be saved. 204 where the record is a tombstone: its value "
        "is null.",
        query=RecordQuery,
        meanings={
            "topic": MEANINGS["topic"],
            "partition": "Needed where the topic has several.",
            "seqno": "The record's number.",
        },
        answers={200: {OCTETS: Content(bytes)}, 204: {}},
        problems=(404,),
        answer_headers={"Content-Disposition": "A name for the file."},
    ),
)
