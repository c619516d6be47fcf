"""A broker that watches itself when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from logboom.batch import build
from logboom.broker.api import ActivityRequest, Part
from logboom.broker.local import LocalBroker
from logboom.storage.bookmark import Bookmark


class Watched:
    """A broker whose samples are taken by the test, at times it says."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.time_s = 0.0
        watcher = broker.watcher
        watcher.stop()
        watcher.clock = lambda: self.time_s
        watcher.now = lambda: int(self.time_s * 1e6)

    async def sample(self, after_s: float = 2.0) -> None:
        self.time_s += after_s
        await self.broker.watcher.sample()

    async def send(self, count: int, topic: str = "t") -> None:
        await self.broker.append([Part(topic, [build([b"v"] * count)])])

    async def put_cursor(self, cursor: str, seqno: int, topic: str = "t") -> None:
        info = await self.broker.describe_topic(topic)
        await self.broker.commit_cursor(cursor, topic, 0, str(Bookmark(bytes.fromhex(info.id), 0, seqno, 0)))

    async def names(self, **request: object) -> list[str]:
        found = await self.broker.activity(ActivityRequest(**request))  # type: ignore[arg-type]
        return [topic.name for topic in found.topics]


Story = Callable[[Watched], Awaitable[None]]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Watched]:
    broker = await LocalBroker.open(str(path / "data"))
    try:
        watched = Watched(broker)
        await watched.sample()
        yield watched
    finally:
        await broker.close()


def tell(path: Path, story: Story) -> None:
    async def run() -> None:
        async with asyncio.timeout(300), opened(path) as watched:
            await story(watched)

    asyncio.run(run())
