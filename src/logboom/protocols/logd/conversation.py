"""A conversation without a connection: all commands at once, and all answers.

As with a connection, answers come in the order of the commands, and the first that cannot be understood is the last
that is answered. What never ends is refused. Once the answers have `limits.read_bytes`, commands whose answers may be
long are refused, too. Commands are looked at piece by piece, as there is room for what they hold in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from logboom.access.quota import INTO
from logboom.batch.header import Buffer
from logboom.broker.caller import Caller
from logboom.errors import LimitExceeded
from logboom.protocols.logd.answers import encode_refusal
from logboom.protocols.logd.errors import INVALID_PROTOCOL
from logboom.protocols.logd.handler import Handler
from logboom.protocols.logd.requests import Refusal, count_commands

if TYPE_CHECKING:
    from logboom.protocols.logd.front_end import LogdFrontEnd

PIECE_BYTES: Final = 64 * 1024


class Conversation:
    """One, to be held once."""

    def __init__(self, front_end: LogdFrontEnd, caller: Caller) -> None:
        self.caller = caller
        self.is_private = False
        self._decoder = front_end.decoder()
        self._quotas = front_end.quotas
        self._bytes_max = front_end.limits.read_bytes
        self._handler = Handler(self, front_end, takes_endless=False)
        self._out: list[Buffer] = []
        self._size = 0
        self._is_over = False
        self._news = asyncio.Event()

    async def hold(self, data: bytes) -> bytes:
        try:
            for start in range(0, len(data), PIECE_BYTES):
                requests = self._decoder.receive(memoryview(data)[start : start + PIECE_BYTES])
                if self._quotas.is_on:
                    self._quotas.charge(self.caller, requests=count_commands(requests))
                    await self._quotas.rest(self.caller, INTO)
                self._handler.take(requests)
                await asyncio.sleep(0)
                await self._until(lambda: not self._handler.is_full(False))
                if self._is_over:
                    break
            else:
                if self._decoder.held_bytes:
                    self._handler.take([Refusal(INVALID_PROTOCOL, is_last=True)])
                await self._until(lambda: self._handler.is_idle)
        finally:
            self._handler.drop()
            self._decoder.close()
        return b"".join(self._out)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds() and not self._is_over:
            self._news.clear()
            await self._news.wait()

    # What the handler calls.

    def send(self, data: Buffer) -> None:
        self._out.append(data)
        self._size += len(data)

    async def writable(self) -> None:
        if self._size >= self._bytes_max:
            raise LimitExceeded("limits.read_bytes", self._bytes_max, "ask for less at once")

    def regulate(self) -> None:
        self._news.set()

    def become(self, caller: Caller) -> None:
        raise NotImplementedError  # who calls has signed in, or not, before the conversation

    def part(self, reason: bytes | None) -> None:
        if reason is not None:
            self.send(encode_refusal(reason))
        self._is_over = True
        self._news.set()
