"""What the node has refused lately, and what it has warned of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import Incident
from logboom.protocols.http.schema.operation import Content, Operation, caller_of

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
_encoder = msgspec.json.Encoder()


class IncidentList(msgspec.Struct, frozen=True):
    incidents: list[Incident]
    """Newest first."""


async def show_incidents(front_end: HttpFrontEnd, request: Request) -> Response:
    found = IncidentList(await front_end.broker.incidents(caller=caller_of(request)))
    return Response(_encoder.encode(found), headers={"Cache-Control": "no-store"}, media_type=JSON)


_EXAMPLE: Final = Incident(
    "rejection", "limits.topics", "limits.topics is 20000: delete some", 3, 1_769_860_800_000_000, 1_769_860_923_000_000
)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/incidents",
        show_incidents,
        "What was refused or went wrong lately",
        "Node",
        "Each different rejection, warning or error once, with how often it came; newest first. What a client has "
        "misspelt is only counted. The node keeps a bounded number of incidents, since its start.",
        answers={200: {JSON: Content(IncidentList, {"incidents": [msgspec.to_builtins(_EXAMPLE)]})}},
    ),
)
