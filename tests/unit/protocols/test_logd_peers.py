"""Peers of the logd protocol that are slow, silent, half there, gone, or in a hurry."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

import pytest

from logboom.batch import build, stamp
from logboom.broker.api import Appended
from logboom.broker.caller import EVERYBODY
from logboom.broker.limits import Limits
from logboom.protocols import stream_connection as connections
from logboom.protocols.stream_connection import WRITE_BYTES_HIGH
from support.brokers.memory import MemoryBroker, MemoryLog
from support.peers.logd import LogdPeer as Peer
from support.peers.logd import serve
from support.peers.served import LOOPS, run

LARGE = bytes(build([bytes(250_000)]).data)
MESSAGE = b"MSG events 250000\r\n" + bytes(250_000) + b"\r\n"


class StampedLog(MemoryLog):
    """Its batches say which records they hold."""

    def append(self, data: bytes, count: int) -> Appended:
        head = stamp(data, self.next, len(self.batches) + 1, 0, 1, 1)
        return super().append(head + data[len(head) :], count)


async def events(batches: int = 0, hold: bool = False) -> MemoryBroker:
    broker = MemoryBroker(hold)
    broker.logs["events"] = log = StampedLog()
    for _ in range(batches):
        log.append(LARGE, 1)
    return broker


async def settled() -> None:
    """Give the other side every chance to do more than it should."""
    for _ in range(20):
        await asyncio.sleep(0.002)


def stop_reading(peer: Peer) -> None:
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]


def test_who_is_silent_for_too_long_is_closed_and_who_pings_or_follows_is_not() -> None:
    async def story() -> None:
        async with serve(await events(), Limits(idle_ms=3000)) as node:
            silent, alive, follower = [await node.peer() for _ in range(3)]
            follower.send(b"TAIL events 0\r\n")

            async def ping() -> None:
                while True:
                    assert await alive.ask(b"PING\r\n") == b"PONG"
                    await asyncio.sleep(0.1)

            pinging = asyncio.create_task(ping())
            assert await silent.rest() == b"ERR unavailable\r\n"
            assert node.front_end.rejections["limits.idle_ms"] == 1
            assert not pinging.done()
            pinging.cancel()
            assert await follower.ask(b"PING\r\n") == b"PONG"

    run(story())


def test_a_follower_that_does_not_read_for_too_long_is_closed() -> None:
    async def story() -> None:
        async with serve(await events(batches=60), Limits(idle_ms=1000)) as node:
            follower = await node.peer()
            stop_reading(follower)
            follower.send(b"READ events 0 0\r\n")
            await node.until(lambda: node.front_end.rejections["limits.idle_ms"] == 1)
            await node.until(lambda: node.front_end.connections == 0)

    run(story())


def test_a_command_that_does_not_go_on_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.05)

    async def story() -> None:
        async with serve(await events(), Limits(idle_ms=2000)) as node:
            stalled, idle = await node.peer(), await node.peer()
            assert await idle.ask(b"PING\r\n") == b"PONG"
            stalled.send(b"MSG events 100000\r\nhello")
            assert await stalled.rest() == b"ERR invalid protocol\r\n"
            assert await idle.ask(b"PING\r\n") == b"PONG"
            assert node.front_end.receive_memory.bytes == 0

    run(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_sends_and_hangs_up_its_side_still_gets_its_answers(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(b"MSG events 1\r\na\r\nHEAD events\r\nTAIL events 1\r\n")
            peer.writer.write_eof()
            await node.until(lambda: bool(broker.held))
            broker.release()
            answer = b"OK 0 1\r\nOK 0 1\r\nOK 0 1\r\nBATCH 10 events 1804709156 1\r\nMSG 1\r\na\r\n"
            assert await peer.rest() == answer
            await node.until(lambda: node.front_end.connections == 0)
            assert broker.open_subscriptions == 0

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rest", [b"PING", b"MSG events 5\r\nhello"])
def test_a_command_without_its_end_is_answered_when_the_peer_hangs_up_its_side(rest: bytes, loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            peer = await node.peer()
            peer.send(b"MSG events 1\r\na\r\nHEAD events\r\n" + rest)
            peer.writer.write_eof()
            await node.until(lambda: bool(broker.held))
            broker.release()
            assert await peer.rest() == b"OK 0 1\r\nOK 0 1\r\nERR invalid protocol\r\n"
            await node.until(lambda: node.front_end.connections == 0)

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("end", [b"CLOSE\r\n", b"HUH\r\n", b""])
def test_who_is_slow_to_read_has_time_to_read_the_last_answers(
    end: bytes, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINGER_S", 0.1)
    monkeypatch.setattr(connections, "WRITE_BYTES_HIGH", 1 << 30)

    async def story() -> None:
        async with serve(await events(batches=100), Limits(idle_ms=2000)) as node:
            peer = await node.peer()
            stop_reading(peer)
            peer.send(b"READ events 0 100\r\n" * 20 + end)
            if not end:
                peer.writer.write_eof()
            await node.until(lambda: node.transport.is_closing() or node.ending is not None)
            checked = node.front_end.now + 1.0
            await node.until(lambda: node.front_end.now > checked)
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            answers = await peer.rest()
            assert answers.count(b"BATCH 250014 events") == 20 * 4
            await node.until(lambda: node.front_end.connections == 0)

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_never_reads_the_last_answers_does_not_stay_for_ever(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LINGER_S", 0.1)
    monkeypatch.setattr(connections, "WRITE_BYTES_HIGH", 1 << 30)

    async def story() -> None:
        async with serve(await events(batches=100), Limits(idle_ms=1000)) as node:
            for end in (b"CLOSE\r\n", b""):
                peer = await node.peer()
                stop_reading(peer)
                peer.send(b"READ events 0 100\r\n" * 20 + end)
                if not end:
                    peer.writer.write_eof()
            await node.until(lambda: node.front_end.connections == 2)
            await node.until(lambda: node.front_end.connections == 0)

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_whatever_a_vanished_peer_had_going_on_ends_but_its_appends(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            writer, follower = await node.peer(), await node.peer()
            follower.send(b"TAIL events 0\r\n")
            await node.until(lambda: broker.open_subscriptions == 1)
            writer.send(b"MSG events 1\r\na\r\n")
            await node.until(lambda: bool(broker.held))
            for peer in (writer, follower):
                sock = cast(socket.socket, peer.writer.get_extra_info("socket"))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.writer.transport.abort()
            await node.until(lambda: node.front_end.connections == 0)
            await node.until(lambda: not node.front_end._tasks)
            assert broker.open_subscriptions == 0
            broker.release()
            assert len(broker.logs["events"].batches) == 1

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_never_reads_costs_no_more_than_the_write_buffer(loop: str) -> None:
    async def story() -> None:
        broker = await events(batches=100)
        async with serve(broker) as node:
            peer = await node.peer()
            stop_reading(peer)
            peer.send(b"READ events 0 100\r\n" * 20_000)
            await node.until(lambda: not node.transport.is_reading())
            await node.until(lambda: node.transport.get_write_buffer_size() > WRITE_BYTES_HIGH)
            reads = -1
            while reads != broker.reads:
                reads = broker.reads
                await settled()
            assert node.transport.get_write_buffer_size() < 4 * WRITE_BYTES_HIGH
            assert not node.transport.is_reading()

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_follower_that_reads_late_gets_everything_in_its_order(loop: str) -> None:
    async def story() -> None:
        broker = await events()
        async with serve(broker) as node:
            follower, writer = await node.peer(), await node.peer()
            follower.send(b"READ events 0 0\r\n")
            await node.until(lambda: broker.open_subscriptions == 1)
            stop_reading(follower)
            for number in range(60):
                body = b"%06d" % number + bytes(200_000)
                assert await writer.ask(b"MSG events %d\r\n%b\r\n" % (len(body), body)) == b"OK %d 1" % number
            assert broker.greatest_ask <= WRITE_BYTES_HIGH
            follower.writer.transport.resume_reading()  # type: ignore[attr-defined]
            found: list[bytes] = []
            while len(found) < 60:
                found += [value[:6] for value in await follower.values()]
            assert found == [b"%06d" % number for number in range(60)]

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_is_not_read_from_while_too_much_of_it_waits(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker, Limits(in_flight_bytes=1 << 20)) as node:
            peer = await node.peer()
            peer.send(MESSAGE * 60)
            await node.until(lambda: bool(broker.held) and not node.transport.is_reading())
            await settled()
            (connection,) = node.front_end._connections
            assert connection._handler is not None
            assert connection._handler._line.held_bytes < 3 << 20
            for number in range(60):
                while not peer.reader._buffer:  # type: ignore[attr-defined]
                    await node.until(lambda: bool(broker.held or peer.reader._buffer))  # type: ignore[attr-defined]
                    if broker.held:
                        broker.release()
                    await asyncio.sleep(0)
                assert await peer.line() == b"OK %d 1" % number
            assert await peer.ask(b"PING\r\n") == b"PONG"

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_refusal_reaches_a_peer_that_is_still_sending(loop: str) -> None:
    async def story() -> None:
        async with serve(await events()) as node:
            peer = await node.peer()
            peer.send(b"NONSENSE\r\n" + MESSAGE * 40)
            assert await peer.rest() == b"ERR invalid protocol\r\n"
            assert node.front_end.rejections["logd.invalid protocol"] == 1

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_bodies_under_way_hold_no_more_than_the_node_allows(loop: str) -> None:
    async def story() -> None:
        async with serve(await events(), Limits(receive_bytes=1 << 20)) as node:
            peers = [await node.peer() for _ in range(3)]
            for peer in peers[:2]:
                peer.send(MESSAGE[:-2] * 1)
            await node.until(lambda: node.front_end.receive_memory.bytes > 2 * 250_000)
            peers[2].send(b"MSG events 1000000\r\n" + bytes(900_000))
            assert await peers[2].rest() == b"ERR unavailable\r\n"
            for number, peer in enumerate(peers[:2]):
                assert await peer.ask(b"\r\n") == b"OK %d 1" % number

    run(story(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_answers_what_was_taken_and_says_goodbye(loop: str) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker) as node:
            writer, idle, follower = [await node.peer() for _ in range(3)]
            writer.send(b"MSG events 1\r\na\r\n")
            await node.until(lambda: bool(broker.held))
            follower.send(b"TAIL events 0\r\n")
            assert await follower.ask(b"PING\r\n") == b"PONG"
            assert await idle.ask(b"PING\r\n") == b"PONG"
            closing = asyncio.create_task(node.front_end.close(20.0))
            assert await idle.rest() == b"ERR unavailable\r\n"
            assert await follower.rest() == b"ERR unavailable\r\n"
            assert not closing.done()
            broker.release()
            assert await writer.rest() == b"OK 0 1\r\nERR unavailable\r\n"
            await closing
            assert broker.open_subscriptions == 0
            assert await node.front_end.converse(b"PING\r\n", EVERYBODY) == b"ERR unavailable\r\n"

    run(story(), loop)


@pytest.mark.parametrize("command", [b"PING\r\n", b"READ\r\n"])
def test_what_waits_behind_an_append_is_bounded_however_small_it_is(command: bytes) -> None:
    async def story() -> None:
        broker = await events(hold=True)
        async with serve(broker, Limits(in_flight_bytes=1 << 18)) as node:
            peer = await node.peer()
            peer.send(b"MSG events 1\r\na\r\n" + command * 50_000)
            await node.until(lambda: bool(broker.held) and not node.transport.is_reading())
            await settled()
            (connection,) = node.front_end._connections
            assert connection._handler is not None
            assert len(connection._handler._line) < 25_000
            broker.release()
            assert await peer.line() == b"OK 0 1"
            answer = b"PONG\r\n" if command == b"PING\r\n" else b"ERR request missing topic\r\n"
            assert await peer.reader.readexactly(50_000 * len(answer)) == 50_000 * answer

    run(story())
