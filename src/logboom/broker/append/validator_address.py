"""Whom a node may ask about records: URLs that its configuration lists, at addresses that it may connect to.

A URL of a topic is allowed if one in the list has the same scheme, host and port, and a path that it begins with,
segment by segment. What two programs could read differently is refused before anything is compared: a user name, a
backslash, letters outside of ASCII, control characters, `.` and `..` in the path, however they are written. Whoever
connects uses the parts that were compared, not the text again.

A name says nothing of where it leads: the address that it is resolved to is checked too, and that very address is
connected to.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec

from logboom.errors import ConfigError

PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[\w.~!$&'()*+,;=:@/%-]*)?(?:\?(?P<query>[\w.~!$&'()*+,;=:@/?%-]*))?",
    re.ASCII | re.IGNORECASE,
)
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ADVICE: Final = "write http://host:port/path, with a user name nowhere and letters of ASCII only"
_NAT64: Final = ip_network("64:ff9b::/96")
_METADATA: Final = tuple(map(ip_address, ("100.100.100.200", "168.63.129.16", "fd00:ec2::254")))
"""Where clouds tell their machines secrets, besides 169.254.0.0/16."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class ValidatorAddress(NamedTuple):
    """A URL in its parts, as they are sent."""

    scheme: str
    host: str
    """In small letters; an address of IPv6 without its brackets, in its shortest form."""
    port: int
    path: str
    query: str | None

    @classmethod
    def parse(cls, url: str) -> ValidatorAddress:
        """Raises ValueError for what is none, or none that everybody reads in the same way."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError(f"is no URL that can be asked: {_ADVICE}")
        scheme, host = match["scheme"].lower(), match["host"].lower()
        port = PORTS[scheme] if match["port"] is None else int(match["port"])
        if not 1 <= port <= 65535:
            raise ValueError(f"has port {port}: there are 1 to 65535")
        if host.startswith("["):
            host = str(IPv6Address(host[1:-1]))
        path = match["path"] or "/"
        _check_path(path)
        return cls(scheme, host, port, path, match["query"])

    @property
    def request(self) -> str:
        """The path with the query."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        """What the header Host says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def is_below(self, other: ValidatorAddress) -> bool:
        if self[:3] != other[:3]:
            return False
        front = other.path if other.path.endswith("/") else f"{other.path}/"
        return self.path == other.path or self.path.startswith(front)


def _check_path(path: str) -> None:
    """No way up, and no slash that only some see: also not where it is escaped, once or more often."""
    if _ESCAPE.search(path):
        raise ValueError("has a % in its path that escapes nothing")
    slashes = path.count("/")
    while (plain := unquote(path, errors="replace")) != path:
        path = plain
    if path.count("/") != slashes or "\\" in path or not path.isprintable():
        raise ValueError("has an escaped slash, backslash or control character in its path")
    if any(segment.partition(";")[0] in (".", "..") for segment in path.split("/")):
        raise ValueError("has . or .. in its path")


class ValidatorRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which validators topics may name."""

    allow: tuple[str, ...] = ()
    """URLs; those that begin with one are allowed. With none, none is."""
    networks: tuple[str, ...] = ()
    """Where validators may be; with none, anywhere but where no server of anybody's choice is."""

    def check(self) -> ValidatorRules:
        """Raises ConfigError."""
        for url in self.allow:
            try:
                target = ValidatorAddress.parse(url)
            except ValueError as error:
                raise ConfigError("validators.allow", f"{url[:200]!r} {error}") from None
            if target.query is not None:
                raise ConfigError("validators.allow", f"{url[:200]!r} has a query: name what is before it")
        for text in self.networks:
            try:
                ip_network(text)
            except ValueError as error:
                raise ConfigError("validators.networks", f"{error}: write 10.0.0.0/8 or fd00::/8") from None
        return self

    def refusal(self, url: str) -> str | None:
        """Why a topic's URL is not asked; None where it is."""
        try:
            target = ValidatorAddress.parse(url)
        except ValueError as error:
            return str(error)
        if any(target.is_below(ValidatorAddress.parse(allowed)) for allowed in self.allow):
            return None
        listed = f"has only {', '.join(self.allow)}" if self.allow else "is empty"
        return f"is not allowed: validators.allow in the node's configuration {listed}"

    def admits(self, address: Address) -> bool:
        """Whether a validator may be at this address."""
        plain = _plain(address)
        if self.networks:
            networks: list[Network] = [ip_network(text) for text in self.networks]
            return any(plain.version == network.version and plain in network for network in networks)
        if plain.is_loopback:
            return True
        refused = plain.is_link_local or plain.is_multicast or plain.is_unspecified or plain.is_reserved
        return not (refused or plain in _METADATA or (plain.version == 4 and plain.packed[0] == 0))


def _plain(address: Address) -> Address:
    """The address of IPv4 that one of IPv6 stands for, where it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(address.packed[12:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1] or address
