"""The start of a connection: a hello, and nothing before it.

A client that speaks no version of ours, or wants another cluster, is told so under the correlation id of its hello.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.msgpack import Decoder

from logboom.errors import LogboomError, RemoteProtocolError, UnsupportedVersion, WrongCluster
from logboom.protocols.binary.codec import Frame
from logboom.protocols.binary.handler import MALFORMED, Handler
from logboom.protocols.binary.messages import VERSION, Hello, Kind

if TYPE_CHECKING:
    from logboom.protocols.binary.connection import BinaryConnection
    from logboom.protocols.binary.front_end import BinaryFrontEnd

_hello = Decoder(Hello)


class Greeting:
    """Stands where the handler will, until there was a hello."""

    __slots__ = ("_connection", "_front_end", "hello")
    is_new: Final = True
    is_idle: Final = True
    may_be_silent: Final = False

    def __init__(self, connection: BinaryConnection, front_end: BinaryFrontEnd) -> None:
        self._connection = connection
        self._front_end = front_end
        self.hello = 0
        """The correlation id of the hello, while it is being looked at."""

    def take(self, frame: Frame) -> Handler:
        if frame.kind != Kind.HELLO:
            raise RemoteProtocolError(f"the first frame must be a hello, not of kind {frame.kind}")
        try:
            hello = _hello.decode(frame.head)
        except MALFORMED as error:
            raise RemoteProtocolError(f"the hello is wrong: {error}") from None
        self.hello = frame.correlation
        if not hello.version_min <= VERSION <= hello.version_max:
            raise UnsupportedVersion(hello.version_min, hello.version_max, VERSION)
        cluster_id = self._front_end.identity.cluster_id
        if hello.cluster_id is not None and hello.cluster_id != cluster_id:
            raise WrongCluster(hello.cluster_id, cluster_id)
        self._connection.welcome(self._front_end.frame_bytes)
        handler = Handler(self._connection, self._front_end)
        handler.welcome(frame.correlation, hello)
        return handler

    def end_run(self) -> None:
        pass

    def is_full(self, now_paused: bool) -> bool:
        return False

    def stop(self, reason: LogboomError | None) -> None:
        pass

    def drop(self) -> None:
        pass
