"""One log as its writer sees it: batches in their order, some of them sent, and what every answer means for the rest.

Invariants. Batches are sent in the order of their numbers, and again in that order after a lost connection. A batch
leaves when it is known what became of it, or when nobody can know any more. Batches of two producer ids are never
under way together, so an answer to one says nothing about the place of the other.

After a refusal nothing is sent until every batch under way has its answer: those behind the refused one were refused
too, for the gap it left. Then the first one's refusal decides:

    full, overloaded, stopping        all are sent again, later
    SequenceGap                       not in the log, nor is anything behind it: a new producer id, numbers from 0
    UnknownProducer                   the same, unless it may have been appended earlier: then nobody knows;
      or ProducerForgotten            the new id comes with the refusal, where the node gives ids
    RepeatForgotten                   it is in the log, who knows where
    anything else                     it has failed; what is behind it is sent, and will find the gap

`doubt` marks a batch that was sent and not answered: it may be in the log. Its failure is OutcomeUnknown, whatever it
was refused with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from logboom.batch.header import SEQUENCE_MODULUS, Buffer, Producer
from logboom.client.write.gathered import Gathered, Waiter
from logboom.errors import (
    AccessError,
    AppendRefused,
    BatchError,
    InvalidColumn,
    LimitExceeded,
    LogboomError,
    LowSpace,
    OutcomeUnknown,
    Overloaded,
    RepeatForgotten,
    SequenceGap,
    TopicError,
    Unavailable,
    UnknownProducer,
)
from logboom.protocols.binary.messages import AppendedAt

TRANSIENT: Final = (Unavailable, Overloaded, LowSpace)
_NOT_APPENDED: Final = (AccessError, AppendRefused, Unavailable, BatchError, TopicError, LimitExceeded, InvalidColumn)


class LaneState(Enum):
    WAITING = 0
    SENT = 1
    REFUSED = 2
    SETTLED = 3


class SpillPlace(NamedTuple):
    """Where in the spill file a batch is."""

    position: int
    size: int


class Parcel:
    """A batch on its way to its log, and who waits for it."""

    __slots__ = ("count", "data", "doubt", "error", "parts", "place", "producer", "since", "size", "state", "waiters")

    def __init__(
        self,
        data: Buffer,
        count: int,
        producer: Producer,
        since: float,
        waiters: list[tuple[int, Waiter]] | None = None,
    ) -> None:
        self.data: Buffer | None = data
        """None while it is in the spill file only."""
        self.size = len(data)
        self.count = count
        self.producer = producer
        self.since = since
        """When its first record was written: it fails when that is too long ago."""
        self.waiters = waiters
        self.state = LaneState.WAITING
        self.doubt = False
        self.error: LogboomError | None = None
        self.place: SpillPlace | None = None
        self.parts: list[Parcel] | None = None
        """What it was dealt out as, when there were partitions to choose from."""

    @property
    def is_safe(self) -> bool:
        """Whether its writer may forget it: answered, failed, or in the spill file."""
        if self.parts is not None and self.place is None:
            return all(part.is_safe for part in self.parts)
        return self.state is LaneState.SETTLED or self.place is not None

    def failure(self, error: LogboomError) -> LogboomError:
        """What to tell those who wait, when this is why it is given up."""
        if not self.doubt or isinstance(error, OutcomeUnknown):
            return error
        return OutcomeUnknown(f"it was sent and not answered, and then: {error}")


def all_safe(parcels: list[Parcel]) -> bool:
    """Whether all of these are. Takes those out that are; they go in their order, so the last is looked at first."""
    while parcels and parcels[-1].is_safe:
        parcels.pop()
    return not parcels


class LaneVerdict(NamedTuple):
    """What the lane has decided: parcels that are done with an answer or an error."""

    parcel: Parcel
    outcome: AppendedAt | LogboomError | None
    """None: it is in the log, at a seqno nobody has told us."""


class Lane:
    def __init__(self, partition: int | None, producer_id: int) -> None:
        self.partition = partition
        """None as long as nobody knows how many there are."""
        self.gathered = Gathered()
        self.queue: deque[Parcel] = deque()
        self.urgent = False
        """Whether somebody waits for what is gathered: it goes as soon as nothing else is under way."""
        self.sent = 0
        """How many parcels, from the first one on, were sent on this connection."""
        self.under_way = 0
        """How many of them have no answer."""
        self.resume_at = 0.0
        self.refusals = 0
        """Transient ones in a row."""
        self.refusal: LogboomError | None = None
        """The last of them."""
        self._producer_id = producer_id
        self._seq = 0
        self._has_sent = False
        """Whether anything went out under this id."""

    @property
    def producer(self) -> Producer:
        """The number of the next batch."""
        return Producer(self._producer_id, 0, self._seq)

    def advance(self, count: int) -> None:
        """It has so many records."""
        if self._producer_id:
            self._seq = (self._seq + count) % SEQUENCE_MODULUS

    def adopt(self, other: Lane) -> None:
        """Go on with what the other had, of which nothing was sent."""
        self.queue += other.queue
        self.gathered, self.urgent = other.gathered, other.urgent
        self._producer_id, self._seq, self._has_sent = other._producer_id, other._seq, other._has_sent

    def issue(self, producer_id: int) -> bool:
        """Go by this id, unless something was sent or spilled under another. Whether parcels have other numbers now."""
        old_id = self._producer_id
        numbered = [parcel for parcel in self.queue if parcel.producer.id == old_id]
        if self._has_sent or old_id == producer_id or any(parcel.place is not None for parcel in numbered):
            return False
        self._renumber(old_id, producer_id)
        return bool(numbered)

    @property
    def is_idle(self) -> bool:
        return not self.queue and not self.gathered.values

    @property
    def is_halted(self) -> bool:
        """Whether a refusal waits for the other answers."""
        return any(parcel.state is LaneState.REFUSED for parcel in self._sent_ones())

    def next_to_send(self, window: int) -> Parcel | None:
        if self.under_way < self.sent and self.is_halted:
            return None
        while self.sent < len(self.queue) and self.queue[self.sent].state is LaneState.SETTLED:
            self.sent += 1
        if self.sent >= min(window, len(self.queue)):
            return None
        parcel = self.queue[self.sent]
        if self.sent and parcel.producer.id != self.queue[0].producer.id:
            return None
        return parcel

    def mark_sent(self, parcel: Parcel) -> None:
        parcel.state = LaneState.SENT
        self._has_sent = self._has_sent or parcel.producer.id == self._producer_id
        self.sent += 1
        self.under_way += 1

    def answered(self, parcel: Parcel, answer: AppendedAt | LogboomError) -> list[LaneVerdict]:
        """An answer has come for a parcel that was sent. An empty list where more answers must come first."""
        if parcel.state is not LaneState.SENT:
            return []
        self.under_way -= 1
        if isinstance(answer, AppendedAt):
            self.refusals, self.refusal = 0, None
            parcel.state, parcel.data = LaneState.SETTLED, None
            self._drop_settled()
            return [LaneVerdict(parcel, answer)]
        parcel.state, parcel.error = LaneState.REFUSED, answer
        if not isinstance(answer, _NOT_APPENDED):
            parcel.doubt = True
        return []

    def judge(self, new_id: int) -> tuple[list[LaneVerdict], bool, bool]:
        """When nothing is under way any more: what becomes of the refused. Also: whether to wait, whether renumbered.

        To be called where `is_halted` and nothing is under way.
        """
        self._drop_settled()
        first = next(parcel for parcel in self._sent_ones() if parcel.state is LaneState.REFUSED)
        error = first.error
        assert error is not None
        verdicts: list[LaneVerdict] = []
        wait = renumber = False
        if isinstance(error, TRANSIENT):
            self.refusals += 1
            self.refusal = error
            wait = True
        elif isinstance(error, SequenceGap) or (isinstance(error, UnknownProducer) and not first.doubt):
            self._renumber(first.producer.id, getattr(error, "fresh_id", 0) or new_id)
            renumber = True
        elif isinstance(error, UnknownProducer):
            lost = [parcel for parcel in self.unsettled() if parcel.doubt and parcel.producer.id == first.producer.id]
            verdicts = [LaneVerdict(parcel, parcel.failure(error)) for parcel in lost]
        elif isinstance(error, RepeatForgotten):
            verdicts = [LaneVerdict(first, None)]
        else:
            verdicts = [LaneVerdict(first, first.failure(error))]
        self.recall()
        self.remove(verdict.parcel for verdict in verdicts)
        return verdicts, wait, renumber

    def recall(self) -> None:
        """Nothing is under way, and nothing counts as sent."""
        for parcel in self._sent_ones():
            if parcel.state is not LaneState.SETTLED:
                parcel.state, parcel.error = LaneState.WAITING, None
        self.sent = self.under_way = 0
        self._drop_settled()

    def disconnected(self, repeat: bool) -> list[LaneVerdict]:
        """The connection is gone. `repeat`: what had no answer is sent again on the next; else it has failed."""
        lost = [parcel for parcel in self._sent_ones() if parcel.state is LaneState.SENT]
        for parcel in lost:
            parcel.doubt = True
        self.recall()
        if repeat:
            return []
        self.remove(lost)
        unknown = OutcomeUnknown("the connection was lost before the answer came")
        return [LaneVerdict(parcel, unknown) for parcel in lost]

    def expired(self, before: float) -> list[Parcel]:
        """Parcels whose first record was written before this time: they are in front, and leave. Those spilled stay."""
        old: list[Parcel] = []
        for parcel in self.unsettled():
            if parcel.since > before or parcel.place is not None:
                break
            old.append(parcel)
        for parcel in old:
            parcel.doubt = parcel.doubt or parcel.state is LaneState.SENT
        self.remove(old)
        return old

    def remove(self, parcels: Iterable[Parcel]) -> None:
        for parcel in list(parcels):
            if parcel.state is LaneState.SENT:
                self.under_way -= 1
            parcel.state, parcel.data = LaneState.SETTLED, None
        self._drop_settled()

    def unsettled(self) -> list[Parcel]:
        return [parcel for parcel in self.queue if parcel.state is not LaneState.SETTLED]

    def _sent_ones(self) -> list[Parcel]:
        return [self.queue[i] for i in range(self.sent)]

    def _drop_settled(self) -> None:
        """Settled parcels leave from the front. One in the middle keeps its place until those before it are settled.

        The log remembers a producer's last batches only: were others sent in its place, the log might forget the first.
        """
        while self.queue and self.queue[0].state is LaneState.SETTLED:
            self.queue.popleft()
            self.sent = max(0, self.sent - 1)

    def _renumber(self, old_id: int, new_id: int) -> None:
        """What stands under this id is not in the log: it goes under another one, from 0."""
        seq = 0
        for parcel in self.queue:
            if parcel.producer.id != old_id or parcel.state is LaneState.SETTLED:
                continue
            parcel.producer, parcel.doubt = Producer(new_id, 0, seq), False
            seq = (seq + parcel.count) % SEQUENCE_MODULUS
        if self._producer_id == old_id:
            self._producer_id, self._seq = new_id, seq
