"""TLS over sockets of this process: the other side is driven by hand, so that it says what no server would say."""

from __future__ import annotations

import re
import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from logboom.client.link.tls_socket import RECEIVE_BYTES, TlsSocket
from support.nodes.certificates import MadeCertificate, make_certificate
from support.nodes.process import free_port
from support.waiting import wait_until

LARGE = bytes(range(256)) * 8192
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeCertificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def trusting(made: MadeCertificate, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(made.certificate))
    context.maximum_version = version
    return context


class Peer:
    """The server's side: what it encrypts is sent by the test, as a whole or in pieces."""

    def __init__(self, raw: socket.socket, made: MadeCertificate) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.certificate, made.key)
        self.raw = raw
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.raw.sendall(self.outgoing.read())
                self.incoming.write(self.raw.recv(65536))
            else:
                self.raw.sendall(self.outgoing.read())
                return

    def encrypt(self, data: bytes) -> bytes:
        if data:
            self.tls.write(data)
        return self.outgoing.read()

    def close_notify(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    def hear(self) -> bytes:
        """What has come by now, and was decrypted; empty at the end of the stream."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                data = self.raw.recv(65536)
                if not data:
                    return b""
                self.incoming.write(data)


class Pair:
    def __init__(self, made: MadeCertificate, version: ssl.TLSVersion) -> None:
        client, server = socket.socketpair()
        for sock in (client, server):
            sock.settimeout(PATIENCE_S)
        self.peer = Peer(server, made)
        thread = threading.Thread(target=self.peer.shake_hands, daemon=True)
        thread.start()
        self.client = TlsSocket(client, trusting(made, version), "localhost")
        thread.join(PATIENCE_S)

    def receive(self, size: int, room: int) -> bytes:
        found = b""
        view = memoryview(bytearray(room))
        while len(found) < size:
            count = self.client.recv_into(view)
            if not count:
                break
            found += view[:count]
        return found


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def pair(made: MadeCertificate, request: pytest.FixtureRequest) -> Iterator[Pair]:
    found = Pair(made, request.param)
    with closing(found.client), closing(found.peer.raw):
        yield found


@pytest.mark.parametrize("room", [7, 1000, 16384, 40_000, 700_000])
def test_what_was_sent_comes_whatever_the_size_of_the_buffer(pair: Pair, room: int) -> None:
    data = LARGE if room > 1000 else LARGE[:50_000]
    sender = threading.Thread(target=pair.peer.raw.sendall, args=(pair.peer.encrypt(data),), daemon=True)
    sender.start()
    assert pair.receive(len(data), room) == data
    sender.join(PATIENCE_S)


def test_many_records_are_received_by_one_call(pair: Pair) -> None:
    sent = pair.peer.encrypt(LARGE[:100_000])
    pair.peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    pair.peer.raw.sendall(sent)
    view = memoryview(bytearray(RECEIVE_BYTES))
    assert pair.client.recv_into(view) == 100_000
    assert view[:100_000] == LARGE[:100_000]


def test_nothing_that_has_come_whole_is_held_back_from_one_who_polls(pair: Pair) -> None:
    pair.client.setblocking(False)
    view = memoryview(bytearray(600))
    pair.peer.raw.sendall(pair.peer.encrypt(LARGE[:500]) + pair.peer.encrypt(LARGE[500:1000]))
    assert select.select([pair.client], [], [], PATIENCE_S)[0]
    counts = [pair.client.recv_into(view), pair.client.recv_into(view)]
    assert counts == [600, 400]
    with pytest.raises(BlockingIOError):
        pair.client.recv_into(view)


def test_a_record_in_pieces_comes_when_it_is_whole(pair: Pair) -> None:
    pair.client.setblocking(False)
    view = memoryview(bytearray(100_000))
    sent = pair.peer.encrypt(b"one" * 30)
    for byte in sent[:-1]:
        pair.peer.raw.sendall(bytes([byte]))
        with pytest.raises(BlockingIOError):
            pair.client.recv_into(view)
    pair.peer.raw.sendall(sent[-1:])
    assert view[: pair.client.recv_into(view)] == b"one" * 30


def test_a_peer_that_drips_does_not_keep_one_beyond_his_time(pair: Pair) -> None:
    ended = threading.Event()
    sent = pair.peer.encrypt(bytes(16_000))

    def drip() -> None:
        for byte in sent[:-1]:
            pair.peer.raw.sendall(bytes([byte]))
            if ended.wait(0.01):
                return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    pair.client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        pair.client.recv_into(memoryview(bytearray(100_000)))
    assert thread.is_alive()
    assert pair.client.gettimeout() == 0.1
    ended.set()
    thread.join(PATIENCE_S)


def test_what_came_before_the_time_was_up_is_not_lost(pair: Pair) -> None:
    sent = pair.peer.encrypt(LARGE[:20_000])
    pair.peer.raw.sendall(sent[:10_000])
    pair.client.settimeout(0.05)
    with pytest.raises(TimeoutError):
        pair.client.recv_into(memoryview(bytearray(100_000)))
    pair.client.settimeout(PATIENCE_S)
    pair.peer.raw.sendall(sent[10_000:])
    assert pair.receive(20_000, 100_000) == LARGE[:20_000]


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_end_comes_after_what_was_sent_before_it(pair: Pair, is_clean: bool) -> None:
    sent = pair.peer.encrypt(b"last words")
    pair.peer.raw.sendall(sent + (pair.peer.close_notify() if is_clean else pair.peer.encrypt(bytes(99))[:50]))
    if not is_clean:
        pair.peer.raw.shutdown(socket.SHUT_WR)
    view = memoryview(bytearray(100_000))
    assert bytes(view[: pair.client.recv_into(view)]) == b"last words"
    assert pair.client.recv_into(view) == 0
    assert pair.client.recv_into(view) == 0


def test_what_was_changed_on_the_way_is_an_error_and_the_peer_is_told(pair: Pair) -> None:
    sent = bytearray(pair.peer.encrypt(b"untouched"))
    sent[-1] ^= 1
    pair.peer.raw.sendall(sent)
    with pytest.raises(ssl.SSLError):
        pair.client.recv_into(memoryview(bytearray(100_000)))
    with pytest.raises(ssl.SSLError, match=r"(?i)alert bad record mac"):
        pair.peer.hear()


def test_garbage_is_an_error(pair: Pair) -> None:
    pair.peer.raw.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ssl.SSLError):
        pair.client.recv_into(memoryview(bytearray(100_000)))


def test_what_a_full_connection_did_not_take_is_sent_once(pair: Pair) -> None:
    pair.client.setblocking(False)
    whole = [LARGE[:10], LARGE[10:300_000], LARGE[300_000:300_100], LARGE[300_100:]]
    rest, heard = b"".join(whole), bytearray()
    refused = 0
    while rest:
        try:
            buffers = [rest] if refused % 2 else [rest[:10], rest[10:5000], rest[5000:]]
            rest = rest[pair.client.sendmsg([each for each in buffers if each]) :]
        except BlockingIOError:
            refused += 1
            heard += pair.peer.hear()
    while len(heard) < len(LARGE):
        heard += pair.peer.hear()
    assert refused
    assert bytes(heard) == LARGE


def test_everything_is_sent_by_one_who_waits(pair: Pair) -> None:
    sender = threading.Thread(target=pair.client.sendall, args=(LARGE,), daemon=True)
    sender.start()
    heard = bytearray()
    while len(heard) < len(LARGE):
        heard += pair.peer.hear()
    sender.join(PATIENCE_S)
    assert bytes(heard) == LARGE


def test_who_shuts_down_says_so(pair: Pair) -> None:
    pair.client.shutdown(socket.SHUT_RDWR)
    pair.peer.incoming.write(pair.peer.raw.recv(65536))
    assert pair.peer.tls.read(10) == b""  # close_notify; without it this would be an error


@pytest.mark.parametrize("name", ["send", "recv", "sendto", "makefile", "dup"])
def test_nothing_passes_tls_by(pair: Pair, name: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(pair.client, name)(b"secret")


@pytest.mark.parametrize(
    ("said", "error"),
    [(None, TimeoutError), (b"", ssl.SSLEOFError), (b"220 mail.example.org ESMTP\r\n", ssl.SSLError)],
    ids=["nothing", "the end", "another protocol"],
)
def test_a_handshake_with_a_stranger_fails_and_leaves_nothing_open(
    made: MadeCertificate, said: bytes | None, error: type[OSError]
) -> None:
    client, server = socket.socketpair()
    client.settimeout(0.1 if said is None else PATIENCE_S)
    with closing(server):
        if said is not None:
            server.sendall(said)
            server.shutdown(socket.SHUT_WR)
        with pytest.raises(error):
            TlsSocket(client, trusting(made), "localhost")
        server.settimeout(PATIENCE_S)
        with suppress(ConnectionResetError):
            while server.recv(65536):
                pass


def test_a_handshake_that_drips_ends_in_time(made: MadeCertificate) -> None:
    client, server = socket.socketpair()
    client.settimeout(0.1)
    ended = threading.Event()

    def drip() -> None:
        server.sendall(b"\x16\x03\x03\x3f\xff")
        while not ended.wait(0.01):
            server.sendall(b"\x02")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    with pytest.raises(TimeoutError):
        TlsSocket(client, trusting(made), "localhost")
    ended.set()
    thread.join(PATIENCE_S)
    server.close()


def test_new_keys_in_the_middle_of_a_conversation(made: MadeCertificate, tmp_path: Path) -> None:
    """Which only openssl's own server sends: K asks for new ones in return."""
    port, output = free_port(), tmp_path / "heard"
    command = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-tls1_3", "-msg", "-naccept", "1"]
    command += ["-cert", str(made.certificate), "-key", str(made.key)]
    with (
        output.open("wb") as heard,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=heard, stderr=subprocess.STDOUT) as server,
    ):
        assert server.stdin is not None

        def type_in(line: bytes) -> None:
            assert server.stdin is not None
            server.stdin.write(line)
            server.stdin.flush()

        def heard_keys(direction: str) -> int:
            """New keys that the server has sent (>>>) or got."""
            return len(re.findall(rf"^{direction} .*KeyUpdate", output.read_text(errors="replace"), re.MULTILINE))

        wait_until(lambda: b"ACCEPT" in output.read_bytes())
        sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        with closing(TlsSocket(sock, trusting(made), "localhost")) as client:
            view = memoryview(bytearray(100_000))
            for number, line in enumerate((b"one\n", b"two\n", b"three\n"), 1):
                type_in(b"K\n")
                wait_until(lambda number=number: heard_keys(">>>") == number)  # type: ignore[misc]
                type_in(line)
                assert view[: client.recv_into(view)] == line
                client.sendall(b"heard " + line)
                wait_until(lambda line=line: b"heard " + line in output.read_bytes())  # type: ignore[misc]
        server.stdin.close()
        server.wait(PATIENCE_S)
    assert heard_keys("<<<") == 3
