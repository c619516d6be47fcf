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
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from logboom import __version__
from logboom.broker.api import AccessStats
from logboom.broker.local import LocalBroker
from logboom.broker.world import World
from logboom.errors import ConfigError, DirectoryInUse, DirectoryUnusable
from logboom.protocols.endpoint import Endpoint
from logboom.protocols.front_end import FrontEnd, FrontEndSetup
from logboom.replication.replication import Replication, prepare
from logboom.results.pipeline_follower import PipelineFollower
from logboom.server.config import NodeConfig
from logboom.server.descriptors import FEW, Shares, raise_limit, share_out
from logboom.server.front_ends import FRONT_ENDS
from logboom.server.gate import Gate
from logboom.server.keys import KEYS
from logboom.server.listeners import UnixSocket, bind_all, default_socket, endpoint_of, listen_all
from logboom.server.security.certificates import Certificates
from logboom.server.security.file_modes import conceal, protect
from logboom.server.security.key_sets import BearerChecker, is_configured
from logboom.server.sources import DEFAULT, LoadedConfig
from logboom.server.webhooks import WebHooks

HARMLESS: Final = frozenset(("lock", "state", "node.json.tmp", "lost+found"))
"""What a start that was cut short, or a file system, leaves in a directory that is not a node's yet."""
IN_USE_S: Final = 2.0
"""A check or a doctor holds the directory for a moment; so long a start waits for it."""
IN_USE_RETRY_S: Final = 0.1
ANSWERS_SHARE: Final = 0.5
"""Of the deadline: for answers on their way; the rest is the disk's."""
logger = logging.getLogger("logboom.server")


class Node:
    def __init__(self, broker: LocalBroker, hooks: WebHooks, fronts: dict[str, FrontEnd], shares: Shares) -> None:
        self.broker = broker
        self._hooks = hooks
        self._replication: Replication | None = None
        self._following: PipelineFollower | None = None
        self.connections_max = shares.connections
        self._lingering_max = shares.lingering
        self.endpoints: dict[str, list[Endpoint]] = {}
        """Where it listens, by protocol."""
        self.unix: UnixSocket | None = None
        self.secured: list[str] = []
        """Those of them that have TLS."""
        self.certificates: Certificates | None = None
        """Of listeners with TLS."""
        self._fronts = fronts
        self._sockets: dict[str, list[socket.socket]] = {}
        self._gate: Gate | None = None
        self._accepting: list[asyncio.Task[None]] = []
        for protocol, front in fronts.items():
            broker.connections[protocol] = lambda front=front: front.connections  # type: ignore[misc]
            broker.meters[protocol] = front.meter

    @classmethod
    async def open(cls, loaded: LoadedConfig, end: Callable[[], None] = lambda: None) -> Node:
        """Raises ConfigError, StorageError or OSError where it cannot start; then nothing is left open.

        `end` is called where a client may end the node, and does.
        """
        config = loaded.config
        shares = _share_descriptors(loaded)
        certificates = None if config.tls.certificate is None else Certificates(config.tls)
        bearers = BearerChecker(config.oidc, time.monotonic) if is_configured(config.oidc) else None
        secured: set[socket.socket] = set()
        sockets = _bind(loaded, secured)
        hooks = WebHooks(config.validators)
        try:
            broker = await _open_broker(loaded, shares, hooks)
        except BaseException:
            _close_all(sockets)
            raise
        broker.sign_in.bearers = bearers
        node = cls(broker, hooks, _make_fronts(broker, loaded, end), shares)
        try:
            node._following = await PipelineFollower.start(broker, broker.archives.put, config.pipeline)
            if config.replicate_from is not None:
                node._replication = Replication.start(broker, config.replicate)
            node._listen(sockets, loaded, certificates, secured)
        except BaseException:
            _close_all(sockets)
            await node.close(config.shutdown_deadline_ms / 1000)
            raise
        return node

    def describe_access(self, config: NodeConfig) -> AccessStats:
        expires = None if self.certificates is None else self.certificates.expires
        return AccessStats(config.anonymous, config.access.insecure and bool(config.exposed), expires)

    @property
    def _open_connections(self) -> int:
        return sum(front.connections for front in self._fronts.values())

    def _listen(
        self,
        sockets: dict[str, list[socket.socket]],
        loaded: LoadedConfig,
        certificates: Certificates | None,
        secured: Container[socket.socket],
    ) -> None:
        per_second, counts = self.broker.limits.connections_per_second, self.broker.rejections
        self._gate = gate = Gate(
            *(self.connections_max, per_second, lambda: self._open_connections, counts, self._lingering_max)
        )
        self._sockets = sockets
        for protocol, some in sockets.items():
            sockets[protocol] = listen_all(some, are_default=_is_default(loaded, protocol))
        self.unix = _open_unix(loaded.config)
        _check_any(sockets, loaded)
        self.endpoints = {
            protocol: [endpoint_of(sock)._replace(tls=sock in secured or None) for sock in some]
            for protocol, some in sockets.items()
        }
        listening = [(protocol, sock) for protocol, some in sockets.items() for sock in some]
        if self.unix is not None:
            listening.append((FRONT_ENDS[0].name, self.unix.socket))
        for protocol, sock in listening:
            front = self._fronts[protocol]
            tls = certificates.context if certificates is not None and sock in secured else None
            self._accepting.append(asyncio.create_task(gate.serve(sock, front.factory, front.refusal, tls)))
        self.certificates = certificates
        self.secured = [str(endpoint_of(sock)) for some in sockets.values() for sock in some if sock in secured]
        self.broker.describe_access = lambda: self.describe_access(loaded.config)
        if certificates is not None:
            self._accepting.append(asyncio.create_task(certificates.follow()))

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
        self.broker.quotas.close()
        await asyncio.gather(*(front.close(deadline_s * ANSWERS_SHARE) for front in self._fronts.values()))
        if self._replication is not None:
            await self._replication.close()
        if self._following is not None:
            await self._following.close()
        await self.broker.close(max(0.0, ends_at - asyncio.get_running_loop().time()))
        await self._hooks.close()


