"""A node to be looked at with a browser: a real process with HTTP, always on the same ports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from support.nodes.process import NodeProcess, free_port

HTTP_S: Final = 300.0


class ConsoleNode(NodeProcess):
    def __init__(self, root: Path, *options: str, http_port: int = 0) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.http_address = f"127.0.0.1:{http_port or free_port()}"
        self.logd_address = f"127.0.0.1:{free_port()}"
        super().__init__(root, "--http", self.http_address, "--logd", self.logd_address, *options)

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
