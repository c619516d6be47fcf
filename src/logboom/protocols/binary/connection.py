"""One connection of the binary protocol: bytes in, frames to its handler, answers out.

What breaks the protocol is answered with one ERROR frame, the last; so is another protocol, in its own words where it
has some. How fast a connection is read and how it ends is in `stream_connection`.

What is sent without TLS are views of mapped files, and cost no memory while they wait. With TLS they are encrypted when
the transport is given them: so it is given a slice at a time, each when the peer has read enough of those before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final, cast

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

SLICE_BYTES: Final = 256 * 1024
"""Encrypted at once."""
HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request. A head becomes objects of many times its size."""
_HERE: Final = encode_front(Kind.PONG, 0, None)
"""Nobody has asked: the node is there, and does not listen for a while."""


class BinaryConnection(StreamConnection[Greeting | Handler, FrameReader]):
    """Never rests: a full buffer is a few batches, not the many records that one of text is."""

    __slots__ = ("_slices",)
    protocol: ClassVar[str] = "binary"

    def __init__(self, front_end: BinaryFrontEnd) -> None:
        super().__init__(front_end, FrameReader(FRAME_BYTES_FIRST, front_end.receive_memory, HEAD_BYTES_MAX))
        self._handler = Greeting(self, front_end)
        self._slices: deque[Buffer] | None = None
        """What the transport has not been given yet, in its order, while the peer does not read; None without TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if transport.get_extra_info("sslcontext") is not None:
            self._slices = deque()
            cast(asyncio.Transport, transport).set_write_buffer_limits(SLICE_BYTES, SLICE_BYTES // 4)

    def resume_writing(self) -> None:
        self._blocked = False
        self._send_slices()
        if not self._blocked:
            super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._slices = None
        super().connection_lost(exc)

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
        if self._slices is None:
            for buffer in buffers:
                self._write(buffer)
            return
        for buffer in buffers:
            view = memoryview(buffer)
            self._slices.extend(view[start : start + SLICE_BYTES] for start in range(0, view.nbytes, SLICE_BYTES))
        self._send_slices()

    def _send_slices(self) -> None:
        slices = self._slices
        while slices and not self._blocked:
            super()._write(slices.popleft())

    def _write(self, data: Buffer) -> None:
        if self._slices:
            self._slices.append(data)
        else:
            super()._write(data)

    def _end_stream(self) -> None:
        while self._slices:
            super()._write(self._slices.popleft())
        super()._end_stream()

    def fail(self, correlation: int, error: BaseException) -> None:
        self.send(encode_front(Kind.ERROR, correlation, encode_failure(error)))
