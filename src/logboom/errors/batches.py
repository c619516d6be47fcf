"""Bytes that are not a batch, values that cannot become one, and values that nobody can decode."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class BatchError(LogboomError):
    """Bytes that are not a batch we can take."""


class NotABatch(BatchError):
    """Too short, wrong magic, or a size no batch can have."""


class HeaderCorrupt(BatchError):
    """header_crc does not match the header."""


class BodyCorrupt(BatchError):
    """batch_crc does not match, or the body does not inflate to what the header says."""


class UnsupportedBatch(BatchError):
    """A version, flag, kind, encoding or codec this release does not know. Never skipped, never rewritten."""


class MalformedBatch(BatchError):
    """The checksums hold, the structure does not."""


class BatchTooLarge(BatchError):
    """A batch over the limit, as stored or inflated."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"batch of {size_bytes:,} bytes is over the limit of {limit_bytes:,}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class InvalidColumn(LogboomError, ValueError):
    """What the caller gave cannot become a column of a batch."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"{column}: {reason}")
        self.column = column
        self.reason = reason


class ValueUnreadable(LogboomError):
    """A value that the serializer of its reader cannot decode. The reader stands behind the record."""

    def __init__(
        self, topic: str, partition: int, seqno: int, serializer: str, reason: str, value: bytes | None = None
    ) -> None:
        super().__init__(
            f"{topic}/{partition}: the value of seqno {seqno} is not what {serializer} reads ({reason}); another loop "
            "goes on behind it, and its bytes are the error's `value`: a reader without value= gives bytes"
        )
        self.topic = topic
        self.partition = partition
        self.seqno = seqno
        self.serializer = serializer
        self.reason = reason
        self.value = value
        """As it is stored."""


class InvalidPattern(LogboomError, ValueError):
    """A channel pattern that means nothing."""
