"""One connection to a node, on an event loop, and the subscriptions on it.

A link that is lost stays lost: every request without an answer fails, an append with OutcomeUnknown, anything else with
ConnectionLost. Whoever wants another connection makes another link.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from logboom import __version__
from logboom.batch.header import Buffer
from logboom.broker.api import Chunk, ReadRequest
from logboom.client.link.address import Address
from logboom.client.link.pushes import CREDIT_BYTES, Pushes
from logboom.client.link.session import FRAME_BYTES_LIMIT, Event, Reply, Session
from logboom.client.link.tls import context_of
from logboom.client.link.unix_peer import check_listener
from logboom.errors import ConnectionLost, LogboomError, RemoteProtocolError
from logboom.protocols.binary.messages import Hello, Kind, Read, Welcome

CONNECT_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
KEEP_ALIVE_S: Final = 30.0
"""How often a link is probed at most; twice that without a word from the other side, and it counts as lost."""
KEEP_ALIVE_MIN_S: Final = 0.05
_EXPIRED: Final = 10
_OTHER_NAMES: Final = (62, 64)
"""How OpenSSL counts what is wrong with a certificate: of another host, of another address."""


def keep_alive_s(welcome: Welcome) -> float:
    """How often to ping, so that neither side takes the other for gone."""
    return max(KEEP_ALIVE_MIN_S, min(KEEP_ALIVE_S, welcome.limits.idle_ms / 3000))


def push_limit(welcome: Welcome) -> int:
    """What may wait here at most: a chunk may go beyond its credit, since a batch is never cut."""
    return CREDIT_BYTES + 2 * min(welcome.limits.frame_bytes, FRAME_BYTES_LIMIT)


def hello() -> Hello:
    return Hello(client=f"logboom-python/{__version__}")


class _Pending(NamedTuple):
    future: asyncio.Future[Any]
    decode: Callable[[Any], Any] | None
    lost: type[LogboomError]


class AsyncLink(asyncio.BufferedProtocol):
    """A connection on the running event loop. Made by `connect`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._session = Session(hello(), address.profile)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._pushes: dict[int, Pushes] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._heard = self._loop.time()
        self._every_s = KEEP_ALIVE_S
        self.lost: LogboomError | None = None
        """Why there is no connection any more."""
        self._closed: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def connect(cls, address: Address, timeout_s: float = CONNECT_TIMEOUT_S) -> AsyncLink:
        """Connected, greeted and welcomed. Raises ConnectionLost, or what the server has against us."""
        link: AsyncLink | None = None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                if address.path is not None:
                    transport, link = await loop.create_unix_connection(lambda: cls(address), address.path)
                    check_listener(address, transport.get_extra_info("socket"))
                else:
                    secure = secured(address)
                    transport, link = await loop.create_connection(
                        lambda: cls(address), address.host, address.port, **secure
                    )
                    if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
                        # Nobody listens, and the port this side was given is the very one it has called.
                        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
                await link._greet()
                return link
        except TimeoutError:
            if link is not None:
                link._abort(ConnectionLost(f"{address} did not answer"))
            raise ConnectionLost(f"{address} did not answer within {timeout_s:g} s") from None
        except BaseException as error:
            if link is not None:
                link._abort(ConnectionLost("given up"))
            if isinstance(error, OSError | UnicodeError):
                raise ConnectionLost(no_connection(address, error)) from None
            raise

    @property
    def welcome(self) -> Welcome:
        welcome = self._session.welcome
        assert welcome is not None
        return welcome

    async def _greet(self) -> None:
        answer: asyncio.Future[Welcome] = self._loop.create_future()
        buffers = self._session.hello()
        self._pending[self._session.newest] = _Pending(answer, None, ConnectionLost)
        self._write(buffers)
        welcome = await answer
        self._every_s = keep_alive_s(welcome)
        self._timer = self._loop.call_later(self._every_s, self._keep_alive)

    def request(
        self,
        kind: int,
        head: Any = None,
        payload: Sequence[Buffer] = (),
        decode: Callable[[Any], Any] | None = None,
        lost: type[LogboomError] = ConnectionLost,
    ) -> asyncio.Future[Any]:
        """Send now; the future has the answer, through `decode`. Where the connection is lost it fails with `lost`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None:
            # Nothing of this was sent: that much is known.
            future.set_exception(ConnectionLost(str(self.lost)))
            return future
        correlation, buffers = self._session.request(kind, head, payload)
        self._pending[correlation] = _Pending(future, decode, lost)
        self._write(buffers)
        return future

    def send(self, kind: int, head: Any = None, payload: Sequence[Buffer] = ()) -> None:
        """A request that has no answer."""
        if self.lost is not None:
            raise ConnectionLost(str(self.lost))
        self._write(self._session.request(kind, head, payload)[1])

    def subscribe(self, request: ReadRequest) -> Pushes:
        if self.lost is not None:
            raise ConnectionLost(str(self.lost))
        correlation, buffers = self._session.request(Kind.SUBSCRIBE, Read(request, CREDIT_BYTES))
        pushes = self._pushes[correlation] = Pushes(self, correlation)
        self._write(buffers)
        return pushes

    def _tell(self, correlation: int, kind: int, head: Any = None) -> None:
        if self.lost is None:
            self._write(self._session.about(correlation, kind, head))

    def _write(self, buffers: list[Buffer]) -> None:
        assert self._transport is not None
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)

    @property
    def waiting_bytes(self) -> int:
        """Given to the transport, which could not send it yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _keep_alive(self) -> None:
        if self._loop.time() - self._heard > 2 * self._every_s:
            self._abort(ConnectionLost(f"{self.address} has not been heard of for {2 * self._every_s:g} s"))
            return
        self._write(self._session.request(Kind.PING)[1])
        self._timer = self._loop.call_later(self._every_s, self._keep_alive)

    async def close(self) -> None:
        self._end(ConnectionLost("closed by this side"))
        if self._transport is not None:
            await close_transport(self._transport, self._closed)

    def _abort(self, error: LogboomError) -> None:
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: LogboomError) -> None:
        """Everything that waits has waited in vain."""
        if self.lost is not None:
            return
        self.lost = error
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, {}
        for future, _, kind in pending.values():
            if not future.done():
                future.set_exception(error if isinstance(error, kind) else kind(str(error)))
        pushes, self._pushes = self._pushes, {}
        for subscription in pushes.values():
            subscription.fail(error)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._session.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = self._loop.time()
        try:
            for event in self._session.received(nbytes):
                self._take(event)
        except RemoteProtocolError as error:
            self._abort(error)

    def eof_received(self) -> None:
        self._end(ConnectionLost(describe_loss(self.address, self._session)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionLost(describe_loss(self.address, self._session, exc)))
        if not self._closed.done():
            self._closed.set_result(None)

    def _take(self, event: Event) -> None:
        correlation, what, _ = event
        if isinstance(what, Reply):
            self._write(what.buffers)
            return
        pending = self._pending.pop(correlation, None)
        if pending is not None:
            _settle(pending, what)
        elif correlation in self._pushes:
            self._push(event)
        elif not correlation and isinstance(what, LogboomError):
            self._abort(what)

    def _push(self, event: Event) -> None:
        correlation, what, size = event
        if isinstance(what, Chunk):
            pushes = self._pushes[correlation]
            pushes.push(what, size)
            if pushes.waiting_bytes > push_limit(self.welcome):
                self._abort(RemoteProtocolError(f"{self.address} pushes more than there is credit for"))
            return
        # An error or the answer to UNSUBSCRIBE: the last frame about it.
        pushes = self._pushes.pop(correlation)
        pushes.fail(what if isinstance(what, LogboomError) else ConnectionLost("the subscription has ended"))


def _settle(pending: _Pending, what: Any) -> None:
    future = pending.future
    if future.done():
        return
    if isinstance(what, LogboomError):
        future.set_exception(what)
        return
    try:
        future.set_result(what if pending.decode is None else pending.decode(what))
    except (msgspec.MsgspecError, TypeError, AttributeError, RemoteProtocolError) as error:
        future.set_exception(RemoteProtocolError(f"an answer is not what was asked for: {error}"))


async def close_transport(transport: asyncio.Transport, closed: asyncio.Future[None]) -> None:
    """Send what is left, and wait for the end; not for ever, where the other side reads no more."""
    transport.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await asyncio.shield(closed)
    except BaseException as error:
        transport.abort()
        if not isinstance(error, TimeoutError):
            raise


def secured(address: Address) -> dict[str, Any]:
    """What `create_connection` needs for TLS."""
    if not address.tls:
        return {}
    return {"ssl": context_of(address.profile), "server_hostname": address.profile.server_name or address.host}


def no_connection(address: Address, error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"no connection to {address}: {_distrust(address, error)}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        plain = str(address._replace(tls=False))
        return f"no connection to {address}: {reason}; if there is no TLS on this port, write {plain}"
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"no connection to {address}: {reason}; is a node running there? `logboom serve` starts one"


def _distrust(address: Address, error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message
    if error.verify_code in _OTHER_NAMES:
        return f"its certificate is for another host: {said}; call it by a name that stands there, or set server_name"
    ca = address.profile.ca
    if error.verify_code == _EXPIRED:
        return f"its certificate is not trusted: {said}; make a new one for the node"
    trusted = "the system's authorities" if ca is None else f"those in {ca}"
    return (
        f"its certificate is not trusted by {trusted}: {said}; name the file of its CA with LOGBOOM_CA, or in a profile"
    )


def describe_loss(address: Address, session: Session | None, error: Exception | None = None) -> str:
    """Why there is no connection any more. A node that closed it without a word may have waited for TLS."""
    is_silent = session is not None and session.is_silent and address.path is None
    if error is not None and not (is_silent and isinstance(error, ConnectionResetError | ssl.SSLError)):
        return f"the connection to {address} is lost: {error}"
    text = f"{address} has closed the connection"
    if not is_silent:
        return text
    if not address.tls:
        return f"{text} without a word: if this port speaks TLS, write tls://{address}"
    if address.profile.certificate is None:
        return f"{text} without a word: it may want a certificate: name yours with LOGBOOM_CERTIFICATE and LOGBOOM_KEY"
    return f"{text} without a word: it may not trust the certificate in {address.profile.certificate}"