def _make_fronts(broker: LocalBroker, loaded: LoadedConfig, end: Callable[[], None]) -> dict[str, FrontEnd]:
    config = loaded.config
    written = {name: KEYS[name].write(value) for name, value in loaded.values().items()}
    made: dict[str, FrontEnd] = {}
    for kind in FRONT_ENDS:
        made[kind.name] = kind.make(
            FrontEndSetup(
                broker=broker,
                limits=broker.limits,
                rejections=broker.rejections,
                settings=config.settings_of(kind),
                endpoints=tuple(config.listen.endpoints(kind)),
                node_id=broker.node.node_id,
                cluster_id=broker.node.cluster_id,
                server_name=f"logboom/{__version__}",
                directory=broker.directory,
                feeds=broker,
                replica_of=broker.replica_of,
                issue_id=broker.issue_id,
                written_config=lambda: written,
                described_config=lambda: describe_config(loaded),
                places=config.pipeline,
                world=broker.world,
                end=end,
                check_end=broker.check_manager,
                sign_in=broker.sign_in,
                quotas=broker.quotas,
                shows_files=broker.shows_files,
                others=dict(made),
            )
        )
    return made


def describe_config(loaded: LoadedConfig) -> dict[str, Any]:
    """Every key of the configuration: its value, where that is from, and what it means. Of commands only the names."""
    return {
        name: {
            "value": list(value) if isinstance(value, Mapping) else value,
            "source": loaded.sources[name],
            "meaning": KEYS[name].meaning,
        }
        for name, value in loaded.values().items()
    }


def _bind(loaded: LoadedConfig, secured: set[socket.socket]) -> dict[str, list[socket.socket]]:
    """The sockets of each protocol; those with TLS are put into `secured`. Raises ConfigError where none is left."""
    listen = loaded.config.listen
    bound: dict[str, list[socket.socket]] = {}
    try:
        for kind in FRONT_ENDS:
            is_default = _is_default(loaded, kind.name)
            bound[kind.name] = some = []
            for endpoint in listen.endpoints(kind):
                more = bind_all([endpoint], f"listen.{kind.name}", is_default)
                some += more
                if loaded.config.is_secured(endpoint):
                    secured.update(more)
        _check_any(bound, loaded)
    except BaseException:
        _close_all(bound)
        raise
    return bound


def _open_unix(config: NodeConfig) -> UnixSocket | None:
    """Where callers must sign in there is always one: whoever runs the node makes the first user over it."""
    if config.listen.unix is not None:
        return UnixSocket(config.listen.unix)
    if config.anonymous == "all":
        return None
    try:
        return UnixSocket(default_socket(config.data))
    except ConfigError as error:
        logger.warning("%s; without it `logboom user --data` works only while the node is stopped", error)
        return None


def _is_default(loaded: LoadedConfig, protocol: str) -> bool:
    return loaded.sources[f"listen.{protocol}"] == DEFAULT


def _check_any(sockets: dict[str, list[socket.socket]], loaded: LoadedConfig) -> None:
    if not any(sockets.values()) and loaded.config.listen.unix is None:
        raise ConfigError("listen", "nothing is left to listen on: name a free port, such as --listen 127.0.0.1:0")


async def _open_broker(loaded: LoadedConfig, shares: Shares, hooks: WebHooks) -> LocalBroker:
    loop = asyncio.get_running_loop()
    gives_up_at = loop.time() + IN_USE_S
    limits = msgspec.structs.replace(loaded.config.limits, connections=shares.connections)
    config = msgspec.structs.replace(loaded.config, limits=limits)
    broker = replace(config.broker(), files_max=shares.files, dirty_logs_max=shares.dirty_logs)
    check_directory(config.data)
    await asyncio.to_thread(protect, config.data, config.access.files_group)
    role = await prepare(config.replicate_from, config.data, config.cluster_id, config.replicate)
    cluster_id = config.cluster_id if role is None else role.cluster_id
    world = World()
    while True:
        try:
            opened = await LocalBroker.open(
                config.data, broker, cluster_id, validators=hooks, replicate=role, world=world
            )
            await asyncio.to_thread(conceal, config.data)
            return opened
        except DirectoryInUse:
            if loop.time() >= gives_up_at:
                raise
        await asyncio.sleep(IN_USE_RETRY_S)


def check_directory(path: str) -> None:
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


def _share_descriptors(loaded: LoadedConfig) -> Shares:
    wanted, limit = loaded.config.limits.connections, raise_limit()
    shares = share_out(limit, wanted)
    if shares.connections < wanted:
        logger.log(
            logging.INFO if loaded.sources["limits.connections"] == DEFAULT else logging.WARNING,
            "limits.connections is %d instead of %d: the process may open %d files, and logs need some of them; raise "
            "that with `ulimit -n`, or LimitNOFILE= of its systemd unit",
            *(shares.connections, wanted, limit),
        )
    if limit < FEW:
        logger.warning(
            "the process may open %d files: %d logs at a time can be written; raise that with `ulimit -n`, or "
            "LimitNOFILE= of its systemd unit",
            *(limit, shares.dirty_logs),
        )
    return shares


def _close_all(sockets: dict[str, list[socket.socket]]) -> None:
    for sock in (sock for some in sockets.values() for sock in some):
        sock.close()
