"""A page for people: every operation, what it takes and gives, and a form that calls it.

One file without anything from elsewhere: it reads /openapi.json and shows it. Its headers let the browser run this
script and no other, and talk to this node alone.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from logboom.protocols.http.schema.operation import Content, Operation

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd


async def docs(front_end: HttpFrontEnd, request: Request) -> Response:
    page, policy = _page()
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})


@cache
def _page() -> tuple[bytes, str]:
    """The page, and the policy that allows what is in it."""
    page = resources.files(__package__).joinpath("page.html").read_bytes()
    allowed = {
        "default-src": "'none'",
        "script-src": _hash(page, b"script"),
        "style-src": _hash(page, b"style"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return page, "; ".join(f"{name} {source}" for name, source in allowed.items())


def _hash(page: bytes, tag: bytes) -> str:
    """Of what stands inside the only element of this kind."""
    (inside,) = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside).digest()).decode()}'"


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("GET", "/docs", docs, "This page", "Page", answers={200: {"text/html": Content(str)}}),
)
