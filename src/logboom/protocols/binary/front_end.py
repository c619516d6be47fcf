"""The binary protocol of one node: makes a connection for whoever comes, and looks after all of them.

Knows a Broker and nothing of what is behind it. One timer sweeps all connections, for those that are silent for too
long; none runs while there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import msgspec

from logboom.batch import BATCH_SIZE_MAX
from logboom.broker.api import Broker, TopicInfo
from logboom.broker.limits import Limits, Rejections
from logboom.broker.measures import Meter
from logboom.errors import LimitExceeded, LogboomError, ShuttingDown
from logboom.protocols.binary.codec import FRAME_BYTES_FIRST, RECEIVE_BYTES, SharedBuffer, encode_front
from logboom.protocols.binary.connection import BinaryConnection
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import VERSION, Kind, Welcome, WireLimits
from logboom.storage.producers import REMEMBERED

SWEEP_S: Final = 1.0
_ROOM: Final = 8 * 1024
"""Of the first frame's limit, for everything in a welcome but the topics."""


class Identity(NamedTuple):
    """What a node says of itself."""

    node_id: str
    cluster_id: str


class BinaryFrontEnd:
    """Construct it in the event loop it will serve, or before; `factory` is for `loop.create_server`."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        rejections: Rejections,
        directory: str | None,
        server_name: str,
        identity: Identity,
        replica_of: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.rejections = rejections
        self.meter = Meter()
        full = LimitExceeded("limits.connections", limits.connections, "try later, or raise it")
        self.refusal = encode_front(Kind.ERROR, 0, encode_failure(full))
        """What a connection over the limit is told."""
        self.identity = identity
        self.frame_bytes = max(BATCH_SIZE_MAX, limits.read_bytes) + FRAME_BYTES_FIRST
        self.receive_memory = SharedBuffer(RECEIVE_BYTES, limits.receive_bytes)
        self.now = 0.0
        """The time of the event loop, as of the last sweep."""
        self._directory = directory
        self._server_name = server_name
        self._replica_of = replica_of
        self._connections: set[BinaryConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._left = asyncio.Event()

    def factory(self) -> asyncio.BufferedProtocol:
        return BinaryConnection(self)

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._connections)

    async def close(self, grace_s: float) -> None:
        """Take no more requests, let what was promised go out, then close every connection."""
        self._is_closing = True
        for connection in list(self._connections):
            connection.finish(ShuttingDown())
        try:
            async with asyncio.timeout(grace_s):
                await self._wait_until_empty()
        except TimeoutError:
            self.abort()
        await self._wait_until_empty()

    async def _wait_until_empty(self) -> None:
        while self._connections:
            self._left.clear()
            await self._left.wait()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def abort(self) -> None:
        """Close every connection, whatever it waits for."""
        self._is_closing = True
        for connection in list(self._connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()

    # What connections call.

    def enter(self, connection: BinaryConnection) -> None:
        if self._timer is None:
            self._sweep()
        self._connections.add(connection)
        if self._is_closing:
            connection.finish(ShuttingDown())

    def leave(self, connection: BinaryConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._left.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def report(self, error: BaseException) -> None:
        """An error that is not the peer's."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": "the binary front-end has failed in a request", "exception": error}
        )

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = now = loop.time()
        for connection in [connection for connection in self._connections if connection.check_at <= now]:
            connection.check(now)
        shortest_s = min(self.limits.hello_ms, self.limits.idle_ms) / 1000
        self._timer = loop.call_later(min(SWEEP_S, shortest_s / 4), self._sweep)

    async def describe(self, correlation: int, names: list[str]) -> bytes:
        """A welcome with these topics, where they exist; as many as fit in a first frame."""
        found: list[TopicInfo] = []
        room = FRAME_BYTES_FIRST - _ROOM
        for name in names:
            try:
                info = await self.broker.describe_topic(name)
            except LogboomError:
                continue
            room -= len(msgspec.msgpack.encode(info))
            if room < 0:
                break
            found.append(info)
        return self.encode_welcome(correlation, found)

    def encode_welcome(self, correlation: int, topics: list[TopicInfo]) -> bytes:
        limits = self.limits
        wire = WireLimits(
            frame_bytes=self.frame_bytes,
            batch_bytes=limits.batch_bytes,
            in_flight_bytes=limits.in_flight_bytes,
            in_flight_batches=REMEMBERED,
            idle_ms=limits.idle_ms,
            subscriptions=limits.subscriptions_per_connection,
        )
        welcome = Welcome(VERSION, *self.identity, self._directory, self._server_name, wire, topics, self._replica_of())
        return encode_front(Kind.WELCOME, correlation, welcome)
