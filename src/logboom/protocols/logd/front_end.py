"""The logd protocol of one node: makes a connection for whoever comes, and looks after all of them.

Knows a Broker and nothing of what is behind it. One timer sweeps all connections, for those that are silent for too
long; none runs while there are none. `converse` is for those who have their commands, and want the answers, as one
piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from logboom.broker.api import Broker, Feeds
from logboom.broker.gathering import Gatherer
from logboom.broker.limits import Limits, Rejections
from logboom.broker.measures import Meter
from logboom.errors import ShuttingDown
from logboom.protocols.logd.codec import RUN_BYTES, Decoder, SharedMemory
from logboom.protocols.logd.connection import LogdConnection
from logboom.protocols.logd.conversation import Conversation
from logboom.protocols.logd.settings import LogdSettings

RECEIVE_BYTES: Final = 256 * 1024
SWEEP_S: Final = 1.0
_ROOM: Final = 256
"""Of a batch's limit, for everything in it but its records."""


class LogdFrontEnd:
    """Construct it in the event loop it will serve; `factory` is for `loop.create_server`."""

    refusal: Final = b"ERR unavailable\r\n"
    """For a connection that is one too many."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        rejections: Rejections,
        settings: LogdSettings,
        config: Callable[[], dict[str, Any]],
        feeds: Feeds | None = None,
        shutdown: Callable[[], None] | None = None,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.rejections = rejections
        self.settings = settings
        self.config = config
        self.feeds = feeds
        self.shutdown = shutdown
        self._run_bytes = min(RUN_BYTES, limits.batch_bytes - _ROOM)
        self.gatherer = Gatherer(broker, self._run_bytes)
        self.meter = Meter()
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        """All connections receive into it, each use ends before the next begins."""
        self.receive_memory = SharedMemory(limits.receive_bytes)
        self.now = 0.0
        """The time of the event loop, as of the last sweep."""
        self._connections: set[LogdConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._left = asyncio.Event()

    def factory(self) -> asyncio.BufferedProtocol:
        return LogdConnection(self)

    async def converse(self, data: bytes) -> bytes:
        """The answers to these commands, in their order. Those that never end are refused."""
        if self._is_closing:
            return self.refusal
        return await Conversation(self).hold(data)

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

    def decoder(self) -> Decoder:
        return Decoder(self.limits.batch_bytes, self.receive_memory, self._run_bytes)

    def enter(self, connection: LogdConnection) -> None:
        if self._timer is None:
            self._sweep()
        self._connections.add(connection)
        if self._is_closing:
            connection.finish(ShuttingDown())

    def leave(self, connection: LogdConnection) -> None:
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
            {"message": "the logd front-end has failed in a request", "exception": error}
        )

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = now = loop.time()
        for connection in [connection for connection in self._connections if connection.check_at <= now]:
            connection.check(now)
        self._timer = loop.call_later(min(SWEEP_S, self.limits.idle_ms / 4000), self._sweep)
