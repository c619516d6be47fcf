"""One connection to a node, on a blocking socket: no event loop, no thread.

A link that is lost stays lost. Whoever waits on it also pings; nobody does while nobody waits, so a node closes a link
that was left alone for longer than its idle time. Whoever wants another makes one.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from logboom.batch.header import Buffer
from logboom.broker.api import Chunk, ReadRequest
from logboom.client.link import tls
from logboom.client.link.address import Address
from logboom.client.link.async_link import (
    CONNECT_TIMEOUT_S,
    describe_loss,
    hello,
    keep_alive_s,
    no_connection,
    push_limit,
)
from logboom.client.link.pushes import CREDIT_BYTES, TOP_UP_BYTES
from logboom.client.link.session import Event, Reply, Session
from logboom.client.link.unix_peer import check_listener
from logboom.errors import ConnectionLost, LogboomError, RemoteProtocolError
from logboom.protocols.binary.messages import Credit, Kind, Read, Welcome

SEND_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 60.0
JOIN_BYTES: Final = 16 * 1024
"""Less than this is sent as one buffer sooner than as several."""
BUFFERS_MAX: Final = 1024
"""What Linux takes at once."""
EVENTS_MAX: Final = 200_000
"""Frames that wait here, however small they are."""


class BlockingLink:
    """A connection on a blocking socket, for one thread. Made by `connect`."""

    def __init__(self, address: Address, sock: socket.socket) -> None:
        self.address = address
        self._socket = sock
        self._session = Session(hello(), address.profile)
        self._events: deque[Event] = deque()
        """What has come and nobody has asked for yet."""
        self._waiting_bytes = 0
        self.send_timeout_s = SEND_TIMEOUT_S
        """How long the other side may take nothing before the link counts as lost."""
        self.lost: LogboomError | None = None
        self._heard = time.monotonic()
        self._pinged = 0.0
        """When it was asked for a word last. Waits may be shorter than the time between two pings."""
        self._welcomed = 0.0

    @classmethod
    def connect(cls, address: Address, timeout_s: float = CONNECT_TIMEOUT_S) -> BlockingLink:
        """Connected, greeted and welcomed. Raises ConnectionLost, or what the server has against us."""
        deadline = time.monotonic() + timeout_s
        try:
            sock = open_socket(address, timeout_s)
        except (OSError, UnicodeError) as error:
            raise ConnectionLost(no_connection(address, error)) from None
        link = cls(address, sock)
        try:
            link._send(link._session.hello())
            link._answer(link._session.newest, deadline)
            link._welcomed = time.monotonic()
        except BaseException:
            link.close()
            raise
        return link

    @property
    def welcome(self) -> Welcome:
        welcome = self._session.welcome
        assert welcome is not None
        return welcome

    @property
    def node_time_us(self) -> int:
        """The node's clock, or a little behind it; 0 where the node has not said what it shows."""
        now = self.welcome.now
        return now and now + int((time.monotonic() - self._welcomed) * 1e6)

    def send(self, kind: int, head: Any = None, payload: Sequence[Buffer] = ()) -> int:
        """The correlation id that events about this will carry."""
        if self.lost is not None:
            raise ConnectionLost(str(self.lost))
        correlation, buffers = self._session.request(kind, head, payload)
        self._send(buffers)
        return correlation

    def tell(self, correlation: int, kind: int, head: Any = None) -> None:
        """Something about an earlier request."""
        self._send(self._session.about(correlation, kind, head))

    def subscribe(self, request: ReadRequest) -> LinkPushes:
        return LinkPushes(self, self.send(Kind.SUBSCRIBE, Read(request, CREDIT_BYTES)))

    def ask(self, kind: int, head: Any = None, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Send, and wait for the answer. Events about other requests are kept for `next_event`."""
        return self._answer(self.send(kind, head), time.monotonic() + timeout_s)

    def next_event(self, timeout_s: float | None) -> Event | None:
        """What has come next; None where nothing has within `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        every_s = keep_alive_s(self.welcome)
        while not self._events:
            rest_s = every_s if deadline is None else min(every_s, deadline - time.monotonic())
            if self._receive(rest_s):
                continue
            now = time.monotonic()
            if self._heard < self._pinged <= now - every_s:
                raise self._lose(ConnectionLost(f"{self.address} has not been heard of for {2 * every_s:g} s"))
            if max(self._heard, self._pinged) <= now - every_s:
                self.send(Kind.PING)
                self._pinged = now
            if deadline is not None and now >= deadline:
                return None
        event = self._events.popleft()
        self._waiting_bytes -= event.size
        return event

    def _answer(self, correlation: int, deadline: float) -> Any:
        seen = 0
        while True:
            for number in range(seen, len(self._events)):
                event = self._events[number]
                if event.correlation == correlation:
                    del self._events[number]
                    self._waiting_bytes -= event.size
                    if isinstance(event.what, LogboomError):
                        raise event.what
                    return event.what
            seen = len(self._events)
            rest_s = deadline - time.monotonic()
            if rest_s <= 0 or not self._receive(rest_s):
                raise self._lose(ConnectionLost(f"{self.address} did not answer"))

    def _receive(self, timeout_s: float | None) -> bool:
        """Take what comes next; False where nothing has come in time."""
        if self.lost is not None:
            raise ConnectionLost(str(self.lost))
        try:
            self._socket.settimeout(None if timeout_s is None else max(timeout_s, 1e-6))
            count = self._socket.recv_into(self._session.buffer())
            if not count:
                raise ConnectionLost(describe_loss(self.address, self._session))
            self._heard = time.monotonic()
            for event in self._session.received(count):
                if not event.correlation and isinstance(event.what, LogboomError):
                    raise event.what
                if isinstance(event.what, Reply):
                    self._send(event.what.buffers)
                    continue
                self._events.append(event)
                self._waiting_bytes += event.size
            welcome = self._session.welcome
            if welcome is not None and self._waiting_bytes > push_limit(welcome):
                raise RemoteProtocolError(f"{self.address} pushes more than there is credit for")
            if len(self._events) > EVENTS_MAX:
                raise RemoteProtocolError(f"{self.address} sends what nobody has asked for")
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            raise self._lose(ConnectionLost(describe_loss(self.address, self._session, error))) from None
        except LogboomError as error:
            raise self._lose(error) from None
        except BaseException:
            # Interrupted between two bytes, perhaps: what comes next cannot be made sense of.
            self._lose(ConnectionLost("interrupted"))
            raise
        return True

    def _send(self, buffers: list[Buffer]) -> None:
        try:
            self._socket.settimeout(self.send_timeout_s)
            send_all(self._socket, buffers)
        except OSError as error:
            raise self._lose(ConnectionLost(f"the connection to {self.address} is lost: {error}")) from None
        except BaseException:
            # Interrupted between two bytes, perhaps: the other side could make no sense of what comes next.
            self._lose(ConnectionLost("interrupted"))
            raise

    def _lose(self, error: LogboomError) -> LogboomError:
        self.lost = self.lost or error
        self._socket.close()
        return error

    def close(self) -> None:
        self._lose(ConnectionLost("closed by this side"))


class LinkPushes:
    """A subscription on a Link: chunks wait in the socket, no more than there was credit for."""

    def __init__(self, link: BlockingLink, correlation: int) -> None:
        self._link = link
        self._correlation = correlation
        self._taken = 0

    def next(self, timeout_s: float | None) -> Chunk | None:
        """The next chunk; None where none has come in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            event = self._link.next_event(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if event is None:
                return None
            correlation, what, size = event
            if correlation != self._correlation:
                if deadline is not None and time.monotonic() > deadline:
                    return None
                continue  # of a subscription that was given up
            if not isinstance(what, Chunk):
                raise what if isinstance(what, LogboomError) else ConnectionLost("the subscription has ended")
            self._taken += size
            if self._taken >= TOP_UP_BYTES:
                self._link.tell(correlation, Kind.CREDIT, Credit(self._taken))
                self._taken = 0
            return what

    def close(self) -> None:
        if self._link.lost is None:
            with suppress(ConnectionLost):  # then there is no subscription any more
                self._link.tell(self._correlation, Kind.UNSUBSCRIBE)


def send_all(sock: socket.socket, buffers: Sequence[Buffer]) -> None:
    """As `sendall` of all of these. Large ones are not copied to be one."""
    if sum(map(len, buffers)) < JOIN_BYTES:
        sock.sendall(b"".join(buffers))
        return
    for start in range(0, len(buffers), BUFFERS_MAX):
        group = buffers[start : start + BUFFERS_MAX]
        sent = sock.sendmsg(group)
        for buffer in group:
            if sent < len(buffer):
                sock.sendall(memoryview(buffer)[sent:] if sent else buffer)
            sent = max(0, sent - len(buffer))


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    if address.path is None:
        sock = socket.create_connection((address.host, address.port), timeout_s)
        try:
            if sock.getsockname() == sock.getpeername():  # which fails where it is lost already
                # Nobody listens, and the port this side was given is the very one it has called.
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return tls.wrap(sock, address.profile, address.host) if address.tls else sock
        except BaseException:
            sock.close()
            raise
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address.path)
        check_listener(address, sock)
    except BaseException:
        sock.close()
        raise
    return sock
