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
from importlib import import_module
from importlib.metadata import version
from typing import cast

from clients import Client
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

    servers: list[str]
    """Of the clients that people use, with their versions."""

    def described(self) -> list[dict[str, str]]:
        """Who these clients are, for the page."""
        return [
            {
                "name": client.name,
                "versions": f"{server}, {client.package} {version(client.package)}",
                "durability": client.durability,
            }
            for client, server in zip(self.clients, self.servers, strict=True)
        ]


@contextmanager
def running_peers(directory: str) -> Iterator[Peers]:
    """Every peer that is installed, started on loopback with its data below `directory`, and stopped at the end."""
    with ExitStack() as stack:
        peers = Peers([], [], [])

        def add(client: str, port: int, server: str) -> None:
            with _left_out():
                peers.clients.append(stack.enter_context(_open(client, port)))
                peers.servers.append(server)

        with _left_out():
            jars = resolve_kafka()
            kafka = stack.enter_context(Kafka.running(directory, jars))
            add("confluent", kafka.port, f"Kafka {jars.broker_version}")
        for running, client in BESIDE:
            with _left_out():
                raw = stack.enter_context(running(directory))
                peers.raw.extend(raw)
                add(client, raw[0].port, f"{raw[0].name.split()[0]} {raw[0].version}")
        yield peers


def _open(client: str, port: int) -> AbstractContextManager[Client]:
    """That of the module of this name, with a server on this port of loopback."""
    try:
        opened = import_module(f"clients.{client}").open_client
    except ModuleNotFoundError as error:
        raise Missing(f"the client {error.name} is not installed (pip install 'logboom[bench]')") from error
    return cast("Callable[[int], AbstractContextManager[Client]]", opened)(port)


@contextmanager
def _left_out() -> Iterator[None]:
    try:
        yield
    except Missing as missing:
        print(f"left out: {missing}", file=sys.stderr)
