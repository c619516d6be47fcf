"""A connection has one caller, made when it is made; every call of the broker that comes over it has that one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

import support.peers.binary
import support.peers.logd
from logboom.batch import build
from logboom.broker.caller import Caller
from logboom.protocols.binary.messages import Append, AppendPart, Kind
from logboom.protocols.peer_caller import ListenerContext, caller_of_peer
from support.brokers.memory import MemoryBroker
from support.nodes.web import WebNode, tell
from support.peers.served import LOOPS, run


async def events() -> MemoryBroker:
    broker = MemoryBroker()
    await broker.create_topic("events")
    return broker


def own_address(writer: asyncio.StreamWriter) -> str:
    host, port = writer.get_extra_info("sockname")
    return f"{host}:{port}"


@pytest.mark.parametrize("loop", LOOPS)
def test_appends_over_the_binary_protocol_come_from_their_connection(loop: str) -> None:
    async def story() -> None:
        broker, batch = await events(), build([b"a"]).data
        async with support.peers.binary.serve(broker) as node:
            peers = [await node.peer() for _ in range(2)]
            for peer in (*peers, peers[0]):
                await peer.ask(Kind.APPEND, 2, Append([AppendPart("events", len(batch))]), [batch])
            addresses = [own_address(peer.writer) for peer in (*peers, peers[0])]
            assert broker.callers == [Caller(protocol="binary", address=address) for address in addresses]
            assert broker.callers[0] is broker.callers[2]

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_of_logd_come_from_their_connection(loop: str) -> None:
    async def story() -> None:
        broker = await events()
        async with support.peers.logd.serve(broker) as node:
            peer = await node.peer()
            for _ in range(2):
                assert (await peer.ask(b"MSG events 1\r\na\r\n")).startswith(b"OK")
            caller = Caller(protocol="logd", address=own_address(peer.writer))
            assert broker.callers == [caller, caller]
            assert broker.callers[0] is broker.callers[1]

    run(story(), loop)


def test_requests_of_http_come_from_their_connection(tmp_path: Path) -> None:
    async def story(node: WebNode) -> None:
        callers: list[Caller] = []

        async def converse(commands: bytes, caller: Caller) -> bytes:
            callers.append(caller)
            return b""

        node.front_end.converse = converse
        for _ in range(2):
            await node.client.post("/log", content=b"PING\r\n", headers={"content-type": "application/logd"})
        assert {caller.protocol for caller in callers} == {"http"}
        assert callers[0].address.startswith("127.0.0.1:")
        assert callers[0] is callers[1]

    assert tell(tmp_path, story) == []


class Named(asyncio.BaseTransport):
    def __init__(self, name: object, **more: object) -> None:
        super().__init__({"peername": name, **more})


def test_a_peer_without_a_port_has_no_address() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert caller_of_peer("logd", Named(ours.getpeername())) == Caller(protocol="logd")
    assert caller_of_peer("logd", Named(None)) == Caller(protocol="logd")
    assert caller_of_peer("logd", Named(("::1", 7, 0, 0))).address == "[::1]:7"


CERTIFICATE = {
    "subject": ((("commonName", "alice"),),),
    "subjectAltName": (("URI", "spiffe://example.org/importer"),),
    "notAfter": "Jan  1 00:00:00 2030 GMT",
}


def test_a_certificate_makes_a_caller_as_long_as_it_is_valid() -> None:
    context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
    shown = Named(("10.0.0.7", 99), sslcontext=context, peercert=CERTIFICATE)
    caller = Caller("alice", protocol="binary", address="10.0.0.7:99", by="certificate", expires=1_893_456_000_000_000)
    assert caller_of_peer("binary", shown) == caller
    context.principal_from = "uri"
    assert caller_of_peer("http", shown).principal == "spiffe://example.org/importer"
    context.principal_from = "dns"
    assert caller_of_peer("http", shown) == Caller(protocol="http", address="10.0.0.7:99")


def test_without_a_certificate_a_peer_with_tls_is_anonymous() -> None:
    context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
    nothing: tuple[object, ...] = (None, {})
    for peercert in nothing:
        shown = Named(("10.0.0.7", 99), sslcontext=context, peercert=peercert)
        assert caller_of_peer("binary", shown) == Caller(protocol="binary", address="10.0.0.7:99")
