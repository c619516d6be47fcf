"""One connection: bytes in, requests to its handler, answers out; how fast, and for how long.

An idle connection is this object, its decoder and its handler: no task, no timer, no buffer. It is read from only while
there is room: for what its requests hold in memory, and for answers, which a peer that does not read leaves in the
transport. What cannot be understood is answered with an ERR line, the last; then this side sends no more, and throws
away what still comes for a moment, because a socket closed on unread bytes would take the ERR with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from logboom.batch.header import Buffer
from logboom.broker.caller import Caller
from logboom.errors import LimitExceeded, LogboomError, RemoteProtocolError
from logboom.protocols.logd.answers import encode_error, encode_refusal
from logboom.protocols.logd.handler import Handler
from logboom.protocols.peer_caller import caller_of_peer

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd

WRITE_BYTES_HIGH: Final = 1024 * 1024
WRITE_BYTES_LOW: Final = 256 * 1024
LINGER_S: Final = 2.0
"""How long a peer that was sent away has to notice, once it was sent everything."""
STALL_S: Final = 30.0
"""How long a command may stand still that has begun and not ended."""


class LogdConnection(asyncio.BufferedProtocol):
    __slots__ = (
        "_blocked",
        "_decoder",
        "_ends_at",
        "_farewell",
        "_front_end",
        "_handler",
        "_heard_at",
        "_is_ending",
        "_is_paused",
        "_is_resting",
        "_out",
        "_room",
        "_transport",
        "caller",
        "check_at",
    )

    caller: Caller

    def __init__(self, front_end: LogdFrontEnd) -> None:
        self._front_end = front_end
        self._decoder = front_end.decoder()
        self._handler: Handler | None = Handler(self, front_end)
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] | None = None
        """Answers to what is being received right now: they go out together."""
        self._blocked = False
        """The peer does not read as much as it is sent."""
        self._room: asyncio.Event | None = None
        self._is_paused = False
        """We do not read what the peer sends."""
        self._is_resting = False
        """There was so much to read that others are to have their turn."""
        self._is_ending = False
        """Nothing new is taken; what is under way is still answered."""
        self._farewell: LogboomError | None = None
        self._heard_at = front_end.now
        self._ends_at: float | None = None
        self.check_at = 0.0
        """When it is to be checked next: a sweep over many must not take long."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        self.caller = caller_of_peer("logd", transport)
        self._front_end.enter(self)
        self._heard_at = self._front_end.now

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._front_end.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._front_end.now
        handler = self._handler
        if handler is None or self._is_ending:
            return
        self._out = []
        error: Exception | None = None
        try:
            handler.take(self._decoder.receive(self._front_end.buffer[:nbytes]))
        except Exception as reason:
            error = reason
            self._front_end.report(reason)
        out, self._out = self._out, None
        if out:
            self._write(out[0] if len(out) == 1 else b"".join(out))
        if error is not None:
            self.refuse(error)
        elif self._handler is None:
            self._hang_up()
        else:
            self._is_resting = nbytes == len(self._front_end.buffer)
            if self._is_resting:
                asyncio.get_running_loop().call_soon(self._go_on)
            self.regulate()

    def _go_on(self) -> None:
        self._is_resting = False
        self.regulate()

    def eof_received(self) -> bool:
        if self._handler is None:
            return False
        farewell = RemoteProtocolError("the last command has no end") if self._decoder.held_bytes else None
        self._decoder.close()
        self._finish(farewell, begins=True)
        return True

    def pause_writing(self) -> None:
        self._blocked = True
        self._heard_at = self._front_end.now
        self.regulate()

    def resume_writing(self) -> None:
        self._blocked = False
        self._heard_at = self._front_end.now
        if self._room is not None:
            self._room.set()
        self.regulate()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._drop_handler()
        self._front_end.leave(self)

    # What the handler calls.

    def send(self, data: Buffer) -> None:
        if self._out is not None:
            self._out.append(data)
        else:
            self._write(data)

    async def writable(self) -> None:
        while self._blocked:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()

    def regulate(self) -> None:
        """Read on, or do not, as there is room; and end where that is what remains to be done."""
        handler, transport = self._handler, self._transport
        if handler is None or transport is None:
            return
        if self._is_ending:
            if handler.is_idle:
                self._say_goodbye()
            return
        pause = self._blocked or self._is_resting or handler.is_full(self._is_paused)
        if pause != self._is_paused and not transport.is_closing():
            self._is_paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def part(self, reason: bytes | None) -> None:
        if reason is not None:
            self.send(encode_refusal(reason))
        self._drop_handler()
        if self._out is None:
            self._hang_up()

    # How it ends.

    def refuse(self, error: Exception) -> None:
        """Say why, and hang up."""
        if self._handler is None:
            return
        if isinstance(error, LogboomError):
            self._front_end.rejections.note(error)
        self._write(encode_error(error))
        self._drop_handler()
        self._hang_up()

    def finish(self, farewell: LogboomError) -> None:
        """Take nothing new, answer what is under way, say this, then close."""
        self._finish(farewell, begins=False)

    def _finish(self, farewell: LogboomError | None, begins: bool) -> None:
        handler, transport = self._handler, self._transport
        if handler is None or transport is None or self._is_ending:
            return
        self._is_ending, self._farewell = True, farewell
        if not transport.is_closing():
            transport.pause_reading()
        handler.stop(begins)
        self.regulate()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> None:
        """Whether it has been silent, or has not read, for too long. Who follows a log may be silent."""
        limits, handler = self._front_end.limits, self._handler
        silent_s, idle_s = now - self._heard_at, limits.idle_ms / 1000
        self.check_at = now + min(idle_s, STALL_S) / 4
        if self._ends_at is not None:
            self.check_at = self._ends_at
            if now >= self._ends_at + (idle_s if self._unsent_bytes else 0.0):
                self.abort()
        elif handler is None:
            return
        elif silent_s >= idle_s and (self._blocked or not handler.is_pushing):
            self.refuse(LimitExceeded("limits.idle_ms", limits.idle_ms, "nothing was heard for so long: ping"))
        elif silent_s >= STALL_S and self._decoder.held_bytes and not self._is_paused:
            self.refuse(RemoteProtocolError("a command has begun and does not go on"))

    def _hang_up(self) -> None:
        """Send no more; a peer that still sends has a moment to read the last words."""
        transport = self._transport
        if transport is None or self._ends_at is not None:
            return
        self._ends_at = self.check_at = self._front_end.now + LINGER_S
        if transport.is_closing():
            return
        if self._is_ending or not transport.can_write_eof():
            transport.close()
            return
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
        transport.write_eof()

    @property
    def _unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _say_goodbye(self) -> None:
        if self._farewell is not None:
            self._write(encode_error(self._farewell))
        self._drop_handler()
        self._hang_up()

    def _drop_handler(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.drop()
        self._decoder.close()

    def _write(self, data: Buffer) -> None:
        transport = self._transport
        if transport is not None and self._ends_at is None and not transport.is_closing():
            transport.write(data)
