"""Every command of logd, and what it asks of the rules."""

from __future__ import annotations

from typing import Final, NamedTuple
from zlib import crc32

from support.callers.everybody import Ask

_RECORD: Final = b"MSG 1\r\nx\r\n"


class LogdLine(NamedTuple):
    data: bytes
    asked: list[Ask]
    is_endless: bool = False
    """Not for POST /log, which refuses it whoever asks."""


LOGD: Final[dict[bytes, list[LogdLine]]] = {
    b"READ": [
        LogdLine(b"READ events 0 10\r\n", [("read", "topic", "events")]),
        LogdLine(b"READ events 0 0\r\n", [("read", "topic", "events")], True),
    ],
    b"TAIL": [LogdLine(b"TAIL events 1\r\n", [("describe", "topic", "events"), ("read", "topic", "events")], True)],
    b"HEAD": [LogdLine(b"HEAD events\r\n", [("describe", "topic", "events")])],
    b"PING": [LogdLine(b"PING\r\n", [])],
    b"STATS": [LogdLine(b"STATS\r\n", [("describe", "node", "")])],
    b"CONFIG": [LogdLine(b"CONFIG\r\n", [("describe", "node", "")])],
    b"TOPICS": [LogdLine(b"TOPICS\r\n", [("describe", "topic", "")])],
    b"CURSORS": [LogdLine(b"CURSORS\r\n", [("describe", "cursor", "")])],
    b"REFUSE": [
        LogdLine(b"REFUSE\r\n", [("manage", "node", "")]),
        LogdLine(b"REFUSE events\r\n", [("manage", "topic", "events")]),
    ],
    b"ACCEPT": [
        LogdLine(b"ACCEPT\r\n", [("manage", "node", "")]),
        LogdLine(b"ACCEPT events\r\n", [("manage", "topic", "events")]),
    ],
    b"REPLICATE": [LogdLine(b"REPLICATE events/0 1\r\n", [("read", "topic", "events")], True)],
    b"DELETED": [LogdLine(b"DELETED " + b"0" * 32 + b"\r\n", [("describe", "topic", "")])],
    b"ACCESS": [LogdLine(b"ACCESS\r\n", [("manage", "user", "*")], True)],
    b"GROUPS": [LogdLine(b"GROUPS\r\n", [("describe", "group", "*")], True)],
    b"AUTH": [],  # is how they come in
    b"CLOSE": [LogdLine(b"CLOSE\r\n", [])],
    b"SHUTDOWN": [LogdLine(b"SHUTDOWN\r\n", [("manage", "node", "")])],
    b"MSG": [LogdLine(b"MSG events 1\r\nx\r\n", [("write", "topic", "events")])],
    b"BATCH": [
        LogdLine(
            b"BATCH %d events %d 1\r\n%b" % (len(_RECORD), crc32(_RECORD), _RECORD), [("write", "topic", "events")]
        )
    ],
}
"""By its word. A command that is new must be here."""
