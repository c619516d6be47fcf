"""What is committed, and when the promise of an append is kept: the one place that decides it.

    written → (synced here, or by a majority) → durable → committed → readable

Everybody who answers, shows or gives away batches asks here; nobody compares with what is synced by itself. On a
standalone node durable means synced. Where the topic says flush = os, what is written is committed before it is
durable. Acks none and leader are kept when a batch is written, acks durable when nothing takes the batch back any more.

Who waits, waits for a Due and never for an index alone: where leaders follow each other, another one's batch may get
the same index, and must not answer for the one that was lost.

Holds nothing that a crash could take: it reads what its logs say.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from logboom.storage.data.topic import Acks, FlushSettings
from logboom.storage.log import Log


class Due(msgspec.Struct, frozen=True, gc=False):
    """What somebody waits for: that this round, of this term and no other, is durable."""

    round: int
    """On a standalone node, where a log is written directly: the index of a batch in its log."""
    term: int


class Commitment(Protocol):
    def commits_written(self, flush: FlushSettings) -> bool:
        """Whether what is written to a topic that is flushed so is committed with that."""
        ...

    def durable_index(self, log: Log) -> int:
        """Of the last batch of a log that nothing takes back any more, with all that are before it."""
        ...

    def due(self, log: Log, index: int, acks: Acks = "durable") -> Due | None:
        """What an append of a batch that is written now, or was before, waits for; None where its promise is kept."""
        ...

    def is_kept(self, log: Log, due: Due) -> bool:
        """Whether what somebody waits for has come."""
        ...


class StandaloneCommitment:
    """Implements Commitment for a node that has its logs to itself.

    A log is never cut while it is open, so its indexes stand for one batch each and the term has nothing to decide.
    """

    def commits_written(self, flush: FlushSettings) -> bool:
        return flush.may_lose

    def durable_index(self, log: Log) -> int:
        return log.synced_index

    def due(self, log: Log, index: int, acks: Acks = "durable") -> Due | None:
        return None if acks != "durable" or index <= log.synced_index else Due(index, log.term)

    def is_kept(self, log: Log, due: Due) -> bool:
        return due.round <= log.synced_index


STANDALONE: Final = StandaloneCommitment()
