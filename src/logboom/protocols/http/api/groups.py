"""Groups of consumers over HTTP, as who looks after them sees them: listed, looked at, reset, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import GroupDescription, GroupInfo, GroupLog, GroupReset, MemberInfo
from logboom.broker.slices import in_order
from logboom.protocols.http.record_page import SEQNO_MAX, parse_start
from logboom.protocols.http.schema.operation import (
    Content,
    NoQuery,
    Operation,
    Text,
    caller_of,
    parse_body,
    parse_query,
)
from logboom.storage.bookmark import Bookmark

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Groups"


class GroupsQuery(msgspec.Struct, frozen=True):
    prefix: str = ""
    sort: Literal["name", "lag"] = "name"
    offset: Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


class GroupList(msgspec.Struct, frozen=True):
    groups: list[GroupInfo]
    total: int
    """Of those asked for, on all pages."""


class NewPlaces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topics: Text
    """A topic, one of its logs as `orders/2`, a pattern as `orders.*`; or several of these with commas."""
    to: Text
    """`earliest`, `latest`, a time as 2026-01-31T12:00:00Z, a bookmark, or in one log a seqno."""
    dry_run: bool = False
    """Only say what would be."""


class ResetPlaces(msgspec.Struct, frozen=True):
    resets: list[GroupReset]


async def list_groups(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, GroupsQuery)
    found = await front_end.broker.list_groups(query.prefix, caller=caller_of(request))
    by_name = query.sort == "name"
    found = await in_order(found, lambda info: (0 if by_name else -info.lag, info.group))
    return shown(GroupList(found[query.offset : query.offset + query.limit], len(found)))


async def describe_group(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return shown(await front_end.broker.describe_group(request.path_params["group"], caller=caller_of(request)))


async def reset_group(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    new = await parse_body(request, NewPlaces)
    group, start = request.path_params["group"], parse_start(new.to, "to")
    made = await front_end.broker.reset_group(group, new.topics, start, new.dry_run, caller=caller_of(request))
    return shown(ResetPlaces(made))


async def delete_group(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    await front_end.broker.delete_group(request.path_params["group"], caller=caller_of(request))
    return Response(status_code=204)


def shown(answer: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(answer), headers={"Cache-Control": "no-store"}, media_type=JSON)


_TOPIC_ID: Final = "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d"
_WHEN: Final = 1769860800000000
_EXAMPLE: Final = GroupDescription(
    *("billing", "logs", "stable", 4),
    members=[
        MemberInfo(
            *("3f1c9a7e52b84d06a1e7c0d95b42f8aa", "", "curl/8.14.1", "alice", "127.0.0.1:51234", "orders"),
            *(_WHEN, 20_000, 850, ["orders/0"]),
        )
    ],
    logs=[
        GroupLog(
            *("orders", _TOPIC_ID, 0, "3f1c9a7e52b84d06a1e7c0d95b42f8aa", 4, 13),
            str(Bookmark(bytes.fromhex(_TOPIC_ID), 0, 13, 1)),
            *(0, 15, 2, _WHEN),
        )
    ],
    lag=2,
)
_LIST: Final = GroupList([GroupInfo("billing", "logs", "stable", members=1, logs=1, lag=2, generation=4)], 1)
_RESETS: Final = ResetPlaces([GroupReset("orders", 0, 13, 0)])
_PATH: Final = "/groups/{group:path}"

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/groups",
        list_groups,
        "List groups",
        TAG,
        query=GroupsQuery,
        meanings={
            "prefix": "Only groups whose names begin so.",
            "sort": "`name`, or `lag`: those that lag most come first.",
            "offset": "Leave out so many.",
            "limit": "How many at most.",
        },
        answers={200: {JSON: Content(GroupList, msgspec.to_builtins(_LIST))}},
    ),
    Operation(
        "POST",
        f"{_PATH}/reset",
        reset_group,
        "Put a group's places elsewhere",
        TAG,
        "In all logs of these topics; the group is made where there is none. It must have no members.",
        query=NoQuery,
        body={JSON: Content(NewPlaces, {"topics": "orders", "to": "earliest", "dry_run": True})},
        answers={200: {JSON: Content(ResetPlaces, msgspec.to_builtins(_RESETS))}},
        problems=(404, 409, 410, 416),
    ),
    Operation(
        "GET",
        _PATH,
        describe_group,
        "Describe a group",
        TAG,
        "Its members, and of each of its logs who holds it, where the group stands in it, and how far that is from its "
        "end.",
        query=NoQuery,
        answers={200: {JSON: Content(GroupDescription, msgspec.to_builtins(_EXAMPLE))}},
        problems=(404,),
    ),
    Operation(
        "DELETE",
        _PATH,
        delete_group,
        "Delete a group",
        TAG,
        "With its places in all logs. It must have no members.",
        query=NoQuery,
        answers={204: {}},
        problems=(404, 409),
    ),
)
