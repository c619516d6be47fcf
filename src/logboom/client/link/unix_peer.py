"""Who listens at a Unix socket: a token is shown to nobody who has only put a socket where a node's is expected.

Anybody can make a socket in a directory like /tmp. Trusted are this user, root, and whoever the directory belongs to:
a service that has one of its own. A password needs no such trust, for SCRAM does not show it.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

from logboom.client.link.address import Address
from logboom.errors import ConfigError

_CREDENTIALS: Final = struct.Struct("3i")


def check_listener(address: Address, sock: socket.socket) -> None:
    """Raises ConfigError where a token would go to a stranger."""
    if address.path is None or address.profile.token is None:
        return
    directory = os.path.dirname(os.path.abspath(address.path))
    listener = _user_behind(sock, address.path)
    if listener not in (0, os.geteuid(), os.stat(directory).st_uid):
        raise ConfigError(
            "token",
            f"{address} belongs to user {listener} of the system, who is not the one that {directory} belongs to",
        )


def _user_behind(sock: socket.socket, path: str) -> int:
    """The user of the system who listens there; where the system does not say so, whose file it is."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.stat(path).st_uid
    return int(_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])
