"""Writers and readers that go on in the background, on one thread, until they are stopped.

What breaks off (the node was killed) begins again a moment later. `stop` returns when the thread has ended.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from logboom.client import AsyncReader, AsyncWriter
from logboom.errors import LogboomError
from support.browser.records import Maker, stream

TICK_S: Final = 0.1
AGAIN_S: Final = 0.5
PATIENCE_S: Final = 1.0
STOP_S: Final = 300.0

What = TypeVar("What")


class Flow(msgspec.Struct, frozen=True):
    """Records for a topic: so many per second, swelling and ebbing."""

    topic: str
    maker: Maker
    per_second: float
    swell_s: float = 40.0
    """How long from one high to the next."""


class Follower(msgspec.Struct, frozen=True):
    """A reader of a partition that commits its cursor as it goes, and takes so many records per second at most."""

    topic: str
    partition: int
    cursor: str
    per_second: float = 5_000.0


class Traffic:
    def __init__(self, address: str, flows: tuple[Flow, ...], followers: tuple[Follower, ...] = ()) -> None:
        self._address = address
        self._flows = flows
        self._followers = followers
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._flow())

    async def _flow(self) -> None:
        async with asyncio.TaskGroup() as group:
            work = [group.create_task(self._again(self._write, flow)) for flow in self._flows]
            work += [group.create_task(self._again(self._follow, follower)) for follower in self._followers]
            await self._ending.wait()
            for task in work:
                task.cancel()

    async def _again(self, do: Callable[[What], Awaitable[None]], what: What) -> None:
        while True:
            with suppress(LogboomError, TimeoutError, OSError):
                await do(what)
            await asyncio.sleep(AGAIN_S)

    async def _write(self, flow: Flow) -> None:
        records, number, owed = stream(flow.maker, 1), 0, 0.0
        async with AsyncWriter(flow.topic, self._address, delivery_timeout_s=PATIENCE_S) as writer:
            while True:
                height = 1 + 0.6 * math.sin(2 * math.pi * number * TICK_S / flow.swell_s)
                owed += flow.per_second * TICK_S * height
                while owed >= 1:
                    record, owed = next(records), owed - 1
                    await writer.write(
                        record.value, record.key, None, record.channel, record.tags, record.headers, lambda _: None
                    )
                number += 1
                await asyncio.sleep(TICK_S)

    async def _follow(self, follower: Follower) -> None:
        take = max(1, int(follower.per_second * TICK_S))
        async with AsyncReader(
            follower.topic, self._address, follower.partition, cursor=follower.cursor, gaps="skip"
        ) as reader:
            taken = 0
            async for _ in reader.records(follow=True):
                taken += 1
                if taken >= take or reader.at_end:
                    taken = 0
                    await reader.commit()
                    await asyncio.sleep(TICK_S)
