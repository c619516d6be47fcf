"""Bytes that are not a batch, and values that cannot become one. Nothing of them was kept."""

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


class InvalidPattern(LogboomError, ValueError):
    """A channel pattern that means nothing."""
