"""Strangers at a real node with TLS: broken and unfinished handshakes, a crowd that stalls, and certificates that are
replaced while others are served."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from support.effort import strides
from support.nodes.certificates import MadeCertificate, make_certificate
from support.nodes.process import NodeProcess, free_port
from support.waiting import wait_until

HELLOS = 5_000
"""Broken ClientHellos; CI sends a tenth of them."""
STALLED = 1_000
GROWTH_BYTES_MAX = 128 << 20
PATIENCE_S = 300.0
SERVE_EVERY = 50


class TlsNode:
    """A node whose logd port speaks TLS, and asks who somebody is."""

    def __init__(self, root: Path, made: MadeCertificate) -> None:
        self.made = made
        self.logd = f"127.0.0.1:{free_port()}"
        options = ("--logd", f"tls://{self.logd}", "--set", "access.anonymous=none", *made.options)
        self.node = NodeProcess(root, *options)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.logd.rpartition(":")
        return host, int(port)

    @property
    def memory_bytes(self) -> int:
        pages = Path(f"/proc/{self.node._pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def raw(self) -> socket.socket:
        return socket.create_connection(self.address, PATIENCE_S)

    def secured(self, *trusted: Path) -> ssl.SSLSocket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for path in trusted or (self.made.certificate,):
            context.load_verify_locations(path)
        return context.wrap_socket(self.raw(), server_hostname="localhost")

    def serve_somebody(self) -> None:
        with closing(self.secured()) as connection:
            assert ask(connection, b"PING\r\n") == b"PONG\r\n"


def ask(connection: ssl.SSLSocket, line: bytes) -> bytes:
    connection.sendall(line)
    said = b""
    while not said.endswith(b"\n"):
        said += connection.recv(4096) or b"(gone)\n"
    return said


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TlsNode]:
    found = TlsNode(tmp_path, make_certificate(tmp_path))
    with found.node:
        found.serve_somebody()
        yield found
        assert found.node.stop() == 0
    assert "Traceback" not in found.node.log.read_text()


def client_hello() -> bytes:
    """What a client says first."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out, server_hostname="localhost").do_handshake()
    return out.read()


def broken(chance: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) + 1)
        what = chance.randrange(5)
        if what == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            found[at : at + 2] = chance.choice((b"\0\0", b"\xff\xff", b"\x03\x00", b"\x40\x00"))
        elif what == 2:
            del found[at : at + chance.randint(1, 40)]
        elif what == 3:
            found[at:at] = chance.randbytes(chance.randint(1, 300))
        else:
            found = found[: chance.randrange(5, 12)] + chance.randbytes(chance.choice((0, 100, 20_000)))
    return bytes(found)


@pytest.mark.parametrize("stride", strides(10))
def test_broken_handshakes_harm_nobody(guarded: TlsNode, stride: int) -> None:
    hello = client_hello()
    assert len(hello) > 100
    before = guarded.memory_bytes
    for number in range(0, HELLOS, stride):
        chance = random.Random(f"hello/{number}")
        with closing(guarded.raw()) as stranger, suppress(OSError):
            stranger.sendall(broken(chance, hello))
            if chance.random() < 0.5:
                stranger.shutdown(socket.SHUT_WR)
            if chance.random() < 0.3:
                select.select([stranger], [], [], 0.02)
        if number % (SERVE_EVERY * stride) == 0:
            guarded.serve_somebody()
    guarded.serve_somebody()
    assert guarded.memory_bytes - before < GROWTH_BYTES_MAX


@contextmanager
def stalled(guarded: TlsNode, number: int) -> Iterator[list[socket.socket]]:
    """Connections that have begun a handshake, or not even that, and say no more."""
    hello = client_hello()
    with ExitStack() as stack:
        found = []
        for each in range(number):
            stranger = stack.enter_context(closing(guarded.raw()))
            stranger.sendall(hello[: (0, 1, 5, len(hello) // 2, len(hello))[each % 5]])
            found.append(stranger)
        yield found


def test_a_thousand_who_stall_in_the_handshake_are_sent_away_and_others_served_meanwhile(guarded: TlsNode) -> None:
    before = guarded.memory_bytes
    with stalled(guarded, STALLED) as strangers:
        for _ in range(20):
            guarded.serve_somebody()
        assert guarded.memory_bytes - before < GROWTH_BYTES_MAX
        for stranger in strangers:  # each of them, within gate.HANDSHAKE_S and the patience of this test
            with suppress(ConnectionResetError):
                while stranger.recv(65536):
                    pass
        guarded.serve_somebody()
    with stalled(guarded, STALLED):
        guarded.serve_somebody()
    assert guarded.memory_bytes - before < GROWTH_BYTES_MAX


class Chatter(threading.Thread):
    """Somebody who has been connected all the time, and asks again and again."""

    def __init__(self, guarded: TlsNode, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._connection = guarded.secured()
        self._ended = ended
        self.answers = 0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            with closing(self._connection):
                while not self._ended.is_set():
                    said = ask(self._connection, b"PING\r\n")
                    assert said == b"PONG\r\n", said
                    self.answers += 1
        except (OSError, AssertionError) as error:
            self.failure = repr(error)


def shown(guarded: TlsNode, *trusted: Path) -> bytes:
    """The certificate that a new connection sees, as the file has it."""
    with closing(guarded.secured(*trusted)) as connection:
        assert ask(connection, b"PING\r\n") == b"PONG\r\n"
        found = connection.getpeercert(binary_form=True)
        assert found is not None
        return found


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_certificates_are_replaced_under_load_and_nobody_is_dropped(guarded: TlsNode, tmp_path: Path) -> None:
    ended = threading.Event()
    shutil.copy(guarded.made.certificate, tmp_path / "first.pem")
    renewals = [make_certificate(tmp_path, f"next{number}") for number in range(4)]
    trusted = [tmp_path / "first.pem", *(made.certificate for made in renewals)]
    chatters = [Chatter(guarded, ended) for _ in range(8)]
    hellos: list[str] = []

    def connect_again_and_again() -> None:
        while not ended.is_set():
            try:
                shown(guarded, *trusted)
                hellos.append("")
            except (OSError, AssertionError) as error:
                hellos.append(repr(error))

    fresh = threading.Thread(target=connect_again_and_again, daemon=True)
    for chatter in chatters:
        chatter.start()
    fresh.start()
    try:
        for made in renewals:
            replace_files(made, guarded.made)
            os.kill(guarded.node._pid, signal.SIGHUP)
            wait_until(lambda made=made: shown(guarded, *trusted) == der(made.certificate))  # type: ignore[misc]
            talk_on(chatters)
    finally:
        ended.set()
        for thread in (fresh, *chatters):
            thread.join(PATIENCE_S)
    assert [chatter.failure for chatter in chatters] == [None] * len(chatters)
    assert set(hellos) == {""}


def replace_files(made: MadeCertificate, place: MadeCertificate) -> None:
    """As tools do that renew certificates: each file at once, one after the other."""
    for new, old in ((made.certificate, place.certificate), (made.key, place.key)):
        shutil.copy(new, f"{old}.new")
        os.replace(f"{old}.new", old)


def talk_on(chatters: list[Chatter]) -> None:
    """Until each of them has had another answer."""
    before = [chatter.answers for chatter in chatters]
    for _ in count():
        if all(chatter.answers > had or chatter.failure for chatter, had in zip(chatters, before, strict=True)):
            return
        chatters[0].join(0.01)
