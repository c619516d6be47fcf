"""The start of a connection: a hello, and nothing before it; and a sign-in, where the hello begins one.

A client that speaks no version of ours, wants another cluster, or is not who it says, is told so under the correlation
id of its hello. Until it is welcomed it says nothing but what it was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec.msgpack import Decoder

from logboom.access.credential import MECHANISMS, find_mechanism
from logboom.broker.caller import Caller
from logboom.errors import (
    LogboomError,
    RemoteProtocolError,
    SignInFailed,
    UnsupportedVersion,
    WrongCluster,
)
from logboom.protocols.binary.codec import Frame, encode_front
from logboom.protocols.binary.handler import MALFORMED, Handler
from logboom.protocols.binary.messages import TOKEN, VERSION, Hello, Kind, SignInStep

if TYPE_CHECKING:
    from logboom.broker.access.sign_in import ScramSignIn, SignIn
    from logboom.protocols.binary.connection import BinaryConnection
    from logboom.protocols.binary.front_end import BinaryFrontEnd

CLIENT_MOST: Final = 256
"""Characters that a client may call itself. A longer one has no name."""
_hello = Decoder(Hello)
_step = Decoder(SignInStep)


class Greeting:
    """Stands where the handler will, until there was a hello."""

    __slots__ = ("_connection", "_front_end", "_said", "_scram", "_task", "hello")
    is_new: Final = True
    may_be_silent: Final = False

    def __init__(self, connection: BinaryConnection, front_end: BinaryFrontEnd) -> None:
        self._connection = connection
        self._front_end = front_end
        self.hello = 0
        """The correlation id of the hello, while it is being looked at."""
        self._said = Hello()
        self._scram: ScramSignIn | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def take(self, frame: Frame) -> Greeting | Handler:
        if self._scram is not None:
            self._take_answer(frame, self._scram)
            return self
        if self._task is not None:
            raise RemoteProtocolError("nothing is said before the welcome")
        if frame.kind != Kind.HELLO:
            raise RemoteProtocolError(f"the first frame must be a hello, not of kind {frame.kind}")
        try:
            self._said = hello = _hello.decode(frame.head)
        except MALFORMED as error:
            raise RemoteProtocolError(f"the hello is wrong: {error}") from None
        self.hello = frame.correlation
        if len(hello.client) <= CLIENT_MOST:
            self._connection.caller = replace(self._connection.caller, client=hello.client)
        if not hello.version_min <= VERSION <= hello.version_max:
            raise UnsupportedVersion(hello.version_min, hello.version_max, VERSION)
        cluster_id = self._front_end.identity.cluster_id
        if hello.cluster_id is not None and hello.cluster_id != cluster_id:
            raise WrongCluster(hello.cluster_id, cluster_id)
        return self._identify(hello)

    def _identify(self, hello: Hello) -> Greeting | Handler:
        sign_in, caller = self._front_end.sign_in, self._connection.caller
        mechanism = find_mechanism(hello.mechanism)
        if not hello.mechanism or sign_in is None:
            if sign_in is not None and sign_in.demands(caller):
                raise sign_in.refuse(caller)
            return self._welcome(caller, b"")
        if mechanism is not None:
            self._scram = sign_in.with_scram(caller, mechanism)
            self._connection.send(
                encode_front(Kind.CHALLENGE, self.hello, SignInStep(self._scram.begin(hello.sign_in)))
            )
            return self
        if hello.mechanism != TOKEN:
            raise SignInFailed(f"there are the mechanisms {', '.join(MECHANISMS)} and {TOKEN}")
        if not self._connection.is_private:
            raise SignInFailed("a token is taken over TLS, loopback or a Unix socket only")
        self._wait(lambda: self._with_token(sign_in, hello.sign_in))
        return self

    def _take_answer(self, frame: Frame, scram: ScramSignIn) -> None:
        if frame.kind != Kind.SIGN_IN or frame.correlation != self.hello or self._task is not None:
            raise RemoteProtocolError("a challenge is answered, once, before anything else is said")
        try:
            answer = _step.decode(frame.head).data
        except MALFORMED as error:
            raise RemoteProtocolError(f"the answer to the challenge is wrong: {error}") from None
        self._wait(lambda: self._with_scram(scram, answer))

    def _wait(self, work: Callable[[], Awaitable[None]]) -> None:
        self._task = self._front_end.spawn(self._guard(work))

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except LogboomError as error:
            self._connection.refuse(error)
        except Exception as error:
            self._front_end.report(error)
            self._connection.refuse(error)

    async def _with_token(self, sign_in: SignIn, token: bytes) -> None:
        caller = await sign_in.with_token(self._connection.caller, token.decode("ascii", "replace"))
        self._connection.become(self._welcome(caller, b""))

    async def _with_scram(self, scram: ScramSignIn, answer: bytes) -> None:
        caller, last = await scram.finish(answer)
        self._connection.become(self._welcome(caller, last))

    def _welcome(self, caller: Caller, last: bytes) -> Handler:
        self._connection.occupy(caller)
        self._connection.welcome(self._front_end.frame_bytes)
        handler = Handler(self._connection, self._front_end)
        handler.welcome(self.hello, self._said, last)
        return handler

    def end_run(self) -> None:
        pass

    def is_full(self, now_paused: bool) -> bool:
        return False

    def stop(self, reason: LogboomError | None) -> None:
        pass

    def drop(self) -> None:
        if self._task is not None:
            self._task.cancel()
