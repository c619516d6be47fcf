"""Other servers that keep ordered records, each with the fastest client we could write for it in Python.

Raw sockets, many messages in one send, answers counted and not looked at one by one. The clients take for granted that
all values of a call have one length and hold no capital letters: that makes them faster than any that could not.
A server that is not installed is left out, with a word.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from peers.nats import Nats
from peers.process import Missing
from peers.rabbitmq import RabbitMQ
from peers.redis import Redis
from peers.stream import Peer

__all__ = ["Peer", "running_peers"]


@contextmanager
def running_peers(directory: str) -> Iterator[list[Peer]]:
    """Every peer that is installed, started on loopback with its data below `directory`, and stopped at the end."""
    with ExitStack() as stack:
        peers: list[Peer] = []
        for start in (Redis.running, Nats.running, RabbitMQ.running):
            try:
                peers += stack.enter_context(start(directory))
            except Missing as missing:
                print(f"left out: {missing}", file=sys.stderr)
        yield peers
