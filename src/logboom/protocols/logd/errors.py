"""Errors on the wire: a few fixed words for each. The one table of this front-end.

A class that is not in the table has the words of the nearest one above it that is.
"""

from __future__ import annotations

from typing import Final

from logboom import errors as e

NOT_FOUND: Final = b"not found"
INVALID_REQUEST: Final = b"invalid request"
INVALID_PROTOCOL: Final = b"invalid protocol"
TOO_LARGE: Final = b"too large"
CHECKSUM_MISMATCH: Final = b"checksum mismatch"
TOPIC_NOT_ALLOWED: Final = b"topic not allowed"
MAXIMUM_TOPICS: Final = b"maximum topics allowed"
MAXIMUM_CONNECTIONS: Final = b"maximum connections allowed"
MISSING_TOPIC: Final = b"request missing topic"
READ_ONLY: Final = b"read only"
SIGN_IN_REQUIRED: Final = b"sign-in required"
SIGN_IN_FAILED: Final = b"sign-in failed"
SIGN_IN_EXPOSED: Final = b"sign-in needs tls"
NOT_ALLOWED: Final = b"not allowed"
UNAVAILABLE: Final = b"unavailable"
SLIPS: Final = (INVALID_REQUEST, INVALID_PROTOCOL, MISSING_TOPIC)
"""Whoever sent it has only got something wrong."""

REASONS: Final[dict[type[BaseException], bytes]] = {
    BaseException: UNAVAILABLE,
    e.AccessError: INVALID_REQUEST,
    e.SignInRequired: SIGN_IN_REQUIRED,
    e.SignInFailed: SIGN_IN_FAILED,
    e.NotAllowed: NOT_ALLOWED,
    e.BatchError: INVALID_REQUEST,
    e.BatchTooLarge: TOO_LARGE,
    e.InvalidColumn: INVALID_REQUEST,
    e.InvalidPattern: INVALID_REQUEST,
    e.AppendRefused: UNAVAILABLE,
    e.UnexpectedSeqno: INVALID_REQUEST,
    e.UnknownProducer: INVALID_REQUEST,
    e.ProducerFenced: INVALID_REQUEST,
    e.SequenceGap: INVALID_REQUEST,
    e.RepeatForgotten: INVALID_REQUEST,
    e.NotNext: INVALID_REQUEST,
    e.LogReadOnly: READ_ONLY,
    e.WritesRefused: READ_ONLY,
    e.ReadOnlyReplica: READ_ONLY,
    e.RecordsRejected: INVALID_REQUEST,
    e.ProtocolError: INVALID_PROTOCOL,
    e.ConfigError: INVALID_REQUEST,
    e.InvalidCursorName: INVALID_REQUEST,
    e.CursorNotFound: NOT_FOUND,
    e.CursorBusy: UNAVAILABLE,
    e.CursorMovedBack: INVALID_REQUEST,
    e.UnexpectedCursor: INVALID_REQUEST,
    e.TopicError: NOT_FOUND,
    e.InvalidTopicName: INVALID_REQUEST,
    e.TopicExists: INVALID_REQUEST,
    e.TopicNotAllowed: TOPIC_NOT_ALLOWED,
    e.TopicBusy: UNAVAILABLE,
    e.StageError: INVALID_REQUEST,
    e.InvalidKey: INVALID_REQUEST,
    e.InvalidBookmark: INVALID_REQUEST,
    e.BookmarkLost: NOT_FOUND,
    e.SeqnoOutOfRange: NOT_FOUND,
    e.IndexOutOfRange: INVALID_REQUEST,
}
LIMITS: Final = {
    "limits.topics": MAXIMUM_TOPICS,
    "limits.topics_per_connection": MAXIMUM_TOPICS,
    "quota.topics": MAXIMUM_TOPICS,
    "quota.connections": MAXIMUM_CONNECTIONS,
    "limits.read_bytes": TOO_LARGE,
    "limits.batch_bytes": TOO_LARGE,
}
"""Of a limit that was exceeded, by its name; of others it is UNAVAILABLE."""


def reason_of(error: BaseException) -> bytes:
    if isinstance(error, e.LimitExceeded):
        return LIMITS.get(error.limit, UNAVAILABLE)
    return next(REASONS[kind] for kind in type(error).__mro__ if kind in REASONS)
