"""One connection of a front-end that reads a stream: how fast it is read, for how long it may be silent, how it ends.

A front-end adds what cuts the stream (a decoder), what is done with the pieces (a handler), and how an error is said
(`_encode_error`). An idle connection is these three objects: no task, no timer, no buffer. It is read from only while
there is room: for what its requests hold in memory, and for answers, which a peer that does not read leaves in the
transport. While a quota makes its caller rest it is not read from either; answers still go out.

It ends in one of three ways. `refuse` says why, and hangs up. `finish` takes nothing new, answers what is under way,
and then closes. `hang_up` is for a conversation that is over. Hanging up sends the end of the stream and throws away
what still comes for a moment, because a socket closed on unread bytes would take the last words with it; whoever reads
slowly has time to read them.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from logboom.batch.header import Buffer
from logboom.broker.access.quotas import REST_S, Rest
from logboom.broker.caller import EVERYBODY, Caller
from logboom.errors import AccessError, LimitExceeded, LogboomError, ProtocolError, RemoteProtocolError
from logboom.protocols.crowd import Crowd
from logboom.protocols.peer_caller import caller_of_peer, is_private

WRITE_BYTES_HIGH: Final = 1024 * 1024
WRITE_BYTES_LOW: Final = 256 * 1024
LINGER_S: Final = 2.0
"""How long a peer that was sent away has to notice, once it was sent everything."""
STALL_S: Final = 30.0
"""How long a frame or a command may stand still that has begun and not ended."""


class StreamDecoder(Protocol):
    """Cuts the stream into frames, commands or packets."""

    @property
    def held_bytes(self) -> int:
        """Of what has begun and not ended; 0 where nothing has."""
        ...

    def close(self) -> None:
        """Nothing more will be received: what has begun is dropped. Called once or more."""
        ...


class ConnectionHandler(Protocol):
    """Makes calls of the broker of what has come, and answers."""

    @property
    def is_new(self) -> bool:
        """Whether it still waits for the hello that must come within limits.hello_ms."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether everything is answered."""
        ...

    @property
    def may_be_silent(self) -> bool:
        """Whether its peer need not say a word, as long as it reads."""
        ...

    def is_full(self, now_paused: bool) -> bool:
        """Whether the connection is to be read no further."""
        ...

    def stop(self, reason: LogboomError | None) -> None:
        """End what never ends. No reason: the peer sends no more, and what it has sent is still begun."""
        ...

    def drop(self) -> None:
        """The connection is gone."""
        ...


class _Hold(NamedTuple):
    """For what a connection rests, since when, and when it asks again."""

    rest: Rest
    began: float
    timer: asyncio.TimerHandle


Handling = TypeVar("Handling", bound=ConnectionHandler)
Decoding = TypeVar("Decoding", bound=StreamDecoder)


