"""The binary protocol of one node: makes a connection for whoever comes, and looks after all of them.

Knows a Broker and nothing of what is behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from logboom.batch import BATCH_SIZE_MAX
from logboom.broker.access.quotas import Quotas
from logboom.broker.access.sign_in import SignIn
from logboom.broker.api import MOVES_MAX, Broker, TopicInfo
from logboom.broker.caller import Caller
from logboom.broker.limits import Limits, Rejections
from logboom.broker.monitor.measures import Meter
from logboom.broker.publish.publication import BUNDLE_BATCHES_MAX, BUNDLE_BYTES_MAX
from logboom.errors import LimitExceeded, LogboomError
from logboom.protocols.binary.codec import FRAME_BYTES_FIRST, RECEIVE_BYTES, SharedBuffer, encode_front
from logboom.protocols.binary.connection import BinaryConnection
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import VERSION, Kind, Welcome, WireLimits
from logboom.protocols.crowd import Crowd
from logboom.protocols.front_end import FrontEnd, FrontEndSetup
from logboom.storage.producers import REMEMBERED

_ROOM: Final = 8 * 1024
"""Of the first frame's limit, for everything in a welcome but the topics."""


def make(setup: FrontEndSetup) -> FrontEnd:
    return BinaryFrontEnd(
        setup.broker,
        setup.limits,
        setup.rejections,
        setup.directory,
        setup.server_name,
        Identity(setup.node_id, setup.cluster_id),
        setup.replica_of,
        setup.issue_id,
        setup.world.now_us,
        setup.sign_in,
        setup.shows_files,
        setup.quotas,
    )


class Identity(NamedTuple):
    """What a node says of itself."""

    node_id: str
    cluster_id: str


class BinaryFrontEnd(Crowd[BinaryConnection]):
    """Construct it in the event loop it will serve, or before; `factory` is for `loop.create_server`."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        rejections: Rejections,
        directory: str | None,
        server_name: str,
        identity: Identity,
        replica_of: Callable[[], str | None] = lambda: None,
        issue_id: Callable[[], int] = lambda: 0,
        now_us: Callable[[], int] = lambda: 0,
        sign_in: SignIn | None = None,
        shows_files: Callable[[Caller], bool] = lambda _: True,
        quotas: Quotas | None = None,
    ) -> None:
        super().__init__("binary", limits, rejections, quotas)
        self.broker = broker
        self.meter = Meter()
        full = LimitExceeded("limits.connections", limits.connections, "try later, or raise it")
        self.refusal = encode_front(Kind.ERROR, 0, encode_failure(full))
        """What a connection over the limit is told."""
        self.identity = identity
        self.frame_bytes = max(BATCH_SIZE_MAX, limits.read_bytes) + FRAME_BYTES_FIRST
        self.receive_memory = SharedBuffer(RECEIVE_BYTES, limits.receive_bytes)
        self._directory = directory
        self._server_name = server_name
        self._replica_of = replica_of
        self._issue_id = issue_id
        self._now_us = now_us
        self.sign_in = sign_in
        self._shows_files = shows_files
        """Whether a caller may be told where the files are: rules do not count there."""

    def factory(self) -> asyncio.BufferedProtocol:
        return BinaryConnection(self)

    async def describe(self, correlation: int, names: list[str], caller: Caller, last: bytes = b"") -> bytes:
        """A welcome with these topics, where they exist; as many as fit in a first frame."""
        found: list[TopicInfo] = []
        room = FRAME_BYTES_FIRST - _ROOM
        for name in names:
            try:
                info = await self.broker.describe_topic(name, caller=caller)
            except LogboomError:
                continue
            room -= len(msgspec.msgpack.encode(info))
            if room < 0:
                break
            found.append(info)
        return self.encode_welcome(correlation, found, caller, last)

    def encode_welcome(self, correlation: int, topics: list[TopicInfo], caller: Caller, last: bytes = b"") -> bytes:
        limits = self.limits
        wire = WireLimits(
            frame_bytes=self.frame_bytes,
            batch_bytes=limits.batch_bytes,
            in_flight_bytes=limits.in_flight_bytes,
            in_flight_batches=REMEMBERED,
            idle_ms=limits.idle_ms,
            subscriptions=limits.subscriptions_per_connection,
            publish_bytes=BUNDLE_BYTES_MAX,
            publish_batches=BUNDLE_BATCHES_MAX,
            publish_moves=MOVES_MAX,
        )
        directory = self._directory if self._shows_files(caller) else None
        facts = *self.identity, directory, self._server_name, wire, topics
        own = caller.principal, last, True
        welcome = Welcome(VERSION, *facts, self._replica_of(), self._issue_id(), self._now_us(), *own)
        return encode_front(Kind.WELCOME, correlation, welcome)
