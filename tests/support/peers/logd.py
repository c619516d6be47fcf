"""A logd front-end on an ephemeral port, and a peer that says exactly what a test wants said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from logboom.broker.access.quotas import Quotas
from logboom.broker.access.sign_in import SignIn
from logboom.broker.api import Broker, Feeds
from logboom.broker.limits import Limits, Rejections
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.settings import LogdSettings
from support.peers.served import Peer, ServedFrontEnd


class Served(ServedFrontEnd[LogdFrontEnd, "LogdPeer"]):
    async def peer(self) -> LogdPeer:
        return await self.connect()

    @property
    def ending(self) -> float | None:
        """When the only connection is to be gone, once it is being closed."""
        (connection,) = self.front_end._connections
        return connection._ends_at

    @property
    def transport(self) -> asyncio.Transport:
        """This side of the only connection."""
        (connection,) = self.front_end._connections
        return cast(asyncio.Transport, connection._transport)


class LogdPeer(Peer):
    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def line(self) -> bytes:
        return (await self.reader.readuntil(b"\r\n")).removesuffix(b"\r\n")

    async def ask(self, data: bytes) -> bytes:
        """The first line of the answer."""
        self.send(data)
        return await self.line()

    async def values(self) -> list[bytes]:
        """Of the next answer with batches."""
        found: list[bytes] = []
        _, _, batches = (await self.line()).split()
        for _ in range(int(batches)):
            _, _, _, _, count = (await self.line()).split()
            for _ in range(int(count)):
                size = int((await self.line()).split()[1])
                found.append((await self.reader.readexactly(size + 2))[:-2])
        return found

    async def rest(self) -> bytes:
        """Everything up to where the node hangs up."""
        return await self.reader.read()


@asynccontextmanager
async def serve(
    broker: Broker,
    limits: Limits = Limits(),  # noqa: B008
    feeds: Feeds | None = None,
    sign_in: SignIn | None = None,
    quotas: Quotas | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    common = broker, limits, Rejections(), LogdSettings(**settings), dict, feeds
    front_end = LogdFrontEnd(*common, sign_in=sign_in, quotas=quotas)
    served = Served(front_end, LogdPeer)
    async with served.listening():
        yield served
    assert served.front_end.receive_memory.bytes == 0
