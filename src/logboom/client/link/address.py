"""Where a node is: a host and a port, or the path of a Unix socket.

    localhost:1773   localhost   10.0.0.7   [::1]:1773   tls://host:port   unix:/run/logboom.sock

Several are given as a list or with commas between them: clients try them one after another. Where none is given, the
environment's `LOGBOOM_SERVERS` counts, and where that is empty too, localhost. Who one is there, and which certificates
are trusted, a Profile says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from logboom.client.link.profile import Profile, ServerList, Servers
from logboom.errors import ConfigError

PORT: Final = 1773
SERVERS_VARIABLE: Final = "LOGBOOM_SERVERS"

__all__ = ["PORT", "SERVERS_VARIABLE", "Address", "Servers", "list_servers", "parse_servers"]

_SCHEME: Final = "logboom://"
_TLS: Final = ("tls://", "logbooms://")
_EXAMPLES: Final = "localhost:1773, [::1]:1773, tls://host, unix:/path/to/socket"
_LOCAL: Final = ("localhost", "::1")
_LOOPBACK: Final = re.compile(r"127(?:\.\d{1,3}){3}", re.ASCII)
"""127.example.org is somebody else's."""
_FORM: Final = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^\[\]:/\s]+))(?::(?P<port>[^:]*))?")


class Address(NamedTuple):
    """
    >>> Address.parse("logboom://[::1]:99")
    Address(host='::1', port=99, path=None, tls=False, profile=Profile())
    >>> str(Address.parse("unix:/run/logboom.sock"))
    'unix:/run/logboom.sock'
    """

    host: str
    port: int = PORT
    path: str | None = None
    """Of a Unix socket; then host and port mean nothing."""
    tls: bool = False
    profile: Profile = Profile()
    """Who calls there, and what he trusts."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError with what an address looks like."""
        rest = text.strip()
        if rest.startswith("unix:"):
            path = rest.removeprefix("unix:").removeprefix("//")
            if not path:
                raise ValueError(f"{text!r} names no path: write unix:/path/to/socket")
            return cls("", 0, path)
        tls = rest.startswith(_TLS)
        for scheme in (_SCHEME, *_TLS):
            rest = rest.removeprefix(scheme)
        rest = rest.removesuffix("/")
        if rest.count(":") > 1 and not rest.startswith("["):
            raise ValueError(f"{text!r}: an IPv6 address stands in brackets, such as [::1]:{PORT}")
        form = _FORM.fullmatch(rest)
        if form is None:
            raise ValueError(f"{text!r} is no address of a node: write one such as {_EXAMPLES}")
        port = form["port"]
        if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{text!r}: the port is {port!r}, allowed are 1 to 65535")
        return cls(form["six"] or form["host"], PORT if port is None else int(port), tls=tls)

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what is sent there."""
        return self.tls or self.path is not None or self.host in _LOCAL or _LOOPBACK.fullmatch(self.host) is not None

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"{_TLS[0]}{place}" if self.tls else place


def parse_servers(servers: Servers = None, environment: Mapping[str, str] | None = None) -> list[Address]:
    """
    >>> [str(address) for address in parse_servers("one, two:99")]
    ['one:1773', 'two:99']
    """
    profile = Profile.find(servers, environment)
    named = "localhost" if profile.servers is None else profile.servers
    texts = named.split(",") if isinstance(named, str) else list(named)
    identity = replace(profile, servers=None)
    addresses = [Address.parse(text)._replace(profile=identity) for text in texts if text.strip()]
    if not addresses:
        raise ValueError(f"no server is named: write addresses such as {_EXAMPLES}")
    if profile.token is not None:
        for address in addresses:
            if not address.is_private:
                raise ConfigError("token", f"{address} would get it in clear: write tls://{address}")
    return addresses


def list_servers(servers: Servers = None) -> ServerList:
    """The same as text, with who calls there."""
    addresses = parse_servers(servers)
    return ServerList.of(map(str, addresses), addresses[0].profile)
