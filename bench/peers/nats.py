"""NATS JetStream, file storage: PUB with a reply inbox, so that every message is acknowledged; a push consumer."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers.process import connect, find_program, free_port, running
from peers.stream import pieces_of, receive, send_pipelined

_ANSWER = re.compile(rb"MSG r 2 (\d+)\r\n")
_HELLO = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


class Nats:
    name = "NATS JetStream"
    durability = "file storage, synced every two minutes"

    def __init__(self, port: int, log: str) -> None:
        self.port = port
        self._log = log
        self._connection = self._connect(b"SUB a 1\r\nSUB r 2\r\n")
        self._consumers = 0
        self._call("STREAM.CREATE.s", {"name": "s", "subjects": ["s"], "storage": "file", "num_replicas": 1})

    @classmethod
    @contextmanager
    def running(cls, directory: str) -> Iterator[list[Nats]]:
        port, log = free_port(), f"{directory}/nats.log"
        configuration = Path(directory, "nats.conf")
        configuration.write_text(
            f'listen: "127.0.0.1:{port}"\nping_interval: "1h"\nmax_pending: 1GB\n'
            f'jetstream {{ store_dir: "{directory}/nats", max_file_store: 64GB }}\n'
        )
        with running([find_program("nats-server"), "--config", str(configuration)], log):
            peer = cls(port, log)
            with peer._connection:
                yield [peer]

    def reset(self) -> None:
        self._call("STREAM.PURGE.s")

    def produce(self, values: Sequence[bytes]) -> None:
        front = b"PUB s a %d\r\n" % len(values[0])
        between = b"\r\n" + front
        pieces = ((b"".join((front, between.join(piece), b"\r\n")), len(piece)) for piece in pieces_of(values))
        send_pipelined(self._connection, pieces, _count_acks)

    def consume(self, count: int, size: int) -> list[bytes]:
        message = re.compile(rb"MSG [^\r]+\r\n(.{%d})\r\n" % size, re.DOTALL)
        self._consumers += 1
        name = f"d{self._consumers}"
        with self._connect(f"SUB {name} 1\r\n".encode()) as connection:
            config = {"deliver_subject": name, "deliver_policy": "all", "ack_policy": "none"}
            self._call("CONSUMER.CREATE.s", {"stream_name": "s", "config": config})
            values: list[bytes] = []
            rest = b""
            while len(values) < count:
                data = rest + receive(connection)
                cut = _whole_messages(data, size)
                values += message.findall(data, 0, cut)
                rest = data[cut:]
        return values

    def _connect(self, subscriptions: bytes) -> socket.socket:
        connection = connect(self.port, self._log)
        front, _, info = receive(connection).partition(b" ")
        assert front == b"INFO"
        self.version = json.loads(info)["version"]
        connection.sendall(_HELLO + subscriptions + b"PING\r\n")
        assert receive(connection) == b"PONG\r\n"
        return connection

    def _call(self, subject: str, request: Any = None) -> None:
        """One request to JetStream's API."""
        body = b"" if request is None else json.dumps(request).encode()
        self._connection.sendall(b"PUB $JS.API.%s r %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        data = b""
        while (front := _ANSWER.search(data)) is None or len(data) < front.end() + int(front[1]) + 2:
            data += receive(self._connection)
        assert b'"error"' not in data, data


def _whole_messages(data: bytes, size: int) -> int:
    """Where the last message ends that is there to its end."""
    last = max(0, data.rfind(b"MSG "))
    header = data.find(b"\r\n", last)
    end = header + 2 + size + 2
    return end if header >= 0 and end <= len(data) else last


def _count_acks(data: bytes) -> int:
    """An acknowledgement is one flat JSON object; that of an error holds another one."""
    assert b"error" not in data, data
    return data.count(b"{")
