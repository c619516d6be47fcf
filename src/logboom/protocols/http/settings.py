"""The settings of the HTTP front-end, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from logboom.protocols.front_end import FrontEndSettings
from logboom.protocols.http.hosts import check_allowed
from logboom.storage.config import MIB


class HttpSettings(FrontEndSettings, frozen=True):
    section: ClassVar[str] = "http"
    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {
        "body_bytes": (1024, 64 * MIB),
        "head_bytes": (1024, MIB),
        "head_ms": (100, 3_600_000),
        "body_ms": (100, 3_600_000),
        "keep_alive_ms": (100, 2**40),
        "page_records": (1, 1_000_000),
        "page_records_max": (1, 1_000_000),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "body_bytes": "The largest body of a request, compressed and uncompressed.",
        "head_bytes": "The longest request line with all its headers.",
        "head_ms": "A request whose headers do not arrive within this time is answered 408.",
        "body_ms": "A body that stalls, or is slower than 1 KiB a second, for this time is answered 408.",
        "keep_alive_ms": "A connection without a request is closed after this time.",
        "page_records": "Records on a page if the request names no limit.",
        "page_records_max": "The most records that a request may ask for.",
        "allowed_hosts": (
            "Names by which the node may be called over HTTP, as a Host header has them, without port: a DNS name, a "
            "service of Kubernetes or Docker, *.example.org for all below one, * for any. Addresses, localhost, the "
            "names of listen.http and, if other machines can reach it, the machine's own name are always allowed."
        ),
        "cors_origins": "Origins whose web pages may call the API (CORS), such as https://example.org; * is all.",
        "changes_topic": "The topic behind /changes.",
    }
    body_bytes: int = 16 * MIB
    head_bytes: int = 64 * 1024
    head_ms: int = 10_000
    body_ms: int = 30_000
    keep_alive_ms: int = 75_000
    page_records: int = 1_000
    page_records_max: int = 100_000
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    changes_topic: str = "changes"

    def check(self) -> None:
        FrontEndSettings.check(self)
        check_allowed(self.allowed_hosts)
