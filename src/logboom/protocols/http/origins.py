"""Which web pages may call: their own node's, and those of http.cors_origins.

A browser sends requests from any page to any node it can reach, and a plain write needs nobody's leave (CORS asks
before reading answers, not before sending a form). So what comes from a foreign page and is not allowed is refused
before it does anything, unless it only reads.

Whose page it is, a browser tells by the name of the host: `hosts.py` says which names are this node's. Those that
http.cors_origins has are, too: their pages may read everything anyway.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from logboom.protocols.http.hosts import SHOWN, Hosts, name_of
from logboom.protocols.http.problem import RequestError

MAX_AGE_S: Final = 600
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
"""What Sec-Fetch-Site says of the node's own pages, and of what a person has typed."""
_OWN_PAGE: Final = "same-origin"
EXPOSED: Final = (
    "Location, Link, Retry-After, Logboom-Next, Logboom-Next-Seqno, Logboom-At-Start, Logboom-At-End, "
    "Logboom-First, Logboom-Committed"
)


class Origins:
    def __init__(self, allowed: tuple[str, ...], hosts: Hosts) -> None:
        self._allowed = frozenset(allowed)
        self._all = "*" in allowed
        self._hosts = hosts

    def check(self, scope: Scope) -> None:
        """Raises where the node is called by a name that is not its own, or by a page that may not."""
        hosts, origins, sites = _said(scope)
        host = self._check_host(scope, hosts)
        if len(origins) > 1:
            raise RequestError("there are two Origin headers", 400, "bad-origin", "send one")
        if scope["method"] not in SAFE:
            self._check_change(scope, host, origins, sites)

    def is_own(self, scope: Scope) -> bool:
        """Whether a page of this node has made a request, or a person where it only reads. After `check`."""
        hosts, origins, sites = _said(scope)
        host = scope.get("authority", hosts[0] if hosts else "")
        if any(not _is_page_of(scope, host, origin) for origin in origins):
            return False
        if scope["method"] in SAFE:
            return _OWN_SITES.issuperset(sites)
        return bool(origins) if not sites else all(site == _OWN_PAGE for site in sites)

    def _check_host(self, scope: Scope, hosts: list[str]) -> str:
        if len(hosts) > 1 or (not hosts and scope["http_version"] != "1.0"):
            count = "two Host headers" if hosts else "no Host header"
            raise RequestError(f"there is {count} in the request", 400, "bad-host", "send one, with the node's name")
        host: str | None = scope.get("authority", hosts[0] if hosts else None)
        if host is None:
            return ""  # from times before there were names; no browser does so any more
        if not self._hosts.knows(host) and not self._is_allowed(f"http://{host}", f"https://{host}"):
            raise RequestError(
                f"the request names the host {host[:SHOWN]!r}, which is not a name of this node",
                421,
                "host-not-allowed",
                f"add {name_of(host)[:SHOWN]} to http.allowed_hosts, or use the node's address",
            )
        return host

    def _check_change(self, scope: Scope, host: str, origins: list[str], sites: list[str]) -> None:
        for origin in origins:
            if not self._is_allowed(origin) and not _is_page_of(scope, host, origin):
                raise RequestError(
                    f"pages of {origin[:SHOWN]!r} may not do this",
                    403,
                    "origin-not-allowed",
                    "add the origin to http.cors_origins",
                )
        if not origins and not _OWN_SITES.issuperset(sites):
            raise RequestError(
                "a page of another site sends this, and does not say which",
                403,
                "origin-not-allowed",
                "let the browser send Origin, and add that to http.cors_origins",
            )

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

    def _is_allowed(self, *origins: str) -> bool:
        return self._all or not self._allowed.isdisjoint(origins)


def _said(scope: Scope) -> tuple[list[str], list[str], list[str]]:
    """What a request says of hosts, of origins, and of the site of whoever makes it."""
    hosts, origins, sites = list[str](), list[str](), list[str]()
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value.decode("latin-1"))
        elif name == b"origin":
            origins.append(value.decode("latin-1"))
        elif name == b"sec-fetch-site":
            sites.append(value.decode("latin-1").lower())
    return hosts, origins, sites


def _is_page_of(scope: Scope, host: str, origin: str) -> bool:
    """Whether an origin is the node's own. Behind a proxy its pages may have TLS where the node has none; but a page
    without any, which whoever is on the way can make up, is none of a node with TLS."""
    scheme, _, name = origin.partition("://")
    return name == host and (scheme == "https" or scope.get("scheme") != "https")


def _header(scope: Scope, name: bytes) -> str | None:
    """None also where there are several."""
    found = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return found[0] if len(found) == 1 else None
