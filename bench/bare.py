"""What the node is measured against: sockets and files in Python with nothing around them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

RECEIVE_BYTES = 256 * 1024


@contextmanager
def bare_peer(what: Literal["echo", "sink"], size: int) -> Iterator[socket.socket]:
    """A connection to another Python process on loopback.

    `echo` sends back every message of `size` bytes; `sink` takes bytes, and answers with one byte for every `size`.
    """
    process = subprocess.Popen([sys.executable, __file__, what, str(size)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection
    finally:
        process.kill()
        process.wait()


class SyncedFile:
    """A file that grows by groups, each written with one call and synced."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._end = 0

    def append(self, group: list[bytes]) -> None:
        self._end += os.pwritev(self._fd, group, self._end)
        os.fdatasync(self._fd)

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self._end = 0

    def close(self) -> None:
        os.close(self._fd)


def _serve(what: str, size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if what == "echo":
        _echo(connection)
    else:
        _swallow(connection, size)


def _echo(connection: socket.socket) -> None:
    while data := connection.recv(RECEIVE_BYTES):
        connection.sendall(data)


def _swallow(connection: socket.socket, size: int) -> None:
    buffer = bytearray(RECEIVE_BYTES)
    left = size
    while count := connection.recv_into(buffer):
        left -= count
        if not left:
            connection.sendall(b"!")
            left = size


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
