"""One broker, met in three places: in the process, through TCP, through a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.client.remote import connect
from logboom.protocols.binary.front_end import BinaryFrontEnd, Identity
from support.brokers.any_broker import AnyBroker

Place = Literal["process", "tcp", "unix"]
PLACES: tuple[Place, ...] = ("process", "tcp", "unix")


@asynccontextmanager
async def served(
    directory: Path, place: Literal["tcp", "unix"] = "tcp", config: BrokerConfig | None = None
) -> AsyncIterator[tuple[LocalBroker, str]]:
    """A node in this process, and its address."""
    local = await LocalBroker.open(str(directory / "data"), config)
    identity = Identity(local.node.node_id, local.node.cluster_id)
    own = local, local.limits, local.rejections, local.directory, "test", identity
    front_end = BinaryFrontEnd(*own, sign_in=local.sign_in, quotas=local.quotas)
    loop = asyncio.get_running_loop()
    if place == "unix":
        server = await loop.create_unix_server(front_end.factory, str(directory / "socket"))
        address = f"unix:{directory / 'socket'}"
    else:
        server = await loop.create_server(front_end.factory, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield local, address
    finally:
        server.close()
        await front_end.close(5.0)
        await local.close()


@asynccontextmanager
async def opened(place: Place, directory: Path, config: BrokerConfig | None = None) -> AsyncIterator[AnyBroker]:
    if place == "process":
        local = await LocalBroker.open(str(directory / "data"), config)
        try:
            yield local
        finally:
            await local.close()
        return
    async with served(directory, place, config) as (_, address), connect(address) as remote:
        yield remote
