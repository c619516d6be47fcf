"""The sockets a node listens on: TCP addresses and a Unix socket.

TCP sockets are bound before the data is opened, so that a taken port costs nothing, and listen only afterwards, so that
clients of a node that is still recovering go elsewhere. The file of a Unix socket is removed where nobody listens on it
any more: whoever was killed has left it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Sequence
from typing import Final

from logboom.errors import ConfigError
from logboom.protocols.endpoint import Endpoint

BACKLOG: Final = 4096
SOCKET_NAME: Final = "logboom.sock"
_UNIX_MODE: Final = 0o660
_UNIX_PATH_MAX: Final = 107
_CONNECT_S: Final = 1.0
logger = logging.getLogger("logboom.server")


def bind_all(endpoints: Sequence[Endpoint], key: str, are_default: bool) -> list[socket.socket]:
    """A default address that is taken is skipped with a warning; one that somebody asked for is an error."""
    bound: list[socket.socket] = []
    try:
        for endpoint in endpoints:
            try:
                bound += bind(endpoint, key)
            except ConfigError as error:
                if not are_default:
                    raise
                logger.warning("%s; skipped", error)
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    return bound


def bind(endpoint: Endpoint, key: str) -> list[socket.socket]:
    """One socket for each address that the host has. Raises ConfigError with what to do."""
    try:
        found = socket.getaddrinfo(
            endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(key, f"{endpoint}: {error}: name an address of this machine") from None
    bound: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRNOTAVAIL and bound:
                continue  # such as localhost with IPv6 switched off
            for other in bound:
                other.close()
            raise ConfigError(key, explain(endpoint, error)) from None
        bound.append(sock)
    return bound


def explain(endpoint: Endpoint, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{endpoint} is taken by another process: stop it, or use another port, or port 0 for any free one"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{endpoint} is no address of this machine: name one, or * for all"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{endpoint} is not for this user: use a port above 1023"
    return f"{endpoint}: {error.strerror or error}"


def default_socket(directory: str) -> str:
    """The Unix socket of a node in its data directory, where callers must sign in and no other was named."""
    return os.path.join(directory, SOCKET_NAME)


class UnixSocket:
    """A socket with a file. Raises ConfigError with what to do."""

    def __init__(self, path: str) -> None:
        if len(os.fsencode(path)) > _UNIX_PATH_MAX:
            raise ConfigError("listen.unix", f"{path} is longer than {_UNIX_PATH_MAX} bytes: use a shorter path")
        _remove_stale(path)
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.setblocking(False)
            self.socket.bind(path)
            os.chmod(path, _UNIX_MODE)
            self.socket.listen(BACKLOG)
        except OSError as error:
            self.socket.close()
            raise ConfigError(
                "listen.unix", f"{path}: {error.strerror or error}: name a path this user may write to"
            ) from None
        self._file = _identity_of(path)

    def close(self) -> None:
        """Whoever has put another in its place keeps that."""
        if self._file is not None and self._file == _identity_of(self.path):
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self.socket.close()


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError("listen.unix", f"{path} is there, and no socket: name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except OSError as error:
            raise ConfigError("listen.unix", f"{path}: {error.strerror or error}: name another path") from None
    raise ConfigError("listen.unix", f"{path} is taken by another process: stop it, or name another path")


def _identity_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def listen_all(sockets: Sequence[socket.socket], are_default: bool) -> list[socket.socket]:
    """Those that listen now. Another process may have been quicker: then the same holds as for `bind_all`."""
    listening = []
    for sock in sockets:
        try:
            sock.listen(BACKLOG)
        except OSError as error:
            taken = ConfigError("listen", explain(endpoint_of(sock), error))
            if not are_default:
                raise taken from None
            logger.warning("%s; skipped", taken)
            sock.close()
        else:
            listening.append(sock)
    return listening


def endpoint_of(sock: socket.socket) -> Endpoint:
    host, port = sock.getsockname()[:2]
    return Endpoint(host, port)
