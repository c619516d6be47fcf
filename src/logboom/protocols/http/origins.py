"""Which web pages may call: their own node's, and those of http.cors_origins.

A browser sends requests from any page to any node it can reach, and a plain write needs nobody's leave (CORS asks
before reading answers, not before sending a form). So what comes from a foreign page and is not allowed is refused
before it does anything, unless it only reads.

Whose page it is, a browser tells by the name of the host, and a name can be made to lead anywhere, here too. So what
comes from a browser must call the node by what nobody else can own: an address, a name without dots, the machine's
own; or by a name that http.cors_origins has. Programs other than browsers may use any name.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from logboom.protocols.http.problem import RequestError

MAX_AGE_S: Final = 600
_PORT: Final = re.compile(r":\d*$")
_MACHINE: Final = socket.gethostname().lower()
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
EXPOSED: Final = (
    "Location, Link, Retry-After, Logboom-Next, Logboom-Next-Seqno, Logboom-At-Start, Logboom-At-End, "
    "Logboom-First, Logboom-Committed"
)


class Origins:
    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = frozenset(allowed)
        self._all = "*" in allowed

    def check(self, scope: Scope) -> None:
        """Raises where a page has sent this that may not."""
        origin = _header(scope, b"origin")
        host = _header(scope, b"host") or ""
        if (origin is not None or _header(scope, b"sec-fetch-site") is not None) and not self._is_ours(host):
            raise RequestError(
                f"a web page calls this node {host[:200]!r}, and that name could be anybody's",
                403,
                "host-not-allowed",
                f"use the node's address, or add http://{host[:200]} to http.cors_origins",
            )
        if origin is None or scope["method"] in _SAFE or self._is_allowed(origin):
            return
        if origin.partition("://")[2] != host:
            raise RequestError(
                f"pages of {origin[:200]!r} may not do this",
                403,
                "origin-not-allowed",
                "add the origin to http.cors_origins",
            )

    def _is_ours(self, host: str) -> bool:
        name = _PORT.sub("", host).lower()
        if self._all or "." not in name or name in (_MACHINE, "localhost") or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return any(f"{scheme}://{host}" in self._allowed for scheme in ("http", "https"))
        return True

    def preflight(self, scope: Scope, methods: str) -> Response:
        response = Response(status_code=204, headers={"allow": methods})
        origin = _header(scope, b"origin")
        if origin is not None and self._is_allowed(origin):
            response.headers["access-control-allow-methods"] = methods
            wanted = _header(scope, b"access-control-request-headers")
            if wanted is not None:
                response.headers["access-control-allow-headers"] = wanted
            response.headers["access-control-max-age"] = str(MAX_AGE_S)
        return response

    def mark(self, scope: Scope, response: Response) -> None:
        """Let the page that asked see the answer, where it may."""
        if not self._allowed:
            return
        response.headers.add_vary_header("Origin")
        origin = _header(scope, b"origin")
        if origin is not None and self._is_allowed(origin):
            response.headers["access-control-allow-origin"] = "*" if self._all else origin
            response.headers["access-control-expose-headers"] = EXPOSED

    def _is_allowed(self, origin: str) -> bool:
        return self._all or origin in self._allowed


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)
