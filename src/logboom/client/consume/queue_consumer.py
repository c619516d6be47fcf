"""Works on single records of a queue, in the calling thread; a thread of its own keeps it in the group."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from types import TracebackType

from logboom.broker.api import RefusedSettlement
from logboom.client.consume.job import Job, LeasedPiece
from logboom.client.consume.queue_consumer_state import CLOSE_S, FLUSH_S, QueueConsumerState
from logboom.errors import LocalProtocolError


class QueueConsumer(QueueConsumerState):
    """
    with Consumer("jobs", "localhost:1773", group="workers", mode="queue") as consumer:
        for job in consumer:
            work(job.record.value)
            job.ack()

    Loops wait for more, for ever, or until nothing has come for `timeout_s`.
    """

    def _begin(self) -> None:
        self._finalizer = weakref.finalize(self, self._member.leave)
        try:
            self._member.start().result()
        except BaseException:
            self._finalizer()
            raise

    def _receiver(self) -> Callable[[LeasedPiece | BaseException], None]:
        self._pieces: SimpleQueue[LeasedPiece | BaseException | None] = SimpleQueue()
        return self._pieces.put

    def __enter__(self) -> QueueConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Job]:
        return self.jobs()

    def jobs(self, timeout_s: float | None = None) -> Iterator[Job]:
        """One after the other."""
        while not self._is_stopped:
            if self._is_closed:
                raise LocalProtocolError("the consumer is closed")
            self._member.asked_s = time.monotonic()
            if self._current is None:
                try:
                    piece = self._pieces.get(timeout=timeout_s)
                except Empty:
                    return
                if piece is None:
                    return  # stopped
                if isinstance(piece, BaseException):
                    self._pieces.put(piece)
                    raise piece
                self._current = piece, self._jobs_of(piece)
            job = self._next_of_current()
            if job is not None:
                yield job

    def poll(self, timeout_s: float | None = None) -> Job | None:
        """The next one; None where none has come for `timeout_s`."""
        return next(self.jobs(timeout_s), None)

    def flush(self) -> list[RefusedSettlement]:
        """Returns when all that was said is durable: what was refused since the last time, because a lease was over."""
        return self._member.flush().result(FLUSH_S)

    def stop(self) -> None:
        """Let loops end when they come back, or wait. May be called from elsewhere: a signal, another thread."""
        self._is_stopped = True
        self._pieces.put(None)

    def close(self) -> None:
        """Say what was said of records, and leave the group. What was not settled is free at once."""
        if not self._is_closed:
            self.stop()
            self._is_closed = True
            self._finalizer()
            self._member.ended(CLOSE_S)
