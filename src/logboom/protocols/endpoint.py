"""Where a node listens: `HOST:PORT`, `[::1]:PORT`, `*:PORT` for every interface, port 0 for any free one."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

PORT: Final = 1773
LOGD_PORT: Final = 1774
_FORM: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/\s]*))(?::(?P<port>\d{1,5}))?", re.ASCII)


class Endpoint(NamedTuple):
    """
    >>> Endpoint.parse("[::1]:0"), str(Endpoint.parse("localhost"))
    (Endpoint(host='::1', port=0), 'localhost:1773')
    """

    host: str
    """Empty for every interface."""
    port: int = PORT

    @classmethod
    def parse(cls, text: str, default_port: int = PORT) -> Endpoint:
        """Raises ValueError with what an address looks like."""
        form = _FORM.fullmatch(text.strip())
        port = default_port if form is None or form["port"] is None else int(form["port"])
        if form is None or not text.strip() or port > 65535:
            example = default_port
            raise ValueError(f"{text!r} is no address: write 127.0.0.1:{example}, [::1]:{example} or *:{example}")
        host = form["six"] or form["host"]
        return cls("" if host == "*" else host, port)

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
