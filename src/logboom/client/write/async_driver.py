"""An asyncio writer's connection: one task keeps it up, one timer does what is due, answers come as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from logboom.client.link.address import Address
from logboom.client.link.async_link import CONNECT_TIMEOUT_S, close_transport, describe_loss, no_connection, secured
from logboom.client.write.driver import TICK_MIN_S
from logboom.client.write.ledger import OnError, tell
from logboom.client.write.writer_core import WriterCore
from logboom.errors import ConnectionLost, LogboomError


class AsyncDriver:
    """Made in the event loop that it is to run in."""

    def __init__(self, core: WriterCore, servers: Sequence[Address], on_error: OnError | None) -> None:
        self.core = core
        self.loop = asyncio.get_running_loop()
        self._servers = servers
        self._on_error = on_error
        self._wire: _Wire | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._lost = asyncio.Event()
        self._conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        """What callers wait for."""
        self._is_closed = False
        self._keeper = self.loop.create_task(self._keep_connected(), name=f"writer of {core.ledger.topic}")

    @property
    def is_sent(self) -> bool:
        """Whether everything that was to be sent is with the operating system."""
        return not self.core.outgoing and (self._wire is None or not self._wire.is_paused)

    def step_soon(self) -> None:
        """At the end of this round of the loop: so what other tasks send in it goes along."""
        if self._soon is None:
            self._soon = self.loop.call_soon(self.step)

    def step(self) -> None:
        core = self.core
        self._soon = None
        now = self.loop.time()
        try:
            core.turn(now)
            while core.outgoing and self._wire is not None and not self._wire.is_paused:
                buffers, core.outgoing = core.outgoing, []
                self._wire.send(buffers)
                if core.options.acks != "none":
                    break
                core.turn(now)  # no answer will come to say that there is room for more
        except LogboomError as error:
            self.lose(self._wire, error)
        self.tell()
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        look = max(self.core.next_look(now), now + TICK_MIN_S)
        if self._timer is not None:
            if self._timer.when() <= look:
                return
            self._timer.cancel()
            self._timer = None
        if not self._is_closed and self.core.contact.fatal is None:
            self._timer = self.loop.call_at(look, self._on_timer)

    def _on_timer(self) -> None:
        # It may fire a little early: then another one is needed.
        self._timer = None
        self.step()

    def tell(self) -> None:
        """Tell everybody what became of their records."""
        untold = tell(*self.core.ledger.take(), self._on_error)
        if untold is not None:
            self.core.give_up_on(untold)
        if self._conditions:
            for is_done, future in self._conditions:
                if not future.done() and (self.core.contact.fatal is not None or is_done()):
                    future.set_result(None)
            self._conditions = [entry for entry in self._conditions if not entry[1].done()]

    async def until(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait for this, or for the end of all hope. Whether time was not up before."""
        if is_done():
            return True
        future: asyncio.Future[None] = self.loop.create_future()
        self._conditions.append((is_done, future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self._is_closed = True
        self._keeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeper
        if self._timer is not None:
            self._timer.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def _keep_connected(self) -> None:
        loop, contact = self.loop, self.core.contact
        while contact.fatal is None:
            self._lost.clear()
            await asyncio.sleep(max(0.0, contact.connect_at - loop.time()))
            address = self._servers[contact.server]
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    if address.path is not None:
                        await loop.create_unix_connection(lambda: _Wire(self), address.path)
                    else:
                        secure = secured(address)
                        await loop.create_connection(lambda: _Wire(self), address.host, address.port, **secure)
            except (OSError, UnicodeError) as error:
                reason = OSError("it did not answer") if isinstance(error, TimeoutError) else error
                self.core.lost(ConnectionLost(no_connection(address, reason)), loop.time())
                self.step()
                continue
            except LogboomError as error:
                self.core.lost(error, loop.time())
                self.step()
                continue
            await self._lost.wait()

    def made(self, wire: _Wire) -> None:
        self._wire = wire
        self.core.connected(self.loop.time(), self._servers[self.core.contact.server].profile)
        self.step()

    def received(self, wire: _Wire, count: int) -> None:
        if wire is not self._wire:
            return
        try:
            self.core.received(count, self.loop.time())
        except LogboomError as error:
            self.lose(wire, error)
        else:
            self.step()

    def describe_loss(self, error: Exception | None) -> str:
        contact = self.core.contact
        return describe_loss(self._servers[contact.server], contact.session, error)

    def lose(self, wire: _Wire | None, error: LogboomError) -> None:
        """This connection is gone, or is to go. One that was given up before matters to nobody."""
        if wire is None or wire is not self._wire:
            return
        self._wire = None
        wire.abort()
        self.core.lost(error, self.loop.time())
        self._lost.set()
        self.step()


class _Wire(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_paused = False
        """Whether the transport still holds something that the operating system has not taken."""

    def send(self, buffers: list[Any]) -> None:
        assert self._transport is not None
        self._transport.writelines(buffers)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        if self._transport is not None:
            await close_transport(self._transport, self._closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is not one by birth
        transport.set_write_buffer_limits(0)
        self._driver.made(self)
        here = transport.get_extra_info("sockname")
        if here and here == transport.get_extra_info("peername"):
            self._driver.lose(self, ConnectionLost("nobody listens there: this side has called itself"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._driver.core.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._driver.received(self, nbytes)

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._driver.step()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        self._driver.lose(self, ConnectionLost(self._driver.describe_loss(exc)))
