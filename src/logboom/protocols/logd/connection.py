"""One connection of the logd protocol: bytes in, requests to its handler, answers out.

What cannot be understood is answered with an ERR line, the last. Of somebody who has to sign in first a few lines are
read at a time, and none behind an AUTH. How fast a connection is read and how it ends is in `stream_connection`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from logboom.access.principal import ANONYMOUS
from logboom.broker.caller import Caller
from logboom.protocols.logd.answers import encode_error, encode_refusal
from logboom.protocols.logd.codec import LINE_BYTES_MAX, Decoder
from logboom.protocols.logd.handler import Handler
from logboom.protocols.logd.requests import Auth, count_commands
from logboom.protocols.stream_connection import StreamConnection

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd


class LogdConnection(StreamConnection[Handler, Decoder]):
    __slots__ = ("_buffer", "_front_end")
    protocol: ClassVar[str] = "logd"
    unit: ClassVar[str] = "command"

    def __init__(self, front_end: LogdFrontEnd) -> None:
        super().__init__(front_end, front_end.decoder())
        self._front_end = front_end
        self._buffer = front_end.buffer
        self._handler = Handler(self, front_end)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._decoder.is_locked = self._front_end.demands_sign_in(self.caller)
        if self._crowd.quotas.is_on and self.caller.principal != ANONYMOUS:  # who may still say who he is
            self.restrain()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[:LINE_BYTES_MAX] if self._decoder.is_locked else self._buffer

    def _receive(self, nbytes: int) -> None:
        assert self._handler is not None
        requests = self._decoder.receive(self._buffer[:nbytes])
        if requests and not self._handler.is_new and not isinstance(requests[0], Auth):
            self.charge(count_commands(requests))
        self._handler.take(requests)
        if nbytes == len(self._buffer):
            self._rest()
        self.regulate()

    def _encode_error(self, error: BaseException) -> bytes:
        return encode_error(error)

    def become(self, caller: Caller) -> None:
        self.occupy(caller)
        if self._crowd.quotas.is_on:
            self.restrain()
        requests = self._decoder.go_on(is_locked=False)
        if self._handler is not None:
            self._handler.take(requests)

    def part(self, reason: bytes | None) -> None:
        if reason is not None:
            self.send(encode_refusal(reason))
        self.hang_up()
