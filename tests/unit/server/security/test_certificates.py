"""Certificates that are replaced while a node runs."""

from __future__ import annotations

import shutil
import socket
import ssl
from pathlib import Path
from threading import Thread

import pytest

from logboom.cli.certificate import make_ca, make_client, make_server
from logboom.server.security.certificates import Certificates, TlsSettings


def greet(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Whether the server lets this client in."""
    theirs, ours = socket.socketpair()
    let_in: list[bool] = []

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as secured:
                let_in.append(bool(secured.getpeercert()))
        except OSError:
            let_in.append(False)
        finally:
            theirs.close()

    thread = Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname="localhost") as secured:
            secured.recv(1)
    except OSError:
        pass
    finally:
        ours.close()
        thread.join()
    return let_in == [True]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return _authority(tmp_path / "old")


def _authority(path: Path) -> Path:
    path.mkdir()
    make_ca(str(path), "tests", 30, False)
    make_server(str(path), ["localhost"], 30, False)
    make_client(str(path), "ann", (), 30, False)
    return path


def _client(path: Path, trusted: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=trusted / "ca.pem")
    context.load_cert_chain(path / "ann.pem", path / "ann.key")
    return context


def test_an_authority_that_was_taken_out_vouches_for_nobody_any_more(tmp_path: Path, old: Path) -> None:
    new, ca = _authority(tmp_path / "new"), tmp_path / "clients.pem"
    shutil.copy(old / "ca.pem", ca)
    settings = TlsSettings(str(old / "server.pem"), str(old / "server.key"), str(ca), "required")
    found = Certificates(settings)
    assert not found.refresh()
    assert [greet(found.context(), _client(path, old)) for path in (old, new)] == [True, False]
    ca.unlink()
    shutil.copy(new / "ca.pem", ca)
    assert found.refresh()
    assert [greet(found.context(), _client(path, old)) for path in (old, new)] == [False, True]
    ca.write_text("no certificate")
    assert not found.refresh()
    assert [greet(found.context(), _client(path, old)) for path in (old, new)] == [False, True]


@pytest.mark.parametrize(
    ("group", "is_taken"), [(None, True), ("prime256v1", True), ("ffdhe2048", False), ("ffdhe8192", False)]
)
def test_nobody_makes_the_node_compute_keys_for_long(old: Path, group: str | None, is_taken: bool) -> None:
    files = str(old / "server.pem"), str(old / "server.key"), str(old / "ca.pem")
    client = _client(old, old)
    if group is not None:
        client.set_ecdh_curve(group)
    assert greet(Certificates(TlsSettings(*files, "required")).context(), client) == is_taken
