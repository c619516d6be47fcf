"""Accepts connections: at a bounded rate, up to a bounded number, and whatever happens to one of them.

Beyond the rate connections wait in the system's queue. Beyond the number they are told so in a few bytes and closed.
Where the process or the machine has no descriptors left, accepting waits a moment and goes on: nothing that a client
does ends the loop. It ends when its task is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from logboom.broker.limits import Rejections

BURST_S: Final = 0.1
"""So much of a second's connections may come at once."""
SEND_BYTES: Final = 256 * 1024
"""What the system holds for a peer that does not read. All connections share its memory: left to itself it would hold
megabytes for each, and a thousand such readers would leave nothing for the others."""
PROBE_S: Final = 60
"""After so long in silence the system looks whether the peer is still there: who follows a log need not say a word."""
HANDSHAKE_S: Final = 10.0
"""Who has not finished the handshake of TLS by then is sent away. Until then it counts among the connections."""
RETRY_S: Final = 0.1
TELL_EVERY_S: Final = 10.0
LINGER_S: Final = 1.0
LINGERING_MAX: Final = 64
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
logger = logging.getLogger("logboom.server")

Factory = Callable[[], asyncio.BaseProtocol]


class AcceptPace:
    """So many turns a second, on average; those who come too early wait."""

    def __init__(self, per_second: int) -> None:
        self._gap_s = 1 / per_second
        self._due_at = 0.0

    async def turn(self) -> None:
        now = asyncio.get_running_loop().time()
        self._due_at = max(self._due_at + self._gap_s, now - BURST_S)
        if self._due_at > now:
            await asyncio.sleep(self._due_at - now)


class Gate:
    """What all listeners of a node share. `open_now` says how many connections there are."""

    def __init__(
        self,
        connections_max: int,
        per_second: int,
        open_now: Callable[[], int],
        rejections: Rejections,
        lingering_max: int = LINGERING_MAX,
    ) -> None:
        self._connections_max = connections_max
        self._pace = AcceptPace(per_second)
        self._open_now = open_now
        self._rejections = rejections
        self._entering: set[asyncio.Task[None]] = set()
        self._lingering: set[socket.socket] = set()
        self._lingering_max = min(lingering_max, LINGERING_MAX)
        self._told_at = -TELL_EVERY_S

    async def serve(
        self,
        listening: socket.socket,
        factory: Factory,
        refusal: bytes,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Until cancelled. `listening` does not block, and listens already; `refusal` is what those over the limit
        are told, unless they speak TLS. `tls` gives what it has for the next connection."""
        loop = asyncio.get_running_loop()
        while True:
            await self._pace.turn()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                await self._endure(error)
                continue
            if self._open_now() + len(self._entering) >= self._connections_max:
                self._refuse(connection, refusal if tls is None else b"")
                continue
            # Not awaited: a protocol that fails to begin would hold up everybody behind it.
            task = loop.create_task(self._enter(connection, factory, None if tls is None else tls()))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter(self, connection: socket.socket, factory: Factory, tls: ssl.SSLContext | None) -> None:
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the loops do so only sometimes
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_S)
            loop = asyncio.get_running_loop()
            if tls is None:
                await loop.connect_accepted_socket(factory, connection)
            else:
                await loop.connect_accepted_socket(factory, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S)
        except OSError as error:  # gone already, or no memory for it
            connection.close()
            self._rejections.count("accept", f"a connection was not accepted: {error}")
            logger.debug("a connection was not accepted: %s", error)

    async def _endure(self, error: OSError) -> None:
        if error.errno not in _EXHAUSTED:
            self._rejections.count("accept", f"a connection was not accepted: {error}")
            logger.debug("a connection was not accepted: %s", error)
            return
        self._rejections.count("descriptors", f"no connection could be accepted: {error.strerror}")
        self._tell("cannot accept connections: %s; accepting resumes as soon as there is room", error.strerror)
        await asyncio.sleep(RETRY_S)

    def _refuse(self, connection: socket.socket, refusal: bytes) -> None:
        """Say why, if that costs nothing, and close. Closing at once would take the words away from a client that has
        sent something."""
        self._rejections.count("limits.connections", f"more than {self._connections_max:,} connections at once")
        self._tell("there are %d connections, which is limits.connections: more are refused", self._connections_max)
        with contextlib.suppress(OSError):
            connection.send(refusal)
            connection.shutdown(socket.SHUT_WR)
        if len(self._lingering) >= self._lingering_max:
            connection.close()
            return
        self._lingering.add(connection)
        asyncio.get_running_loop().call_later(LINGER_S, self._let_go, connection)

    def close(self) -> None:
        """After all that serve have ended."""
        for task in self._entering:
            task.cancel()
        for connection in self._lingering:
            connection.close()
        self._lingering.clear()

    def _let_go(self, connection: socket.socket) -> None:
        self._lingering.discard(connection)
        connection.close()

    def _tell(self, message: str, *data: object) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            logger.warning(message, *data)
