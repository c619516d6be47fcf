"""An HTTP front-end on a real socket, with a real broker behind it; and a client that sends any bytes whatever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from logboom.broker.config import BrokerConfig
from logboom.broker.limits import Limits
from logboom.broker.local import LocalBroker
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.settings import HttpSettings


class WebNode:
    def __init__(self, broker: LocalBroker, front_end: HttpFrontEnd, port: int, client: httpx.AsyncClient) -> None:
        self.broker = broker
        self.front_end = front_end
        self.port = port
        self.client = client
        self._peers: list[RawPeer] = []

    async def connect(self) -> RawPeer:
        self._peers.append(RawPeer(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self._peers[-1]

    async def hang_up(self) -> None:
        for peer in self._peers:
            await peer.close()

    async def talk(self, data: bytes) -> bytes:
        """Send this, and read until the node hangs up."""
        peer = await self.connect()
        await peer.send(data)
        return await peer.rest()


class RawPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers, body of one response with a Content-Length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def rest(self) -> bytes:
        try:
            return await self.reader.read()
        finally:
            await self.close()

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


Story = Callable[[WebNode], Awaitable[None]]


@asynccontextmanager
async def serving(
    path: Path, settings: HttpSettings | None = None, config: BrokerConfig | None = None, limits: Limits | None = None
) -> AsyncIterator[WebNode]:
    broker = await LocalBroker.open(str(path / "data"), config)
    front_end = HttpFrontEnd(
        *(broker, limits or Limits(), broker.rejections, settings or HttpSettings(), dict),
        sign_in=broker.sign_in,
        sees_all=broker.shows_files,
        quotas=broker.quotas,
    )
    loop = asyncio.get_running_loop()
    server = await loop.create_server(front_end.factory, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    try:
        async with plain_client(f"http://127.0.0.1:{port}") as client:
            node = WebNode(broker, front_end, port, client)
            try:
                yield node
            finally:
                await node.hang_up()
    finally:
        server.close()
        await front_end.close(1)
        await broker.close()


def plain_client(url: str) -> httpx.AsyncClient:
    """For http alone: to read the certificates that a client trusts takes longer than most tests."""
    return httpx.AsyncClient(base_url=url, timeout=300, verify=False)


def tell(path: Path, story: Story, **more: Any) -> list[dict[str, Any]]:
    """Run it against a node; what the event loop's exception handler was told comes back."""
    reports: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        async with asyncio.timeout(300), serving(path, **more) as node:
            await story(node)

    asyncio.run(run())
    return reports
