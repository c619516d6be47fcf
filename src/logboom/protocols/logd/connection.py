"""One connection of the logd protocol: bytes in, requests to its handler, answers out.

What cannot be understood is answered with an ERR line, the last. How fast a connection is read and how it ends is in
`stream_connection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from logboom.protocols.logd.answers import encode_error, encode_refusal
from logboom.protocols.logd.codec import Decoder
from logboom.protocols.logd.handler import Handler
from logboom.protocols.stream_connection import StreamConnection

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd


class LogdConnection(StreamConnection[Handler, Decoder]):
    __slots__ = ("_buffer",)
    protocol: ClassVar[str] = "logd"
    unit: ClassVar[str] = "command"

    def __init__(self, front_end: LogdFrontEnd) -> None:
        super().__init__(front_end, front_end.decoder())
        self._buffer = front_end.buffer
        self._handler = Handler(self, front_end)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def _receive(self, nbytes: int) -> None:
        assert self._handler is not None
        self._handler.take(self._decoder.receive(self._buffer[:nbytes]))
        if nbytes == len(self._buffer):
            self._rest()
        self.regulate()

    def _encode_error(self, error: BaseException) -> bytes:
        return encode_error(error)

    def part(self, reason: bytes | None) -> None:
        if reason is not None:
            self.send(encode_refusal(reason))
        self.hang_up()
