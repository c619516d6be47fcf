"""Who sends a request: whom its Authorization header names, or the cookie of a session; else whom the connection is of.

    Authorization: Basic base64(USER:PASSWORD)        Authorization: Bearer lbt_...        Cookie: logboom-...=...

Every request is looked at by itself: a connection may be shared, as a proxy does. Secrets are taken only where nobody
on the way can read them. A cookie is sent by the browser whoever has made the request, so it counts for requests of the
node's own pages alone: others are refused where they change something, and else taken for those of a stranger.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from starlette.types import Scope

from logboom.broker.caller import Caller
from logboom.errors import SignInFailed
from logboom.protocols.http.identity.sessions import Sessions
from logboom.protocols.http.origins import SAFE, Origins
from logboom.protocols.http.problem import RequestError

if TYPE_CHECKING:
    from logboom.broker.access.sign_in import SignIn

HEADER_BYTES_MOST: Final = 16 * 1024
"""Of Authorization: the longest name and password in base64 need less, and so do tokens of providers."""
BASIC: Final = (b"www-authenticate", b'Basic realm="logboom", charset="UTF-8"')
BEARER: Final = (b"www-authenticate", b'Bearer realm="logboom"')
_OF_BROWSERS: Final = frozenset({b"sec-fetch-mode", b"sec-fetch-site", b"logboom-page"})
"""Headers that programs do not send; the last is the console's own, for browsers that do not say what they are."""


class Entrance:
    """`sign_in` is None where nobody is asked: then nothing that a request shows is looked at."""

    def __init__(self, sign_in: SignIn | None, sessions: Sessions | None, origins: Origins) -> None:
        self._sign_in = sign_in
        self._sessions = sessions
        self._origins = origins

    async def admit(self, scope: Scope) -> None:
        """Make the one who sends it the caller of a request. Raises RequestError, SignInFailed."""
        if self._sign_in is None:
            return
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(shown) > 1:
            raise RequestError("there are two Authorization headers", 400, "bad-authorization", "send one")
        if shown:
            scope["caller"] = await self.identify(scope, shown[0])
        elif self._sessions is not None:
            self._admit_session(scope, self._sessions)

    def _admit_session(self, scope: Scope, sessions: Sessions) -> None:
        shown = sessions.shown_in(scope)
        caller = None if shown is None else sessions.find(shown, scope["caller"])
        if caller is None or not scope["private"]:
            return
        if self._origins.is_own(scope):
            scope["caller"], scope["session"] = caller, shown
        elif scope["method"] not in SAFE:
            raise RequestError(
                "a session is for the pages of this node, and the request does not say that it comes from one of them",
                403,
                "origin-not-allowed",
                "send Authorization instead of the cookie",
            )

    async def identify(self, scope: Scope, authorization: bytes) -> Caller:
        """The caller that such a header makes of the connection's. Raises RequestError, SignInFailed."""
        caller: Caller = scope["caller"]
        if self._sign_in is None:
            return caller
        if len(authorization) > HEADER_BYTES_MOST:
            reason = f"the Authorization header has {len(authorization):,} bytes, allowed are {HEADER_BYTES_MOST:,}"
            raise RequestError(reason, 400, "bad-authorization")
        scheme, _, secret = authorization.partition(b" ")
        kind = scheme.lower()
        if kind not in (b"basic", b"bearer"):
            raise SignInFailed(
                "the Authorization header is of a scheme that this node does not know: use Basic or Bearer"
            )
        check_private(scope)
        if kind == b"bearer":
            return await self._sign_in.with_token(caller, secret.strip().decode("latin-1"))
        user, password = parse_basic(secret.strip())
        return await self._sign_in.with_password(caller, user, password)


def parse_basic(secret: bytes) -> tuple[str, str]:
    """User and password of RFC 7617. Raises RequestError.

    >>> parse_basic(b"YWxpY2U6YTpi")
    ('alice', 'a:b')
    """
    try:
        user, colon, password = base64.b64decode(secret, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        user = colon = password = ""
    if not colon:
        raise RequestError(
            "the Authorization header has Basic, and not USER:PASSWORD in UTF-8 and base64 behind it",
            400,
            "bad-authorization",
        )
    return user, password


def check_private(scope: Scope) -> None:
    """Whether a secret may come over this connection. Raises RequestError."""
    if not scope["private"]:
        raise RequestError(
            "a password or token came over a connection that others can read: take it for known, and change it",
            403,
            "not-private",
            "use https://, or sign in from the node's own machine",
        )


def challenges(scope: Scope) -> list[tuple[bytes, bytes]]:
    """How to sign in, for an answer of 401. Without Basic where a browser asks: it would have its user type a password
    into a dialog of its own, and show that with whatever any page sends here from then on."""
    for name, value in scope["headers"]:
        if name in _OF_BROWSERS or (name == b"accept" and (b"text/html" in value or b"text/event-stream" in value)):
            return [BEARER]
    return [BASIC, BEARER]
