"""The settings of the HTTP front-end, validated once."""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.errors import ConfigError
from logboom.protocols.http.hosts import check_allowed
from logboom.storage.config import MIB


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body_bytes: int = 16 * MIB
    """The largest body, as sent and inflated."""
    head_bytes: int = 64 * 1024
    """The longest request line with all headers."""
    head_ms: int = 10_000
    """A request whose head has not come by then is answered 408."""
    body_ms: int = 30_000
    """A body that stands still, or brings less than 1 KiB a second, for so long is answered 408."""
    keep_alive_ms: int = 75_000
    """A connection without a request is closed after so long."""
    page_records: int = 1_000
    """Records on a page where the request does not say."""
    page_records_max: int = 100_000
    allowed_hosts: tuple[str, ...] = ()
    """Names by which the node may be called, besides those it listens on."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call; * is all."""
    changes_topic: str = "changes"
    """The topic behind /changes."""

    def check(self) -> HttpSettings:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"http.{name}", f"is {value:,}, allowed are {low:,} to {high:,}")
        check_allowed(self.allowed_hosts)
        return self


RANGES: Final = {
    "body_bytes": (1024, 64 * MIB),
    "head_bytes": (1024, MIB),
    "head_ms": (100, 3_600_000),
    "body_ms": (100, 3_600_000),
    "keep_alive_ms": (100, 2**40),
    "page_records": (1, 1_000_000),
    "page_records_max": (1, 1_000_000),
}
