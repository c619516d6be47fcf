"""What a writer owes: bytes it still holds, and who is to be told what became of their records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from logboom.client.write.gathered import Gathered, Waiter, Written
from logboom.client.write.lane import Lane, LaneVerdict, Parcel
from logboom.errors import LogboomError, OutcomeUnknown
from logboom.protocols.binary.messages import AppendedAt

log = logging.getLogger(__name__)

Results = list[tuple[Waiter, Written | LogboomError]]
Losses = list[tuple[LogboomError, int]]
OnError = Callable[[LogboomError, int], Any]


class WriterLedger:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.buffered = 0
        """Bytes that were added and are neither settled nor spilled."""
        self.results: Results = []
        """Whom to tell what."""
        self.losses: Losses = []
        """What became of records nobody waits for, where it was nothing good, and of how many."""
        self.written = self.failed = self.dropped = 0

    def take(self) -> tuple[Results, Losses]:
        """What there is to tell, once."""
        taken = self.results, self.losses
        self.results, self.losses = [], []
        return taken

    def give_back(self, results: Results, losses: Losses) -> None:
        """Whoever was to tell this was interrupted."""
        self.results[:0] = results[::-1]
        self.losses[:0] = losses

    def settle(self, lane: Lane, verdicts: Iterable[LaneVerdict]) -> None:
        for parcel, outcome in verdicts:
            if parcel.place is None:
                self.buffered -= parcel.size
            if isinstance(outcome, LogboomError):
                self._fail(parcel.waiters, parcel.count, outcome)
            else:
                self.written += parcel.count
                self._tell(lane, parcel, outcome)

    def keep(self, parcel: Parcel, error: LogboomError) -> None:
        """It is in the spill file, and whoever waits here waits no longer."""
        self.results += ((waiter, error) for _, waiter in parcel.waiters or ())

    def fail(self, gathered: Gathered, error: LogboomError) -> None:
        """Records that never became a batch."""
        self.buffered -= gathered.size
        self._fail(gathered.waiters, len(gathered.values), error)

    def refuse(self, waiter: Waiter | None, error: LogboomError) -> None:
        """A record that no batch can hold after all."""
        self._fail(None if waiter is None else [(0, waiter)], 1, error)

    def _tell(self, lane: Lane, parcel: Parcel, outcome: AppendedAt | None) -> None:
        if not parcel.waiters:
            return
        if outcome is None:
            unknown = OutcomeUnknown("it is in the log, but the node has forgotten at which seqno")
            self.results += ((waiter, unknown) for _, waiter in parcel.waiters)
            return
        topic, partition, base, moment = self.topic, lane.partition or 0, outcome.base_seqno, outcome.append_time
        for number, waiter in parcel.waiters:
            seqno = base + number if base >= 0 else base
            self.results.append((waiter, Written(topic, partition, seqno, moment)))

    def _fail(self, waiters: list[tuple[int, Waiter]] | None, count: int, error: LogboomError) -> None:
        self.failed += count
        for _, waiter in waiters or ():
            self.results.append((waiter, error))
        others = count - len(waiters or ())
        if others:
            self.losses.append((error, others))


def tell(results: Results, losses: Losses, on_error: OnError | None) -> LogboomError | None:
    """Tell everybody what became of their records, and forget it. Returns an error that there was nobody to tell of."""
    results.reverse()
    while results:
        waiter, outcome = results.pop()
        try:
            waiter(outcome)
        except Exception:
            log.exception("a callback has failed")
    untold: LogboomError | None = None
    while losses:
        error, count = losses.pop(0)
        if on_error is None:
            untold = untold or error
            continue
        try:
            on_error(error, count)
        except Exception:
            log.exception("on_error has failed")
    return untold
