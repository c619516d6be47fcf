"""The network as validators are reached through it: a name is resolved once, and one of those addresses connected to.

Invariant: no address is connected to that was not checked, so that a name which leads elsewhere by the time somebody
looks at it again changes nothing. Host header and certificate stay those of the name.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Final

import httpcore

from logboom.broker.append.validator_address import Address

NEXT_S: Final = 1.0
"""An address that has not answered by then is left for the next one, where there is one."""


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    def __init__(self, admits: Callable[[Address], bool]) -> None:
        self._admits = admits
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Raises PermissionError where the host is at no address that may be connected to."""
        *others, last = await self._resolve(host, port)
        for address in others:
            try:
                async with asyncio.timeout(NEXT_S):
                    return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (TimeoutError, httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._network.connect_tcp(last, port, timeout, local_address, socket_options)

    async def _resolve(self, host: str, port: int) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
        admitted = [address for address in addresses if self._admits(ip_address(address))]
        if not admitted:
            raise PermissionError(
                f"{host} is at {', '.join(addresses)}: a validator must be in validators.networks of the node's "
                "configuration; with none there, not at a link-local, multicast, reserved or metadata address"
            )
        return admitted

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise PermissionError(f"{path}: validators are not reached through files")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
