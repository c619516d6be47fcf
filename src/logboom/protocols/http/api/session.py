"""Who one is here, and signing in with a browser: a session, which a cookie stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from logboom.broker.api import CallerInfo
from logboom.broker.caller import Caller
from logboom.protocols.http.identity.entrance import HEADER_BYTES_MOST, check_private
from logboom.protocols.http.problem import BadParameter, RequestError
from logboom.protocols.http.schema.operation import Content, NoQuery, Operation, caller_of, parse_body, parse_query

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

JSON: Final = "application/json"
TAG: Final = "Access"
Secret = Annotated[str, msgspec.Meta(max_length=HEADER_BYTES_MOST)]


class SignInForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user with a password, or a token."""

    user: Secret | None = None
    password: Secret | None = None
    token: Secret | None = None

    def __repr__(self) -> str:
        return "<SignInForm>"


class KnownCaller(msgspec.Struct, frozen=True):
    caller: CallerInfo
    session: bool = False
    """Whether a session says so, which can be ended."""


async def show_caller(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    return await _identity(front_end, caller_of(request), "session" in request.scope)


async def begin_session(front_end: HttpFrontEnd, request: Request) -> Response:
    form = await parse_body(request, SignInForm)
    check_private(request.scope)
    sign_in, sessions = front_end.sign_in, front_end.sessions
    if sign_in is None or sessions is None:
        raise RequestError("this node asks nobody who he is", 501, "no-sign-in")
    # Whoever has a session already signs in as somebody from the same place, not as himself.
    stranger = Caller(protocol="http", address=caller_of(request).address)
    if form.token is not None:
        if form.user is not None or form.password is not None:
            raise BadParameter("token", "is given beside a user or a password", "give one or the other")
        caller = await sign_in.with_token(stranger, form.token.strip())
    elif form.user is None or form.password is None:
        raise BadParameter("user", "there is no user with a password, and no token", "give one or the other")
    else:
        caller = await sign_in.with_password(stranger, form.user, form.password)
    if (before := sessions.shown_in(request.scope)) is not None:
        sessions.end(before)
    response = await _identity(front_end, caller, True)
    response.headers["set-cookie"] = sessions.cookie(request.scope, sessions.begin(caller))
    return response


async def end_session(front_end: HttpFrontEnd, request: Request) -> Response:
    parse_query(request, NoQuery)
    response = Response(status_code=204)
    sessions = front_end.sessions
    if sessions is not None:
        if (shown := sessions.shown_in(request.scope)) is not None:
            sessions.end(shown)
        response.headers["set-cookie"] = sessions.cookie(request.scope, "")
    return response


async def _identity(front_end: HttpFrontEnd, caller: Caller, is_session: bool) -> Response:
    found = KnownCaller(await front_end.broker.whoami(caller=caller), is_session)
    return Response(msgspec.json.encode(found), headers={"Cache-Control": "no-store"}, media_type=JSON)


_EXAMPLE: Final = KnownCaller(CallerInfo("alice", ["accounting"], [], "http", "127.0.0.1:50112", "password"), True)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/access/whoami",
        show_caller,
        "How the node knows you",
        TAG,
        query=NoQuery,
        answers={200: {JSON: Content(KnownCaller, msgspec.to_builtins(_EXAMPLE))}},
    ),
    Operation(
        "POST",
        "/access/session",
        begin_session,
        "Sign in with a browser",
        TAG,
        "The answer sets a cookie, which counts for pages of this node alone. Programs need none: they send "
        "Authorization with each request. Only over TLS, or from the node's own machine.",
        body={JSON: Content(SignInForm, {"user": "alice", "password": "long and hard to guess"})},
        answers={200: {JSON: Content(KnownCaller, msgspec.to_builtins(_EXAMPLE))}},
        problems=(501,),
        answer_headers={"Set-Cookie": "The session."},
    ),
    Operation(
        "DELETE",
        "/access/session",
        end_session,
        "Sign out",
        TAG,
        query=NoQuery,
        answers={204: {}},
        answer_headers={"Set-Cookie": "Takes the cookie away."},
    ),
)
