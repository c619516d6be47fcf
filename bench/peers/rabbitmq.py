"""RabbitMQ streams over their own protocol: many messages in one Publish frame, or many records in one message.

The second is what its documentation calls sub-entry batching: the server treats such a batch as one message, and
consumers take it apart. A stream keeps what it has confirmed in the page cache; it is not synced.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from struct import Struct

from peers.process import connect, find_program, free_port, running
from peers.stream import pieces_of, receive, send_pipelined

DECLARE_PUBLISHER, PUBLISH, CONFIRM, PUBLISH_ERROR, SUBSCRIBE, DELIVER, CREDIT, UNSUBSCRIBE = 1, 2, 3, 4, 7, 8, 9, 12
CREATE, DELETE, PROPERTIES, HANDSHAKE, AUTHENTICATE, TUNE, OPEN = 13, 14, 17, 18, 19, 20, 21
ANSWER = 0x8000
OK = 1
FROM_FIRST = b"\0\1"
CREDITS = 64
NODE = "logboom-bench@localhost"

_FRONT = Struct(">IHH")
_CHUNK = Struct(">HHBBBHIqQQiIII")
_SUB_ENTRY = Struct(">QBHII")


class RabbitMQ:
    durability = "page cache"

    def __init__(self, port: int, connection: socket.socket, batched: bool) -> None:
        self.port = port
        self.name = "RabbitMQ streams, sub-entries" if batched else "RabbitMQ streams"
        self._connection = connection
        self._batched = batched
        self._stream = _string("batched" if batched else "single")
        self._rest = b""
        self._frames: deque[memoryview] = deque()
        self._correlation = 0
        self._id = 0
        self._handshake()
        self._begin()

    @classmethod
    @contextmanager
    def running(cls, directory: str) -> Iterator[list[RabbitMQ]]:
        port, log = free_port(), f"{directory}/rabbitmq.log"
        lines = (
            f"listeners.tcp = none\nstream.listeners.tcp.1 = 127.0.0.1:{port}\n"
            f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {port}\n"
        )
        with (
            running_server(directory, "[rabbitmq_stream].\n", lines),
            connect(port, log) as single,
            connect(port, log) as batched,
        ):
            yield [cls(port, single, False), cls(port, batched, True)]

    def reset(self) -> None:
        self._call(DELETE, self._stream)
        self._begin()

    def produce(self, values: Sequence[bytes]) -> None:
        size = len(values[0]).to_bytes(4, "big")
        pieces: Iterator[tuple[bytes, int]]
        if self._batched:
            pieces = ((self._sub_entry(piece, size), 1) for piece in pieces_of(values))
        else:
            pieces = ((self._messages(piece, size), len(piece)) for piece in pieces_of(values))
        send_pipelined(self._connection, pieces, self._count_confirms)

    def consume(self, count: int, size: int) -> list[bytes]:
        self._call(SUBSCRIBE, b"\0" + self._stream + FROM_FIRST + CREDITS.to_bytes(2, "big") + bytes(4))
        credit = _command(CREDIT, b"\0\0\1")
        entry = Struct(f">4x{size}s")
        values: list[bytes] = []
        while len(values) < count:
            frame = self._next()
            key, *_, entries, records, _, _, _, _, data_size, _, _ = _CHUNK.unpack_from(frame)
            assert key == DELIVER
            self._connection.sendall(credit)
            data = frame[_CHUNK.size : _CHUNK.size + data_size]
            for part in (data,) if entries == records else _sub_entries(data):
                values += [value for (value,) in entry.iter_unpack(part)]
        self._call(UNSUBSCRIBE, b"\0")
        return values

    def _messages(self, values: Sequence[bytes], size: bytes) -> bytes:
        first, self._id = self._id, self._id + len(values)
        fronts = [number.to_bytes(8, "big") + size for number in range(first, self._id)]
        return self._publish(len(values), chain.from_iterable(zip(fronts, values, strict=True)))

    def _sub_entry(self, values: Sequence[bytes], size: bytes) -> bytes:
        """The records of a piece as one entry."""
        records = size + size.join(values)
        self._id += 1
        return self._publish(1, (_SUB_ENTRY.pack(self._id, 0x80, len(values), len(records), len(records)), records))

    def _publish(self, count: int, parts: Iterable[bytes]) -> bytes:
        return _command(PUBLISH, b"".join((b"\0", count.to_bytes(4, "big"), *parts)))

    def _count_confirms(self, data: bytes) -> int:
        """Frames are looked at, not the numbers in them: every message is confirmed once."""
        self._cut(data)
        confirmed = 0
        for frame in self._frames:
            key = int.from_bytes(frame[:2], "big")
            assert key != PUBLISH_ERROR, "a message was refused"
            if key == CONFIRM:
                confirmed += int.from_bytes(frame[5:9], "big")
        self._frames.clear()
        return confirmed

    def _handshake(self) -> None:
        properties = bytes(self._call(PROPERTIES, bytes(4))).partition(b"\0\7version")[2]
        self.version = properties[2 : 2 + int.from_bytes(properties[:2], "big")].decode()
        self._call(HANDSHAKE)
        secret = b"\0guest\0guest"
        self._call(AUTHENTICATE, _string("PLAIN") + len(secret).to_bytes(4, "big") + secret)
        while int.from_bytes((tune := self._next())[:2], "big") != TUNE:
            pass
        self._connection.sendall(_command(ANSWER | TUNE, bytes(tune[4:8]) + bytes(4)))
        self._call(OPEN, _string("/"))

    def _begin(self) -> None:
        self._call(CREATE, self._stream + bytes(4))
        self._call(DECLARE_PUBLISHER, b"\0" + _string("") + self._stream)

    def _call(self, key: int, content: bytes = b"") -> memoryview:
        self._correlation += 1
        self._connection.sendall(_command(key, self._correlation.to_bytes(4, "big") + content))
        while int.from_bytes((frame := self._next())[:2], "big") != ANSWER | key:
            pass
        assert int.from_bytes(frame[8:10], "big") == OK, (key, bytes(frame))
        return frame

    def _next(self) -> memoryview:
        while not self._frames:
            self._cut(receive(self._connection))
        return self._frames.popleft()

    def _cut(self, data: bytes) -> None:
        data = self._rest + data
        view, offset = memoryview(data), 0
        while len(data) - offset >= 4:
            end = offset + 4 + int.from_bytes(view[offset : offset + 4], "big")
            if end > len(data):
                break
            self._frames.append(view[offset + 4 : end])
            offset = end
        self._rest = data[offset:]


@contextmanager
def running_server(directory: str, plugins: str, lines: str) -> Iterator[None]:
    """Its port mapper is a child of ours too, on a port of its own; else one would stay behind."""
    server = find_program("/usr/lib/rabbitmq/bin/rabbitmq-server")
    home = Path(directory, "rabbitmq")
    home.mkdir()
    names, log = free_port(), f"{directory}/rabbitmq.log"
    (home / "plugins").write_text(plugins)
    (home / "rabbitmq.conf").write_text(lines)
    environment = {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": NODE,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
    }
    with (
        running([find_program("epmd")], f"{directory}/epmd.log", environment),
        running([server], log, environment),
    ):
        yield


def _command(key: int, content: bytes) -> bytes:
    return _FRONT.pack(4 + len(content), key, 1) + content


def _string(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _sub_entries(data: memoryview) -> Iterator[memoryview]:
    """The records of each entry, as they lie."""
    offset = 0
    while offset < len(data):
        offset += _SUB_ENTRY.size - 8
        size = int.from_bytes(data[offset - 4 : offset], "big")
        yield data[offset : offset + size]
        offset += size
