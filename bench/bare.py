"""What the node is measured against: sockets and files in Python with nothing around them."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

RECEIVE_BYTES = 256 * 1024


@contextmanager
def bare_peer(what: Literal["echo", "sink", "source"], size: int) -> Iterator[socket.socket]:
    """A connection to another Python process on loopback.

    `echo` sends back every message of `size` bytes; `sink` takes bytes, and answers with one byte for every `size`;
    `source` answers every byte with `size` of them.
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


class Store:
    """Another Python process that receives batches of `size` bytes, writes each to a file, and answers with a byte.

    `feeds` are connections to it, each with so many batches in flight. After `file_bytes` the file begins again.
    """

    def __init__(self, path: str, batch: bytes, writers: int, file_bytes: int) -> None:
        command = [sys.executable, __file__, "store", str(len(batch)), path, str(writers), str(file_bytes)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self.pid = self._process.pid
        self.feeds = [BareFeed(port, batch) for _ in range(writers)]

    def close(self) -> None:
        for one in self.feeds:
            one.socket.close()
        self._process.kill()
        self._process.wait()


class BareFeed:
    """Has what `node.feed` wants."""

    def __init__(self, port: int, batch: bytes, in_flight: int = 16) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._batch = batch
        self._in_flight = in_flight
        self._left = self._outstanding = 0

    def begin(self, count: int) -> None:
        self._left = count
        self._send()

    def receive(self) -> bool:
        self._outstanding -= len(self.socket.recv(4096))
        self._send()
        return self._outstanding > 0

    def _send(self) -> None:
        while self._left and self._outstanding < self._in_flight:
            self.socket.sendall(self._batch)
            self._left -= 1
            self._outstanding += 1


def _keep(size: int, path: str, writers: int, file_bytes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connections = [listener.accept()[0] for _ in range(writers)]
    poll = select.epoll()
    received = {}
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(connection.fileno(), select.EPOLLIN)
        received[connection.fileno()] = connection, memoryview(bytearray(size)), [0]
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    position = 0
    while True:
        for descriptor, _ in poll.poll():
            connection, buffer, filled = received[descriptor]
            count = connection.recv_into(buffer[filled[0] :])
            if not count:
                return
            filled[0] += count
            if filled[0] < size:
                continue
            if position + size > file_bytes:
                os.ftruncate(file, 0)
                position = 0
            position += os.pwrite(file, buffer, position)
            filled[0] = 0
            connection.sendall(b"!")


def _serve(what: str, size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if what == "echo":
        _echo(connection)
    elif what == "source":
        _pour(connection, bytes(size))
    else:
        _swallow(connection, size)


def _echo(connection: socket.socket) -> None:
    while data := connection.recv(RECEIVE_BYTES):
        connection.sendall(data)


def _pour(connection: socket.socket, data: bytes) -> None:
    while connection.recv(1):
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
    if sys.argv[1] == "store":
        _keep(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        _serve(sys.argv[1], int(sys.argv[2]))
