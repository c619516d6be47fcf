"""All connections of a front-end: who is there, who has been silent for too long, and how they end.

One timer sweeps all of them; none runs while there are none. Closing lets what was promised go out, within a time, and
returns when no connection and no task of one is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar

from logboom.broker.access.quotas import Quotas, no_quotas
from logboom.broker.limits import Limits, Rejections
from logboom.errors import LogboomError, ShuttingDown

SWEEP_S: Final = 1.0


class Member(Protocol):
    """A connection."""

    check_at: float
    """When it is to be checked next: a sweep over many must not take long."""

    def check(self, now: float) -> None:
        """Whether it has been here, or been silent, for too long."""
        ...

    def finish(self, farewell: LogboomError) -> None:
        """Take nothing new, answer what is under way, say this, then close."""
        ...

    def abort(self) -> None: ...

    def ask_again(self) -> None:
        """It rests, and quotas are others now."""
        ...


Connection = TypeVar("Connection", bound=Member)


class Crowd(Generic[Connection]):
    def __init__(self, protocol: str, limits: Limits, rejections: Rejections, quotas: Quotas | None = None) -> None:
        self.limits = limits
        self.rejections = rejections
        self.quotas = quotas or no_quotas()
        self.resting: set[Connection] = set()
        """Those that are not read from because a quota makes their callers rest."""
        self.quotas.on_change.append(self._ask_again)
        self.now = 0.0
        """The time of the event loop, as of the last sweep."""
        self._protocol = protocol
        self._sweep_s = min(SWEEP_S, limits.hello_ms / 4000, limits.idle_ms / 4000)
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._left = asyncio.Event()

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

    def enter(self, connection: Connection) -> None:
        if self._timer is None:
            self._sweep()
        self._connections.add(connection)
        if self._is_closing:
            connection.finish(ShuttingDown())

    def leave(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._left.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _ask_again(self) -> None:
        for connection in list(self.resting):
            connection.ask_again()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def report(self, error: BaseException) -> None:
        """An error that is not the peer's."""
        message = f"the {self._protocol} front-end has failed in a request"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = now = loop.time()
        for connection in [connection for connection in self._connections if connection.check_at <= now]:
            connection.check(now)
        self._timer = loop.call_later(self._sweep_s, self._sweep)
