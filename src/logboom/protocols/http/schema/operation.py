"""An operation of the API: what is asked for, what comes back, who answers. Routes and OpenAPI are made of these."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.caller import Caller
from logboom.broker.read.log_names import join_names
from logboom.protocols.http.problem import BadParameter, RequestError
from logboom.storage.data.topic import check_name

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

_WHOLE: Final = re.compile(r"-?\d+(\.0+)?", re.ASCII)
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[["HttpFrontEnd", Request], Awaitable[Response]]
Struct = TypeVar("Struct", bound=msgspec.Struct)
PAGE_RECORDS_MAX: Final = "http.page_records_max"
Text = Annotated[str, msgspec.Meta(min_length=1)]
"""A parameter that is there is not empty."""
PageLimit = Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"maximum": PAGE_RECORDS_MAX})]
"""Records on a page. The document has the node's own maximum, and `check_limit` holds it."""


class NoQuery(msgspec.Struct, frozen=True):
    """Of an operation that takes no parameters: any is refused."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a body may be: its type for the schema, and an example for people."""

    type: Any
    """A msgspec type; `bytes` for what is no JSON, `str` for text."""
    example: Any = None


@dataclass(frozen=True, slots=True)
class Operation:
    method: Method
    path: str
    """As Starlette and OpenAPI both have it: /topics/{topic}/records."""
    handler: Handler
    summary: str
    tag: str
    """The heading under which the docs page shows it."""
    description: str = ""
    query: type[msgspec.Struct] | None = None
    """A parameter for each field; its docstring below the field is not seen at run time: describe it in `meanings`."""
    headers: type[msgspec.Struct] | None = None
    """The same for headers of the request; `rename` gives their names."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """What each parameter of the path, query or headers means."""
    body: Mapping[str, Content] = field(default_factory=dict)
    """By media type; empty where there is none."""
    body_required: bool = True
    answers: Mapping[int, Mapping[str, Content]] = field(default_factory=dict)
    """By status, by media type. Problems need not be named: every operation may answer with one."""
    problems: tuple[int, ...] = ()
    """The statuses of problems that this operation may answer with, besides those every operation may."""
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that answers other than problems may have, and what each means."""

    @property
    def name(self) -> str:
        """The operation id."""
        return self.handler.__name__


def caller_of(request: Request) -> Caller:
    """Who is at the other end of its connection."""
    caller: Caller = request.scope["caller"]
    return caller


def topic_of(request: Request) -> str:
    """The topic in the path. Raises InvalidTopicName."""
    return check_name(request.path_params["topic"])


def topics_of(request: Request) -> str:
    """The topic in the path, or several of them, as `broker.read.log_names` has it."""
    text: str = request.path_params["topic"]
    return join_names(text) if any(mark in text for mark in ",*?") else check_name(text)


async def parse_body(request: Request, kind: type[Struct]) -> Struct:
    """The JSON body of a request as this type; where there is none, what the type is without any."""
    return parse_json(await request.body(), kind)


def parse_json(body: bytes, kind: type[Struct]) -> Struct:
    """Raises BadParameter that names the field, RequestError where it is no JSON at all."""
    body = body or b"{}"
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.convert(whole(msgspec.json.decode(body)), kind)
        raise bad_field(error, "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}", 400, "bad-json") from None


def whole(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is the integer 1, to JSON schema and to those who write it so.

    >>> whole({"partitions": 2.0, "share": 0.5})
    {'partitions': 2, 'share': 0.5}
    """
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_limit(front_end: HttpFrontEnd, limit: int) -> int:
    """Raises BadParameter where a page of so many records may not be asked for."""
    most = front_end.settings.page_records_max
    if limit > most:
        raise BadParameter("limit", f"is {limit:,}, allowed are 0 to {most:,}")
    return limit


def bad_field(error: msgspec.ValidationError, whole: str) -> BadParameter:
    """What is wrong in a value of `whole`, by the name of the field."""
    message, _, at = str(error).partition(" - at `$")
    return BadParameter(at.rstrip("`").lstrip(".") or whole, message)


def parse_query(request: Request, kind: type[Struct]) -> Struct:
    """The query of a request as this type. Raises BadParameter that names the parameter and what it may be."""
    try:
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError:
        raise BadParameter("query", "has bytes that are no UTF-8") from None
    return parse_texts(request.query_params.multi_items(), kind, "query")


def parse_headers(request: Request, kind: type[Struct]) -> Struct:
    """Those headers of a request that this type names."""
    wanted = {name.lower(): name for name in kind.__struct_encode_fields__}
    found = [(wanted[name], text) for name, text in request.headers.items() if name in wanted]
    return parse_texts(found, kind, "header")


def parse_texts(pairs: list[tuple[str, str]], kind: type[Struct], where: str) -> Struct:
    """One text for each field, several where it is a tuple. Unknown names are an error in a query."""
    known = _fields(kind)
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            raise BadParameter(name, f"is no parameter of this {where}; there are {', '.join(known) or 'none'}")
        if known[name]:
            found.setdefault(name, []).append(text)
        elif name in found:
            raise BadParameter(name, "is given twice")
        else:
            found[name] = text
    try:
        made = msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        wrong = bad_field(error, where)
        raise BadParameter(wrong.parameter.partition("[")[0], wrong.reason) from None
    for name, attribute in zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True):
        if name not in found:
            continue
        value = getattr(made, attribute)
        if value is None:
            raise BadParameter(name, "is null", "leave it out")
        if type(value) is int and _WHOLE.fullmatch(found[name]) is None:
            raise BadParameter(name, f"{found[name][:100]!r} is no whole number")
    return made


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """The parameters by name, and whether each may be given several times."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: isinstance(field.type, msgspec.inspect.VarTupleType) for field in info.fields}
