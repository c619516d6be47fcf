"""Topics over HTTP: made, shown, changed, trimmed, deleted; and whether they, or the node, take writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import PartitionInfo, Settings, TopicInfo
from logboom.protocols.http.problem import BadParameter
from logboom.protocols.http.schema.operation import (
    Content,
    Operation,
    bad_field,
    caller_of,
    parse_body,
    parse_query,
    topic_of,
    whole,
)
from logboom.storage.data.topic import PARTITIONS_MAX, check_name

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Topics"
_encoder = msgspec.json.Encoder()

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ListQuery(msgspec.Struct, frozen=True):
    prefix: str = ""
    internal: bool = False
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


class TopicList(msgspec.Struct, frozen=True):
    topics: list[TopicInfo]
    next: str | None = None
    """What to give as `after` for those that follow."""


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[A-Za-z0-9._-]{1,249}$"})]
    partitions: Annotated[int, msgspec.Meta(ge=1, extra_json_schema={"maximum": PARTITIONS_MAX})] | None = None
    settings: Settings | None = None


class TopicChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, Any]
    """What is not named stays; null puts the default back."""


class DeleteQuery(msgspec.Struct, frozen=True):
    topic_id: str | None = None


class Trim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seqno: Number
    partition: Number | None = None


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: str = ""


async def list_topics(front_end: HttpFrontEnd, request: Request) -> Response:
    query = parse_query(request, ListQuery)
    found = await front_end.broker.list_topics(query.prefix, query.internal, caller=caller_of(request))
    found = sorted((info for info in found if info.name > query.after), key=lambda info: info.name)
    page = found[: query.limit]
    return _json(TopicList(page, page[-1].name if len(found) > len(page) else None))


async def create_topic(front_end: HttpFrontEnd, request: Request) -> Response:
    new = await parse_body(request, NewTopic)
    info = await front_end.broker.create_topic(
        check_name(new.name), new.partitions, new.settings, caller=caller_of(request)
    )
    return _json(info, 201, {"location": f"/topics/{info.name}"})


async def describe_topic(front_end: HttpFrontEnd, request: Request) -> Response:
    return _json(await front_end.broker.describe_topic(topic_of(request), caller=caller_of(request)))


async def change_topic(front_end: HttpFrontEnd, request: Request) -> Response:
    topic = topic_of(request)
    change = await parse_body(request, TopicChange)
    async with front_end.changing:  # of two changes at once both are to last
        before = (await front_end.broker.describe_topic(topic, caller=caller_of(request))).settings
        settings = merge_settings(before, change.settings)
        return _json(await front_end.broker.configure_topic(topic, settings, caller=caller_of(request)))


async def delete_topic(front_end: HttpFrontEnd, request: Request) -> Response:
    await front_end.broker.delete_topic(
        topic_of(request), parse_query(request, DeleteQuery).topic_id, caller=caller_of(request)
    )
    return Response(status_code=204)


async def trim_topic(front_end: HttpFrontEnd, request: Request) -> Response:
    topic = topic_of(request)
    trim = await parse_body(request, Trim)
    return _json(await front_end.broker.trim(topic, trim.partition, trim.seqno, caller=caller_of(request)))


async def refuse_topic(front_end: HttpFrontEnd, request: Request) -> Response:
    topic = topic_of(request)
    await front_end.broker.refuse(topic, (await parse_body(request, Refusal)).reason, caller=caller_of(request))
    return Response(status_code=204)


async def accept_topic(front_end: HttpFrontEnd, request: Request) -> Response:
    await front_end.broker.accept(topic_of(request), caller=caller_of(request))
    return Response(status_code=204)


async def refuse_node(front_end: HttpFrontEnd, request: Request) -> Response:
    await front_end.broker.refuse(None, (await parse_body(request, Refusal)).reason, caller=caller_of(request))
    return Response(status_code=204)


async def accept_node(front_end: HttpFrontEnd, request: Request) -> Response:
    await front_end.broker.accept(None, caller=caller_of(request))
    return Response(status_code=204)


async def promote_node(front_end: HttpFrontEnd, request: Request) -> Response:
    await front_end.broker.promote(caller=caller_of(request))
    return Response(status_code=204)


def merge_settings(settings: Settings, changes: dict[str, Any]) -> Settings:
    """The settings with these changes: what is not named stays, null puts the default back.

    >>> merge_settings(Settings(), {"retention": {"bytes": 1_000_000}}).retention.bytes
    1000000
    """
    defaults = dict.fromkeys(Settings.__struct_fields__) | msgspec.to_builtins(Settings())
    merged = _merge(defaults | msgspec.to_builtins(settings), whole(changes), defaults, "settings")
    try:
        return msgspec.convert({name: value for name, value in merged.items() if value is not None}, Settings)
    except msgspec.ValidationError as error:
        wrong = bad_field(error, "")
        raise BadParameter(f"settings.{wrong.parameter}".rstrip("."), wrong.reason) from None


def _merge(before: dict[str, Any], changes: dict[str, Any], defaults: dict[str, Any], path: str) -> dict[str, Any]:
    merged = dict(before)
    for name, change in changes.items():
        here = f"{path}.{name}"[:200]
        if name not in before:
            raise BadParameter(here, f"is no setting; there are {', '.join(before)}")
        if change is None:
            merged[name] = defaults[name]
        elif isinstance(before[name], dict):
            if not isinstance(change, dict):
                raise BadParameter(here, f"is a group of settings: {', '.join(before[name])}")
            merged[name] = _merge(before[name], change, defaults[name], here)
        else:
            merged[name] = change
    return merged


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encoder.encode(value), status, headers, JSON)


_LOG: Final = PartitionInfo(0, 0, 13, 13, size_bytes=4096, segments=1, newest=1_769_860_800_000_000)
_TOPIC: Final = msgspec.to_builtins(TopicInfo("events", "5f0c7a5e9d1b4c3f8a2e6d7b1c0f9e8d", [_LOG], Settings()))
_INFO: Final = {JSON: Content(TopicInfo, _TOPIC)}
_NOTHING: Final[dict[int, dict[str, Content]]] = {204: {}}
_NAME: Final = {"topic": "Its name."}

OPERATIONS: Final = (
    Operation(
        "GET",
        "/topics",
        list_topics,
        summary="List topics",
        tag=TAG,
        query=ListQuery,
        meanings={
            "prefix": "Only topics whose name begins so.",
            "internal": "The node's own topics too.",
            "after": "Only topics whose name comes after this one: `next` of the page before.",
            "limit": "How many at most.",
        },
        answers={200: {JSON: Content(TopicList, {"topics": [_TOPIC], "next": None})}},
    ),
    Operation(
        "POST",
        "/topics",
        create_topic,
        summary="Create a topic",
        tag=TAG,
        description=(
            "Without partitions or without settings it has those of the node's rules; settings that are named in part "
            "are completed by Logboom's defaults. A write makes a topic too, where the rules allow it."
        ),
        body={JSON: Content(NewTopic, {"name": "events", "partitions": 4})},
        answers={201: _INFO},
        problems=(403, 409, 507),
        answer_headers={"Location": "The topic's path."},
    ),
    Operation(
        "GET",
        "/topics/{topic}",
        describe_topic,
        summary="Show a topic",
        tag=TAG,
        description="Its partitions, from which seqno to which, and its settings.",
        meanings=_NAME,
        answers={200: _INFO},
        problems=(404,),
    ),
    Operation(
        "PATCH",
        "/topics/{topic}",
        change_topic,
        summary="Change a topic's settings",
        tag=TAG,
        description="What is not named stays as it is; null puts the default back.",
        meanings=_NAME,
        body={JSON: Content(TopicChange, {"settings": {"retention": {"age_ms": 604_800_000, "bytes": None}}})},
        answers={200: _INFO},
        problems=(403, 404),
    ),
    Operation(
        "DELETE",
        "/topics/{topic}",
        delete_topic,
        summary="Delete a topic",
        tag=TAG,
        description="With all its records and cursors.",
        query=DeleteQuery,
        meanings={**_NAME, "topic_id": "Only if the topic still has this id."},
        answers=_NOTHING,
        problems=(403, 404, 409, 410),
    ),
    Operation(
        "POST",
        "/topics/{topic}/trim",
        trim_topic,
        summary="Trim a topic",
        tag=TAG,
        description="Nothing below the seqno is ever served again.",
        meanings=_NAME,
        body={JSON: Content(Trim, {"seqno": 1000, "partition": 0})},
        answers={200: {JSON: Content(PartitionInfo, msgspec.to_builtins(_LOG))}},
        problems=(403, 404, 416, 503),
    ),
    Operation(
        "POST",
        "/topics/{topic}/refuse",
        refuse_topic,
        summary="Take no more writes to a topic",
        tag=TAG,
        description="Until `accept`, or a restart.",
        meanings=_NAME,
        body={JSON: Content(Refusal, {"reason": "moving it"})},
        body_required=False,
        answers=_NOTHING,
        problems=(403, 404),
    ),
    Operation(
        "POST",
        "/topics/{topic}/accept",
        accept_topic,
        summary="Take writes to a topic again",
        tag=TAG,
        meanings=_NAME,
        answers=_NOTHING,
        problems=(404,),
    ),
    Operation(
        "POST",
        "/refuse",
        refuse_node,
        summary="Take no more writes at all",
        tag="Node",
        description="Until `accept`, or a restart.",
        body={JSON: Content(Refusal, {"reason": "maintenance"})},
        body_required=False,
        answers=_NOTHING,
    ),
    Operation(
        "POST",
        "/accept",
        accept_node,
        summary="Take writes again",
        tag="Node",
        answers=_NOTHING,
    ),
    Operation(
        "POST",
        "/promote",
        promote_node,
        summary="Make a replica independent",
        tag="Node",
        description="It copies no more, and takes writes from now on. Nothing happens to a node that is no replica.",
        answers=_NOTHING,
    ),
)
