"""A Logboom node in a process of its own, and the barest client that can feed it.

A `Feed` sends batches that were built before, over a plain socket, and counts the answers: what is measured with it is
the node, not the client. It is no idempotent producer, so the same bytes may go again and again.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from logboom.broker.api import Acks
from logboom.client.link.session import Session
from logboom.client.remote import RemoteBroker, connect
from logboom.protocols.binary.codec import FRONT, FRONT_SIZE, encode_front
from logboom.protocols.binary.messages import Append, AppendPart, Hello, Kind
from logboom.storage.data.topic import AcksSettings, FlushSettings, Settings
from peers.process import running

OS = Settings(flush=FlushSettings(policy="os"), acks=AcksSettings(default="leader"))
"""What is written counts as committed, and is answered then."""
DURABLE = Settings()
"""What is answered is synced."""
START_S = 60.0
ANSWER_BYTES = 64 * 1024
ONLY_ANSWERS = 0x91
"""How the head of an APPENDED frame begins that has answers and no failures: an array of one, in msgpack."""

Result = TypeVar("Result")


class Node:
    def __init__(self, address: str, pid: int) -> None:
        self.address = address
        self.pid = pid

    def call(self, function: Callable[[RemoteBroker], Awaitable[Result]]) -> Result:
        """What this makes of the node's broker, over a connection of its own."""

        async def run() -> Result:
            async with connect(self.address) as broker:
                return await function(broker)

        return asyncio.run(run())

    def create(self, topic: str, settings: Settings = OS, partitions: int = 1) -> str:
        """A new topic; its name, for whoever wants it in an expression."""
        self.call(lambda broker: broker.create_topic(topic, partitions, settings))
        return topic

    def recreate(self, topic: str, settings: Settings = OS) -> None:
        """The same topic, empty."""

        async def run(broker: RemoteBroker) -> None:
            if await broker.list_topics(topic):
                await broker.delete_topic(topic)
            await broker.create_topic(topic, 1, settings)

        self.call(run)

    def memory_bytes(self) -> int:
        """What the process has for itself: without pages of files it has mapped, and without what the kernel has."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0])


@contextmanager
def running_node(directory: str, *options: str) -> Iterator[Node]:
    """A node with its data in this directory, on a port that was free; stopped at the end."""
    os.makedirs(directory, exist_ok=True)
    ready, log = Path(directory, "ready.json"), f"{directory}/node.log"
    data = f"{directory}/data"
    command = [sys.executable, "-m", "logboom", "serve", "--data", data, "--listen", "127.0.0.1:0"]
    with running([*command, "--ready-file", str(ready), *options], log) as pid:
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the node did not start: {Path(log).read_text()[-1000:]}")
            time.sleep(0.02)
        yield Node(json.loads(ready.read_text())["binary"][0], pid)


class Spent(NamedTuple):
    """What a process has used since it began."""

    cpu_us: float
    faults: int
    """Pages of memory that were not there when they were touched, and did not have to be read from a disk."""

    @classmethod
    def by(cls, pid: int) -> Spent:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return cls(ticks * 1e6 / os.sysconf("SC_CLK_TCK"), int(fields[7]))

    def since(self, before: Spent) -> Spent:
        return Spent(self.cpu_us - before.cpu_us, self.faults - before.faults)


class Feed:
    """One connection that sends the same batch to one log, so many in flight.

    The frame is encoded once, and of an answer only that it is an APPENDED without failures is looked at.
    """

    def __init__(
        self, node: Node, topic: str, batch: bytes, acks: Acks, in_flight: int = 16, partition: int = 0
    ) -> None:
        host, _, port = node.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = Session(Hello())
        self.socket.sendall(b"".join(session.hello()))
        while session.welcome is None:
            list(session.received(self.socket.recv_into(session.buffer())))
        head = Append([AppendPart(topic, len(batch), partition)], acks)
        self._frame = encode_front(Kind.APPEND, 1, head, len(batch)) + batch
        self._in_flight = in_flight
        self._received = bytearray(ANSWER_BYTES)
        self._filled = self._left = self._outstanding = 0

    def begin(self, count: int) -> None:
        self._left = count
        self._send()

    def receive(self) -> bool:
        """Takes what has come and sends what may go now; False when all has been answered."""
        received = self._received
        end = self._filled + self.socket.recv_into(memoryview(received)[self._filled :])
        offset = 0
        while end - offset >= FRONT_SIZE:
            size, kind, _, _, _, head_size = FRONT.unpack_from(received, offset)
            if end - offset < size:
                break
            if kind != Kind.APPENDED or received[offset + FRONT_SIZE] != ONLY_ANSWERS:
                raise RuntimeError(f"not appended: {bytes(received[offset + FRONT_SIZE :][:head_size])!r}")
            offset += size
            self._outstanding -= 1
        received[: end - offset] = received[offset:end]
        self._filled = end - offset
        self._send()
        return self._outstanding > 0

    def _send(self) -> None:
        while self._left and self._outstanding < self._in_flight:
            self.socket.sendall(self._frame)
            self._left -= 1
            self._outstanding += 1

    def close(self) -> None:
        self.socket.close()


class Sender(Protocol):
    """What a Feed is, and what stands beside it."""

    socket: socket.socket

    def begin(self, count: int) -> None: ...
    def receive(self) -> bool: ...


def feed(feeds: Sequence[Sender], count: int) -> None:
    """So many batches from each of them, all at once, until the last is answered."""
    for one in feeds:
        one.begin(count)
    if len(feeds) == 1:
        while feeds[0].receive():
            pass
        return
    poll = select.epoll()
    by_descriptor = {one.socket.fileno(): one for one in feeds}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    unfinished = len(feeds)
    while unfinished:
        for descriptor, _ in poll.poll():
            if not by_descriptor[descriptor].receive():
                unfinished -= 1
    poll.close()
