"""NATS JetStream with nats-py on uvloop: `publish_async`, whose answers are awaited at the end; a push consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import nats
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

STREAM = "nats-py"
PENDING = 8192
UNREAD = 1024 * 1024 * 1024


class NatsPy:
    name = "NATS JetStream, nats-py"
    package = "nats-py"
    durability = "file storage, synced every two minutes"

    def __init__(self, runner: asyncio.Runner, connection: Any) -> None:
        self._runner = runner
        self._stream = connection.jetstream(publish_async_max_pending=PENDING, timeout=60)
        self.calls = {"publish_async": lambda values: runner.run(self._produce(values))}
        runner.run(self._stream.add_stream(name=STREAM, subjects=[STREAM]))

    def reset(self) -> None:
        self._runner.run(self._stream.purge_stream(STREAM))

    def consume(self, count: int) -> list[bytes]:
        return self._runner.run(self._consume(count))

    def send(self, value: bytes) -> None:
        self._runner.run(self._stream.publish(STREAM, value))

    async def _produce(self, values: Sequence[bytes]) -> None:
        answers = [await self._stream.publish_async(STREAM, value) for value in values]
        await self._stream.publish_async_completed()
        assert all(answer.exception() is None for answer in answers)

    async def _consume(self, count: int) -> list[bytes]:
        values: list[bytes] = []
        done = asyncio.Event()

        async def take(message: Any) -> None:
            values.append(message.data)
            if len(values) == count:
                done.set()

        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
        limits = {"pending_msgs_limit": -1, "pending_bytes_limit": UNREAD}
        subscription = await self._stream.subscribe(STREAM, cb=take, stream=STREAM, config=config, **limits)
        await done.wait()
        await subscription.unsubscribe()
        return values


@contextmanager
def open_client(port: int) -> Iterator[NatsPy]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        connection = runner.run(nats.connect(f"nats://127.0.0.1:{port}", pending_size=64 * 1024 * 1024))
        try:
            yield NatsPy(runner, connection)
        finally:
            runner.run(connection.close())
