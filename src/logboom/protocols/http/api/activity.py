"""What the node and its topics do, over HTTP: the last minutes, sampled by the node itself, for whoever draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import Activity, ActivityRequest, History, TopicHistory
from logboom.broker.monitor.activity import ActivitySort, LagHistory, Percentiles, TopicActivity
from logboom.broker.monitor.ranking import LIMIT_MAX, SEARCH_MAX
from logboom.protocols.http.schema.operation import Content, NoQuery, Operation, caller_of, parse_query, topic_of
from logboom.storage.data.topic import RetentionSettings

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Node"
_encoder = msgspec.json.Encoder()

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class HistoryQuery(msgspec.Struct, frozen=True):
    since: Number = 0


class ActivityQuery(msgspec.Struct, frozen=True):
    search: Annotated[str, msgspec.Meta(max_length=SEARCH_MAX)] = ""
    sort: ActivitySort = "name"
    descending: bool = False
    offset: Number = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = 50
    internal: bool = False


async def show_activity(front_end: HttpFrontEnd, request: Request) -> Response:
    return _json(await front_end.broker.history(parse_query(request, HistoryQuery).since, caller=caller_of(request)))


async def list_activity(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, ActivityQuery)
    wanted = ActivityRequest(query.search, query.sort, query.descending, query.offset, query.limit, query.internal)
    return _json(await front_end.broker.activity(wanted, caller=caller_of(request)))


async def show_topic_activity(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return _json(await front_end.broker.topic_history(topic_of(request), caller=caller_of(request)))


def _json(answer: msgspec.Struct) -> Response:
    return Response(_encoder.encode(answer), headers={"Cache-Control": "no-store"}, media_type=JSON)


_AT: Final = [1769860800000000, 1769860802000000]
_HISTORY: Final = History(
    interval_ms=2000,
    at=_AT,
    records_in=[1200.0, 1250.5],
    bytes_in=[98_304.0, 102_400.0],
    records_out=[600.0, 0.0],
    bytes_out=[49_152.0, 0.0],
    append=Percentiles([0.00048, 0.00051], [0.0019, 0.0038]),
    sync=Percentiles([0.0011, 0.0012], [0.0061, 0.0075]),
    read=Percentiles([0.0002, None], [0.0009, None]),
    rejections=[0, 3],
    connections=[12, 12],
    memory_bytes=[150_000_000, 150_200_000],
    open_files=[80, 80],
    unsynced_bytes=[0, 4096],
    disk_free_bytes=[80_000_000_000, 79_999_000_000],
)
_TOPIC: Final = TopicActivity(
    name="events",
    id="5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d",
    partitions=1,
    records=1_000_000,
    size_bytes=80_000_000,
    newest=1769860801900000,
    retention=RetentionSettings(),
    refused=None,
    damaged=0,
    records_in=1250.5,
    bytes_in=102_400.0,
    records_out=0.0,
    bytes_out=0.0,
    recent_in=[2400, 2501],
    recent_out=[],
    cursors=1,
    lag=12,
)
_ACTIVITY: Final = Activity(2000, 240, 1, [_TOPIC])
_TOPIC_HISTORY: Final = TopicHistory(2000, _AT, [2400, 2501], [1200, 0], [LagHistory("billing", 0, [None, 12])])

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/activity",
        show_activity,
        "What the node did in the last minutes",
        TAG,
        "A sample every two seconds, for ten minutes. Who asks again gives the last `at` as `since`.",
        query=HistoryQuery,
        meanings={"since": "Only samples after this, microseconds since 1970."},
        answers={200: {JSON: Content(History, msgspec.to_builtins(_HISTORY))}},
    ),
    Operation(
        "GET",
        "/activity/topics",
        list_activity,
        "What topics do now",
        TAG,
        "Searched, sorted, and a page of them. Those that are equal are in the order of their names.",
        query=ActivityQuery,
        meanings={
            "search": "Words that all are in the name, in any case.",
            "sort": "By what; rates are those of the last sample.",
            "descending": "The largest first.",
            "offset": "How many to leave out.",
            "limit": "How many at most.",
            "internal": "The node's own topics, too.",
        },
        answers={200: {JSON: Content(Activity, msgspec.to_builtins(_ACTIVITY))}},
    ),
    Operation(
        "GET",
        "/activity/topics/{topic}",
        show_topic_activity,
        "What a topic did in the last minutes",
        TAG,
        "A sample every two seconds, for five minutes, with the lag of its cursors. Of a node with more than a "
        "thousand cursors only those of topics that are asked for are followed, from when they are.",
        query=NoQuery,
        meanings={"topic": "The topic's name."},
        answers={200: {JSON: Content(TopicHistory, msgspec.to_builtins(_TOPIC_HISTORY))}},
        problems=(404,),
    ),
)
