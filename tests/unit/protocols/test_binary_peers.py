"""Peers that are slow, silent, half there, gone, or somebody else altogether."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

import pytest

from logboom.batch import build
from logboom.broker.api import ReadRequest, Start
from logboom.broker.limits import Limits
from logboom.protocols import stream_connection as connections
from logboom.protocols.binary.codec import encode, encode_front
from logboom.protocols.binary.messages import Append, AppendPart, Hello, Kind, Read
from logboom.protocols.stream_connection import WRITE_BYTES_HIGH
from support.brokers.memory import MemoryBroker
from support.peers.binary import BinaryPeer as Peer
from support.peers.binary import Served, serve
from support.peers.served import LOOPS, run

ONE = build([b"a"]).data
LARGE = build([bytes(250_000)]).data


def append(size: int, topic: str = "events") -> Append:
    return Append([AppendPart(topic, size)])


async def events(batches: int = 0, hold: bool = False) -> MemoryBroker:
    broker = MemoryBroker(hold)
    await broker.create_topic("events")
    for _ in range(batches):
        broker.logs["events"].append(bytes(LARGE), 1)
    return broker


def transport_of(node: Served) -> asyncio.Transport:
    """The server's side of the only connection."""
    (connection,) = node.front_end._connections
    return cast(asyncio.Transport, connection._transport)


async def settled() -> None:
    """Give the other side every chance to do more than it should."""
    for _ in range(20):
        await asyncio.sleep(0.002)


KAFKA = bytes.fromhex("00000023 0012 0003 00000001 000a") + b"kafka-test" + bytes(16)
MQTT = bytes.fromhex("100c 0004 4d515454 04 02 003c 0000")
TLS = bytes.fromhex("16 0301 0200 01 0001fc 0303") + bytes(range(256)) * 2
STRANGERS = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost:1773\r\n\r\n",
    "HTTP upload": b"POST /topics HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": TLS,
    "Kafka": KAFKA,
    "MQTT": MQTT,
    "text": b"MSG events hello\n",
    "garbage": bytes(range(255, 0, -1)),
    "frame": b"".join(encode(Kind.PING, 1)),
    "not a hello": b"".join(encode(Kind.HELLO, 1, [1, 2, 3])),
    "large": encode_front(Kind.HELLO, 1, None, 64 * 1024)[:16],
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", STRANGERS)
def test_another_protocol_gets_a_short_refusal_and_is_closed(name: str, loop: str) -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            peer = await node.peer(hello=False)
            peer.writer.write(STRANGERS[name])
            answer = await peer.reader.read()
            assert len(answer) < 300
            if name.startswith("HTTP"):
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert b"not HTTP" in answer
            elif name == "TLS":
                assert answer == bytes.fromhex("15030100020228")
            else:
                size, kind, _, _, correlation, _ = struct.unpack_from("<IBBHII", answer)
                assert (size, kind, correlation) == (len(answer), Kind.ERROR, 0)
                assert b"remote-protocol-error" in answer
            peer.close()
            await node.until(lambda: node.front_end.connections == 0)
            assert node.rejections["RemoteProtocolError"] == 1

    run(story(), loop)


def test_a_stranger_that_comes_byte_by_byte_is_known_all_the_same() -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            peer = await node.peer(hello=False)
            for byte in MQTT[:8]:
                peer.writer.write(bytes([byte]))
                await asyncio.sleep(0.002)
            assert b"remote-protocol-error" in await peer.reader.read()

    run(story())


def test_who_says_no_hello_is_closed() -> None:
    async def story() -> None:
        async with serve(MemoryBroker(), Limits(hello_ms=100)) as node:
            silent, slow = await node.peer(hello=False), await node.peer(hello=False)
            slow.writer.write(b"".join(encode(Kind.HELLO, 1, Hello()))[:10])
            for peer in (silent, slow):
                kind, correlation, failure, _ = await peer.receive()
                assert (kind, correlation, failure["data"]["limit"]) == (Kind.ERROR, 0, "limits.hello_ms")
                assert await peer.is_closed()
            assert node.rejections["limits.hello_ms"] == 2

    run(story())


