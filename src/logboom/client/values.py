"""What programs and nodes say to each other: the values that calls take and give, for whoever sits on the client.

Whoever imports from here knows the client and nothing below it. They are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.lazy import exports

if TYPE_CHECKING:
    from logboom.broker.api import Broker, DiskStats, PartitionInfo, ReadRequest, SegmentInfo, Start, TopicInfo
    from logboom.broker.caller import EVERYBODY
    from logboom.broker.publish.publication import PublishKey, Receipt, StageInfo
    from logboom.protocols.binary.messages import DescribeTopic, Discard, ListStages
    from logboom.storage.bookmark import TERM_UNKNOWN, Bookmark, Term
    from logboom.storage.data.near_names import near_names
    from logboom.storage.data.topic import check_name
    from logboom.storage.health.findings import Severity
    from logboom.storage.readable_log import SeqnoRange

__all__ = [
    "EVERYBODY",
    "TERM_UNKNOWN",
    "Bookmark",
    "Broker",
    "DescribeTopic",
    "Discard",
    "DiskStats",
    "ListStages",
    "PartitionInfo",
    "PublishKey",
    "ReadRequest",
    "Receipt",
    "SegmentInfo",
    "SeqnoRange",
    "Severity",
    "StageInfo",
    "Start",
    "Term",
    "TopicInfo",
    "check_cursor_name",
    "check_name",
    "near_names",
]

_HOMES = {
    "Bookmark": "storage.bookmark",
    "Broker": "broker.api",
    "DescribeTopic": "protocols.binary.messages",
    "EVERYBODY": "broker.caller",
    "Discard": "protocols.binary.messages",
    "DiskStats": "broker.api",
    "ListStages": "protocols.binary.messages",
    "PartitionInfo": "broker.api",
    "PublishKey": "broker.publish.publication",
    "ReadRequest": "broker.api",
    "Receipt": "broker.publish.publication",
    "SegmentInfo": "broker.api",
    "SeqnoRange": "storage.readable_log",
    "Severity": "storage.health.findings",
    "StageInfo": "broker.publish.publication",
    "Start": "broker.api",
    "TERM_UNKNOWN": "storage.bookmark",
    "Term": "storage.bookmark",
    "TopicInfo": "broker.api",
    "check_name": "storage.data.topic",
    "near_names": "storage.data.near_names",
}

__getattr__, __dir__ = exports(__name__, {name: f"logboom.{home}" for name, home in _HOMES.items()}, globals())


def check_cursor_name(cursor: str) -> None:
    """Raises InvalidCursorName."""
    from logboom.broker.state.cursors import check_name

    check_name(cursor)
