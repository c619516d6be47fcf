"""Clients and servers that say nothing, say nonsense, or do not stop talking."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from logboom import AsyncReader, AsyncWriter, Reader, Writer, connect
from logboom.batch import build
from logboom.broker.api import PartitionInfo, ReadRequest, Settings, Start, TopicInfo
from logboom.client.link import async_link, blocking_link
from logboom.client.link.address import Address
from logboom.client.write import contact
from logboom.errors import ConnectionLost, LogboomError, RemoteProtocolError, SeqnoOutOfRange, Unavailable
from logboom.protocols.binary.codec import Frame, FrameReader, encode
from logboom.protocols.binary.errors import encode_failure
from logboom.protocols.binary.messages import ChunkHead, Failure, Kind, Welcome, WireLimits

TOPIC = TopicInfo("events", "ab" * 16, [PartitionInfo(0, 0, 0, 0)], Settings())
LIMITS = WireLimits(2**20, 2**20, 2**20, 16, 60_000, 100)

Answer = Callable[[Frame, socket.socket], None]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Says what `answer` says, to each frame of each connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(300)
    sockets: list[socket.socket] = []

    def talk(sock: socket.socket) -> None:
        frames = FrameReader(2**27)
        with suppress(OSError, RemoteProtocolError):
            while count := sock.recv_into(frames.buffer()):
                for frame in frames.received(count):
                    answer(frame, sock)

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sockets.append(sock)
                threading.Thread(target=talk, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for sock in (listener, *sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def say(sock: socket.socket, kind: int, correlation: int, head: Any = None, payload: bytes = b"") -> None:
    sock.sendall(b"".join(encode(kind, correlation, head, [payload] if payload else ())))


def welcome(frame: Frame, sock: socket.socket, limits: WireLimits = LIMITS) -> bool:
    if frame.kind == Kind.HELLO:
        say(sock, Kind.WELCOME, frame.correlation, Welcome(1, "n", "c", None, "rude", limits, [TOPIC]))
    return frame.kind == Kind.HELLO


def standing(committed: int = 5, **changes: Any) -> ChunkHead:
    given = {"topic_id": "ab" * 16, "partition": 0, "seqno": 0, "next_seqno": 0, "first": 0, "term": 1, "size": 0}
    return ChunkHead(**{**given, "committed": committed, **changes})


HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
STRANGERS = {
    "HTTP": HTTP_ANSWER,
    "TLS": bytes.fromhex("15030100020228"),
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "logd": b"ERR invalid request\r\n",
    "not Logboom's binary protocol;": b"220 mail.example.org ESMTP\r\n",
}


def read_blocking(address: str) -> None:
    Reader("events", address, connect_timeout_s=0).close()


def read_with_asyncio(address: str) -> None:
    async def read() -> None:
        async with AsyncReader("events", address, connect_timeout_s=0):
            pass

    asyncio.run(read())


def write_blocking(address: str) -> None:
    with Writer("events", address, connect_timeout_s=0) as writer:
        writer.send(b"x").result()


def ask_with_asyncio(address: str) -> None:
    async def ask() -> None:
        async with connect(address, retry=False) as broker:
            await broker.ping()

    asyncio.run(ask())


@pytest.mark.parametrize("words", STRANGERS)
@pytest.mark.parametrize("use", [read_blocking, read_with_asyncio, write_blocking, ask_with_asyncio])
def test_whoever_reaches_another_server_is_told_what_it_is(use: Callable[[str], None], words: str) -> None:
    with (
        server(lambda frame, sock: sock.sendall(STRANGERS[words])) as address,
        pytest.raises(LogboomError, match=r"not Logboom's binary protocol.*--listen") as raised,
    ):
        use(address)
    assert words in str(raised.value)
    assert "frame" not in str(raised.value)


def silence(frame: Frame, sock: socket.socket) -> None:
    """Nothing."""


def drip(frame: Frame, sock: socket.socket) -> None:
    """A welcome, byte by byte, and never the last."""
    for byte in bytes(encode(Kind.WELCOME, 1, Welcome(1, "n", "c", None, "rude", LIMITS))[0])[:-1]:
        sock.sendall(bytes([byte]))
        threading.Event().wait(0.05)


def greet_and_be_silent(frame: Frame, sock: socket.socket) -> None:
    if frame.kind == Kind.HELLO:
        say(sock, Kind.WELCOME, frame.correlation, Welcome(1, "n", "c", None, "rude", LIMITS))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "GREETING_S", 0.2)
    monkeypatch.setattr(contact, "SILENCE_S", 0.3)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answer", [silence, drip, greet_and_be_silent])
def test_a_writer_does_not_wait_for_ever_for_a_server_that_says_nothing(answer: Answer) -> None:
    async def open_async(address: str) -> None:
        async with AsyncWriter("events", address, connect_timeout_s=0):
            pass

    with server(answer) as address:
        with pytest.raises(ConnectionLost, match="did not answer within"):
            Writer("events", address, connect_timeout_s=0)
        with pytest.raises(ConnectionLost, match="did not answer within"):
            asyncio.run(asyncio.wait_for(open_async(address), 300))


def test_an_answer_of_the_wrong_kind_is_the_server_s_mistake() -> None:
    def answer(frame: Frame, sock: socket.socket) -> None:
        if not welcome(frame, sock):
            say(sock, Kind.PONG, frame.correlation)

    async def ask(address: str) -> None:
        async with asyncio.timeout(300), connect(address) as broker:
            with pytest.raises(RemoteProtocolError):
                await broker.list_topics()
            with pytest.raises(RemoteProtocolError):
                await broker.read(ReadRequest("events", Start()))
            with pytest.raises(RemoteProtocolError):
                await broker.append([], "leader")
            with pytest.raises(RemoteProtocolError):
                await AsyncReader("events", address).open()

    with server(answer) as address:
        with pytest.raises(RemoteProtocolError):
            Reader("events", address)
        asyncio.run(ask(address))


def flood(frame: Frame, sock: socket.socket) -> None:
    """Pushes without end, whatever credit there is; and never answers a commit."""
    if welcome(frame, sock):
        return
    if frame.kind == Kind.READ:
        say(sock, Kind.CHUNK, frame.correlation, standing(2**40))
    elif frame.kind == Kind.SUBSCRIBE:
        payload = build([bytes(500_000)]).data
        with suppress(OSError):
            while True:
                say(sock, Kind.CHUNK, frame.correlation, standing(2**40, size=len(payload)), bytes(payload))


def test_a_server_that_pushes_more_than_it_may_is_hung_up_on() -> None:
    async def follow(address: str) -> None:
        async with asyncio.timeout(300):
            made = await async_link.AsyncLink.connect(Address.parse(address))
            pushes = made.subscribe(ReadRequest("events", Start()))
            while made.lost is None:
                await asyncio.sleep(0.01)
            assert isinstance(made.lost, RemoteProtocolError)
            assert pushes.waiting_bytes < 2 * async_link.push_limit(made.welcome)

    with server(flood) as address:
        asyncio.run(follow(address))
        made = blocking_link.BlockingLink.connect(Address.parse(address))
        made.subscribe(ReadRequest("events", Start()))
        with pytest.raises(RemoteProtocolError, match="credit"):
            made.ask(Kind.PING)


def test_limits_that_make_no_sense_make_nobody_spin() -> None:
    nonsense = WireLimits(2**60, -5, -5, -5, 0, -5)
    pings = []

    def answer(frame: Frame, sock: socket.socket) -> None:
        if frame.kind == Kind.PING:
            pings.append(frame)
            say(sock, Kind.PONG, frame.correlation)
        elif not welcome(frame, sock, nonsense):
            say(sock, Kind.CHUNK, frame.correlation, standing(0))

    with server(answer) as address:
        with Reader("events", address) as reader:
            assert not list(reader.records(follow=True, timeout_s=0.3))
        assert len(pings) < 50
        with pytest.raises(LogboomError), Writer("events", address, delivery_timeout_s=0.3) as writer:
            writer.write_many([b"1", b"2"], keys=[b"1", b"2"])


def test_chunks_that_do_not_fit_together_are_named() -> None:
    stored = bytes(build([b"0", b"1"]).data)
    for head, payload in (
        (standing(5, next_seqno=3, size=len(stored), seqnos=3), stored + bytes(24)),
        (standing(5, topic_id="zz"), b""),
    ):

        def answer(frame: Frame, sock: socket.socket, head: Any = head, payload: bytes = payload) -> None:
            if not welcome(frame, sock):
                say(
                    sock,
                    Kind.CHUNK,
                    frame.correlation,
                    *((standing(5),) if frame.kind == Kind.READ else (head, payload)),
                )

        with (
            server(answer) as address,
            Reader("events", address, tags_any=["x"]) as reader,
            pytest.raises(RemoteProtocolError),
        ):
            list(reader)


def test_an_error_with_odd_data_is_still_that_error() -> None:
    failure = encode_failure(SeqnoOutOfRange(1, 2, 3))
    odd = Failure(failure.code, failure.message, {"args": 5, "with_traceback": 1, "first": "two"})

    def answer(frame: Frame, sock: socket.socket) -> None:
        if not welcome(frame, sock):
            if frame.kind == Kind.READ:
                say(sock, Kind.CHUNK, frame.correlation, standing(5))
            else:
                say(sock, Kind.ERROR, frame.correlation, odd)

    with (
        server(answer) as address,
        Reader("events", address, gaps="skip") as reader,
        pytest.raises(SeqnoOutOfRange),
    ):
        list(reader)


def test_a_reader_that_is_closed_after_its_node_has_gone_says_nothing() -> None:
    gone = threading.Event()

    def answer(frame: Frame, sock: socket.socket) -> None:
        if welcome(frame, sock):
            return
        say(sock, Kind.CHUNK, frame.correlation, standing(5))
        if frame.kind == Kind.SUBSCRIBE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()
            gone.set()

    with server(answer) as address, Reader("events", address) as reader:
        reader._run(reader._fetching.next(False, 0.0))
        assert gone.wait(300)
        threading.Event().wait(0.1)


def test_a_reader_goes_on_to_the_next_server_where_the_first_is_not_available() -> None:
    def stopping(frame: Frame, sock: socket.socket) -> None:
        if not welcome(frame, sock):
            say(sock, Kind.ERROR, frame.correlation, encode_failure(Unavailable("stopping")))

    def fine(frame: Frame, sock: socket.socket) -> None:
        if not welcome(frame, sock):
            say(sock, Kind.CHUNK, frame.correlation, standing(0))

    with server(stopping) as first, server(fine) as second, Reader("events", [first, second]) as reader:
        assert reader.seqno == 0


def test_closing_does_not_wait_for_a_server_that_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_link, "CLOSE_TIMEOUT_S", 0.1)
    forever = threading.Event()

    def answer(frame: Frame, sock: socket.socket) -> None:
        if not welcome(frame, sock, WireLimits(2**27, 2**26, 2**27, 16, 60_000, 100)):
            forever.wait(300)

    async def run(address: str) -> None:
        async with asyncio.timeout(300):
            writer = AsyncWriter("events", address, delivery_timeout_s=3.0, acks="leader")
            await writer.__aenter__()
            for _ in range(4):
                await writer.write(bytes(6_000_000))
            with pytest.raises(LogboomError):
                await writer.close()
            async with connect(address) as broker:
                unanswered = broker.append([], "leader")
                broker._link._write([bytes(20_000_000)])
            with pytest.raises(LogboomError):
                await unanswered

    with server(answer) as address:
        asyncio.run(run(address))
        forever.set()


def test_a_name_that_can_be_no_host_is_an_error_and_no_hang() -> None:
    async def run(name: str) -> None:
        async with asyncio.timeout(300):
            with pytest.raises(ConnectionLost):
                async with AsyncWriter("events", name, connect_timeout_s=0):
                    pass
            with pytest.raises(ConnectionLost):
                await AsyncReader("events", name, connect_timeout_s=0).open()

    name = "x" * 70
    with pytest.raises(ConnectionLost):
        Writer("events", name, connect_timeout_s=0)
    with pytest.raises(ConnectionLost):
        Reader("events", name, connect_timeout_s=0)
    asyncio.run(run(name))


def test_a_follower_whose_filter_leaves_nothing_ends_in_time() -> None:
    def answer(frame: Frame, sock: socket.socket) -> None:
        if welcome(frame, sock):
            return
        say(sock, Kind.CHUNK, frame.correlation, standing(0))
        if frame.kind == Kind.SUBSCRIBE:
            with suppress(OSError):
                for n in range(10_000):
                    threading.Event().wait(0.02)
                    say(sock, Kind.CHUNK, frame.correlation, standing(n + 1, seqno=n, next_seqno=n + 1, seqnos=0))

    async def follow(address: str) -> None:
        async with asyncio.timeout(300), AsyncReader("events", address, tags_any=["x"]) as reader:
            assert not [record async for record in reader.records(follow=True, timeout_s=0.2)]

    with server(answer) as address:
        asyncio.run(follow(address))
        with Reader("events", address, tags_any=["x"]) as reader:
            assert not list(reader.records(follow=True, timeout_s=0.2))
            assert reader.seqno
