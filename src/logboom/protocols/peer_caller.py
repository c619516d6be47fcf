"""The caller at the other end of a connection: made once, when the connection is made."""

from __future__ import annotations

import asyncio

from logboom.broker.caller import Caller


def caller_of_peer(protocol: str, transport: asyncio.BaseTransport) -> Caller:
    """Nobody has said yet who he is: he is anonymous."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return Caller(protocol=protocol)  # of a Unix socket
    host, port = name[:2]
    return Caller(protocol=protocol, address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
