"""What does a small write over HTTP cost, next to a web endpoint that does nothing?

64 connections that are kept, each sends a JSON document of 100 bytes and waits for the answer before it sends the next.
Bare Starlette runs on the same uvicorn, with httptools and uvloop, in a process of its own: it reads the document as
JSON, answers with a short one, and keeps nothing. Ours durable is synced before it is answered. The client is one
process with plain sockets, the same for all.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from harness import QUICK, Subject, rate, report, time_prepared
from node import DURABLE, running_node
from peers.process import connect, free_port, running

CONNECTIONS = 64
REQUESTS = 20 if QUICK else 50
"""Of each connection, in a round."""
ROUNDS = 5 if QUICK else 25
DOCUMENT = json.dumps({"site": "north-7", "sensor": 17, "celsius": 21.5, "note": "x" * 40}).encode()
GOAL = 0.6


async def take(request: Request) -> JSONResponse:
    await request.json()
    return JSONResponse({"partitions": [0], "seqnos": [0]})


bare_app = Starlette(routes=[Route("/topics/{topic}/records", take, methods=["POST"])])


def main() -> None:
    options = ("--logd", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as directory,
        running_bare(f"{directory}/bare.log") as bare_port,
        running_node(f"{directory}/node", *options) as node,
    ):
        ready = json.loads(Path(directory, "node", "ready.json").read_text())
        port = int(ready["http"][0].rpartition(":")[2])
        node.create("small", DURABLE)
        bare = "bare Starlette, nothing kept"
        clients = {
            bare: Clients(bare_port, request()),
            "ours, JSON, acks durable": Clients(port, request()),
            "ours, JSON, acks leader": Clients(port, request("?acks=leader")),
            "ours, plain bytes, acks durable": Clients(port, request(kind="application/octet-stream")),
        }
        subjects: dict[str, tuple[Subject, Subject]] = {
            name: (_nothing, partial(one.run, REQUESTS)) for name, one in clients.items()
        }
        timings = time_prepared(subjects, ROUNDS)
        for one in clients.values():
            one.close()
        count = CONNECTIONS * REQUESTS * 1000
        goals = {"ours, JSON, acks durable": GOAL}
        report(
            "http_write",
            [
                rate(name, timings, count, None if name == bare else bare, goals.get(name), unit="thousand/s")
                for name in clients
            ],
        )


def request(query: str = "", kind: str = "application/json") -> bytes:
    return (
        f"POST /topics/small/records{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nAccept: */*\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(DOCUMENT)}\r\n\r\n"
    ).encode() + DOCUMENT


@contextmanager
def running_bare(log: str) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "http_write:bare_app", "--app-dir", str(Path(__file__).parent)]
    options = ["--host", "127.0.0.1", "--port", str(port), "--loop", "uvloop", "--http", "httptools"]
    with running([*command, *options, "--no-access-log", "--log-level", "warning"], log):
        connect(port, log).close()
        yield port


class Clients:
    """Connections that send the same request over and over, each as soon as it has its answer."""

    def __init__(self, port: int, request: bytes) -> None:
        self._request = request
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        for _ in range(CONNECTIONS):
            one = socket.create_connection(("127.0.0.1", port))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[one.fileno()] = one
            self._poll.register(one.fileno(), select.EPOLLIN)
        self.run(1)

    def run(self, count: int) -> None:
        left = dict.fromkeys(self._sockets, count)
        held = dict.fromkeys(self._sockets, b"")
        unfinished = len(left)
        for one in self._sockets.values():
            one.sendall(self._request)
        while unfinished:
            for descriptor, _ in self._poll.poll():
                one = self._sockets[descriptor]
                held[descriptor] += one.recv(65536)
                if not held[descriptor].endswith(b"}"):
                    continue
                assert held[descriptor].startswith(b"HTTP/1.1 200 "), held[descriptor]
                held[descriptor] = b""
                left[descriptor] -= 1
                if left[descriptor]:
                    one.sendall(self._request)
                else:
                    unfinished -= 1

    def close(self) -> None:
        self._poll.close()
        for one in self._sockets.values():
            one.close()


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
