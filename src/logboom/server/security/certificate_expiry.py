"""Until when a certificate is valid, read from its file.

The standard library reads certificates for its own use and tells nothing of a node's own. Of DER no more is read here
than the way to the validity (RFC 5280, 4.1), and the file is the operator's own.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final

FILE_BYTES_MOST: Final = 1024 * 1024
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_FORMS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""UTCTime and GeneralizedTime, by their tags."""


def expiry_of(path: str) -> int | None:
    """When the first of its certificates that expires does, microseconds. None where nobody can say."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = _PEM.findall(file.read(FILE_BYTES_MOST))
        return min((_expiry(ssl.PEM_cert_to_DER_cert(pem)) for pem in found), default=None)
    except (OSError, ValueError, IndexError):
        return None


def _expiry(certificate: bytes) -> int:
    signed = _inside(_inside(certificate))
    tag, _, rest = _split(signed)
    if tag == _VERSION:
        signed = rest
    for _ in ("serial number", "algorithm", "issuer"):
        signed = _split(signed)[2]
    _, _, after = _split(_inside(signed))
    tag, content, _ = _split(after)
    moment = datetime.strptime(content.decode("ascii"), _FORMS.get(tag, ""))
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1_000_000


def _inside(data: bytes) -> bytes:
    tag, content, _ = _split(data)
    if tag != _SEQUENCE:
        raise ValueError("this is no certificate")
    return content


def _split(data: bytes) -> tuple[int, bytes, bytes]:
    """The tag and the content of the first value, and what comes behind it."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise ValueError("a value is cut short")
    return tag, data[start : start + length], data[start + length :]
