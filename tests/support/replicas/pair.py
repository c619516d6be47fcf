"""A source with its logd port and a replica of it, both in this process, each of which may be restarted."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from logboom.batch import build
from logboom.broker.api import Part, ReplicaStats
from logboom.broker.config import BrokerConfig, UpkeepSettings
from logboom.broker.local import LocalBroker
from logboom.errors import FeedEnded, IndexOutOfRange
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.settings import LogdSettings
from logboom.replication.replication import Replication, prepare
from logboom.replication.source_access import ReplicateSettings
from support.disks.gated import GatedDisk
from support.nodes.process import free_port
from support.replicas.stored import are_equal, stored

OFTEN = BrokerConfig(upkeep=UpkeepSettings(retention_every_ms=20))


class Pair:
    def __init__(self, root: Path, config: BrokerConfig = OFTEN) -> None:
        self.root = root
        self.config = config
        self.settings = ReplicateSettings()
        """Who the replica is at its source."""
        self.tls: ssl.SSLContext | None = None
        """The source's."""
        self.address = f"127.0.0.1:{free_port()}"
        self._source: LocalBroker | None = None
        self._front: LogdFrontEnd | None = None
        self._server: asyncio.Server | None = None
        self._replica: LocalBroker | None = None
        self._replication: Replication | None = None
        self.disk: GatedDisk | None = None
        """The replica's, where the test wants to hold it up."""

    @property
    def connections(self) -> int:
        """How many the source has."""
        return 0 if self._front is None else self._front.connections

    @property
    def source(self) -> LocalBroker:
        assert self._source is not None
        return self._source

    @property
    def replica(self) -> LocalBroker:
        assert self._replica is not None
        return self._replica

    async def start_source(self, name: str = "source") -> None:
        self._source = await LocalBroker.open(str(self.root / name), self.config)
        await self.listen()

    def borrow_source(self, broker: LocalBroker) -> None:
        """Somebody else closes it."""
        self._source = broker

    async def listen(self) -> None:
        source = self.source
        self._front = LogdFrontEnd(
            *(source, source.limits, source.rejections, LogdSettings(), dict, source), sign_in=source.sign_in
        )
        host, _, port = self.address.removeprefix("tls://").rpartition(":")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._front.factory, host, int(port), ssl=self.tls)

    async def hang_up(self) -> None:
        """The source is there, and nobody reaches it."""
        if self._server is not None and self._front is not None:
            loop = asyncio.get_running_loop()
            for listening in self._server.sockets:
                loop.remove_reader(listening.fileno())
            for _ in range(3):
                await asyncio.sleep(0)  # whoever was accepted gets in: a closed server would leave him hanging
            self._server.close()
            await self._front.close(1.0)
        self._server = self._front = None

    async def stop_source(self) -> None:
        await self.hang_up()
        if self._source is not None:
            await self._source.close()
        self._source = None

    async def start_replica(
        self, address: str | None = "", name: str = "replica", config: BrokerConfig | None = None, gated: bool = False
    ) -> None:
        path = str(self.root / name)
        role = await prepare(self.address if address == "" else address, path, settings=self.settings)
        cluster_id = None if role is None else role.cluster_id
        os.makedirs(path, exist_ok=True)
        self.disk = GatedDisk(path) if gated else None
        self._replica = await LocalBroker.open(path, config or self.config, cluster_id, self.disk, replicate=role)
        self._replication = None if role is None else Replication.start(self._replica, self.settings)

    async def stop_replica(self) -> None:
        if self._replication is not None:
            await self._replication.close()
        if self._replica is not None:
            await self._replica.close()
        self._replica = self._replication = None

    async def stats(self) -> ReplicaStats:
        found = (await self.replica.stats()).replica
        assert found is not None
        return found

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        answers = await self.source.append([Part(topic, [build([value]) for value in values], partition)])
        assert all(not isinstance(answer, Exception) for answer in answers), answers

    async def caught_up(self) -> None:
        """Until the same topics are on both sides, and every log of them is equal."""
        while True:
            with suppress(FeedEnded, IndexOutOfRange):  # it changes while it is looked at
                if await self._is_equal():
                    return
            await asyncio.sleep(0.02)

    async def _is_equal(self) -> bool:
        there = {topic.name: topic for topic in await self.source.list_topics()}
        here = {topic.name: topic for topic in await self.replica.list_topics()}
        if there.keys() != here.keys() or any(
            (topic.id, topic.settings) != (here[name].id, here[name].settings) for name, topic in there.items()
        ):
            return False
        return all(
            [
                are_equal(
                    await stored(self.source, name, place.partition), await stored(self.replica, name, place.partition)
                )
                for name, topic in there.items()
                for place in topic.partitions
            ]
        )


@asynccontextmanager
async def paired(root: Path, config: BrokerConfig = OFTEN) -> AsyncIterator[Pair]:
    pair = Pair(root, config)
    await pair.start_source()
    try:
        await pair.start_replica()
        yield pair
    finally:
        await pair.stop_replica()
        await pair.stop_source()


def tell(root: Path, story: Callable[[Pair], Awaitable[None]], config: BrokerConfig = OFTEN) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), paired(root, config) as pair:
            await story(pair)

    asyncio.run(run())
