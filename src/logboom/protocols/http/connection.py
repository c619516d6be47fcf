"""One connection: uvicorn's reading and writing of HTTP/1.1, held to our limits.

The stream is given to the parser request by request, and what follows a request that waits for its turn stays unparsed:
so a peer that pipelines costs a chunk of bytes, not an object for each request in it. A head is counted before it is
parsed. What cannot be answered by the app (a broken or slow head, a body that stands still) is answered here, as a
problem, in its turn.

Whoever is sent away before it was heard out gets its answer and the end of the stream; what it still sends is thrown
away for a moment, because a socket closed on unread bytes would take the answer with it. No timer: one sweep of the
front-end checks all.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from logboom.access.quota import INTO
from logboom.broker.caller import Caller
from logboom.errors import LimitExceeded, LogboomError
from logboom.protocols.http.origins import SAFE
from logboom.protocols.http.problem import RequestError, raw_problem
from logboom.protocols.peer_caller import caller_of_peer, is_private

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

LINGER_S: Final = 2.0
"""How long a peer that was sent away has to notice."""
STALL_S: Final = 30.0
"""How long a peer may take nothing of what it is sent."""
WRITE_BYTES_HIGH: Final = 256 * 1024
WRITE_BYTES_LOW: Final = 64 * 1024
BODY_BYTES_PER_SECOND: Final = 1024
"""The least that must come of a body, on average over http.body_ms."""
BODY_BYTES_HELD: Final = 64 * 1024
"""So much comes of a body that nobody asks for, about, before no more is read."""
STEP_BYTES: Final = 64
"""The least that is looked at of a chunked body, whose end only the parser finds."""
STRICT: Final = (b"strict-transport-security", b"max-age=31536000")
_HEAD_END: Final = b"\r\n\r\n"
_OF_READS: Final = ("requests",)
"""What a request waits for that brings nothing in: what it takes out, the broker waits for."""
_FRAMING: Final = (b"content-length", b"transfer-encoding")


class ClientGone(OSError):
    """Nobody is there any more to be answered."""


class RequestCycle(RequestResponseCycle):
    """One request and its answer."""

    transport: HttpConnection  # type: ignore[assignment]
    _is_endless = False

    async def run_asgi(self, app: Any) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except ClientGone:
            pass
        except Exception as error:
            self.transport.report(error)
        finally:
            if not self.response_complete and not self.transport.is_closing():
                self.transport.abort()
            self.on_response = _nothing

    async def send(self, message: Any) -> None:
        if self.more_body and not self.response_started:
            self.keep_alive = False  # what is left of the request would be taken for the next one, or come for ever
        if self.scope["http_version"] != "1.1":
            self._speak_old(message)
        await super().send(message)
        if self.disconnected:
            raise ClientGone  # else whoever has much to say would never stop
        if message.get("more_body"):
            await asyncio.sleep(0)  # nor let others have their turn

    def _speak_old(self, message: Any) -> None:
        """There were no chunks before HTTP/1.1: what does not say how long it is goes on until the stream ends."""
        if message["type"] == "http.response.start":
            if not any(name == b"content-length" for name, _ in message["headers"]):
                self.chunked_encoding = False
                self._is_endless = True
        elif self._is_endless:
            self.expected_content_length = len(message.get("body", b""))


def _nothing() -> None:
    pass


class HttpConnection(HttpToolsProtocol):
    def __init__(self, front_end: HttpFrontEnd) -> None:
        super().__init__(front_end.config_of_uvicorn, front_end.state, {}, front_end.loop)
        self._front_end = front_end
        self._active: RequestCycle | None = None
        """The request that is being answered; `cycle` is the last that came."""
        self._task: asyncio.Task[None] | None = None
        """That answers it."""
        self._occupant = ""
        self._counted: list[str] = []
        """By what names quotas count its occupant: whoever has sent the last request."""
        self._is_held = self._is_gone = False
        """A quota makes the request wait; nobody is there any more."""
        self._rest = b""
        """What came after a request that waits for its turn."""
        self._in_head = True
        self._is_resuming = self._got_body = False
        self._head_bytes = 0
        self._held_bytes = 0
        """Of what came and is not a request yet, as the front-end has counted it."""
        self._body_left: int | None = 0
        """None: it says itself where it ends."""
        self._farewell: LogboomError | None = None
        """What is wrong with the request after those that are still to be answered."""
        self._heard_at = self._began_at = self._body_since = front_end.now
        self._body_bytes = 0
        """Of the body, since then."""
        self._unread_bytes = 0
        self._unread_since = 0.0
        self._ends_at: float | None = None
        self.check_at = 0.0
        """When it is to be checked next: a sweep over many must not take long."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        self.caller = caller_of_peer("http", transport)
        self._is_private = is_private(transport)
        self._front_end.wake()
        self._heard_at = self._front_end.now
        super().connection_made(transport)
        if self._front_end.closing.is_set():
            self.finish()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        if self._ends_at is not None or self._farewell is not None:
            return
        if self._rest:
            self._rest += data
        else:
            self._feed(data)
        self._count_held()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._active is not None:
            self._leave(self._active)
            is_read = self._front_end.quotas.is_on and self._active.scope["method"] in SAFE
            if self._task is not None and (self._is_held or is_read):
                self._task.cancel()  # it would wait for nobody
        self._front_end.quotas.leave(self._counted)
        self._counted, self._is_gone = [], True
        self.pipeline.clear()
        self._rest, self._head_bytes = b"", 0
        self._count_held()
        super().connection_lost(exc)
        self._front_end.leave()

    # The stream, cut into requests.

    def _feed(self, data: bytes) -> None:
        at, size, view = 0, len(data), memoryview(data)
        while at < size and self._ends_at is None and self._farewell is None:
            if self.pipeline:
                self._rest = data[at:]
                return
            end = self._end_of_piece(data, at)
            if self._in_head and not self._head_bytes:
                self._began_at = self._heard_at
            begun, last = self._in_head, self.cycle
            try:
                self.parser.feed_data(data if end - at == size else view[at:end])
            except httptools.HttpParserUpgrade as upgrade:
                end = at + upgrade.args[0]
                self._decline_upgrade()
            except httptools.HttpParserError as error:
                self.refuse(_reason(error))
                return
            counts = self.cycle is last if begun else not (self._got_body or self._in_head)
            if counts and self._count_head(end - at):
                return
            self._got_body = False
            at = end

    def _decline_upgrade(self) -> None:
        """The request is answered as if it had not asked, and what follows is its body, or HTTP as before. The parser
        has given up on both."""
        self.parser = httptools.HttpRequestParser(self)
        if not self._in_head:
            framing = [b"%s: %s\r\n" % pair for pair in self.headers if pair[0] in _FRAMING]
            url, headers, scope = self.url, self.headers, self.scope
            self._is_resuming = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))
            self._is_resuming = False
            self.url, self.headers, self.scope = url, headers, scope

    def _end_of_piece(self, data: bytes, at: int) -> int:
        """Where the head or body that is being received ends, at the earliest."""
        size = len(data)
        if not self._in_head and self._body_left is not None:
            return min(size, at + max(1, self._body_left))
        found = data.find(_HEAD_END, at if self._in_head else at + STEP_BYTES)
        end = size if found < 0 else found + len(_HEAD_END)
        return min(end, at + self._front_end.settings.head_bytes - self._head_bytes) if self._in_head else end

    def _count_head(self, size: int) -> bool:
        """Of a head, or of what stands between and behind the chunks of a body. Whether that was too much."""
        self._head_bytes += size
        limit = self._front_end.settings.head_bytes
        if self._head_bytes < limit:
            return False
        self.refuse(
            RequestError(
                f"the request line and headers are over the limit of {limit:,} bytes",
                431,
                "head-too-large",
                "send less, or raise http.head_bytes",
            )
        )
        return True

    def _count_held(self) -> None:
        held = self._head_bytes + len(self._rest)
        if held == self._held_bytes:
            return
        more, self._held_bytes = held - self._held_bytes, held
        try:
            self._front_end.hold(more)
        except LimitExceeded as error:
            self.refuse(error)

    # What the parser calls.

    def on_headers_complete(self) -> None:
        if self._is_resuming:
            return
        self._in_head, self._head_bytes = False, 0
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        url = httptools.parse_url(self.url)
        raw_path = url.path or b"/"
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["raw_path"] = raw_path
        scope["path"] = urllib.parse.unquote(raw_path.decode("latin-1"))
        scope["query_string"] = url.query or b""
        scope["caller"] = self.caller  # type: ignore[typeddict-unknown-key]
        scope["private"] = self._is_private  # type: ignore[typeddict-unknown-key]
        scope["admit"] = self.admit  # type: ignore[typeddict-unknown-key]
        if url.host is not None:
            scope["authority"] = _authority(url.host.decode("latin-1"), url.port)  # type: ignore[typeddict-unknown-key]
        self._body_left = _length(self.headers)
        self._body_bytes, self._body_since = 0, self._heard_at
        cycle = RequestCycle(
            scope=scope,
            transport=self,  # type: ignore[arg-type]
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self._default_headers(),
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and version == "1.1",
            keep_alive=version == "1.1" and parser.should_keep_alive() and not self._front_end.closing.is_set(),
            on_response=self.on_response_complete,
        )
        self.cycle = cycle
        if self._active is None:
            self._start(cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _default_headers(self) -> list[tuple[bytes, bytes]]:
        """In every answer. Whoever has come over TLS is to come so again; but `localhost` is everybody's, and a browser
        would not find what else is there without TLS."""
        headers, sent = self.server_state.default_headers, self.headers or ()  # there are none before the first request
        if self.scheme != "https" or any(name == b"host" and value.startswith(b"localhost") for name, value in sent):
            return headers
        return [*headers, STRICT]

    def _start(self, cycle: RequestCycle) -> None:
        self._active = cycle
        self._task = task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)  # those behind a body say nothing that anybody here wants to know

    def on_body(self, body: bytes) -> None:
        self._got_body, self._head_bytes = True, 0
        self._body_bytes += len(body)
        if self._body_left is not None:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and self._body_left != 0:
            return  # its head is complete, and that is all the parser wants to know
        self._in_head, self._head_bytes = True, 0
        self.cycle.more_body = False
        self.cycle.message_event.set()

    async def admit(self, caller: Caller, method: str) -> None:
        """Returns when a request of this caller may be done. Raises QuotaExceeded, LimitExceeded."""
        quotas = self._front_end.quotas
        if caller.principal != self._occupant and not self._is_gone:
            quotas.leave(self._counted)
            self._occupant, self._counted = "", []
            self._counted = quotas.enter(caller)
            self._occupant = caller.principal
        if quotas.is_on:
            quotas.charge(caller, requests=1)
            kinds = _OF_READS if method in SAFE else INTO
            if quotas.rest_of(caller, kinds) is not None:
                await self._rest_for(caller, kinds)

    async def _rest_for(self, caller: Caller, kinds: tuple[str, ...]) -> None:
        """Raises LimitExceeded where so many wait that there is no room for what they have sent."""
        self._is_held = True
        try:
            self._front_end.hold(BODY_BYTES_HELD)
            await self._front_end.quotas.rest(caller, kinds)
        finally:
            self._front_end.hold(-BODY_BYTES_HELD)
            self._is_held = False

    # What the cycle calls.

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def is_closing(self) -> bool:
        return self._ends_at is not None or self.transport.is_closing()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._active = None
        self._heard_at = self.loop.time()
        if self.is_closing():
            return
        if self.pipeline:
            cycle = cast(RequestCycle, self.pipeline.pop()[0])
            if self._farewell is None or not cycle.more_body:
                self._start(cycle)
        if not self.pipeline:
            rest, self._rest = self._rest, b""
            self._feed(rest)
            self._count_held()
        if not self.pipeline and not self.is_closing():
            self.flow.resume_reading()
            if self._active is None and self._farewell is not None:
                farewell, self._farewell = self._farewell, None
                self.refuse(farewell)

    def close(self) -> None:
        """After what was written has gone out."""
        if self._ends_at is not None:
            return
        self._ends_at = self.check_at = self._front_end.now + LINGER_S
        if self.transport.is_closing():
            return
        if self._in_head and not self._head_bytes and not self._rest:
            self.transport.close()
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # not over TLS: there the peer has to go by the length of the answer
            self.transport.write_eof()

    def report(self, error: BaseException) -> None:
        self._front_end.report(error)

    # How it ends.

    def refuse(self, error: LogboomError) -> None:
        """Say why, in its turn, and hang up."""
        active = self._active
        if self._ends_at is not None:
            return
        if active is not None and not active.more_body:
            self._farewell = error  # about a later request
            self._rest = b""
            self._count_held()
            return
        self._front_end.rejections.note(error)
        if active is not None:
            self._leave(active)
            if active.response_started:
                self.abort()
                return
        self.write(raw_problem(error, self._default_headers()))
        self._head_bytes += 1  # there is more to come, for all we know
        self.close()

    def _leave(self, cycle: RequestCycle) -> None:
        """Nobody is there any more to answer it to."""
        if not cycle.response_complete:
            cycle.disconnected = True
        cycle.message_event.set()

    def finish(self) -> None:
        """Take nothing new, answer what is under way, then close."""
        self.pipeline.clear()
        self._rest = b""
        if self._active is None:
            self.close()
        else:
            self._active.keep_alive = False

    def abort(self) -> None:
        self.transport.abort()

    def check(self, now: float) -> None:
        """Whether it has been here, or been silent, for too long."""
        settings, active = self._front_end.settings, self._active
        if self.flow.read_paused or self._is_held:
            self._heard_at = self._body_since = now  # it may have said much, and is not listened to
        silent_s = now - self._heard_at
        self.check_at = now + min(settings.head_ms, settings.body_ms, settings.keep_alive_ms, 1000 * STALL_S) / 4000
        if self._is_stuck(now):
            self.abort()
        elif self._ends_at is not None:
            if self._unread_bytes:
                self._ends_at = now + LINGER_S  # it is still taking what it was sent
            self.check_at = now
            if now >= self._ends_at:
                self.abort()
        elif active is not None:
            if active.more_body and (silent_s >= settings.body_ms / 1000 or self._is_dripping(now)):
                self.refuse(_too_slow("body", "has stood still, or come too slowly, for", settings.body_ms))
        elif self._in_head and self._head_bytes:
            if now - self._began_at >= settings.head_ms / 1000:
                self.refuse(_too_slow("head", "has not come within", settings.head_ms))
        elif silent_s >= settings.keep_alive_ms / 1000:
            self.close()

    def _is_dripping(self, now: float) -> bool:
        passed_s = now - self._body_since
        if passed_s < self._front_end.settings.body_ms / 1000:
            return False
        received, self._body_bytes, self._body_since = self._body_bytes, 0, now
        return received < BODY_BYTES_PER_SECOND * passed_s

    def _is_stuck(self, now: float) -> bool:
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes != self._unread_bytes or not unread_bytes:
            self._unread_bytes, self._unread_since = unread_bytes, now
        return now - self._unread_since >= STALL_S


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            return int(value)
    return 0


def _authority(host: str, port: int | None) -> str:
    """Of a target with a host. RFC 9112, 3.2.2: it counts instead of the Host header."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def _reason(error: Exception) -> RequestError:
    inner = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
    return RequestError(f"this is no HTTP/1.1 request: {inner or error or 'the head is broken'}", 400, "bad-http")


def _too_slow(what: str, how: str, limit_ms: int) -> RequestError:
    return RequestError(
        f"the {what} of the request {how} {limit_ms:,} ms",
        408,
        f"{what}-too-slow",
        f"send it faster, or raise http.{what}_ms",
    )
