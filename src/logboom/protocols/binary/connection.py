"""One connection: bytes in, frames to its handler, answers out; how fast, and for how long.

An idle connection is this object, its frame reader and its handler: no task, no timer, no buffer. It is read from only
while there is room: for what its requests hold in memory, and for answers, which a peer that does not read leaves in
the transport. What breaks the protocol is answered with one ERROR frame, the last; then this side sends no more, and
throws away what still comes for a moment, because a socket closed on unread bytes would take the ERROR frame with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from logboom.batch.header import Buffer
from logboom.broker.caller import Caller
from logboom.errors import LimitExceeded, LogboomError, ProtocolError, RemoteProtocolError
from logboom.protocols.binary.codec import FRAME_BYTES_FIRST, FrameReader, encode_front
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.handler import Handler
from logboom.protocols.binary.hello import Greeting
from logboom.protocols.binary.messages import Kind
from logboom.protocols.binary.stranger import recognise
from logboom.protocols.peer_caller import caller_of_peer

if TYPE_CHECKING:
    from logboom.protocols.binary.front_end import BinaryFrontEnd

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request. A head becomes objects of many times its size."""
WRITE_BYTES_HIGH: Final = 1024 * 1024
WRITE_BYTES_LOW: Final = 256 * 1024
LINGER_S: Final = 2.0
"""How long a peer that was sent away has to notice."""
STALL_S: Final = 30.0
"""How long a frame may stand still that has begun and not ended."""


class BinaryConnection(asyncio.BufferedProtocol):
    __slots__ = (
        "_blocked",
        "_ends_at",
        "_farewell",
        "_frames",
        "_front_end",
        "_handler",
        "_heard_at",
        "_is_ending",
        "_is_paused",
        "_opened_at",
        "_out",
        "_room",
        "_transport",
        "caller",
        "check_at",
    )

    caller: Caller

    def __init__(self, front_end: BinaryFrontEnd) -> None:
        self._front_end = front_end
        self._frames = FrameReader(FRAME_BYTES_FIRST, front_end.receive_memory, HEAD_BYTES_MAX)
        self._handler: Greeting | Handler | None = Greeting(self, front_end)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] | None = None
        """Answers to what is being received right now: they go out together."""
        self._blocked = False
        """The peer does not read as much as it is sent."""
        self._room: asyncio.Event | None = None
        self._is_paused = False
        """We do not read what the peer sends."""
        self._is_ending = False
        """Nothing new is taken; what is under way is still answered."""
        self._farewell: LogboomError | None = None
        self._opened_at = self._heard_at = front_end.now
        self._ends_at: float | None = None
        self.check_at = 0.0
        """When it is to be checked next: a sweep over many must not take long."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        self.caller = caller_of_peer("binary", transport)
        self._front_end.enter(self)
        self._opened_at = self._heard_at = self._front_end.now

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._front_end.now
        handler = self._handler
        if handler is None or self._is_ending:
            return
        self._out = []
        error: Exception | None = None
        try:
            if handler.is_new and self._is_stranger(nbytes):
                return
            for frame in self._frames.received(nbytes):
                handler = handler.take(frame)
        except (ProtocolError, LimitExceeded) as reason:
            error = reason
        except Exception as reason:
            error = reason
            self._front_end.report(reason)
        self._handler = handler
        handler.end_run()
        out, self._out = self._out, None
        if out:
            self._write(out[0] if len(out) == 1 else b"".join(out))
        if error is not None:
            self.refuse(error, correlation=handler.hello)

    def eof_received(self) -> bool:
        if self._handler is None:
            return False
        self.finish(None)
        return True

    def pause_writing(self) -> None:
        self._blocked = True
        self.regulate()

    def resume_writing(self) -> None:
        self._blocked = False
        if self._room is not None:
            self._room.set()
        self.regulate()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._drop_handler()
        self._front_end.leave(self)

    # What the handler calls.

    def welcome(self, frame_bytes: int) -> None:
        """The hello is through."""
        self._frames.limit_bytes = frame_bytes

    def keep(self) -> None:
        """The frames being handled will be used later."""
        self._frames.keep()

    def send(self, answer: bytes) -> None:
        if self._out is not None:
            self._out.append(answer)
        else:
            self._write(answer)

    def send_all(self, buffers: list[Buffer]) -> None:
        """A frame in pieces that are not to be copied. Not while frames are being handled."""
        for buffer in buffers:
            self._write(buffer)

    def fail(self, correlation: int, error: BaseException) -> None:
        self.send(encode_front(Kind.ERROR, correlation, encode_failure(error)))

    @property
    def blocked(self) -> bool:
        return self._blocked

    async def writable(self) -> None:
        """Returns when the peer has read enough of what it was sent."""
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
        pause = self._blocked or handler.is_full(self._is_paused)
        if pause != self._is_paused and not transport.is_closing():
            self._is_paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()

    # How it ends.

    def refuse(self, error: Exception, answer: bytes | None = None, correlation: int = 0) -> None:
        """Say why, and hang up."""
        transport = self._transport
        if self._ends_at is not None or transport is None:
            return
        if isinstance(error, LogboomError):
            self._front_end.rejections.note(error)
        self._drop_handler()
        self._write(answer or encode_front(Kind.ERROR, correlation, encode_failure(error)))
        self._ends_at = self.check_at = self._front_end.now + LINGER_S
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def finish(self, farewell: LogboomError | None) -> None:
        """Take nothing new, answer what is under way, then close."""
        handler, transport = self._handler, self._transport
        if handler is None or transport is None or self._is_ending:
            return
        self._is_ending, self._farewell = True, farewell
        if not transport.is_closing():
            transport.pause_reading()
        handler.stop_waiting(farewell)
        self.regulate()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> None:
        """Whether it has been here, or been silent, for too long."""
        limits, handler = self._front_end.limits, self._handler
        silent_s = now - self._heard_at
        idle_s, hello_s = limits.idle_ms / 1000, limits.hello_ms / 1000
        self.check_at = now + min(idle_s, STALL_S) / 4
        if self._ends_at is not None:
            self.check_at = self._ends_at
            if now >= self._ends_at:
                self.abort()
        elif handler is not None and handler.is_new:
            self.check_at = self._opened_at + hello_s
            if now >= self.check_at:
                self.refuse(LimitExceeded("limits.hello_ms", limits.hello_ms, "no hello has come"))
        elif silent_s >= idle_s:
            self.refuse(LimitExceeded("limits.idle_ms", limits.idle_ms, "nothing was heard for so long: ping"))
        elif silent_s >= STALL_S and self._frames.held_bytes and not self._is_paused:
            self.refuse(RemoteProtocolError("a frame has begun and does not go on"))

    def _is_stranger(self, nbytes: int) -> bool:
        stranger = recognise(self._frames.unread(nbytes))
        if stranger is None:
            return False
        self._out = None
        self._front_end.rejections[f"protocol.{stranger.protocol}"] += 1
        self.refuse(RemoteProtocolError(f"this is {stranger.protocol}, not Logboom's binary protocol"), stranger.answer)
        return True

    def _say_goodbye(self) -> None:
        transport = self._transport
        assert transport is not None
        if self._farewell is not None:
            self.fail(0, self._farewell)
        self._drop_handler()
        transport.close()

    def _drop_handler(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.drop()
        self._frames.close()

    def _write(self, data: Buffer) -> None:
        transport = self._transport
        if transport is not None and self._ends_at is None and not transport.is_closing():
            transport.write(data)
