"""The API as an OpenAPI 3.1 document, made of the operations and the types they are made of.

Nothing is written down twice: what is not in an operation or a type is not in the document, and whatever answers is. It
is made when it is first asked for, once, and is the same bytes each time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom import __version__
from logboom.access.principal import ANONYMOUS, FORM, GROUP
from logboom.protocols.http.problem import MEDIA_TYPE, Problem
from logboom.protocols.http.schema.operation import PAGE_RECORDS_MAX, Content, Operation
from logboom.protocols.http.schema.schemas import Schema, Schemas
from logboom.protocols.http.settings import HttpSettings

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

DESCRIPTION: Final = """\
A commit log over HTTP: topics, records, cursors, groups. Whatever goes wrong is answered as application/problem+json, \
with a `code` that stays the same, the `parameter` that is wrong, and a `fix` where there is one. Where the node asks \
who you are, each request says so: `Authorization: Basic` with a user and a password, or `Authorization: Bearer` and a \
token."""

TAGS: Final = {
    "Topics": "Names for logs: make them, look at them, set them, delete them.",
    "Write": "Append records.",
    "Read": "Read records: a page at a time, one by its seqno, or as they come.",
    "Cursors": "Named places in a log, kept by the node.",
    "Groups": "Consumers that share the logs of topics.",
    "Staging": "What is staged and not published yet, and the keys of what was.",
    "Pipeline": "What Spark makes of logs: jobs, their runs and results.",
    "Changes": "One topic as a feed of changes.",
    "logd": "The logd text protocol, by way of HTTP.",
    "Node": "The node itself: whether it is well, what it counts, how it is set.",
    "Access": "Who may do what: users, tokens, rules; and who you are.",
    "Page": "This document, and the page that shows it.",
}
"""The headings in their order. Others come behind them."""

_PRINCIPAL: Final = f"^{FORM}$"
PATH_PARAMETERS: Final[dict[str, tuple[Schema, str, Any]]] = {
    "topic": ({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}, "The name of a topic.", "events"),
    "cursor": ({"type": "string", "pattern": "^[A-Za-z0-9._/:-]{1,249}$"}, "The name of a cursor.", "billing"),
    "group": ({"type": "string", "pattern": "^[A-Za-z0-9._/:-]{1,248}$"}, "The name of a group.", "billing"),
    "member": (
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{16,64}$"},
        "The id of a member.",
        "3f1c9a7e52b84d06a1e7c0d95b42f8aa",
    ),
    "seqno": ({"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "The number of a record in its log.", 0),
    "stage": (
        {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "The id of a stage.",
        "9b2e7c40d5a1468f8e13f0a7c6d4b259",
    ),
    "user": ({"type": "string", "pattern": _PRINCIPAL}, "The name of a user.", "alice"),
    "role": ({"type": "string", "pattern": _PRINCIPAL}, "The name of a role.", "audit"),
    "who": (
        {"type": "string", "pattern": rf"^(\*|{ANONYMOUS}|({GROUP})?{FORM})$"},
        "A user, `group:NAME`, `*` for every user who has no quota of his own, or `anonymous`.",
        "alice",
    ),
    "token": ({"type": "string", "pattern": "^[0-9a-f]{12}$"}, "The id of a token.", "0a1b2c3d4e5f"),
    "rule": ({"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "The number of a rule.", 7),
    "id": ({"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "The number of a change.", 0),
}
"""Schema, meaning, example."""

PROBLEMS: Final = {
    400: "The request is not what this operation takes.",
    401: "The node wants to know who you are, or what you showed is wrong; `WWW-Authenticate` says how to sign in.",
    403: "The node's rules do not allow it.",
    404: "There is no such topic, partition, record, cursor, group, member, stage, key, user, token, rule or quota.",
    405: "This path has other methods; `Allow` names them.",
    406: "None of the media types that were asked for is one this operation can answer with.",
    408: "The request did not come in time.",
    409: "Something else was there first.",
    410: "What was read there is gone, or is another topic's by now.",
    411: "The body has no length.",
    413: "The body, or a batch, is larger than the node allows.",
    415: "The body is of a media type, or an encoding, that this operation does not take.",
    416: "The log does not have this seqno.",
    421: "The node is called by a name that is not its own; `http.allowed_hosts` adds it.",
    422: "A validator of the topic refuses the records.",
    429: "More than a limit of the node allows.",
    431: "The head of the request is larger than the node allows.",
    500: "The node has failed; its log says why.",
    501: "This node does not have it.",
    503: "Not now: the node or the topic takes no writes, is overloaded, or shuts down.",
    504: "Whether it was done is not known.",
    507: "Too little space is left on the node's volume.",
}
SECURITY: Final[Schema] = {
    "basic": {"type": "http", "scheme": "basic", "description": "A user and a password."},
    "token": {"type": "http", "scheme": "bearer", "description": "A token of `POST /access/tokens`: lbt_..."},
}
"""How requests show whose they are. Over TLS, or from the node's own machine."""
ALWAYS: Final = (400, 401, 403, 406, 408, 421, 429, 431, 500, 503)
WITH_A_PATH: Final = (404,)
WITH_A_BODY: Final = (413, 415)


