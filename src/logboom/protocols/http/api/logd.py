"""The logd text protocol by way of HTTP: commands in, the answers they get out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from logboom.protocols.http.problem import RequestError
from logboom.protocols.http.schema.operation import Content, Operation, caller_of

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

MEDIA_TYPE: Final = "application/logd"


async def converse(front_end: HttpFrontEnd, request: Request) -> Response:
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise RequestError(
            f"this takes {MEDIA_TYPE}, not {given[:100] or 'a body without a type'}",
            415,
            "unsupported-media-type",
            f"say Content-Type: {MEDIA_TYPE}; records as JSON go to /topics/{{topic}}/records",
        )
    if front_end.converse is None:
        raise RequestError("this node does not speak logd", 501, "logd-off")
    answers = await front_end.converse(await request.body(), caller_of(request))
    return Response(answers, headers={"Cache-Control": "no-store"}, media_type=MEDIA_TYPE)


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "POST",
        "/log",
        converse,
        "Send logd commands",
        "logd",
        "The body is what a connection of the logd protocol would send, the answer is what it would get. Commands that "
        "follow a log for ever have no place here.",
        body={MEDIA_TYPE: Content(str, "MSG events 5\r\nhello\r\nHEAD events\r\n")},
        answers={200: {MEDIA_TYPE: Content(str, "OK 0 1\r\nOK 0 1\r\n")}},
        problems=(501,),
    ),
)
