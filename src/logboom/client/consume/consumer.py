"""Reads what its group has given it, in the calling thread; a thread of its own keeps it in the group.

One thread at a time. What is given is in order inside each log, and goes on behind the group's place; after a lost
connection or a restarted node, exactly behind what was given. See docs/howto/groups.md for what is promised.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from logboom.batch import Record
from logboom.client.consume.consumer_core import Commit, Say, Tell
from logboom.client.consume.consumer_state import CLOSE_S, ConsumerState
from logboom.client.consume.queue_consumer import QueueConsumer
from logboom.client.read.blocking_steps import BlockingSteps
from logboom.client.read.start import check_seqno
from logboom.errors import LogboomError

if TYPE_CHECKING:
    import pyarrow as pa

Piece = TypeVar("Piece")


class Consumer(ConsumerState, BlockingSteps):
    """
    with Consumer("orders", "localhost:1773", group="billing") as consumer:
        for record in consumer:
            print(record.topic, record.partition, record.seqno, record.value)

    Loops wait for more, for ever, or until nothing has come for `timeout_s`; without `follow` they go up to where the
    logs ended that it holds.

    With `mode="queue"` it is a `QueueConsumer`, and takes what that takes.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: Any, mode: str = "logs", **options: Any) -> Any:
            return QueueConsumer(*arguments, **options) if mode == "queue" else super().__new__(cls)

    def _begin(self) -> None:
        self._finalizer = weakref.finalize(self, self._membership.abandon)
        try:
            self._membership.start().result()
        except BaseException:
            self._finalizer()
            raise

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def close(self) -> None:
        """Commit what the loop has come back for, and leave the group."""
        if self._is_closed:
            return
        self.stop()
        self._is_closed = True
        self._finalizer.detach()
        try:
            self._membership.leave(self._core.last_moves()).result(CLOSE_S)
        except (LogboomError, TimeoutError):
            pass  # what is not committed is given again
        finally:
            self._run(self._core.fetching.close())

    def records(self, follow: bool = True, timeout_s: float | None = None) -> Iterator[Record]:
        """Record by record."""
        return chain.from_iterable(self._pieces(methodcaller("records"), follow, timeout_s))

    def lists(
        self, columns: Sequence[str] = ("value",), follow: bool = True, timeout_s: float | None = None
    ) -> Iterator[tuple[list[Any], ...]]:
        """Some columns as lists of Python objects, a batch at a time."""
        return self._pieces(methodcaller("lists", columns), follow, timeout_s)

    def tables(
        self, columns: Sequence[str] | None = None, follow: bool = True, timeout_s: float | None = None
    ) -> Iterator[pa.Table]:
        """Arrow tables as they come, each of one log, in the memory they were received in."""
        return self._pieces(methodcaller("tables", columns), follow, timeout_s)

    def poll(self, timeout_s: float | None = None, max_records: int = 1000) -> list[Record]:
        """Up to so many records of one log; none where none has come for `timeout_s`."""
        return next(self._pieces(methodcaller("some", max_records), True, timeout_s), [])

    def seek(self, seqno: int, topic: str | None = None, partition: int | None = None) -> None:
        """Go on there, in the log that is named. The group's place moves no sooner than behind where it is."""
        self._run(self._core.seek(check_seqno(seqno), topic, partition))

    def commit(self, *records: Record) -> None:
        """Move the group's places behind all that was given, or behind these records; durable when this returns.

        Raises LogNotHeld where a log is not this member's any more.
        """
        self._check()
        self._run(self._core.commit(records))

    def _pieces(self, take: Callable[[Any], Iterator[Piece]], follow: bool, timeout_s: float | None) -> Iterator[Piece]:
        self._check()
        core, latch, run = self._core, self._latch, self._run
        run(core.begin(follow))
        deadline = core.fetching.deadline(timeout_s)
        while True:
            came, pieces = False, take(core.reading)
            while not (latch.is_shut or self._is_stopped):
                piece = core.next_of(pieces)
                if piece is None or (core.commits_before and not run(core.commit_ahead())):
                    break
                came = True
                yield piece
                core.in_hand = False
            if self._is_stopped:
                return
            is_interrupted = latch.is_shut
            run(core.attend())
            if came:
                deadline = core.fetching.deadline(timeout_s)
            if core.is_done or not (is_interrupted or run(core.fetch(deadline))):
                return

    def _do(self, step: Any) -> Any:
        if isinstance(step, Tell):
            listener = self._listeners[step.what]
            return None if listener is None else listener(step.logs)
        if isinstance(step, Say):
            return self._membership.say(step.report)
        if isinstance(step, Commit):
            return self._membership.commit(step.moves).result()
        return super()._do(step)
