"""TLS on the client's side: contexts, and a socket that a writer can drive like a plain one."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from logboom.batch.header import Buffer
from logboom.client.link.profile import Profile
from logboom.errors import ConfigError

JOIN_BYTES: Final = 64 * 1024
"""Smaller buffers than this are sent together."""


def context_of(profile: Profile) -> ssl.SSLContext:
    """Raises ConfigError where a file cannot be used."""
    files = profile.ca, profile.certificate, profile.key
    return _context(*files, tuple(map(_version, files)))


def _version(path: str | None) -> tuple[int, int, int] | None:
    """A file that was replaced is another one."""
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(64)
def _context(ca: str | None, certificate: str | None, key: str | None, versions: object) -> ssl.SSLContext:
    """Made once: reading the system's certificates takes longer than a handshake."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("ca", f"{ca}: {_reason(error)}: name a file with certificates in PEM") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = TlsSocket
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            reason = f"{certificate}: {_reason(error)}: name a certificate and its key in PEM"
            raise ConfigError("certificate", reason) from None
    return context


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


class TlsSocket(ssl.SSLSocket):
    """What it cannot do yet raises BlockingIOError, as a plain socket does, and it never holds back what has come."""

    def sendmsg(self, buffers: Iterable[Any], *arguments: Any) -> int:  # type: ignore[override]
        """As many bytes as it took. After BlockingIOError it must be given the same again, or more of it."""
        try:
            return self.send(_front(list(buffers)))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        view = memoryview(buffer)
        try:
            count = super().recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            return 0
        while 0 < count < len(view) and self.pending():
            count += super().recv_into(view[count:])
        return count


def _front(buffers: Sequence[Buffer]) -> Buffer:
    """The first of them, together with those that follow as long as they are small."""
    first = memoryview(buffers[0])
    if len(buffers) == 1 or first.nbytes >= JOIN_BYTES:
        return first
    joined, size = [], 0
    for buffer in buffers:
        size += memoryview(buffer).nbytes
        joined.append(buffer)
        if size >= JOIN_BYTES:
            break
    return b"".join(joined)


def wrap(sock: socket.socket, profile: Profile, host: str) -> socket.socket:
    """With the handshake done, within the socket's timeout. Raises OSError."""
    return context_of(profile).wrap_socket(sock, server_hostname=profile.server_name or host)
