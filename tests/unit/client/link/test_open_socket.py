"""A connection that is lost as soon as it is made leaves nothing open."""

from __future__ import annotations

import select
import socket
import struct
from typing import Any

import pytest

from logboom.client.link.address import Address
from logboom.client.link.blocking_link import open_socket


def test_a_connection_that_is_reset_before_it_is_looked_at_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    connect = socket.create_connection

    def connect_and_reset(*arguments: Any) -> socket.socket:
        sock = connect(*arguments)
        made.append(sock)
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        select.select([sock], [], [], 60)  # the reset is here
        return sock

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket, "create_connection", connect_and_reset)
        with pytest.raises(OSError, match="not connected"):
            open_socket(Address(*server.getsockname()), 5.0)
    assert [sock.fileno() for sock in made] == [-1]