async def openapi(front_end: HttpFrontEnd, request: Request) -> Response:
    body = await asyncio.to_thread(rendered, front_end.settings.page_records_max)
    return Response(body, media_type="application/json")


@cache
def rendered(page_records_max: int) -> bytes:
    """Takes some time when it is first called."""
    from logboom.protocols.http.api.operations import ALL  # which has this module's operations too

    return msgspec.json.encode(document(ALL, page_records_max))


def document(
    operations: Iterable[Operation], page_records_max: int = HttpSettings().page_records_max
) -> dict[str, Any]:
    operations = list(operations)
    schemas = Schemas(_types(operations), {PAGE_RECORDS_MAX: page_records_max})
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = re.sub(r"{(\w+):\w+}", r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, schemas)
    used = {operation.tag for operation in operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Logboom",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            *({"name": tag, "description": text} for tag, text in TAGS.items() if tag in used),
            *({"name": tag} for tag in sorted(used - TAGS.keys())),
        ],
        "security": [{}, *({name: []} for name in SECURITY)],
        "paths": paths,
        "components": {
            "schemas": schemas.without(_parameter_structs(operations)),
            "responses": {f"Problem{status}": _problem(text, schemas) for status, text in PROBLEMS.items()},
            "securitySchemes": SECURITY,
        },
    }


def _types(operations: list[Operation]) -> Iterator[Any]:
    yield Problem
    yield from _parameter_structs(operations)
    for operation in operations:
        for contents in (operation.body, *operation.answers.values()):
            yield from (content.type for content in contents.values())


def _parameter_structs(operations: list[Operation]) -> Iterator[type[msgspec.Struct]]:
    for operation in operations:
        yield from (struct for struct in (operation.query, operation.headers) if struct is not None)


def _operation(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": operation.name, "tags": [operation.tag], "summary": operation.summary}
    if operation.description:
        made["description"] = operation.description
    if parameters := [*_path_parameters(operation), *_parameters(operation, schemas)]:
        made["parameters"] = parameters
    if operation.body:
        made["requestBody"] = {"required": operation.body_required, "content": _contents(operation.body, schemas)}
    made["responses"] = _responses(operation, schemas)
    return made


def _path_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)", operation.path):
        schema, meaning, example = PATH_PARAMETERS.get(name, ({"type": "string"}, "", None))
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": operation.meanings.get(name, meaning),
            "schema": schema,
            **({} if example is None else {"example": example}),
        }


def _parameters(operation: Operation, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for where, struct in (("query", operation.query), ("header", operation.headers)):
        if struct is None:
            continue
        component = schemas.component(struct)
        for name, schema in component["properties"].items():
            schema, meaning = _parameter_schema(schema)
            yield {
                "name": name,
                "in": where,
                "required": name in component["required"],
                "description": operation.meanings.get(name, meaning),
                "schema": schema,
            }


def _parameter_schema(schema: Schema) -> tuple[Schema, str]:
    """What the text of a parameter may be: it is there or not, but never null. And what its source says of it."""
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "description")}
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    kept |= choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}
    if kept.get("default", 0) in (None, [], ()):
        del kept["default"]
    return kept, schema.get("description", "")


def _responses(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    made = {str(status): _answer(status, operation, schemas) for status in operation.answers}
    statuses = {*ALWAYS, *operation.problems}
    statuses |= {*WITH_A_PATH} if "{" in operation.path else set()
    statuses |= {*WITH_A_BODY} if operation.body else set()
    for status in sorted(statuses):
        made.setdefault(str(status), {"$ref": f"#/components/responses/Problem{status}"})
    return made


def _answer(status: int, operation: Operation, schemas: Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if operation.answer_headers:
        made["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}}
            for name, meaning in operation.answer_headers.items()
        }
    if operation.answers[status]:
        made["content"] = _contents(operation.answers[status], schemas)
    return made


def _contents(contents: Mapping[str, Content], schemas: Schemas) -> dict[str, Any]:
    return {media_type: _content(content, schemas) for media_type, content in contents.items()}


def _content(content: Content, schemas: Schemas) -> dict[str, Any]:
    schema = {"type": "string", "format": "binary"} if content.type is bytes else schemas.of(content.type)
    example = content.example.decode() if isinstance(content.example, bytes) else content.example
    return {"schema": schema} if example is None else {"schema": schema, "example": example}


def _problem(text: str, schemas: Schemas) -> dict[str, Any]:
    return {"description": text, "content": {MEDIA_TYPE: {"schema": schemas.of(Problem)}}}


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/openapi.json",
        openapi,
        "This API as an OpenAPI document",
        "Page",
        answers={200: {"application/json": Content(dict[str, Any])}},
    ),
)
