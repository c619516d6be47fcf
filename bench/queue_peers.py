"""Servers whose consumers acknowledge record by record, each with the client that people use for it.

Workers are processes of their own: functions that connect, say that they are ready, work until nothing comes any more,
and return how many records they had and when the last one was acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.process import Missing, connect, find_program, free_port, running
from peers.rabbitmq import running_server

IDLE_S = 3.0
"""A worker that gets nothing for so long is done."""
PREFETCH = 2000
Done = tuple[int, float]
Ready = Callable[[], object]


@dataclass(frozen=True, slots=True)
class QueuePeer:
    name: str
    fill: Callable[[Sequence[bytes]], object]
    """Have these in a queue that nobody has taken from."""
    work: Callable[..., Done]
    """In another process: with `arguments`, then what says that it is ready."""
    arguments: tuple[Any, ...]


def work_logboom(address: str, topic: str, group: list[str], ready: Ready) -> Done:
    from logboom import QueueConsumer

    count, last = 0, 0.0
    with QueueConsumer(topic, address, group=group[0], prefetch=PREFETCH) as consumer:
        ready()
        for job in consumer.jobs(timeout_s=IDLE_S):
            job.ack()
            count += 1
            last = time.monotonic()
        began = time.monotonic()
        consumer.flush()
        return count, last + time.monotonic() - began


def work_nats(port: int, ready: Ready) -> Done:
    import nats

    async def work() -> Done:
        connection = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = connection.jetstream()
        subscription = await stream.pull_subscribe("jobs", "workers", stream="jobs")
        ready()
        count, last = 0, 0.0
        while True:
            try:
                messages = await subscription.fetch(PREFETCH // 4, timeout=IDLE_S)
            except (TimeoutError, nats.errors.TimeoutError):
                break
            for message in messages:
                await message.ack()
            count += len(messages)
            last = time.monotonic()
        await connection.drain()
        return count, last

    return asyncio.run(work())


def work_rabbitmq(port: int, ready: Ready) -> Done:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    ready()
    count, last = 0, 0.0
    for method, _, _ in channel.consume("jobs", inactivity_timeout=IDLE_S):
        if method is None:
            break
        channel.basic_ack(method.delivery_tag)
        count += 1
        last = time.monotonic()
    connection.close()
    return count, last


@contextmanager
def running_nats(directory: str) -> Iterator[QueuePeer]:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    port, log = free_port(), f"{directory}/nats-queue.log"
    configuration = Path(directory, "nats-queue.conf")
    configuration.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory}/nats-queue", max_file_store: 64GB }}\n'
    )

    async def fill(values: Sequence[bytes]) -> None:
        connection = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = connection.jetstream(publish_async_max_pending=4096)
        await stream.add_stream(name="jobs", subjects=["jobs"])
        await stream.purge_stream("jobs")
        with suppress(nats.js.errors.NotFoundError):
            await stream.delete_consumer("jobs", "workers")
        config = ConsumerConfig(durable_name="workers", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=65_536)
        await stream.add_consumer("jobs", config)
        for value in values:
            await stream.publish_async("jobs", value)
        await stream.publish_async_completed()
        await connection.close()

    with running([find_program("nats-server"), "--config", str(configuration)], log):
        connect(port, log).close()
        yield QueuePeer("NATS JetStream, pull", lambda values: asyncio.run(fill(values)), work_nats, (port,))


@contextmanager
def running_rabbitmq(directory: str) -> Iterator[QueuePeer]:
    import pika

    port, log = free_port(), f"{directory}/rabbitmq.log"

    def fill(values: Sequence[bytes]) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        channel = connection.channel()
        channel.queue_delete("jobs")
        channel.queue_declare("jobs", durable=True, arguments={"x-queue-type": "quorum"})
        properties = pika.BasicProperties(delivery_mode=2)
        for value in values:
            channel.basic_publish("", "jobs", value, properties)
        while channel.queue_declare("jobs", passive=True).method.message_count < len(values):
            connection.sleep(0.1)
        connection.close()

    with running_server(directory, "[].\n", f"listeners.tcp.1 = 127.0.0.1:{port}\n"):
        connect(port, log).close()
        yield QueuePeer("RabbitMQ, quorum queue", fill, work_rabbitmq, (port,))


RUNNING = (running_nats, running_rabbitmq)


def open_peers(stack: Any, directory: str) -> list[QueuePeer]:
    """Those that are installed; of the others it says so."""
    found = []
    for start in RUNNING:
        try:
            found.append(stack.enter_context(start(directory)))
        except (Missing, ImportError) as error:
            print(f"left out: {error}")
    return found
