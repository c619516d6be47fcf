"""The caller at the other end of a connection: made once, when the connection is made.

A Unix socket says which user of the system has called: the one who runs the node, and root, may do everything. A TLS
connection has shown a certificate, where the listener asks for one. All others are anonymous until they sign in.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from logboom.access.certificate_name import PrincipalFrom, principal_of_certificate
from logboom.access.principal import OPERATOR
from logboom.broker.caller import Caller

_CREDENTIALS: Final = struct.Struct("3i")


class ListenerContext(ssl.SSLContext):
    """TLS of a listener: it knows which name of a client's certificate says who he is."""

    principal_from: PrincipalFrom = "common_name"


def caller_of_peer(protocol: str, transport: asyncio.BaseTransport) -> Caller:
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        is_own = _user_of(transport) in (0, os.geteuid())
        return Caller(OPERATOR, protocol=protocol, by="system") if is_own else Caller(protocol=protocol)
    host, port = name[:2]
    caller = Caller(protocol=protocol, address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    context, certificate = transport.get_extra_info("sslcontext"), transport.get_extra_info("peercert")
    if certificate and isinstance(context, ListenerContext):
        return _certified(caller, certificate, context.principal_from)
    return caller


def _certified(caller: Caller, certificate: Mapping[str, Any], source: PrincipalFrom) -> Caller:
    """The handshake has checked the certificate: it is good until it expires, on an open connection too."""
    principal = principal_of_certificate(certificate, source)
    if principal is None:
        return caller
    expires = ssl.cert_time_to_seconds(certificate["notAfter"]) * 1_000_000
    return replace(caller, principal=principal, by="certificate", expires=int(expires))


def is_private(transport: asyncio.BaseTransport) -> bool:
    """Whether nobody on the way can read what comes."""
    if transport.get_extra_info("sslcontext") is not None:
        return True
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return True
    try:
        return ipaddress.ip_address(name[0].partition("%")[0]).is_loopback
    except ValueError:
        return False


def _user_of(transport: asyncio.BaseTransport) -> int:
    """Of the system, at the other end of a Unix socket; -1 where nobody knows."""
    sock = transport.get_extra_info("socket")
    try:
        return int(_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])
    except (AttributeError, OSError, struct.error):
        return -1
