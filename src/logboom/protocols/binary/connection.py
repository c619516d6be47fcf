"""One connection of the binary protocol: bytes in, frames to its handler, answers out.

What breaks the protocol is answered with one ERROR frame, the last; so is another protocol, in its own words where it
has some. How fast a connection is read and how it ends is in `stream_connection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from logboom.batch.header import Buffer
from logboom.errors import RemoteProtocolError
from logboom.protocols.binary.codec import FRAME_BYTES_FIRST, FrameReader, encode_front
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.handler import Handler
from logboom.protocols.binary.hello import Greeting
from logboom.protocols.binary.messages import Kind
from logboom.protocols.binary.stranger import recognise
from logboom.protocols.stream_connection import StreamConnection

if TYPE_CHECKING:
    from logboom.protocols.binary.front_end import BinaryFrontEnd

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request. A head becomes objects of many times its size."""
_HERE: Final = encode_front(Kind.PONG, 0, None)
"""Nobody has asked: the node is there, and does not listen for a while."""


class BinaryConnection(StreamConnection[Greeting | Handler, FrameReader]):
    """Never rests: a full buffer is a few batches, not the many records that one of text is."""

    __slots__ = ()
    protocol: ClassVar[str] = "binary"

    def __init__(self, front_end: BinaryFrontEnd) -> None:
        super().__init__(front_end, FrameReader(FRAME_BYTES_FIRST, front_end.receive_memory, HEAD_BYTES_MAX))
        self._handler = Greeting(self, front_end)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.buffer()

    def _receive(self, nbytes: int) -> None:
        handler = self._handler
        assert handler is not None
        if handler.is_new and not handler.hello and self._is_stranger(nbytes):
            return
        quotas, count = self._crowd.quotas, 0
        is_counted = quotas.is_on and not handler.is_new
        try:
            for frame in self._decoder.received(nbytes):
                handler = handler.take(frame)
                if is_counted and frame.kind != Kind.CREDIT:
                    count += 1
        finally:
            self._handler = handler
            handler.end_run()
            if count:
                quotas.charge(self.caller, requests=count)

    def _reassure(self) -> None:
        self.send(_HERE)

    def _is_stranger(self, nbytes: int) -> bool:
        stranger = recognise(self._decoder.unread(nbytes))
        if stranger is None:
            return False
        self._crowd.rejections[f"protocol.{stranger.protocol}"] += 1
        self.refuse(RemoteProtocolError(f"this is {stranger.protocol}, not Logboom's binary protocol"), stranger.answer)
        return True

    def _encode_error(self, error: BaseException) -> bytes:
        correlation = 0 if self._handler is None else self._handler.hello
        return encode_front(Kind.ERROR, correlation, encode_failure(error))

    # What the handler calls.

    def become(self, handler: Handler) -> None:
        """The sign-in is through. Not while frames are being handled."""
        if self._handler is not None:
            self._handler = handler
            self.regulate()
            if self._crowd.quotas.is_on:
                self.restrain()
        else:
            handler.drop()

    def welcome(self, frame_bytes: int) -> None:
        """The hello is through."""
        self._decoder.limit_bytes = frame_bytes

    def keep(self) -> None:
        """The frames being handled will be used later."""
        self._decoder.keep()

    def send_all(self, buffers: list[Buffer]) -> None:
        """A frame in pieces that are not to be copied. Not while frames are being handled."""
        for buffer in buffers:
            self._write(buffer)

    def fail(self, correlation: int, error: BaseException) -> None:
        self.send(encode_front(Kind.ERROR, correlation, encode_failure(error)))
