"""Quotas over HTTP: how much users and groups may take, and what they take now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.access.quota import MOST, Quota
from logboom.broker.api import QuotaUsage
from logboom.protocols.http.problem import RequestError
from logboom.protocols.http.schema.operation import Content, NoQuery, Operation, caller_of, parse_body, parse_query

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Access"
Rate = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class NewQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not named is not limited."""

    bytes_in: Rate | None = None
    """Each second, as all rates are: whoever takes more waits."""
    bytes_out: Rate | None = None
    records_in: Rate | None = None
    records_out: Rate | None = None
    requests: Rate | None = None
    connections: Count | None = None
    """At one time: one too many is refused."""
    topics: Count | None = None
    """That somebody has made, and that are there: one too many is refused."""


class QuotaList(msgspec.Struct, frozen=True):
    quotas: list[QuotaUsage]


async def list_quotas(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return _shown(await front_end.broker.list_quotas(caller=caller_of(request)))


async def show_quota(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return _shown(await front_end.broker.show_quota(request.path_params["who"], caller=caller_of(request)))


async def set_quota(front_end: HttpFrontEnd, request: Request) -> Response:
    if not await request.body():
        raise RequestError("there is no body", 400, "no-body", "send the limits as JSON; {} for none at all")
    quota = msgspec.convert(await parse_body(request, NewQuota), Quota, from_attributes=True)
    await front_end.broker.set_quota(request.path_params["who"], quota, caller=caller_of(request))
    return Response(status_code=204)


async def remove_quota(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    await front_end.broker.remove_quota(request.path_params["who"], caller=caller_of(request))
    return Response(status_code=204)


def _shown(found: list[QuotaUsage]) -> Response:
    return Response(msgspec.json.encode(QuotaList(found)), 200, {"Cache-Control": "no-store"}, JSON)


_EXAMPLE: Final = QuotaList(
    [
        QuotaUsage(
            *("group:analysts", "group:analysts", Quota(bytes_out=50_000_000, connections=20)),
            {"bytes_out": 31_457_280.5, "connections": 4.0},
            *(0.0, 12.7),
        )
    ]
)
_ANSWER: Final = {200: {JSON: Content(QuotaList, msgspec.to_builtins(_EXAMPLE))}}
_PATH: Final = "/access/quotas/{who:path}"

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/access/quotas",
        list_quotas,
        "List quotas",
        TAG,
        "With what is in use now. Of `*` nothing is: each user has his own.",
        query=NoQuery,
        answers=_ANSWER,
    ),
    Operation(
        "GET",
        _PATH,
        show_quota,
        "Show what is taken of a quota",
        TAG,
        "By a user: of every quota that binds him. Of `*`: by those who have waited longest for it.",
        query=NoQuery,
        answers=_ANSWER,
        problems=(404,),
    ),
    Operation(
        "PUT",
        _PATH,
        set_quota,
        "Set a quota",
        TAG,
        "All of it: what the body does not name is not limited. It counts at once, for those who wait too. Without any "
        "limit it keeps `*` from binding a user.",
        body={JSON: Content(NewQuota, {"bytes_in": 10_000_000, "requests": 100, "connections": 5})},
        answers={204: {}},
    ),
    Operation(
        "DELETE",
        _PATH,
        remove_quota,
        "Remove a quota",
        TAG,
        query=NoQuery,
        answers={204: {}},
        problems=(404,),
    ),
)
