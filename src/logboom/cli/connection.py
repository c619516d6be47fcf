"""How a command gets at a node: the addresses it was given, and one question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from logboom.errors import ConfigError

if TYPE_CHECKING:
    from logboom.client.remote import RemoteBroker

T = TypeVar("T")


def servers_of(server: str | None) -> list[str]:
    """The addresses an option means. Raises ConfigError."""
    from logboom.client.link.address import SERVERS_VARIABLE, parse_servers

    try:
        return [str(address) for address in parse_servers(server)]
    except ValueError as error:
        raise ConfigError(SERVERS_VARIABLE if server is None else "--server", str(error)) from None


def ask(server: str | None, question: Callable[[RemoteBroker], Awaitable[T]]) -> T:
    """What the node answers; its errors are raised here."""
    from logboom.client.remote import connect

    async def talk() -> T:
        async with connect(servers_of(server), retry=False) as broker:
            return await question(broker)

    return asyncio.run(talk())
