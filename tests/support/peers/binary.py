"""A front-end on an ephemeral port, and a peer that says exactly what a test wants said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from logboom.batch.header import Buffer
from logboom.broker.api import Broker
from logboom.broker.limits import Limits, Rejections
from logboom.protocols.binary.codec import FRONT, FRONT_SIZE, encode
from logboom.protocols.binary.front_end import BinaryFrontEnd, Identity
from logboom.protocols.binary.messages import Hello, Kind
from support.peers.served import Peer, ServedFrontEnd

IDENTITY = Identity("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")


class Served(ServedFrontEnd[BinaryFrontEnd, "BinaryPeer"]):
    def __init__(self, front_end: BinaryFrontEnd, rejections: Rejections) -> None:
        super().__init__(front_end, BinaryPeer)
        self.rejections = rejections

    async def peer(self, hello: bool = True) -> BinaryPeer:
        peer = await self.connect()
        if hello:
            assert (await peer.ask(Kind.HELLO, 1, Hello()))[0] == Kind.WELCOME
        return peer


@asynccontextmanager
async def serve(broker: Broker, limits: Limits = Limits()) -> AsyncIterator[Served]:  # noqa: B008
    rejections = Rejections()
    served = Served(BinaryFrontEnd(broker, limits, rejections, "/data", "logboom/test", IDENTITY), rejections)
    async with served.listening():
        yield served


class BinaryPeer(Peer):
    def send(self, kind: int, correlation: int, head: Any = None, payload: Sequence[Buffer] = ()) -> None:
        self.writer.writelines(encode(kind, correlation, head, payload))

    async def receive(self) -> tuple[int, int, Any, bytes]:
        """Kind, correlation id, head and payload of the next frame."""
        front = FRONT.unpack(await self.reader.readexactly(FRONT_SIZE))
        size, kind, _, _, correlation, head_size = front
        rest = await self.reader.readexactly(size - FRONT_SIZE)
        head = msgspec.msgpack.decode(rest[:head_size]) if head_size else None
        return kind, correlation, head, rest[head_size + (-head_size & 7) :]

    async def ask(
        self, kind: int, correlation: int, head: Any = None, payload: Sequence[Buffer] = ()
    ) -> tuple[int, int, Any, bytes]:
        self.send(kind, correlation, head, payload)
        return await self.receive()

    async def is_silent(self) -> bool:
        """Whether nothing comes, although the other side has had time: a ping is answered first."""
        return (await self.ask(Kind.PING, 0xFFFF_FFFF))[:2] == (Kind.PONG, 0xFFFF_FFFF)

    async def is_closed(self) -> bool:
        return await self.reader.read(1) == b""

    def close(self) -> None:
        self.writer.close()
