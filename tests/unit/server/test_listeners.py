"""Sockets to listen on: which are taken, which are left over, and what is said of them."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from logboom.errors import ConfigError
from logboom.protocols.endpoint import Endpoint
from logboom.server.listeners import UnixSocket, bind_all, endpoint_of, listen_all


@pytest.mark.parametrize(
    ("text", "endpoint", "local"),
    [
        ("127.0.0.1:1773", Endpoint("127.0.0.1", 1773), True),
        ("127.0.0.1", Endpoint("127.0.0.1", 1773), True),
        ("localhost:0", Endpoint("localhost", 0), True),
        ("[::1]:99", Endpoint("::1", 99), True),
        ("*:1773", Endpoint("", 1773), False),
        (":1773", Endpoint("", 1773), False),
        ("0.0.0.0:1773", Endpoint("0.0.0.0", 1773), False),
        ("10.1.2.3", Endpoint("10.1.2.3", 1773), False),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, endpoint: Endpoint, local: bool) -> None:
    assert Endpoint.parse(text) == endpoint
    assert endpoint.is_local == local
    assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize("text", ["", "::1", "host:port", "host:65536", "a b:1", "tcp://host:1", "[::1", "host:"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:1773"):
        Endpoint.parse(text)


def test_any_free_port_is_found() -> None:
    (sock,) = bind_all([Endpoint.parse("127.0.0.1:0")], "listen.binary", are_default=False)
    with sock:
        assert listen_all([sock], are_default=False) == [sock]
        assert endpoint_of(sock).port > 0
        socket.create_connection(endpoint_of(sock)[:2]).close()


def test_a_port_that_is_taken_is_an_error_where_it_was_asked_for_and_skipped_where_it_is_the_default() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "{}:{}".format(*other.getsockname())
        with pytest.raises(ConfigError, match="taken by another process: stop it, or use another port") as refused:
            bind_all([Endpoint.parse("127.0.0.1:0"), Endpoint.parse(address)], "listen.binary", are_default=False)
        assert address in str(refused.value)
        assert bind_all([Endpoint.parse(address)], "listen.binary", are_default=True) == []


def test_a_port_that_somebody_takes_between_binding_and_listening_is_an_error_unless_it_is_the_default() -> None:
    (sock,) = bind_all([Endpoint.parse("127.0.0.1:0")], "listen.binary", are_default=False)
    with sock, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(sock.getsockname())
        other.listen()
        with pytest.raises(ConfigError, match="is taken"):
            listen_all([sock], are_default=False)
        assert listen_all([sock], are_default=True) == []


@pytest.mark.parametrize("address", ["192.0.2.1:0", "no-such-host.invalid:0"])
def test_an_address_of_another_machine_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="of this machine"):
        bind_all([Endpoint.parse(address)], "listen.binary", are_default=False)


def test_a_unix_socket_is_for_its_owner_and_group_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    door = UnixSocket(str(path))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    door.close()
    assert not path.exists()


def test_a_unix_socket_that_nobody_listens_on_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "node.sock")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(path)
    door = UnixSocket(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        served, _ = door.socket.accept()
        served.close()
    door.close()
    assert not os.path.exists(path)


def test_a_unix_socket_in_use_and_other_files_are_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "node.sock")
    door = UnixSocket(path)
    with pytest.raises(ConfigError, match="taken by another process"):
        UnixSocket(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    door.close()
    Path(path).write_text("precious")
    with pytest.raises(ConfigError, match="no socket"):
        UnixSocket(path)
    assert Path(path).read_text() == "precious"


def test_a_unix_socket_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "node.sock")
    door = UnixSocket(path)
    os.rename(path, f"{path}.old")
    other = UnixSocket(path)
    door.close()
    assert os.path.exists(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        served, _ = other.socket.accept()
        served.close()
    other.close()
    assert not os.path.exists(path)


@pytest.mark.parametrize("name", ["x" * 120, "no/such/directory/node.sock"])
def test_a_path_that_cannot_be_a_socket_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"listen\.unix"):
        UnixSocket(str(tmp_path / name))
