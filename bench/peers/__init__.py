"""Other servers that keep ordered records, each with the fastest client we could write for it in Python.

Raw sockets, many messages in one send, answers counted and not looked at one by one. The clients take for granted that
all values of a call have one length and hold no capital letters: that makes them faster than any that could not.
The clients that people use stand beside them, with the same servers; Kafka has those alone.
A server that is not installed is left out, with a word.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version

from clients import Client, open_client
from peers.kafka import Kafka, resolve_kafka
from peers.nats import Nats
from peers.process import Missing
from peers.rabbitmq import RabbitMQ
from peers.redis import Redis
from peers.stream import Peer

__all__ = ["Peer", "Peers", "running_peers"]

BESIDE: tuple[tuple[Callable[[str], AbstractContextManager[Sequence[Peer]]], str], ...] = (
    (Redis.running, "redis_py"),
    (Nats.running, "nats_py"),
    (RabbitMQ.running, "rstream_py"),
)


@dataclass(frozen=True, slots=True)
class Peers:
    raw: list[Peer]
    """The servers with clients of ours."""
    clients: list[Client]
    """The servers with the clients that people use."""

    servers: dict[str, str]
    """Their versions, by name."""

    def versions(self) -> dict[str, str]:
        """Of the servers and of the clients that people use."""
        return {**self.servers, **{client.package: version(client.package) for client in self.clients}}


@contextmanager
def running_peers(directory: str) -> Iterator[Peers]:
    """Every peer that is installed, started on loopback with its data below `directory`, and stopped at the end."""
    with ExitStack() as stack:
        peers = Peers([], [], {})

        def add(client: str, port: int) -> None:
            with _left_out():
                peers.clients.append(stack.enter_context(open_client(client, port)))

        with _left_out():
            jars = resolve_kafka()
            peers.servers["Kafka"] = jars.broker_version
            add("confluent", stack.enter_context(Kafka.running(directory, jars)).port)
        for running, client in BESIDE:
            with _left_out():
                raw = stack.enter_context(running(directory))
                peers.raw.extend(raw)
                peers.servers[raw[0].name] = raw[0].version
                add(client, raw[0].port)
        yield peers


@contextmanager
def _left_out() -> Iterator[None]:
    try:
        yield
    except Missing as missing:
        print(f"left out: {missing}", file=sys.stderr)
