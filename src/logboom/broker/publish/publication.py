"""What staged publish speaks of: stages, the keys they are published under, and where their records went."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from logboom.errors import InvalidKey

BUNDLE_BYTES_MAX: Final = 256 * 1024
"""What one call may stage and publish at once: bytes of batches,"""
BUNDLE_BATCHES_MAX: Final = 64
"""and batches."""
_NAME: Final = re.compile(r"[\x21-\x7e]{1,249}")


class PublishKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a publish is known by. Of one name numbers rise; what was published is never published again.

    The highest number of a name is kept for ever; of one that is not `lasting`, as long as there is room: random names,
    which nobody will ever say again with other stages. Where such a name is published in one call, without a stage,
    its number is the node's time in microseconds: by that a repeat of what was forgotten is known.

    A `digest` says what is published: where the number was published with another one, or a number above it with any,
    that is an error and no repeat.
    """

    name: str
    number: int = 0
    lasting: bool = True
    digest: str = ""
    """Of what tells one publish from another, in the words of whoever publishes; empty: nothing is compared."""

    def check(self) -> PublishKey:
        """Raises InvalidKey."""
        if _NAME.fullmatch(self.name) is None:
            raise InvalidKey(self.name[:100], "a name is 1 to 249 printable ASCII characters without spaces")
        if not 0 <= self.number < 2**63:
            raise InvalidKey(self.name, f"number {self.number} is not one of 0 to 2^63 - 1")
        if self.digest and _NAME.fullmatch(self.digest) is None:
            raise InvalidKey(self.name, "a digest is up to 249 printable ASCII characters without spaces")
        return self


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stage, and how many records its writer has put there: one that holds less, or more, is not published."""

    stage: str
    records: int | None = None


class StageInfo(msgspec.Struct, frozen=True):
    id: str
    producer_id: int
    """What its batches carry. In each log they number their records from 0, in a stream of their own."""
    opened: int
    touched: int
    """When something was staged last, microseconds."""
    expires: int
    """When it is thrown away, unless something is staged or it is published before."""
    records: int = 0
    size_bytes: int = 0
    logs: list[str] = []
    """As `topic/partition`; the first few."""
    state: Literal["open", "publishing", "failed"] = "open"
    note: str = ""
    """Whose it is, in the words of whoever opened it."""


class PublishedPart(msgspec.Struct, frozen=True):
    """What one log got. Other writers' records may lie between."""

    topic: str
    topic_id: str
    partition: int
    first: int
    """The seqno of the first record."""
    next: int
    """The seqno behind the last one."""
    records: int


class Publication(msgspec.Struct, frozen=True):
    """What became of a publish. Everything of it is in its logs, synced."""

    name: str
    number: int
    repeat: bool = False
    """Whether it was published before, so that nothing was appended now, and the stages were discarded."""
    parts: list[PublishedPart] | None = None
    """Where it went. None for a repeat of a number below the highest: that is not kept."""


class KeyInfo(msgspec.Struct, frozen=True):
    """What was published last under a name."""

    name: str
    number: int
    records: int
    published: int
    """When, microseconds."""
    expires: int | None = None
    is_open: bool = False
    """Whether records of it are still on their way into their logs."""
    digest: str = ""
    topics: dict[str, str] = {}
    """The topics it had records for, those before it too, and their ids; the last few."""
