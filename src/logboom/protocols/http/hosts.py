"""The names of the node: a request that calls it by another one is refused, whoever sends it.

A browser lets a page read whatever is at the page's own name, and whoever owns a name decides where it leads: to this
machine, too, once the page is loaded (DNS rebinding). Such a request says nothing of where it comes from; that name in
Host is all that gives it away. So the node answers to what nobody else can own: an address, which is never looked up;
`localhost`, which browsers look up nowhere; the names it listens on; those of http.allowed_hosts. A name without dots
is none of these by itself: the network says where it leads.

The port does not count: tunnels, port forwarding and reverse proxies change it, and it tells nobody apart.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from logboom.errors import ConfigError
from logboom.protocols.endpoint import Endpoint
from logboom.protocols.http.problem import RequestError

_FORM: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.~%-]+)?)\]|(?P<name>[\w.~-]+))(?::\d{0,5})?", re.ASCII)
_NAME: Final = re.compile(r"\*|(?:\*\.)?[\w-]+(?:\.[\w-]+)*\.?", re.ASCII)
SHOWN: Final = 200
"""Characters of a name that are told."""
_CHARACTERS_MAX: Final = 300
"""A name has 253 at most; what is looked at is remembered."""


def names_of(endpoints: Sequence[Endpoint]) -> list[str]:
    """By which a node is called that listens there: the hosts themselves; and the machine's name where others reach it
    as well, who need no browser's help then."""
    machine = [] if all(endpoint.is_local for endpoint in endpoints) else [socket.gethostname()]
    return [*machine, *(endpoint.host for endpoint in endpoints if endpoint.host)]


class Hosts:
    """`names` are those the node listens on; `allowed` is http.allowed_hosts, where `*.example.org` is every name
    below example.org, and `*` is all there are."""

    def __init__(self, names: Iterable[str], allowed: Iterable[str]) -> None:
        known = {_plain(name) for name in (*names, *allowed)}
        self._all = "*" in known
        self._exact = frozenset({"localhost", *known})
        self._below = tuple(name[1:] for name in known if name.startswith("*."))
        self._look = lru_cache(256)(self._is_ours)

    def knows(self, host: str) -> bool:
        """Whether a Host header names this node. Raises RequestError where it names nothing."""
        if len(host) > _CHARACTERS_MAX:
            raise _no_host(host)
        return self._look(host)

    def _is_ours(self, host: str) -> bool:
        name = name_of(host)
        return self._all or name in self._exact or name.endswith(self._below) or _is_address(name)


def name_of(host: str) -> str:
    """The name or address in a Host header, without its port. Raises RequestError where that is none."""
    form = _FORM.fullmatch(host)
    if form is None or (form["six"] is not None and not _is_address(form["six"])):
        raise _no_host(host)
    return form["six"] or _plain(form["name"])


def _no_host(host: str) -> RequestError:
    return RequestError(f"the Host header is {host[:SHOWN]!r}, which is no name or address", 400, "bad-host")


def check_allowed(allowed: tuple[str, ...]) -> None:
    """Raises ConfigError for what can be no name of a host."""
    for name in allowed:
        if _NAME.fullmatch(name) is None and not _is_address(name.strip("[]")):
            raise ConfigError(
                "http.allowed_hosts",
                f"{name!r} is no name of a host: write it without scheme and port, as logs.example.org, "
                "*.example.org for all names below one, or * for any",
            )


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
