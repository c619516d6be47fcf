"""Who speaks another protocol: recognised by the first bytes. On our port it is told so in words of its own; where a
client has reached somebody else's port, its user is told where it is.

Our first frame is a hello of less than 64 KiB, so its bytes 2 to 7 are known. A stranger is told apart as soon as one
of them is another, even where it never sends as much as the front of a frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logboom.protocols.binary.messages import Kind

_KNOWN: Final = bytes((0, 0, Kind.HELLO, 0, 0, 0))
_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_HTTP: Final = (
    b"Logboom's binary protocol is spoken here, not HTTP: ask the port that `serve --http` names, usually 1775.\n"
)
_HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_HTTP), _HTTP)
)
_TLS_ANSWER: Final = bytes.fromhex("15 0301 0002 02 28")
"""An alert: fatal, handshake failure."""


_SERVERS: Final = (
    (b"HTTP/", "HTTP, which is for curl and browsers"),
    (b"\x15\x03", "TLS"),
    (b"\x16\x03", "TLS"),
    (b"SSH-", "SSH"),
    (b"ERR ", "lines of text, as the logd protocol does"),
    (b"\x20\x02", "MQTT"),
)


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


def describe_server(first: bytes) -> str | None:
    """Who it is that answers a hello with these bytes, and where to go instead; None while it may be one of ours.

    >>> describe_server(b"HTTP/1.1 400 Bad Request")[:35], describe_server(bytes((30, 0, 0, 0, 2, 0, 0, 0)))
    ('what answers there is not Logboom\\'s', None)
    """
    words = next((words for front, words in _SERVERS if first.startswith(front)), None)
    if words is None and (len(first) < 4 or first[3] == 0):  # our first frame is less than 16 MiB
        return None
    speaks = "" if words is None else f": it speaks {words}"
    return (
        f"what answers there is not Logboom's binary protocol{speaks}; name the address that `logboom serve --listen` "
        "has, usually port 1773"
    )
