"""Appends: batches for logs, and the answer each one gets.

An append takes its place in its logs' order when it is called, not when it is awaited; the future it returns is done as
soon as the promise is kept, which may be at once. Answers come one for each batch, in order: where it went, or why not.
A front-end with many small appends under way is called back instead: a future for each, and a turn of the loop until it
is heard, cost as much as the rest of the way back.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from logboom.batch import Batch
from logboom.broker.caller import Caller
from logboom.errors import OutcomeUnknown
from logboom.storage.append import Answer
from logboom.storage.data.topic import Acks

Outcome = list[Answer] | BaseException
"""Of an append: its answers, or why there are none."""


class AppendCalls(Protocol):
    """For those who only write."""

    def append(self, parts: Sequence[Part], acks: Acks | None = None, *, caller: Caller) -> Future[list[Answer]]:
        """One answer for each batch of each part, in order. The topic's default stands in for `acks`."""
        ...

    def append_then(
        self, parts: Sequence[Part], acks: Acks | None, then: Callable[[Outcome], None], *, caller: Caller
    ) -> None:
        """The same; `then` is called once, as soon as the promise is kept, which may be before this returns.

        It must not raise, nor call the broker, which is in the midst of something.
        """
        ...


class Part(msgspec.Struct, frozen=True):
    """Batches for one log."""

    topic: str
    batches: Sequence[Batch]
    partition: int | None = None
    """None names the only one."""
    expect_seqno: int | None = None
    """The seqno the first batch must get; the others follow it, or are refused with it."""
    topic_id: str | None = None
    """Refuse where the name is another topic's by now."""


def count_batches(parts: Sequence[Part]) -> int:
    return len(parts[0].batches) if len(parts) == 1 else sum(len(part.batches) for part in parts)


def call_when_done(future: Future[list[Answer]], then: Callable[[Outcome], None]) -> None:
    """For those who have a future, and somebody to be called back."""
    if future.done():
        then(_outcome(future))
    else:
        future.add_done_callback(lambda done: then(_outcome(done)))


def _outcome(done: Future[list[Answer]]) -> Outcome:
    if done.cancelled():
        return OutcomeUnknown("the append was given up")
    return done.exception() or done.result()