def test_who_is_silent_for_too_long_is_closed_and_who_pings_is_not() -> None:
    async def story() -> None:
        async with serve(MemoryBroker(), Limits(idle_ms=3000)) as node:
            silent, alive = await node.peer(), await node.peer()

            async def ping() -> None:
                while True:
                    assert await alive.is_silent()
                    await asyncio.sleep(0.1)

            pinging = asyncio.create_task(ping())
            _, correlation, failure, _ = await silent.receive()
            assert (correlation, failure["data"]["limit"]) == (0, "limits.idle_ms")
            assert await silent.is_closed()
            assert not pinging.done()
            pinging.cancel()

    run(story())


def test_a_frame_that_does_not_go_on_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.05)

    async def story() -> None:
        async with serve(await events(), Limits(hello_ms=200)) as node:
            stalled, idle = await node.peer(), await node.peer()
            stalled.writer.write(encode_front(Kind.APPEND, 2, append(100_000), 100_000))
            assert (await stalled.receive())[1] == 0
            assert await idle.is_silent()
            assert node.front_end.receive_memory.own_bytes == 0

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_sends_and_hangs_up_its_side_still_gets_its_answers(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(Kind.APPEND, 2, append(len(ONE)), [ONE])
            peer.send(Kind.READ, 3, Read(ReadRequest("events", Start(seqno=1), wait_ms=60_000)))
            peer.send(Kind.READ, 4, Read(ReadRequest("events")))
            peer.writer.write_eof()
            await node.until(lambda: bool(broker.held))
            assert (await peer.receive())[:2] == (Kind.CHUNK, 4)
            broker.release()
            assert (await peer.receive())[:2] == (Kind.APPENDED, 2)
            assert await peer.is_closed()
            await node.until(lambda: node.front_end.connections == 0)

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_frame_without_its_end_is_answered_when_the_peer_hangs_up_its_side(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(Kind.APPEND, 2, append(len(ONE)), [ONE])
            peer.writer.write(encode_front(Kind.APPEND, 3, append(100_000), 100_000))
            peer.writer.write_eof()
            await node.until(lambda: bool(broker.held) and node.front_end.receive_memory.own_bytes == 0)
            broker.release()
            assert (await peer.receive())[:2] == (Kind.APPENDED, 2)
            kind, correlation, failure, _ = await peer.receive()
            assert (kind, correlation, failure["code"]) == (Kind.ERROR, 0, "remote-protocol-error")
            assert await peer.is_closed()

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_is_slow_to_read_has_time_to_read_the_last_answers(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LINGER_S", 0.1)
    monkeypatch.setattr(connections, "WRITE_BYTES_HIGH", 1 << 30)

    async def story() -> None:
        async with serve(await events(batches=100)) as node:
            peer = await node.peer()
            stop_reading(peer)
            for number in range(20):
                peer.send(Kind.READ, 100 + number, Read(ReadRequest("events", max_bytes=1 << 20)))
            transport = transport_of(node)
            await node.until(lambda: transport.get_write_buffer_size() > 8 << 20)
            peer.send(Kind.PING, 0)
            (connection,) = node.front_end._connections
            await node.until(lambda: connection._ends_at is not None)
            checked = node.front_end.now + 1.0
            await node.until(lambda: node.front_end.now > checked)
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            while (answer := await peer.receive())[0] == Kind.CHUNK:
                pass
            assert answer[:2] == (Kind.ERROR, 0)
            assert await peer.is_closed()

    run(story(), loop)


def test_who_is_not_listened_to_is_not_silent() -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker, Limits(in_flight_bytes=64 * 1024, idle_ms=1000)) as node:
            peer = await node.peer()
            transport = transport_of(node)
            peer.send(Kind.APPEND, 2, append(len(LARGE)), [LARGE])
            await node.until(lambda: not transport.is_reading())
            peer.send(Kind.PING, 3)
            checked = node.front_end.now + 2.0
            await node.until(lambda: node.front_end.now > checked)
            broker.release()
            assert (await peer.receive())[:2] == (Kind.APPENDED, 2)
            assert (await peer.receive())[:2] == (Kind.PONG, 3)

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_whatever_a_vanished_peer_had_going_on_ends_but_its_appends(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(Kind.APPEND, 2, append(len(ONE)), [ONE])
            await node.until(lambda: bool(broker.held))
            peer.send(Kind.SUBSCRIBE, 3, Read(ReadRequest("events"), credit=1 << 20))
            peer.send(Kind.SUBSCRIBE, 4, Read(ReadRequest("events")))
            peer.send(Kind.READ, 5, Read(ReadRequest("events", wait_ms=60_000)))
            await node.until(lambda: broker.open_subscriptions == 2)
            sock = cast(socket.socket, peer.writer.get_extra_info("socket"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.writer.transport.abort()
            await node.until(lambda: node.front_end.connections == 0)
            await node.until(lambda: not node.front_end._tasks)
            assert broker.open_subscriptions == 0
            broker.release()
            assert len(broker.logs["events"].batches) == 1

    run(story(), loop)


def stop_reading(peer: Peer) -> None:
    """From now on this peer reads nothing, and the kernel takes little for it."""
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_never_reads_costs_no_more_than_the_write_buffer(loop: str) -> None:
    async def story() -> None:
        broker = await events(batches=100)
        async with serve(broker) as node:
            peer = await node.peer()
            stop_reading(peer)
            for number in range(10):
                peer.send(Kind.SUBSCRIBE, 10 + number, Read(ReadRequest("events"), credit=1 << 40))
            for number in range(100):
                peer.send(Kind.READ, 100 + number, Read(ReadRequest("events")))
            transport = transport_of(node)
            await node.until(lambda: transport.get_write_buffer_size() > WRITE_BYTES_HIGH)
            reads = -1
            while reads != broker.reads:
                reads = broker.reads
                await settled()
            assert transport.get_write_buffer_size() < 3 * WRITE_BYTES_HIGH
            assert not transport.is_reading()

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_reads_late_gets_everything(loop: str) -> None:
    async def story() -> None:
        broker = await events(batches=40)
        async with serve(broker) as node:
            peer, quick = await node.peer(), await node.peer()
            stop_reading(peer)
            peer.send(Kind.SUBSCRIBE, 3, Read(ReadRequest("events"), credit=1 << 40))
            for number in range(8):
                peer.send(Kind.READ, 100 + number, Read(ReadRequest("events", max_bytes=1 << 20)))
            await settled()
            assert await quick.is_silent()
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            pushed = 0
            answered: set[int] = set()
            while pushed < 40 or len(answered) < 8:
                kind, correlation, head, payload = await peer.receive()
                assert kind == Kind.CHUNK
                if correlation == 3:
                    assert head[2] == pushed
                    pushed += len(payload) // len(LARGE)
                else:
                    answered.add(correlation)
                    assert len(payload) == 4 * len(LARGE)
            assert await peer.is_silent()

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_is_not_read_from_while_too_much_of_it_waits(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker, Limits(in_flight_bytes=1 << 20)) as node:
            peer = await node.peer()
            transport = transport_of(node)
            for number in range(60):
                peer.send(Kind.APPEND, 10 + number, append(len(LARGE)), [LARGE])
            await node.until(lambda: not transport.is_reading())
            await settled()
            held = sum(len(answers) for _, answers in broker.held)
            assert held * len(LARGE) < 3 << 20
            answered = 0
            while answered < 60:
                await node.until(lambda: bool(broker.held))
                broker.release()
                kind, correlation, _, _ = await peer.receive()
                assert (kind, correlation) == (Kind.APPENDED, 10 + answered)
                answered += 1
                while answered < len(broker.logs["events"].batches) - sum(len(a) for _, a in broker.held):
                    assert (await peer.receive())[:2] == (Kind.APPENDED, 10 + answered)
                    answered += 1
            assert await peer.is_silent()

    run(story(), loop)


def test_frames_under_way_hold_no_more_than_the_node_allows() -> None:
    async def story() -> None:
        async with serve(await events(), Limits(receive_bytes=1 << 20)) as node:
            peers = [await node.peer() for _ in range(4)]
            front = encode_front(Kind.APPEND, 2, append(400_000), 400_000)
            for peer in peers:
                peer.writer.write(front)
                await settled()
            for peer in peers[2:]:
                _, correlation, failure, _ = await peer.receive()
                assert (correlation, failure["data"]["limit"]) == (0, "limits.receive_bytes")
            for peer in peers[:2]:
                peer.writer.write(bytes(400_000))
                assert (await peer.receive())[0] == Kind.APPENDED
            assert node.front_end.receive_memory.own_bytes == 0

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_refusal_reaches_a_peer_that_is_still_sending(loop: str) -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            peer.send(Kind.PING, 0)
            for number in range(40):
                peer.send(Kind.APPEND, 10 + number, append(len(LARGE)), [LARGE])
            kind, correlation, _, _ = await peer.receive()
            assert (kind, correlation) == (Kind.ERROR, 0)
            assert await peer.is_closed()

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_promise_kept_after_a_refusal_is_told_to_nobody(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(Kind.APPEND, 2, append(len(ONE)), [ONE])
            peer.send(Kind.PING, 0)
            assert (await peer.receive())[:2] == (Kind.ERROR, 0)
            broker.release()
            assert await peer.is_closed()
            assert len(broker.logs["events"].batches) == 1

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_lets_promises_be_kept_and_ends_what_only_waits(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peer, idle = await node.peer(), await node.peer()
            peer.send(Kind.APPEND, 2, append(len(ONE)), [ONE])
            peer.send(Kind.APPEND, 3, append(len(ONE)), [ONE])
            await node.until(lambda: len(broker.logs["events"].batches) == 2)
            peer.send(Kind.READ, 4, Read(ReadRequest("nothing", wait_ms=60_000)))
            assert (await peer.receive())[0] == Kind.ERROR
            broker.logs["quiet"] = type(broker.logs["events"])()
            peer.send(Kind.READ, 5, Read(ReadRequest("quiet", wait_ms=60_000)))
            peer.send(Kind.SUBSCRIBE, 6, Read(ReadRequest("quiet"), credit=1 << 20))
            await node.until(lambda: broker.open_subscriptions == 1)
            closing = asyncio.create_task(node.front_end.close(20.0))
            for _ in range(2):
                _, correlation, failure, _ = await peer.receive()
                assert failure["code"] == "shutting-down"
                assert correlation in (5, 6)
            assert (await idle.receive())[1:3] == (0, failure)
            assert not closing.done()
            while broker.held:
                broker.release()
            kinds = []
            while (answer := await peer.receive())[1]:
                kinds.append(answer[0])
            assert set(kinds) == {Kind.APPENDED}
            assert answer[2] == failure
            assert await peer.is_closed()
            await closing
            late = await node.peer(hello=False)
            assert (await late.receive())[2] == failure

    run(story(), loop)


def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read() -> None:
    async def story() -> None:
        async with serve(await events(batches=100)) as node:
            peer = await node.peer()
            stop_reading(peer)
            peer.send(Kind.SUBSCRIBE, 10, Read(ReadRequest("events"), credit=1 << 40))
            transport = transport_of(node)
            await node.until(lambda: transport.get_write_buffer_size() > WRITE_BYTES_HIGH)
            await node.front_end.close(0.1)
            assert node.front_end.connections == 0

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_small_answers_are_not_held_back_by_the_kernel(loop: str) -> None:
    async def story() -> None:
        async with serve(MemoryBroker()) as node:
            await node.peer()
            sock = transport_of(node).get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(story(), loop)


def test_many_connections_come_and_go_and_leave_nothing() -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            for _ in range(3):
                peers = await asyncio.gather(*(node.peer() for _ in range(200)))
                assert node.front_end.connections == 200
                answers = await asyncio.gather(*(peer.ask(Kind.APPEND, 2, append(len(ONE)), [ONE]) for peer in peers))
                assert {answer[0] for answer in answers} == {Kind.APPENDED}
                for peer in peers:
                    peer.close()
                await node.until(lambda: node.front_end.connections == 0)
            assert node.front_end._timer is None
            assert not node.front_end._tasks
            assert len(broker.logs["events"].batches) == 600

    run(story())
