"""A node: the broker in this process, the front-ends on it, and the sockets they listen on.

Opening binds, recovers, and only then listens. Closing is the same backwards: no new connections, then no new requests
while what was promised is answered, then the broker syncs and lets go of the data. Each step gets what the deadline
leaves, so that a client that never reads cannot take the time that the disk needs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Final

from logboom import __version__
from logboom.broker.local import LocalBroker
from logboom.errors import ConfigError, DirectoryInUse, DirectoryUnusable, LimitExceeded
from logboom.protocols.binary.codec import encode_front
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.front_end import BinaryFrontEnd, Identity
from logboom.protocols.binary.messages import Kind
from logboom.server.accepting import Gate
from logboom.server.descriptors import connections_allowed, raise_limit
from logboom.server.endpoint import Endpoint
from logboom.server.listening import UnixSocket, bind_all, endpoint_of, listen
from logboom.server.sources import DEFAULT, Loaded

HARMLESS: Final = frozenset(("lock", "state", "node.json.tmp", "lost+found"))
"""What a start that was cut short, or a file system, leaves in a directory that is not a node's yet."""
IN_USE_S: Final = 2.0
"""A check or a doctor holds the directory for a moment; so long a start waits for it."""
IN_USE_RETRY_S: Final = 0.1
ANSWERS_SHARE: Final = 0.5
"""Of the deadline: for answers on their way; the rest is the disk's."""
logger = logging.getLogger("logboom.server")


class Node:
    def __init__(self, broker: LocalBroker, front: BinaryFrontEnd, connections_max: int) -> None:
        self.broker = broker
        self.connections_max = connections_max
        self.endpoints: list[Endpoint] = []
        self.unix: UnixSocket | None = None
        self._front = front
        self._sockets: list[socket.socket] = []
        self._gate: Gate | None = None
        self._accepting: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, loaded: Loaded) -> Node:
        """Raises ConfigError, StorageError or OSError where it cannot start; then nothing is left open."""
        config = loaded.config
        connections_max = _connections_max(loaded)
        sockets = bind_all(config.listen.binary, loaded.sources["listen.binary"] == DEFAULT)
        try:
            if not sockets and config.listen.unix is None:
                raise ConfigError(
                    "listen", "nothing is left to listen on: name a free port, such as --listen 127.0.0.1:0"
                )
            broker = await _open_broker(loaded)
        except BaseException:
            _close_all(sockets)
            raise
        identity = Identity(broker.node.node_id, broker.node.cluster_id)
        front = BinaryFrontEnd(
            *(broker, broker.limits, broker.rejections, broker.directory, f"logboom/{__version__}", identity)
        )
        broker.connections["binary"] = lambda: front.connections
        node = cls(broker, front, connections_max)
        try:
            node._listen(sockets, config.listen.unix)
        except BaseException:
            _close_all(sockets)
            await node.close(config.shutdown_deadline_ms / 1000)
            raise
        return node

    def _listen(self, sockets: list[socket.socket], unix: str | None) -> None:
        error = LimitExceeded("limits.connections", self.connections_max, "try later, or raise it")
        refusal = encode_front(Kind.ERROR, 0, encode_failure(error))
        per_second, counts = self.broker.limits.connections_per_second, self.broker.rejections
        self._gate = gate = Gate(self.connections_max, per_second, lambda: self._front.connections, refusal, counts)
        for sock in sockets:
            listen(sock)
        if unix is not None:
            self.unix = UnixSocket(unix)
        self._sockets = sockets
        self.endpoints = [endpoint_of(sock) for sock in sockets]
        listening = [*sockets, *([self.unix.socket] if self.unix is not None else [])]
        self._accepting = [asyncio.create_task(gate.serve(sock, self._front.factory)) for sock in listening]

    async def close(self, deadline_s: float) -> None:
        """Raises SyncFailed where something written could not be made durable, TimeoutError where time ran out."""
        ends_at = asyncio.get_running_loop().time() + deadline_s
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        _close_all(self._sockets)
        if self._gate is not None:
            self._gate.close()
        if self.unix is not None:
            self.unix.close()
        await self._front.close(deadline_s * ANSWERS_SHARE)
        await self.broker.close(max(0.0, ends_at - asyncio.get_running_loop().time()))


async def _open_broker(loaded: Loaded) -> LocalBroker:
    loop = asyncio.get_running_loop()
    gives_up_at = loop.time() + IN_USE_S
    config = loaded.config
    _check_directory(config.data)
    while True:
        try:
            return await LocalBroker.open(config.data, config.broker(), config.cluster_id)
        except DirectoryInUse:
            if loop.time() >= gives_up_at:
                raise
        await asyncio.sleep(IN_USE_RETRY_S)


def _check_directory(path: str) -> None:
    """A node begins in a directory that is empty or its own, so that a slip of the hand leaves nothing in /etc."""
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        raise DirectoryUnusable(f"{path} is no directory: name another one")
    names = os.listdir(path)
    strangers = [name for name in names if name not in HARMLESS and not name.endswith(".sock")]
    if strangers and "node.json" not in names:
        raise DirectoryUnusable(
            f"{path} is not empty ({min(strangers)} is there) and no data directory: name an empty or a new one"
        )


def _connections_max(loaded: Loaded) -> int:
    wanted, files_max = loaded.config.limits.connections, raise_limit()
    allowed = connections_allowed(wanted, files_max)
    if allowed < wanted:
        logger.log(
            logging.INFO if loaded.sources["limits.connections"] == DEFAULT else logging.WARNING,
            "limits.connections is %d instead of %d: the process may open %d files; raise that with `ulimit -n`, "
            "or LimitNOFILE= of its systemd unit",
            *(allowed, wanted, files_max),
        )
    return allowed


def _close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
