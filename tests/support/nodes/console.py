"""A node to be looked at with a browser: a real process with HTTP, always on the same ports."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from support.nodes.process import NodeProcess

HTTP_S: Final = 300.0
PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives to connections: a browser and its node make many, also while the node is gone."""


def find_port() -> int:
    """One that nobody listens on, and that no connection will have taken by the time a node is started again."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free")


class ConsoleNode(NodeProcess):
    def __init__(self, root: Path, *options: str, http_port: int = 0) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.http_address = f"127.0.0.1:{http_port or find_port()}"
        self.logd_address = f"127.0.0.1:{find_port()}"
        super().__init__(root, "--http", self.http_address, "--logd", self.logd_address, *options)
        self.address = f"127.0.0.1:{find_port()}"

    def __enter__(self) -> ConsoleNode:
        self.start()
        return self

    @property
    def url(self) -> str:
        return f"http://{self.http_address}"

    def ask(self, path: str, **query: str | int) -> Any:
        """The JSON of an answer to a GET."""
        return self.call("GET", path, query=query)

    def call(self, method: str, path: str, body: Any = None, query: Mapping[str, str | int] | None = None) -> Any:
        """The JSON of an answer, None where it is empty. Raises httpx.HTTPStatusError where the node said no."""
        with httpx.Client(base_url=self.url, timeout=HTTP_S, verify=False) as client:  # http: no certificates to read
            answer = client.request(method, path, json=body, params=query)
        answer.raise_for_status()
        return answer.json() if answer.content else None
