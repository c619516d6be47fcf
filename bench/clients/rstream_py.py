"""RabbitMQ streams with rstream, on uvloop: `send_batch` for as many as there are in a frame, confirmed later.

Its sub-entries wait for a timer of half a second, so they are no way to be fast with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvloop
from rstream import Consumer, ConsumerOffsetSpecification, OffsetType, Producer

STREAM = "rstream"
BATCH = 1000
BATCH_BYTES = 512 * 1024
UNCONFIRMED = 8192
CREDITS = 64


class Rstream:
    name = "RabbitMQ streams, rstream"
    package = "rstream"
    durability = "page cache"

    def __init__(self, runner: asyncio.Runner, producer: Any, open_consumer: Callable[[], Any]) -> None:
        self._runner = runner
        self._producer = producer
        self._open_consumer = open_consumer
        self._consumers: list[Any] = []
        self.calls = {"send_batch": lambda values: runner.run(self._produce(values))}
        runner.run(producer.create_stream(STREAM))

    def reset(self) -> None:
        self._runner.run(self._reset())

    def consume(self, count: int) -> list[bytes]:
        return self._runner.run(self._consume(count))

    def send(self, value: bytes) -> None:
        self._runner.run(self._producer.send_wait(STREAM, value))

    async def _reset(self) -> None:
        """Publishers and consumers belong to the stream that was, so they are new, too."""
        await self.close()
        await self._producer.start()
        await self._producer.delete_stream(STREAM)
        await self._producer.create_stream(STREAM)

    async def close(self) -> None:
        """Closing takes rstream a fifth of a second each, so consumers are left as they are until then."""
        await asyncio.gather(self._producer.close(), *(consumer.close() for consumer in self._consumers))
        self._consumers.clear()

    async def _produce(self, values: Sequence[bytes]) -> None:
        unconfirmed = 0
        room = asyncio.Event()

        def confirm(status: Any) -> None:
            nonlocal unconfirmed
            assert status.is_confirmed
            unconfirmed -= 1
            room.set()

        step = max(1, min(BATCH, BATCH_BYTES // len(values[0])))
        for start in range(0, len(values), step):
            batch = values[start : start + step]
            while unconfirmed and unconfirmed + len(batch) > UNCONFIRMED:
                room.clear()
                await room.wait()
            unconfirmed += len(batch)
            await self._producer.send_batch(STREAM, batch, on_publish_confirm=confirm)
        while unconfirmed:
            room.clear()
            await room.wait()

    async def _consume(self, count: int) -> list[bytes]:
        values: list[bytes] = []
        done = asyncio.Event()

        def take(message: bytes, _: Any) -> None:
            values.append(message)
            if len(values) == count:
                done.set()

        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        consumer = self._open_consumer()
        self._consumers.append(consumer)
        await consumer.start()
        await consumer.subscribe(STREAM, take, decoder=_as_it_is, offset_specification=first, initial_credit=CREDITS)
        await done.wait()
        return values


def _as_it_is(message: bytes) -> bytes:
    return message


@contextmanager
def open_client(port: int) -> Iterator[Rstream]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        where: dict[str, Any] = {"host": "127.0.0.1", "port": port, "username": "guest", "password": "guest"}
        client = Rstream(runner, runner.run(_open(where)), partial(Consumer, **where))
        try:
            yield client
        finally:
            runner.run(client.close())


async def _open(where: dict[str, Any]) -> Any:
    producer = Producer(**where)
    await producer.start()
    return producer
