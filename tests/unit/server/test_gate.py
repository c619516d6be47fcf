"""Accepting connections: bounded, and never at an end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import uvloop

from logboom.broker.limits import Rejections
from logboom.server import gate
from logboom.server.descriptors import FILES_MIN, KEPT_MAX, KEPT_MIN, KEPT_PART, share_out
from logboom.server.gate import AcceptPace, Gate
from support.nodes.certificates import make_certificate

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
REFUSAL = b"too many"


class Echo(asyncio.Protocol):
    open_now: ClassVar[set[Echo]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self.open_now.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_now.discard(self)


@contextlib.asynccontextmanager
async def serving(
    connections_max: int = 1000,
    per_second: int = 10_000,
    factory: Callable[[], asyncio.BaseProtocol] = Echo,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[Any, Rejections]]:
    counts = Rejections()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        accepting = Gate(connections_max, per_second, lambda: len(Echo.open_now), counts)
        task = asyncio.create_task(accepting.serve(listening, factory, REFUSAL, None if tls is None else lambda: tls))
        try:
            yield listening.getsockname(), counts
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            accepting.close()
            for echo in list(Echo.open_now):
                echo.transport.abort()
            while Echo.open_now:
                await asyncio.sleep(0.01)


async def say(address: Any, words: bytes = b"hello") -> tuple[bytes, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(words)
    async with asyncio.timeout(300):
        return await reader.read(100), writer


def run(loop: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


@pytest.mark.parametrize("loop", LOOPS)
def test_handshakes_that_stall_count_among_the_connections_and_are_ended(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "HANDSHAKE_S", 0.5)
    made = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    trusting = ssl.create_default_context(cafile=str(made.certificate))

    async def story() -> None:
        async with serving(connections_max=5, tls=context) as (address, counts), asyncio.timeout(300):
            stalled = [await asyncio.open_connection(*address) for _ in range(5)]
            stalled[0][1].write(b"\x16\x03\x01\x02\x00\x01")
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b""  # one too many, and told nothing that is no TLS
            assert counts["limits.connections"] == 1
            for reader, other in stalled:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                other.close()
            writer.close()
            reader, writer = await asyncio.open_connection(*address, ssl=trusting, server_hostname="localhost")
            writer.write(b"hello")
            assert await reader.read(100) == b"hello"
            writer.close()

    run(loop, story())


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_over_the_limit_are_told_so_and_welcome_when_others_have_left(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        async with serving(connections_max=3) as (address, counts):
            writers = []
            for _ in range(3):
                heard, writer = await say(address)
                assert heard == b"hello"
                writers.append(writer)
            for _ in range(70):  # more than may linger
                heard, writer = await say(address)
                assert heard in (REFUSAL, b"")
                writer.close()
            assert counts["limits.connections"] == 70
            writers[0].close()
            while len(Echo.open_now) == 3:
                await asyncio.sleep(0.01)
            heard, writer = await say(address)
            assert heard == b"hello"
            for each in [writer, *writers]:
                each.close()

    run(loop, story())


@pytest.mark.parametrize("loop", LOOPS)
def test_nodelay_is_set_on_what_was_accepted(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def story() -> None:
        async with serving() as (address, _):
            _, writer = await say(address)
            (echo,) = Echo.open_now
            accepted = echo.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()

    run(loop, story())


@pytest.mark.parametrize("loop", LOOPS)
def test_accepting_goes_on_after_the_process_had_no_descriptors_left(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        async with serving() as (address, counts):
            heard, first = await say(address)
            waiting = socket.socket()
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            spare: list[int] = []
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
                with contextlib.suppress(OSError):
                    while True:
                        spare.append(os.dup(0))
                waiting.connect(address)
                async with asyncio.timeout(300):
                    while not counts["descriptors"]:
                        await asyncio.sleep(0.01)
            finally:
                for descriptor in spare:
                    os.close(descriptor)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            waiting.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(waiting, b"late")
            async with asyncio.timeout(300):
                assert await asyncio.get_running_loop().sock_recv(waiting, 10) == b"late"
            assert heard == b"hello"
            waiting.close()
            first.close()

    run(loop, story())


def test_a_protocol_that_fails_to_begin_holds_up_nobody() -> None:
    class Faulty(Echo):
        begun = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            Faulty.begun += 1
            if Faulty.begun <= 3:
                cast(asyncio.Transport, transport).abort()
                raise RuntimeError("planted")
            super().connection_made(transport)

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
        async with serving(factory=Faulty) as (address, _):
            clients = [socket.create_connection(address) for _ in range(3)]
            heard, writer = await say(address)
            assert (heard, Faulty.begun) == (b"hello", 4)
            writer.close()
            for client in clients:
                client.close()

    run(uvloop.new_event_loop, story())


def test_connections_that_vanish_at_once_disturb_nobody() -> None:
    async def story() -> None:
        async with serving() as (address, _):
            for _ in range(50):
                with socket.create_connection(address) as gone:
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            heard, writer = await say(address)
            assert heard == b"hello"
            writer.close()

    run(uvloop.new_event_loop, story())


def test_a_pace_lets_a_burst_through_and_then_so_many_a_second() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        pace = AcceptPace(1000)
        await pace.turn()
        began = loop.time()
        for _ in range(400):
            await pace.turn()
        assert loop.time() - began >= 0.29

    asyncio.run(story())


@pytest.mark.parametrize(("wanted", "allowed"), [(20_000, 20_000), (30_000, 30_000)])
def test_where_there_are_enough_descriptors_all_connections_fit(wanted: int, allowed: int) -> None:
    assert share_out(2**20, wanted)[::2] == (allowed, 512)


@pytest.mark.parametrize("limit", [64, 128, 256, 1024, 4096, 20_000, 2**20])
@pytest.mark.parametrize("wanted", [1, 500, 20_000])
def test_no_share_of_the_descriptors_is_taken_from_another(limit: int, wanted: int) -> None:
    shares = share_out(limit, wanted)
    kept = max(KEPT_MIN, min(KEPT_MAX, limit // KEPT_PART))
    assert shares.lingering < kept // 2
    assert 1 <= shares.connections <= wanted
    assert min(shares.files, shares.dirty_logs) >= FILES_MIN
    assert shares.connections + shares.files + shares.dirty_logs <= max(limit - kept, 2 * FILES_MIN + 8)
