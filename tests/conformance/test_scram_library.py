"""SCRAM with a library of others on one side: it signs in to a real node, and our client signs in to it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import msgspec
import pytest

from logboom.access.credential import Credential, Mechanism
from logboom.access.scram import ScramClient
from logboom.client.link.address import Address
from logboom.client.link.blocking_link import BlockingLink
from logboom.client.link.profile import Profile
from logboom.client.remote import connect
from logboom.errors import LogboomError, RemoteProtocolError, SignInFailed
from logboom.protocols.binary.codec import Frame, FrameReader, encode
from logboom.protocols.binary.errors import decode_failure, encode_failure
from logboom.protocols.binary.messages import Failure, Hello, Kind, SignInStep, Welcome, WireLimits
from support.nodes.secured import SecuredNode, secured_node

scramp = pytest.importorskip("scramp", reason="scramp is not installed: pip install '.[dev]'")

MECHANISMS: tuple[Mechanism, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = {
    "ann": "correct horse, battery=staple",
    "bob": "Пароль \u2168 und \ufb01n\u00adis",  # a Roman numeral, a ligature, a soft hyphen: SASLprep knows better
    "eve": "\u0627\u0644\u0633\u0631",  # from right to left
}
PATIENCE_S = 300.0
LIMITS = WireLimits(2**20, 2**20, 2**20, 16, 60_000, 100)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    async def add(unix: str) -> None:
        async with connect(f"unix:{unix}") as broker:
            await broker.remove_user("ann")
            for user, password in PASSWORDS.items():
                made = [Credential.derive(password, os.urandom(16), mechanism, 4096) for mechanism in MECHANISMS]
                await broker.add_user(user, made)

    with secured_node(tmp_path_factory.mktemp("node")) as found:
        asyncio.run(add(found.unix))
        yield found


class Conversation:
    """Frames of the binary protocol over TLS, and nothing that knows how to sign in."""

    def __init__(self, node: SecuredNode) -> None:
        host, _, port = node.address.rpartition(":")
        context = ssl.create_default_context(cafile=node.ca)
        self._socket = context.wrap_socket(
            socket.create_connection((host, int(port)), PATIENCE_S), server_hostname=host
        )
        self._frames = FrameReader(2**20)
        self.close = self._socket.close

    def ask(self, kind: int, head: Any) -> Frame:
        self._socket.sendall(b"".join(encode(kind, 1, head)))
        while count := self._socket.recv_into(self._frames.buffer()):
            for frame in self._frames.received(count):
                return frame
        raise EOFError


def sign_in(node: SecuredNode, mechanism: str, user: str, password: str) -> None:
    """With the library. Raises what the node answers, or what the library has against the node."""
    client = scramp.ScramClient([mechanism], user, password)
    with closing(Conversation(node)) as conversation:
        first = client.get_client_first().encode()
        challenge = conversation.ask(Kind.HELLO, Hello(mechanism=mechanism, sign_in=first))
        assert challenge.kind == Kind.CHALLENGE
        client.set_server_first(msgspec.msgpack.decode(challenge.head, type=SignInStep).data.decode())
        answer = conversation.ask(Kind.SIGN_IN, SignInStep(client.get_client_final().encode()))
        if answer.kind == Kind.ERROR:
            raise decode_failure(msgspec.msgpack.decode(answer.head, type=Failure))
        welcome = msgspec.msgpack.decode(answer.head, type=Welcome)
        client.set_server_final(welcome.sign_in.decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", PASSWORDS)
def test_the_library_signs_in_to_a_node_and_believes_it(node: SecuredNode, mechanism: str, user: str) -> None:
    sign_in(node, mechanism, user, PASSWORDS[user])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_other_letters_of_the_same_password_are_the_same_password(node: SecuredNode, mechanism: str) -> None:
    sign_in(node, mechanism, "bob", "Пароль IX und finis")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_the_library_is_refused_with_a_wrong_password(node: SecuredNode, mechanism: str, user: str) -> None:
    with pytest.raises(SignInFailed):
        sign_in(node, mechanism, user, "correct horse")


def library_server(mechanism: str, password: str) -> Any:
    made = scramp.ScramMechanism(mechanism)
    known = made.make_auth_info(password, iteration_count=4096)
    return made.make_server(lambda user: known)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", PASSWORDS.values())
def test_our_client_signs_in_to_the_library(mechanism: Mechanism, password: str) -> None:
    client, server = ScramClient(mechanism, "ann", password, os.urandom(18)), library_server(mechanism, password)
    server.set_client_first(client.begin().decode())
    server.set_client_final(client.answer(server.get_server_first().encode()).decode())
    client.verify(server.get_server_final().encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_library_refuses_our_client_with_a_wrong_password(mechanism: Mechanism) -> None:
    client, server = ScramClient(mechanism, "ann", "pencil", os.urandom(18)), library_server(mechanism, "pen")
    server.set_client_first(client.begin().decode())
    with pytest.raises(scramp.ScramException):
        server.set_client_final(client.answer(server.get_server_first().encode()).decode())


@contextmanager
def library_node(password: str, change: Callable[[bytes], bytes] = bytes) -> Iterator[Address]:
    """Says of a node no more than how it greets, with the library's SCRAM; `change` is done to its signature."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(frame: Frame, server: Any) -> tuple[Kind, Any]:
        try:
            if frame.kind == Kind.HELLO:
                hello = msgspec.msgpack.decode(frame.head, type=Hello)
                server.set_client_first(hello.sign_in.decode())
                return Kind.CHALLENGE, SignInStep(server.get_server_first().encode())
            server.set_client_final(msgspec.msgpack.decode(frame.head, type=SignInStep).data.decode())
            proof = change(server.get_server_final().encode())
            return Kind.WELCOME, Welcome(1, "n", "c", None, "library", LIMITS, sign_in=proof)
        except scramp.ScramException:
            return Kind.ERROR, encode_failure(SignInFailed())

    def serve() -> None:
        with suppress(OSError), closing(listener.accept()[0]) as sock:
            frames, server = FrameReader(), library_server("SCRAM-SHA-256", password)
            while count := sock.recv_into(frames.buffer()):
                for frame in frames.received(count):
                    kind, head = answer(frame, server)
                    sock.sendall(b"".join(encode(kind, frame.correlation, head)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        host, port = listener.getsockname()
        yield Address(host, port, profile=Profile(user="ann", password=PASSWORDS["bob"]))
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE_S)


def test_a_link_signs_in_where_the_library_checks() -> None:
    with library_node(PASSWORDS["bob"]) as address:
        BlockingLink.connect(address, PATIENCE_S).close()


@pytest.mark.parametrize(
    ("password", "change", "error"),
    [
        ("another", bytes, SignInFailed),
        (PASSWORDS["bob"], lambda said: said[:-6] + b"AAAAA=", RemoteProtocolError),
        (PASSWORDS["bob"], lambda said: b"", RemoteProtocolError),
    ],
    ids=["another password", "another signature", "no signature"],
)
def test_a_link_is_lost_where_the_two_do_not_know_the_same_password(
    password: str, change: Callable[[bytes], bytes], error: type[LogboomError]
) -> None:
    with library_node(password, change) as address, pytest.raises(error):
        BlockingLink.connect(address, PATIENCE_S)
