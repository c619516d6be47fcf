"""The API as an ASGI app: finds the operation, and turns whatever goes wrong into a problem.

Every path of `operations.ALL` answers HEAD where it answers GET, and OPTIONS. Nothing that a request does is raised to
the server; errors that are not the client's go to the event loop's exception handler, and the client learns no more
than that there was one.
"""

from __future__ import annotations

from collections.abc import Iterable
from re import Pattern
from typing import TYPE_CHECKING, Any

from starlette.convertors import Convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from logboom.errors import LogboomError, QuotaExceeded
from logboom.protocols.http.api.operations import ALL
from logboom.protocols.http.api.write import plain_write, write_plainly
from logboom.protocols.http.hosts import Hosts
from logboom.protocols.http.identity.entrance import Entrance, challenges
from logboom.protocols.http.origins import Origins
from logboom.protocols.http.problem import RequestError, encode_problem, problem_headers, problem_of
from logboom.protocols.http.request_body import RequestBody
from logboom.protocols.http.schema.operation import Operation

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd


class Path:
    """One path, and who answers which method there."""

    def __init__(self, path: str) -> None:
        self.pattern: Pattern[str]
        self.convertors: dict[str, Convertor[Any]]
        self.pattern, _, self.convertors = compile_path(path)
        self.operations: dict[str, Operation] = {}

    @property
    def methods(self) -> str:
        found = [*self.operations, *(["HEAD"] if "GET" in self.operations else []), "OPTIONS"]
        return ", ".join(sorted(found))


class Handler:
    def __init__(self, front_end: HttpFrontEnd, operations: Iterable[Operation] = ALL) -> None:
        self._front_end = front_end
        settings = front_end.settings
        self._origins = Origins(settings.cors_origins, Hosts(front_end.names, settings.allowed_hosts))
        self._entrance = Entrance(front_end.sign_in, front_end.sessions, self._origins)
        self._paths: dict[str, Path] = {}
        for operation in operations:
            self._paths.setdefault(operation.path, Path(operation.path)).operations[operation.method] = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        write = plain_write(self._front_end, scope) if scope["method"] == "POST" else None
        if write is None:
            await self._serve(scope, receive, send)
            return
        try:
            self._origins.check(scope)
            if write.authorization:
                write = write._replace(caller=await self._entrance.identify(scope, write.authorization))
            await scope["admit"](write.caller, "POST")
            written = await write_plainly(self._front_end, write, receive)
        except Exception as error:
            await self._explain(error, scope)(scope, receive, send)
            return
        if written is not None:
            status, body = written
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = RequestBody(self._front_end, scope, receive)
        try:
            try:
                response = await self._respond(scope, body)
            except ClientDisconnect:
                return
            except Exception as error:
                response = self._explain(error, scope)
            self._origins.mark(scope, response)
            await body.drain()
            if scope["method"] == "HEAD":
                await _send_head(response, send)
            else:
                await response(scope, receive, send)
        finally:
            body.release()

    async def _respond(self, scope: Scope, body: RequestBody) -> Response:
        self._origins.check(scope)
        _check_upgrade(scope)
        path, method = self._find(scope), scope["method"]
        if method == "OPTIONS":
            return self._origins.preflight(scope, path.methods)
        operation = path.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise MethodNotAllowed(method, path.methods)
        await self._entrance.admit(scope)
        await scope["admit"](scope["caller"], method)
        body.check()
        return await operation.handler(self._front_end, Request(scope, body))

    def _find(self, scope: Scope) -> Path:
        for path in self._paths.values():
            match = path.pattern.fullmatch(scope["path"])
            if match:
                scope["path_params"] = {
                    name: path.convertors[name].convert(text) for name, text in match.groupdict().items()
                }
                return path
        raise RequestError(f"there is nothing at {scope['path'][:200]!r}", 404, "not-found", "GET /docs shows what is")

    def _explain(self, error: Exception, scope: Scope) -> Response:
        if isinstance(error, LogboomError):
            self._front_end.rejections.note(error)
        else:
            self._front_end.report(error)
        problem = problem_of(error)
        response = Response(encode_problem(problem), problem.status)
        response.raw_headers += problem_headers(problem)
        if isinstance(error, QuotaExceeded) and error.limit == "quota.connections":
            response.headers["connection"] = "close"  # else the one too many would stay
        if problem.status == 401:
            response.raw_headers += challenges(scope)
        if isinstance(error, MethodNotAllowed):
            response.headers["allow"] = error.allowed
        return response


def _check_upgrade(scope: Scope) -> None:
    """Other protocols may be passed over, this one has nothing to say in HTTP."""
    if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
        raise RequestError("no web sockets here", 400, "no-websockets", "GET /topics/{topic}/tail follows a topic")


async def _send_head(response: Response, send: Send) -> None:
    """What a GET would say, without what it would show."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": b""})


class MethodNotAllowed(RequestError):
    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method[:20]} is not for this; there are {allowed}", 405, "method-not-allowed")
        self.allowed = allowed
