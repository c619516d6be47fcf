"""A conversation without a connection: all commands at once, and all answers.

As with a connection, answers come in the order of the commands, and the first that cannot be understood is the last
that is answered. What never ends is refused. Once the answers have `limits.read_bytes`, commands whose answers may be
long are refused, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from logboom.batch.header import Buffer
from logboom.errors import LimitExceeded
from logboom.protocols.logd.answers import encode_refusal
from logboom.protocols.logd.errors import INVALID_PROTOCOL
from logboom.protocols.logd.handler import Handler
from logboom.protocols.logd.requests import Refusal

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd


class Conversation:
    """One, to be held once."""

    def __init__(self, front_end: LogdFrontEnd) -> None:
        self._decoder = front_end.decoder()
        self._bytes_max = front_end.limits.read_bytes
        self._handler = Handler(self, front_end, takes_endless=False)
        self._out: list[Buffer] = []
        self._size = 0
        self._is_over = asyncio.Event()

    async def hold(self, data: bytes) -> bytes:
        requests = self._decoder.receive(data)
        if self._decoder.held_bytes:
            self._decoder.close()
            requests.append(Refusal(INVALID_PROTOCOL, is_last=True))
        try:
            self._handler.take(requests)
            self.regulate()
            await self._is_over.wait()
        finally:
            self._handler.drop()
        return b"".join(self._out)

    # What the handler calls.

    def send(self, data: Buffer) -> None:
        self._out.append(data)
        self._size += len(data)

    async def writable(self) -> None:
        if self._size >= self._bytes_max:
            raise LimitExceeded("limits.read_bytes", self._bytes_max, "ask for less at once")

    def regulate(self) -> None:
        if self._handler.is_idle:
            self._is_over.set()

    def part(self, reason: bytes | None) -> None:
        if reason is not None:
            self.send(encode_refusal(reason))
        self._is_over.set()
