"""Appends: batches for logs, and the answer each one gets.

An append takes its place in its logs' order when it is called, not when it is awaited; the future it returns is done as
soon as the promise is kept, which may be at once. Answers come one for each batch, in order: where it went, or why not.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from logboom.batch import Batch
from logboom.broker.caller import Caller
from logboom.storage.append import Answer
from logboom.storage.data.topic import Acks


class AppendCalls(Protocol):
    """For those who only write."""

    def append(self, parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller) -> Future[list[Answer]]:
        """One answer for each batch of each part, in order. The topic's default stands in for `acks`."""
        ...


class Part(NamedTuple):
    """Batches for one log."""

    topic: str
    batches: Sequence[Batch]
    partition: int | None = None
    """None names the only one."""
    expect_seqno: int | None = None
    """The seqno the first batch must get; the others follow it, or are refused with it."""
    topic_id: str | None = None
    """Refuse where the name is another topic's by now."""
