"""Where a node listens: `HOST:PORT`, `[::1]:PORT`, `*:PORT` for every interface, port 0 for any free one.

`tls://` before it, or `https://`, demands TLS there, `plain://` forbids it. Without either, addresses that other
machines can reach have TLS where the node has a certificate, and those of this machine have none.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

PORT: Final = 1773
LOGD_PORT: Final = 1774
_SCHEMES: Final = {"tls": True, "https": True, "plain": False, "http": False}
_FORM: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/\s]*))(?::(?P<port>\d{1,5}))?", re.ASCII)


class Endpoint(NamedTuple):
    """
    >>> Endpoint.parse("[::1]:0"), str(Endpoint.parse("localhost"))
    (Endpoint(host='::1', port=0, tls=None), 'localhost:1773')
    """

    host: str
    """Empty for every interface."""
    port: int = PORT
    tls: bool | None = None
    """Whether it must be so; None where the node decides."""

    @classmethod
    def parse(cls, text: str, default_port: int = PORT) -> Endpoint:
        """Raises ValueError with what an address looks like."""
        scheme, separator, rest = text.strip().rpartition("://")
        if separator and scheme not in _SCHEMES:
            schemes = ", ".join(f"{each}://" for each in _SCHEMES)
            raise ValueError(
                f"{text!r} is no address: write 127.0.0.1:{default_port}, before it one of {schemes} or none"
            )
        form = _FORM.fullmatch(rest)
        port = default_port if form is None or form["port"] is None else int(form["port"])
        if form is None or not rest or port > 65535:
            example = default_port
            raise ValueError(f"{text!r} is no address: write 127.0.0.1:{example}, [::1]:{example} or *:{example}")
        host = form["six"] or form["host"]
        return cls("" if host == "*" else host, port, _SCHEMES[scheme] if separator else None)

    def is_secured(self, has_certificate: bool) -> bool:
        """Whether there is TLS."""
        return self.tls if self.tls is not None else has_certificate and not self.is_local

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host or '*'}:{self.port}"
