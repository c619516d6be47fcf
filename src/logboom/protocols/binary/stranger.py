"""Who speaks another protocol on our port: recognised by the first bytes, and told so in words of its own.

Our first frame is a hello of less than 64 KiB, so its bytes 2 to 7 are known. A stranger is told apart as soon as one
of them is another, even where it never sends as much as the front of a frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logboom.protocols.binary.messages import Kind

_KNOWN: Final = bytes((0, 0, Kind.HELLO, 0, 0, 0))
_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_HTTP: Final = b"Logboom's binary protocol is spoken here, not HTTP.\n"
_HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_HTTP), _HTTP)
)
_TLS_ANSWER: Final = bytes.fromhex("15 0301 0002 02 28")
"""An alert: fatal, handshake failure."""


class Stranger(NamedTuple):
    protocol: str
    answer: bytes | None
    """None: an ERROR frame will do."""


def recognise(first: memoryview) -> Stranger | None:
    """Whose first bytes these are; None while they may be ours."""
    seen = bytes(first[:8])
    if len(seen) < 4 or seen[2:] == _KNOWN[: len(seen) - 2]:
        return None
    if seen.startswith(_METHODS):
        return Stranger("HTTP", _HTTP_ANSWER)
    if seen.startswith(b"\x16\x03"):
        return Stranger("TLS", _TLS_ANSWER)
    if seen[0] == 0x10 and b"MQ" in seen:
        return Stranger("MQTT", None)
    if seen[0] == 0 and seen[4:5] == b"\0":
        return Stranger("Kafka", None)
    return Stranger("another protocol", None)
