"""A node with HTTP in a thread of this process, for clients that know no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logboom.broker.config import BrokerConfig
from logboom.broker.local import LocalBroker
from logboom.protocols.http.front_end import HttpFrontEnd
from logboom.protocols.http.settings import HttpSettings
from logboom.protocols.logd.front_end import LogdFrontEnd
from logboom.protocols.logd.settings import LogdSettings

CONFIG = {"data": {"value": "data", "source": "default", "meaning": "The data directory."}}


@dataclass
class HttpNode:
    directory: Path
    settings: HttpSettings
    config: BrokerConfig
    port: Future[int] = field(default_factory=Future)
    failures: list[dict[str, Any]] = field(default_factory=list)
    """What was told to the event loop: there should be nothing."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port.result(300)}"

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self.port.done():
                raise
            self.port.set_exception(error)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self._stopping = asyncio.Event()
        broker = await LocalBroker.open(str(self.directory), self.config)
        common = (broker, broker.limits, broker.rejections)
        logd = LogdFrontEnd(*common, LogdSettings(), lambda: CONFIG)
        front_end = HttpFrontEnd(
            *(*common, self.settings, lambda: CONFIG, logd.converse),
            sign_in=broker.sign_in,
            sees_all=broker.shows_files,
        )
        broker.meters["http"] = front_end.meter
        broker.connections["http"] = lambda: front_end.connections
        server = await self._loop.create_server(front_end.factory, "127.0.0.1", 0)
        self.port.set_result(server.sockets[0].getsockname()[1])
        await self._stopping.wait()
        server.close()
        await front_end.close(5.0)
        await logd.close(5.0)
        await broker.close()


@contextmanager
def http_node(
    directory: Path, settings: HttpSettings | None = None, config: BrokerConfig | None = None
) -> Iterator[HttpNode]:
    node = HttpNode(directory, settings or HttpSettings(), config or BrokerConfig())
    thread = threading.Thread(target=node.run)
    thread.start()
    try:
        assert node.address
        yield node
    finally:
        if node.port.done() and node.port.exception() is None:
            node.stop()
        thread.join(300)
