"""What is staged and not published, and the keys that something was published under: seen, and thrown away.

Staging and publishing themselves need batches and an order, and so the binary protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import KeyInfo, StageInfo
from logboom.broker.slices import in_order
from logboom.errors import StageBusy, StageNotFound
from logboom.protocols.http.problem import RequestError
from logboom.protocols.http.record_page import SEQNO_MAX
from logboom.protocols.http.schema.operation import Content, NoQuery, Operation, caller_of, parse_query

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Staging"
_encoder = msgspec.json.Encoder()


class StagesQuery(msgspec.Struct, frozen=True):
    sort: Literal["touched", "size"] = "touched"
    offset: Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


class KeysQuery(msgspec.Struct, frozen=True):
    prefix: str = ""
    sort: Literal["name", "published"] = "name"
    offset: Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


class KeyQuery(msgspec.Struct, frozen=True):
    name: str


class StageList(msgspec.Struct, frozen=True):
    stages: list[StageInfo]
    total: int
    """On all pages."""


class KeyList(msgspec.Struct, frozen=True):
    keys: list[KeyInfo]
    total: int
    """Of those asked for, on all pages."""


async def list_stages(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, StagesQuery)
    found = await front_end.broker.list_stages(caller=caller_of(request))
    if query.sort == "size":
        found = await in_order(found, lambda info: -info.size_bytes)
    return _json(StageList(found[query.offset : query.offset + query.limit], len(found)))


async def discard_stage(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    stage = request.path_params["stage"]
    if not await front_end.broker.discard([stage], caller=caller_of(request)):
        known = any(info.id == stage for info in await front_end.broker.list_stages(caller=caller_of(request)))
        raise StageBusy(stage) if known else StageNotFound(stage)
    return Response(status_code=204)


async def list_keys(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, KeysQuery)
    found = await front_end.broker.list_keys(query.prefix, caller=caller_of(request))
    if query.sort == "published":
        found = await in_order(found, lambda info: -info.published)
    return _json(KeyList(found[query.offset : query.offset + query.limit], len(found)))


async def forget_key(front_end: HttpFrontEnd, request: Request) -> Response:
    name = parse_query(request, KeyQuery).name
    if not await front_end.broker.forget_key(name, caller=caller_of(request)):
        raise RequestError(f"nothing was published under {name[:249]!r}", 404, "key-not-found")
    return Response(status_code=204)


def _json(answer: msgspec.Struct) -> Response:
    return Response(_encoder.encode(answer), headers={"Cache-Control": "no-store"}, media_type=JSON)


_STAGE: Final = StageInfo(
    "9b2e7c40d5a1468f8e13f0a7c6d4b259",
    2**63 + 77,
    1769860800000000,
    1769860860000000,
    1769947260000000,
    250_000,
    31_457_280,
    ["events/0", "events/1"],
    note="import of Monday",
)
_KEY: Final = KeyInfo("orders/import", 7, 250_000, 1769860920000000)
_PAGE: Final = {"offset": "Leave out so many.", "limit": "How many at most."}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/stages",
        list_stages,
        "List stages",
        TAG,
        "Stages that are not published. An unused stage is discarded when it expires.",
        query=StagesQuery,
        meanings={"sort": "`touched`: longest unused first; `size`: largest first.", **_PAGE},
        answers={200: {JSON: Content(StageList, {"stages": [msgspec.to_builtins(_STAGE)], "total": 1})}},
    ),
    Operation(
        "DELETE",
        "/stages/{stage}",
        discard_stage,
        "Throw a stage away",
        TAG,
        "Whoever fills it is told that it is gone. One that is being published stays.",
        query=NoQuery,
        answers={204: {}},
        problems=(404, 409),
    ),
    Operation(
        "GET",
        "/keys",
        list_keys,
        "List what was published, by its key",
        TAG,
        "Of each name the highest number.",
        query=KeysQuery,
        meanings={
            "prefix": "Only names that begin so.",
            "sort": "`name`, or `published`: newest first.",
            **_PAGE,
        },
        answers={200: {JSON: Content(KeyList, {"keys": [msgspec.to_builtins(_KEY)], "total": 1})}},
    ),
    Operation(
        "DELETE",
        "/keys",
        forget_key,
        "Forget a key",
        TAG,
        "From then on its name is one that was never published under: a publish that is repeated is appended again. "
        "Where a publish can never be finished, what is in the logs stays there and the rest is given up.",
        query=KeyQuery,
        meanings={"name": "Of the key; any printable characters, so it is no part of the path."},
        answers={204: {}},
        problems=(404,),
    ),
)
