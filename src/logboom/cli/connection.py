"""How a command gets at a node: the addresses it was given, who calls there, and one question.

Options, a profile and the environment say it together (`client.link.profile`). A user whose password nobody has told is
asked for it once, where there is a terminal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from logboom.errors import ConfigError

if TYPE_CHECKING:
    from logboom.client.link.profile import Profile
    from logboom.client.remote import RemoteBroker

T = TypeVar("T")


def servers_of(server: str | None) -> Profile:
    """The addresses an option means, and who calls there. Raises ConfigError."""
    profile = find_profile(server)
    if profile.user is None or profile.password is not None or profile.certificate is not None:
        return profile
    return replace(profile, password=_ask_password(profile.user))


def find_profile(server: str | None) -> Profile:
    """The same, without a question to anybody."""
    from logboom.client.link.address import SERVERS_VARIABLE, parse_servers
    from logboom.client.link.profile import Profile

    try:
        profile = Profile.find(server)
        return replace(profile, servers=tuple(str(address) for address in parse_servers(profile)))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(SERVERS_VARIABLE if server is None else "--server", str(error)) from None


def names_of(profile: Profile) -> list[str]:
    """Its addresses, as text for people."""
    return [profile.servers] if isinstance(profile.servers, str) else list(profile.servers or ())


@cache
def _ask_password(user: str) -> str:
    """Once for a command, however many connections it makes."""
    from getpass import getpass

    if not sys.stdin.isatty():
        raise ConfigError("LOGBOOM_PASSWORD", f"is not set: say the password of {user} there, or name a profile")
    return getpass(f"Password of {user}: ")


def ask(server: str | None, question: Callable[[RemoteBroker], Awaitable[T]]) -> T:
    """What the node answers; its errors are raised here."""
    return ask_at(servers_of(server), question)


def ask_at(profile: Profile, question: Callable[[RemoteBroker], Awaitable[T]]) -> T:
    from logboom.client.remote import connect

    async def talk() -> T:
        async with connect(profile, retry=False) as broker:
            return await question(broker)

    return asyncio.run(talk())
