"""What a peer can do, and the one way all of them send: pieces with a bounded number of answers outstanding."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

PIECE_BYTES = 128 * 1024
ANSWERS_MAX = 8192
RECEIVE_BYTES = 1024 * 1024


class Peer(Protocol):
    """One server with one open connection and one stream on it."""

    name: str
    version: str
    port: int
    durability: str
    """In what way it keeps what it has acknowledged."""

    def reset(self) -> None:
        """Leaves the stream empty."""

    def produce(self, values: Sequence[bytes]) -> None:
        """Each value becomes a message; returns when the last is acknowledged."""

    def consume(self, count: int, size: int) -> list[bytes]:
        """The first `count` messages of the stream, all of this size."""


def pieces_of(values: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    """Values in groups of about PIECE_BYTES, at least one in each."""
    step = max(1, PIECE_BYTES // len(values[0]))
    return (values[start : start + step] for start in range(0, len(values), step))


def send_pipelined(
    connection: socket.socket, pieces: Iterable[tuple[bytes, int]], count_answers: Callable[[bytes], int]
) -> None:
    """Sends each piece as soon as there are few enough answers outstanding, then waits for the rest.

    A piece comes with the number of answers it will get; `count_answers` says how many are in what was received.
    """
    outstanding = 0
    for piece, answers in pieces:
        while outstanding and outstanding + answers > ANSWERS_MAX:
            outstanding -= count_answers(receive(connection))
        connection.sendall(piece)
        outstanding += answers
    while outstanding > 0:
        outstanding -= count_answers(receive(connection))
    assert outstanding == 0


def receive(connection: socket.socket) -> bytes:
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionError("the peer closed the connection")
    return data
