"""Work queues: a group of mode `queue` gives single records to whichever of its members is free.

A record is leased to one member at a time. Its holder says that it is done, gives it back, or asks for more time; else
it goes to another when the lease has run out, or when the holder is out of the group. A record that was leased as often
as `QueueSettings.tries` says, or was rejected, goes to the dead-letter topic.

Leases, and how often a record was leased, survive a crash. What was acknowledged never comes again.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from logboom.broker.api.reads import Chunk
from logboom.broker.caller import Caller

JOBS: Final = 100
JOB_BYTES: Final = 1024 * 1024
JobVerdict = Literal["ack", "release", "reject", "extend"]


class QueueCalls(Protocol):
    """For those who work on the records of a group; they have joined it with mode `queue`."""

    async def take_jobs(self, request: TakeJobs, *, caller: Caller) -> LeasedJobs:
        """Records for this member, leased to it when this returns. Waits up to `wait_ms` while none is free.

        Raises MemberUnknown, GroupMismatch, LimitExceeded.
        """
        ...

    async def settle_jobs(
        self, group: str, member: str, settlements: list[Settlement], *, caller: Caller
    ) -> list[RefusedSettlement]:
        """What became of records that this member holds; durable when this returns.

        Those that it does not hold are returned, the others are settled all the same. Raises MemberUnknown.
        """
        ...


class JobRange(msgspec.Struct, frozen=True, array_like=True):
    """Records of one log that follow each other."""

    topic_id: str
    partition: int
    seqno: int
    until: int


class TakeJobs(msgspec.Struct, frozen=True, omit_defaults=True):
    group: str
    member: str
    max_records: int = JOBS
    max_bytes: int = JOB_BYTES
    """At least one record comes, however large."""
    wait_ms: int = 0
    known: list[JobRange] | None = None
    """All that the member holds, as far as it knows: what it was leased besides, and the answer was lost, is free again
    and not counted. None says nothing."""


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    topic_id: str
    partition: int
    seqno: int
    until: int
    """Of the first record that is not meant."""
    verdict: JobVerdict = "ack"
    delay_ms: int | None = None
    """How long a record that is released rests; None: as the group's settings say."""


class RefusedSettlement(msgspec.Struct, frozen=True):
    topic_id: str
    partition: int
    seqno: int
    until: int
    code: str
    """Of the error, as `errors.CODES` has it."""
    reason: str


class LeasedChunk(NamedTuple):
    """Records that were leased as often as each other: all those of the chunk."""

    chunk: Chunk
    tries: int
    """This time included."""


class LeasedJobs(NamedTuple):
    chunks: list[LeasedChunk]
    lease_ms: int
    """So long they are this member's, unless it asks for more time."""

    @property
    def record_count(self) -> int:
        return sum(leased.chunk.record_count for leased in self.chunks)