class StreamConnection(asyncio.BufferedProtocol, Generic[Handling, Decoding]):
    __slots__ = (
        "_blocked",
        "_counted",
        "_crowd",
        "_decoder",
        "_ends_at",
        "_farewell",
        "_handler",
        "_heard_at",
        "_hold",
        "_is_ending",
        "_is_paused",
        "_is_resting",
        "_opened_at",
        "_out",
        "_room",
        "_transport",
        "caller",
        "check_at",
    )
    protocol: ClassVar[str]
    """By which the caller has come."""
    unit: ClassVar[str] = "frame"
    """What the stream is made of, as errors name it."""

    def __init__(self, crowd: Crowd[Any], decoder: Decoding) -> None:
        """The heir sets `_handler`, which needs the connection."""
        self.caller = EVERYBODY
        """Known when the connection is made."""
        self._counted: list[str] | None = None
        """By what names quotas count it; None until it is known whose it is."""
        self._hold: _Hold | None = None
        self._crowd = crowd
        self._decoder = decoder
        self._handler: Handling | None = None
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
        self._opened_at = self._heard_at = crowd.now
        self._ends_at: float | None = None
        self.check_at = 0.0
        """When it is to be checked next: a sweep over many must not take long."""

    # What a front-end adds, besides `get_buffer`.

    def _receive(self, nbytes: int) -> None:
        """So much has come into the buffer. Raises where the connection cannot go on."""
        raise NotImplementedError

    def _encode_error(self, error: BaseException) -> bytes:
        """The last words. While the handler is still there."""
        raise NotImplementedError

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        self.caller = caller_of_peer(self.protocol, transport)
        self._crowd.enter(self)
        self._opened_at = self._heard_at = self._crowd.now

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._crowd.now
        if self._handler is None or self._is_ending:
            return
        self._out = []
        error: Exception | None = None
        try:
            self._receive(nbytes)
        except (AccessError, ProtocolError, LimitExceeded) as reason:
            error = reason
        except Exception as reason:
            error = reason
            self._crowd.report(reason)
        out, self._out = self._out, None
        if out:
            self._write(out[0] if len(out) == 1 else b"".join(out))
        if error is not None:
            self.refuse(error)
        if self._handler is None:
            self._end_stream()
        elif self._crowd.quotas.is_on:
            self.restrain()

    def eof_received(self) -> bool:
        transport = self._transport
        if self._handler is None or transport is None:
            return False
        torn = RemoteProtocolError(f"the last {self.unit} has no end") if self._decoder.held_bytes else None
        self._decoder.close()
        self._finish(torn, None)
        return transport.can_write_eof()  # TLS has no half of a stream: there the transport closes all of it

    def pause_writing(self) -> None:
        self._blocked = True
        self._heard_at = self._crowd.now
        self.regulate()

    def resume_writing(self) -> None:
        self._blocked = False
        self._heard_at = self._crowd.now
        if self._room is not None:
            self._room.set()
        self.regulate()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._drop_handler()
        self._crowd.quotas.leave(self._counted or ())
        self._crowd.leave(self)

    # What the handler calls.

    def send(self, data: Buffer) -> None:
        if self._out is not None:
            self._out.append(data)
        else:
            self._write(data)

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what comes."""
        return self._transport is not None and is_private(self._transport)

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
                if self._farewell is not None:
                    self._write(self._encode_error(self._farewell))
                self.hang_up()
            return
        pause = self._blocked or self._is_resting or self._hold is not None or handler.is_full(self._is_paused)
        if pause != self._is_paused and not transport.is_closing():
            self._is_paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def relieve(self) -> None:
        """There is more room than before: that changes nothing where everything is read as it comes."""
        if self._is_paused or self._is_ending:
            self.regulate()

    def _rest(self) -> None:
        """Let others have their turn before more is read. `regulate` is to follow."""
        self._is_resting = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_resting = False
        self.regulate()

    # Whose it is, and how much he may take.

    def occupy(self, caller: Caller) -> None:
        """It is this one's from now on. Raises QuotaExceeded where he has too many, and is nobody's then."""
        quotas, counted = self._crowd.quotas, self._counted
        self._counted = None
        quotas.leave(counted or ())
        self._counted = quotas.enter(caller)
        self.caller = caller

    def charge(self, requests: int) -> None:
        """So many have come of its caller. With the first it is his: raises QuotaExceeded where he has too many."""
        if self._counted is None:
            self.occupy(self.caller)
        if self._crowd.quotas.is_on:
            self._crowd.quotas.charge(self.caller, requests=requests)

    def restrain(self) -> None:
        """Read no further while a quota makes its caller rest."""
        handler = self._handler
        if self._hold is None and handler is not None and not handler.is_new and not self._is_ending:
            rest = self._crowd.quotas.rest_of(self.caller)
            if rest is not None:
                self._crowd.quotas.begin(rest)
                self._rest_for(rest)
                self.regulate()

    def _rest_for(self, rest: Rest) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(rest.seconds, REST_S), self.ask_again)
        self._hold = _Hold(rest, loop.time(), timer)
        self._crowd.resting.add(self)

    def ask_again(self) -> None:
        """It has rested for a while, quotas are others now, or it ends."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        hold.timer.cancel()
        quotas = self._crowd.quotas
        quotas.note(hold.rest, asyncio.get_running_loop().time() - hold.began)
        self._heard_at = self._crowd.now  # it was not listened to
        rest = None if self._handler is None or self._is_ending else quotas.rest_of(self.caller)
        if rest is not None:
            self._reassure()
            self._rest_for(rest)
        else:
            quotas.resting -= 1
            self._crowd.resting.discard(self)
        self.regulate()

    def _reassure(self) -> None:
        """Tell the peer that the node is there and does not listen, where the protocol has words for that."""

    # How it ends.

    def refuse(self, error: Exception, answer: bytes | None = None) -> None:
        """Say why, and hang up."""
        if self._handler is None:
            return
        if isinstance(error, LogboomError):
            self._crowd.rejections.note(error)
        self._write(answer or self._encode_error(error))
        self.hang_up()

    def finish(self, farewell: LogboomError) -> None:
        """Take nothing new, answer what is under way, say this, then close."""
        self._finish(farewell, farewell)

    def _finish(self, farewell: LogboomError | None, reason: LogboomError | None) -> None:
        handler, transport = self._handler, self._transport
        if handler is None or transport is None or self._is_ending:
            return
        self._is_ending, self._farewell = True, farewell
        if not transport.is_closing():
            transport.pause_reading()
        handler.stop(reason)
        self.regulate()

    def hang_up(self) -> None:
        """Everything is said. While something is being received, its answers still go out."""
        self._drop_handler()
        if self._out is None:
            self._end_stream()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> None:
        """Whether it has been here, or been silent, or has not read, for too long."""
        limits, handler = self._crowd.limits, self._handler
        idle_s = limits.idle_ms / 1000
        self.check_at = now + min(idle_s, STALL_S) / 4
        if self._ends_at is not None:
            self.check_at = self._ends_at
            if now >= self._ends_at + (idle_s if self._unsent_bytes else 0.0):
                self.abort()
        elif handler is None:
            return
        elif handler.is_new:
            self.check_at = self._opened_at + limits.hello_ms / 1000
            if now >= self.check_at:
                self.refuse(LimitExceeded("limits.hello_ms", limits.hello_ms, "no hello has come"))
        else:
            self._check_silence(now, handler, idle_s)

    def _check_silence(self, now: float, handler: Handling, idle_s: float) -> None:
        if self._is_paused and not self._blocked and not self._is_ending:
            self._heard_at = now  # it may have said much, and is not listened to
        silent_s = now - self._heard_at
        if silent_s >= idle_s and (self._blocked or not handler.may_be_silent):
            idle_ms = self._crowd.limits.idle_ms
            self.refuse(LimitExceeded("limits.idle_ms", idle_ms, "nothing was heard for so long: ping"))
        elif silent_s >= STALL_S and self._decoder.held_bytes and not self._is_paused:
            self.refuse(RemoteProtocolError(f"a {self.unit} has begun and does not go on"))

    def _end_stream(self) -> None:
        """Send no more; a peer that still sends has a moment to read the last words."""
        transport = self._transport
        if transport is None or self._ends_at is not None:
            return
        self._ends_at = self.check_at = self._crowd.now + LINGER_S
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

    def _drop_handler(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.drop()
        self.ask_again()
        self._decoder.close()

    def _write(self, data: Buffer) -> None:
        transport = self._transport
        if transport is not None and self._ends_at is None and not transport.is_closing():
            transport.write(data)
