"""Where a node is: a host and a port, or the path of a Unix socket.

    localhost:1773   localhost   10.0.0.7   [::1]:1773   logboom://host:port   unix:/run/logboom.sock

Several are given as a list or with commas between them: clients try them one after another. Where none is given, the
environment's `LOGBOOM_SERVERS` counts, and where that is empty too, localhost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

PORT: Final = 1773
SERVERS_VARIABLE: Final = "LOGBOOM_SERVERS"

_SCHEME: Final = "logboom://"
_EXAMPLES: Final = "localhost:1773, [::1]:1773, logboom://host, unix:/path/to/socket"
_FORM: Final = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^\[\]:/\s]+))(?::(?P<port>[^:]*))?")


class Address(NamedTuple):
    """
    >>> Address.parse("logboom://[::1]:99")
    Address(host='::1', port=99, path=None)
    >>> str(Address.parse("unix:/run/logboom.sock"))
    'unix:/run/logboom.sock'
    """

    host: str
    port: int = PORT
    path: str | None = None
    """Of a Unix socket; then host and port mean nothing."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError with what an address looks like."""
        rest = text.strip()
        if rest.startswith("unix:"):
            path = rest.removeprefix("unix:").removeprefix("//")
            if not path:
                raise ValueError(f"{text!r} names no path: write unix:/path/to/socket")
            return cls("", 0, path)
        rest = rest.removeprefix(_SCHEME).removesuffix("/")
        if rest.count(":") > 1 and not rest.startswith("["):
            raise ValueError(f"{text!r}: an IPv6 address stands in brackets, such as [::1]:{PORT}")
        form = _FORM.fullmatch(rest)
        if form is None:
            raise ValueError(f"{text!r} is no address of a node: write one such as {_EXAMPLES}")
        port = form["port"]
        if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{text!r}: the port is {port!r}, allowed are 1 to 65535")
        return cls(form["six"] or form["host"], PORT if port is None else int(port))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Servers = str | Sequence[str] | None


def parse_servers(servers: Servers = None, environment: Mapping[str, str] | None = None) -> list[Address]:
    """
    >>> [str(address) for address in parse_servers("one, two:99")]
    ['one:1773', 'two:99']
    """
    if servers is None:
        servers = (os.environ if environment is None else environment).get(SERVERS_VARIABLE, "").strip() or "localhost"
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [Address.parse(text) for text in texts if text.strip()]
    if not addresses:
        raise ValueError(f"no server is named: write addresses such as {_EXAMPLES}")
    return addresses
