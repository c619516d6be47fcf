"""TLS on the client's side: whom it trusts, and what it shows."""

from __future__ import annotations

import os
import socket
import ssl
from functools import lru_cache

from logboom.client.link.profile import Profile
from logboom.client.link.tls_socket import TlsSocket
from logboom.errors import ConfigError


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
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            reason = f"{certificate}: {_reason(error)}: name a certificate and its key in PEM"
            raise ConfigError("certificate", reason) from None
    return context


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


def wrap(sock: socket.socket, profile: Profile, host: str) -> TlsSocket:
    """With the handshake done, within the socket's timeout. Raises OSError."""
    return TlsSocket(sock, context_of(profile), profile.server_name or host)
