"""A front-end on an ephemeral port, its peers, and the loop that a story of them runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

import uvloop

from support.waiting import until

PATIENCE_S = 300.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(story: Coroutine[Any, Any, None], loop: str = "asyncio") -> None:
    """Run a story. Whatever the loop's exception handler would only print is a failure."""
    complaints: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        async with asyncio.timeout(PATIENCE_S):
            await story

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(watched())
    assert complaints == []


class Peer:
    """Somebody who is connected; a protocol's own says what it says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer


class FrontEnd(Protocol):
    @property
    def factory(self) -> Callable[[], asyncio.BaseProtocol]: ...

    @property
    def connections(self) -> int: ...

    async def close(self, grace_s: float) -> None: ...


Front = TypeVar("Front", bound=FrontEnd)
Other = TypeVar("Other", bound=Peer)


class ServedFrontEnd(Generic[Front, Other]):
    def __init__(self, front_end: Front, peer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Other]) -> None:
        self.front_end = front_end
        self.port = 0
        self.peers: list[Other] = []
        self._peer = peer

    async def connect(self) -> Other:
        self.peers.append(self._peer(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.peers[-1]

    async def until(self, holds: Callable[[], bool]) -> None:
        await until(holds, every_s=0.005)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """In the end everybody is gone, and nothing is left of them."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.front_end.factory, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            await self.front_end.close(0.0)
            assert self.front_end.connections == 0
            for peer in self.peers:
                peer.writer.transport.abort()
            await asyncio.sleep(0)
