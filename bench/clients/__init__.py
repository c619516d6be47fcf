"""The clients that people use for other servers, each set up for speed as its documentation has it.

They come from PyPI, with `logboom[bench]`: confluent-kafka, redis-py with hiredis, nats-py on uvloop, and rstream. Each
server is the one that the clients in `peers` speak to, with a stream of its own. What is not installed is left out,
with a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


class Client(Protocol):
    """One program's view of one server: connections that are open, and one stream."""

    name: str
    durability: str
    """In what way the server keeps what it has acknowledged."""
    package: str
    """That it comes from."""
    calls: Mapping[str, Callable[[Sequence[bytes]], None]]
    """Ways to write many values, by what they say beside the name; each returns when the last is acknowledged."""

    def reset(self) -> None:
        """Leaves the stream empty."""

    def consume(self, count: int) -> list[bytes]:
        """The first `count` values of the stream."""

    def send(self, value: bytes) -> None:
        """One value; returns when it is acknowledged."""
