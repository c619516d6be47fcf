"""What is wrong with the node, and what to do: as `logboom doctor` says it of a running node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.monitor.checkup import FINDINGS_MAX, FRESH_S, Complaint
from logboom.protocols.http.schema.operation import Content, Operation, caller_of

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
_encoder = msgspec.json.Encoder()


class Findings(msgspec.Struct, frozen=True):
    findings: list[Complaint]
    """The worst first."""


async def show_checkup(front_end: HttpFrontEnd, request: Request) -> Response:
    found = Findings(await front_end.examiners.findings(caller_of(request)))
    return Response(_encoder.encode(found), headers={"Cache-Control": "no-store"}, media_type=JSON)


_EXAMPLE: Final = Complaint(
    "warning", "writes refused", "the node", "switched to read-only", "`logboom accept` takes writes again"
)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/checkup",
        show_checkup,
        "What is wrong with the node, and what to do",
        "Node",
        f"As `logboom doctor` says it of a running node, the worst first, at most {FINDINGS_MAX}. The node looks at "
        f"all its topics and cursors for this, at most every {FRESH_S:.0f} seconds: an answer may be so old. "
        "What the caller may not know of is left out.",
        answers={200: {JSON: Content(Findings, {"findings": [msgspec.to_builtins(_EXAMPLE)]})}},
    ),
)
