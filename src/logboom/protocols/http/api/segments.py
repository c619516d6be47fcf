"""The segments that a log consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import SegmentInfo
from logboom.broker.monitor.segments import LIMIT_MAX
from logboom.protocols.http.schema.operation import Content, Operation, caller_of, parse_query, topic_of

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
_encoder = msgspec.json.Encoder()


class SegmentsQuery(msgspec.Struct, frozen=True):
    partition: int | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = 1_000


class SegmentList(msgspec.Struct, frozen=True):
    segments: list[SegmentInfo]
    """Oldest first."""


async def list_segments(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, SegmentsQuery)
    found = SegmentList(
        await front_end.broker.segments(topic_of(request), query.partition, query.limit, caller=caller_of(request))
    )
    return Response(_encoder.encode(found), headers={"Cache-Control": "no-store"}, media_type=JSON)


_EXAMPLE: Final = SegmentInfo(0, 12_000, 1, 0, 4096, True, 1_769_860_800_000_000, 1_769_860_923_000_000, None)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/topics/{topic}/segments",
        list_segments,
        "List the segments of a log",
        "Topics",
        "The files that a partition's log consists of: from which seqno to which, how large, how old, and what is "
        "known to be wrong with each. Retention drops whole segments, the oldest first.",
        query=SegmentsQuery,
        meanings={
            "topic": "Its name.",
            "partition": "Needed where the topic has several.",
            "limit": "How many at most: the newest ones.",
        },
        answers={200: {JSON: Content(SegmentList, {"segments": [msgspec.to_builtins(_EXAMPLE)]})}},
        problems=(404,),
    ),
)
