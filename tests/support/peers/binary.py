"""A front-end on an ephemeral port, and a peer that says exactly what a test wants said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvloop

from logboom.batch.header import Buffer
from logboom.broker.api import Broker
from logboom.broker.limits import Limits, Rejections
from logboom.protocols.binary.codec import FRONT, FRONT_SIZE, encode
from logboom.protocols.binary.front_end import BinaryFrontEnd, Identity
from logboom.protocols.binary.messages import Hello, Kind

PATIENCE_S = 300.0
IDENTITY = Identity("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")
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


class Served:
    def __init__(self, front_end: BinaryFrontEnd, rejections: Rejections, port: int) -> None:
        self.front_end = front_end
        self.rejections = rejections
        self.port = port
        self.peers: list[Peer] = []

    async def peer(self, hello: bool = True) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        if hello:
            assert (await peer.ask(Kind.HELLO, 1, Hello()))[0] == Kind.WELCOME
        return peer

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns when this holds; the story's patience is the limit."""
        while not holds():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serve(broker: Broker, limits: Limits = Limits()) -> AsyncIterator[Served]:  # noqa: B008
    rejections = Rejections()
    front_end = BinaryFrontEnd(broker, limits, rejections, "/data", "logboom/test", IDENTITY)
    server = await asyncio.get_running_loop().create_server(front_end.factory, "127.0.0.1", 0, backlog=1024)
    served = Served(front_end, rejections, server.sockets[0].getsockname()[1])
    try:
        yield served
    finally:
        server.close()
        await front_end.close(0.0)
        assert front_end.connections == 0
        for peer in served.peers:
            peer.writer.transport.abort()
        await asyncio.sleep(0)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, kind: int, correlation: int, head: Any = None, payload: Sequence[Buffer] = ()) -> None:
        self.writer.writelines(encode(kind, correlation, head, payload))

    async def receive(self) -> tuple[int, int, Any, bytes]:
        """Kind, correlation id, head and payload of the next frame."""
        front = FRONT.unpack(await self.reader.readexactly(FRONT_SIZE))
        size, kind, _, _, correlation, head_size = front
        rest = await self.reader.readexactly(size - FRONT_SIZE)
        head = msgspec.msgpack.decode(rest[:head_size]) if head_size else None
        return kind, correlation, head, rest[head_size + (-head_size & 7) :]

    async def ask(
        self, kind: int, correlation: int, head: Any = None, payload: Sequence[Buffer] = ()
    ) -> tuple[int, int, Any, bytes]:
        self.send(kind, correlation, head, payload)
        return await self.receive()

    async def is_silent(self) -> bool:
        """Whether nothing comes, although the other side has had time: a ping is answered first."""
        return (await self.ask(Kind.PING, 0xFFFF_FFFF))[:2] == (Kind.PONG, 0xFFFF_FFFF)

    async def is_closed(self) -> bool:
        return await self.reader.read(1) == b""

    def close(self) -> None:
        self.writer.close()
