"""Redis Streams: XADD, many in one send; XRANGE in pages, each asked for before the one before it is parsed."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from peers.process import connect, find_program, free_port, running
from peers.stream import pieces_of, receive, send_pipelined

PAGE = 10_000
_END = b"+PONG\r\n"
_LAST_ID = re.compile(rb"\*2\r\n\$\d+\r\n([\d-]+)\r\n")


class Redis:
    name = "Redis Streams"
    durability = "append-only file, appendfsync no"

    def __init__(self, port: int, connection: socket.socket) -> None:
        self.port = port
        self._connection = connection
        self._connection.sendall(b"INFO server\r\n")
        self.version = receive(connection).partition(b"redis_version:")[2].split()[0].decode()

    @classmethod
    @contextmanager
    def running(cls, directory: str) -> Iterator[list[Redis]]:
        port, log = free_port(), f"{directory}/redis.log"
        settings = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": directory,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",
            "auto-aof-rewrite-percentage": 0,
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        with running([find_program("redis-server"), *options], log), connect(port, log) as connection:
            yield [cls(port, connection)]

    def reset(self) -> None:
        self._connection.sendall(b"DEL s\r\n")
        assert receive(self._connection).startswith(b":")

    def produce(self, values: Sequence[bytes]) -> None:
        front = b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nv\r\n$%d\r\n" % len(values[0])
        between = b"\r\n" + front
        pieces = ((b"".join((front, between.join(piece), b"\r\n")), len(piece)) for piece in pieces_of(values))
        send_pipelined(self._connection, pieces, _count_ids)

    def consume(self, count: int, size: int) -> list[bytes]:
        entry = re.compile(rb"\$1\r\nv\r\n\$%d\r\n(.{%d})\r\n" % (size, size), re.DOTALL)
        values: list[bytes] = []
        page_size = max(1, min(PAGE, 2**21 // size))
        self._ask(b"-", page_size)
        while len(values) < count:
            page = self._page()
            last = page.rfind(b"*2\r\n$", 0, page.rfind(b"*2\r\n$"))
            found = _LAST_ID.match(page, last)
            assert found is not None
            self._ask(b"(" + found[1], page_size)
            values += entry.findall(page)
        self._page()
        return values

    def _ask(self, start: bytes, count: int) -> None:
        self._connection.sendall(b"XRANGE s %s + COUNT %d\r\nPING\r\n" % (start, count))

    def _page(self) -> bytes:
        parts = [receive(self._connection)]
        while not parts[-1].endswith(_END) and not b"".join(parts[-2:]).endswith(_END):
            parts.append(receive(self._connection))
        return b"".join(parts)


def _count_ids(data: bytes) -> int:
    """Every answer is one bulk string, an id; an error has no dollar sign, and then the answers never come."""
    return data.count(b"$")
