"""What a writer does, without sockets, threads or a clock: records in, bytes out; bytes in, results out.

    add → Gathered → cut → Parcel in its Lane → turn → outgoing … received → results

Both shells, blocking and asyncio, drive this: after whatever has happened they call `turn`, send what is in `outgoing`,
and tell those named in `ledger.results`, outside of any lock. Time is passed in, as seconds of a clock that only goes
forward.

Invariants. Each record that was added ends in the ledger's results or losses once, or in the spill file. Batches are
numbered when they are built and keep their numbers until their log has said that they are not in it (see lane.py).
Nothing is sent to another topic than the one the writer began with, even if that has the same name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final

from logboom.batch.header import Buffer
from logboom.client.link.backoff import FIRST_S, LONGEST_S
from logboom.client.link.profile import Profile
from logboom.client.link.session import Event
from logboom.client.write.contact import Contact, append_answer
from logboom.client.write.gathered import Gathered, Written
from logboom.client.write.lane import Lane, LaneState, LaneVerdict, Parcel
from logboom.client.write.ledger import WriterLedger
from logboom.client.write.options import WriterOptions
from logboom.client.write.overflow import Overflow
from logboom.client.write.router import Router
from logboom.client.write.spill import Spill
from logboom.errors import (
    ConnectionLost,
    LogboomError,
    OutcomeUnknown,
    PartitionNotFound,
    TopicError,
)
from logboom.protocols.binary.messages import Append, AppendedAt, AppendPart, Kind

__all__ = ["WriterCore", "Written"]

WINDOW: Final = 16
_SLACK_BYTES: Final = 1024
"""What a batch takes besides its records: the header, and what alignment adds."""


class WriterCore:
    def __init__(self, topic: str, options: WriterOptions, servers: int = 1, spill: Spill | None = None) -> None:
        self.options = options
        self.ledger = WriterLedger(topic)
        self.contact = Contact(topic, servers)
        self.routing = Router(options, self.ledger)
        self.overflow = Overflow(self.routing, self.ledger, spill)
        self.contact.topic_id = self.overflow.topic_id
        self.outgoing: list[Buffer] = []
        self.is_barred = False
        """Whether nothing is to be added now: no room, or no hope."""
        self._active = self.routing.active
        self._asked: dict[int, tuple[Lane, Parcel]] = {}
        self._in_flight_bytes = 0
        self._trouble: LogboomError | None = None
        self._is_flushing = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent or answered."""
        return not self._active

    def __len__(self) -> int:
        """Records that are neither settled nor spilled. Copies are made first: another thread may be at work."""
        return len(self.routing.inbox.entries) + sum(
            len(lane.gathered.values) + sum(parcel.count for parcel in list(lane.queue) if not parcel.is_safe)
            for lane in list(self._active.values())
        )

    def __str__(self) -> str:
        state = "connected" if self.contact.ready else str(self.contact.fatal or "not connected")
        return f"{state}, {len(self)} records waiting"

    def stats(self) -> dict[str, int]:
        ledger, inbox = self.ledger, self.routing.inbox
        return {
            "written": ledger.written,
            "failed": ledger.failed,
            "dropped": ledger.dropped,
            "waiting": len(self),
            "spilled_batches": len(self.overflow),
            "buffered_bytes": ledger.buffered + inbox.rows(inbox.entries[:]).size,
        }

    @property
    def is_busy(self) -> bool:
        """Whether answers are to come."""
        return bool(self._asked)

    def give_up_on(self, error: LogboomError) -> None:
        """Records have failed that nobody waits for: whoever comes next is told."""
        if self._trouble is None:
            self._trouble = error
        self.bar()

    def bar(self) -> None:
        """Nothing is to be added any more, or not until a turn says otherwise."""
        self.is_barred = True
        self.routing.inbox.shut()

    @property
    def is_in_trouble(self) -> bool:
        """Whether whoever comes next, or waits for room, is to be told of an error first."""
        return self._trouble is not None or self.contact.fatal is not None

    def take_trouble(self) -> LogboomError | None:
        """What to raise, once; and always, where there is no hope."""
        trouble, self._trouble = self._trouble, None
        return trouble or self.contact.fatal

    def flush(self, now: float) -> list[Parcel]:
        """Everything is to go now. Returns what must become safe before the flush is done."""
        self._is_flushing = True
        self._gather()
        for lane in list(self._active.values()):
            self.routing.cut(lane, now)
        return [parcel for lane in self._active.values() for parcel in lane.queue if not parcel.is_safe]

    def _gather(self) -> None:
        """What was left in the inbox is taken, and nothing more is left there until a turn has ended."""
        inbox = self.routing.inbox
        inbox.shut()
        if inbox.entries:
            self.routing.collect()

    def hasten(self) -> bool:
        """Somebody waits: what is gathered goes as soon as its log has nothing under way. Whether anything is."""
        found = False
        for lane in self._active.values():
            lane.urgent = True
            found = found or bool(lane.gathered.values)
        return found

    def connected(self, now: float, profile: Profile | None = None) -> None:
        """`profile` says who writes."""
        self.outgoing += self.contact.begin(now, profile)

    def lost(self, error: LogboomError, now: float) -> None:
        """The connection, or the attempt to make one, is gone."""
        self.outgoing, self._asked, self._in_flight_bytes = [], {}, 0
        self.contact.end(error, now)
        for lane in self._active.values():
            self._settle(lane, lane.disconnected(self.options.is_numbered))
        self._despair()

    def buffer(self) -> memoryview:
        assert self.contact.session is not None
        return self.contact.session.buffer()

    def received(self, count: int, now: float) -> None:
        """So many bytes are in the buffer. Raises what ends the connection."""
        contact, session = self.contact, self.contact.session
        assert session is not None
        contact.heard(now)
        for event in session.received(count):
            asked = self._asked.pop(event.correlation, None)
            if asked is not None:
                self._answered(*asked, event, now)
                continue
            self.outgoing += contact.take(event)
            if contact.ready and contact.limits is not None and contact.partitions is not None:
                self.routing.limit(max(1, contact.limits.batch_bytes - _SLACK_BYTES))
                self._know(contact.partitions)
            self._despair()

    def _answered(self, lane: Lane, parcel: Parcel, event: Event, now: float) -> None:
        self._in_flight_bytes -= parcel.size
        answer = append_answer(event)
        self._settle(lane, lane.answered(parcel, answer))
        if isinstance(answer, TopicError):
            self.contact.fatal = answer
            self._despair()
            return
        if isinstance(answer, AppendedAt):
            self.contact.proved()
        if lane.sent and not lane.under_way and lane.is_halted:
            verdicts, wait, renumbered = lane.judge(self.routing.another_id())
            if wait:
                pause_s = min(LONGEST_S, FIRST_S * 2.0 ** min(lane.refusals - 1, 16))
                lane.resume_at = now + pause_s * random.uniform(0.5, 1.0)
            self._settle(lane, verdicts)
            if renumbered:
                self._rewrite(lambda: self.overflow.renumber(lane))

    def _know(self, partitions: int) -> None:
        self.overflow.topic_id = self.contact.topic_id
        for lane in self.routing.issue(self.contact.producer_id):
            self._rewrite(lambda lane=lane: self.overflow.renumber(lane))  # type: ignore[misc]
        try:
            self.routing.know(self.ledger.topic, partitions)
        except PartitionNotFound as error:
            self.contact.fatal = error
            return
        self._rewrite(lambda: self.overflow.decide(partitions))

    def _rewrite(self, work: Callable[[], None]) -> None:
        """Where the spill file cannot be rewritten it stays as it was: another writer of it will try again."""
        try:
            work()
        except OSError as error:
            what = f"{self.overflow.path} cannot be rewritten: {error.strerror or error}"
            self.contact.fatal = OutcomeUnknown(f"{what}; what is in it is written by the next writer that uses it")
            self._despair()

    def turn(self, now: float) -> None:
        """Cut, send and give up whatever it is time for. Raises ConnectionLost where the other side is dead."""
        options, contact = self.options, self.contact
        if contact.fatal is None:
            self._gather()
        else:
            self.abandon(contact.fatal)
        before = now - options.delivery_timeout_s
        unsent = len(self.outgoing)
        is_stuck = options.acks == "none" and unsent > 0
        is_much = self._is_flushing or self.ledger.buffered >= options.buffer_bytes // 2
        if is_much and not contact.ready and contact.error is not None:
            self.spill(now)
            self._is_flushing = self._is_flushing and bool(len(self))
        for lane in list(self._active.values()):
            gathered = lane.gathered
            if gathered.values:
                if gathered.since is None:
                    gathered.since = now
                if self._is_due(lane, now):
                    self.routing.cut(lane, now)
            if lane.queue:
                if lane.queue[0].since <= before:
                    self._expire(lane, before, now)
                if contact.ready and now >= lane.resume_at and lane.sent < len(lane.queue) and not is_stuck:
                    self._send(lane)
            if lane.is_idle:
                del self._active[lane.partition]
        self.outgoing += contact.tend(now, bool(self._asked))
        if len(self.outgoing) > unsent:
            contact.spoke(now)
        self._is_flushing = self._is_flushing and bool(self._active)
        is_full = self.ledger.buffered >= options.buffer_bytes
        self.is_barred = is_full or contact.fatal is not None or self._trouble is not None
        if not self.is_barred:
            self.routing.open_inbox(now)

    def _is_due(self, lane: Lane, now: float) -> bool:
        """Full, or too late; or the log can take it and it has waited long enough, or somebody waits for it alone."""
        gathered = lane.gathered
        if gathered.size >= self.routing.full_bytes:
            return True
        if gathered.since is not None and now >= gathered.since + self.options.delivery_timeout_s:
            return True  # to be given up, with what was cut before
        if not self.contact.ready or lane.sent < len(lane.queue) or lane.sent >= self.window:
            return False
        if lane.urgent and not lane.sent:
            return True
        return gathered.since is not None and now >= gathered.since + self.options.linger_ms / 1000

    @property
    def window(self) -> int:
        """How many batches of one log may be under way."""
        limits = self.contact.limits
        return WINDOW if limits is None else max(1, min(WINDOW, limits.in_flight_batches))

    def next_look(self, now: float) -> float:
        """When `turn` has something to do at the soonest, if nothing happens."""
        contact, options = self.contact, self.options
        look = contact.next_look(now, bool(self._asked))
        for lane in self._active.values():
            gathered, waiting = lane.gathered, len(lane.queue) - lane.sent
            if gathered.since is not None and contact.ready and not waiting and lane.sent < self.window:
                look = min(look, gathered.since + options.linger_ms / 1000)
            if gathered.since is not None:
                look = min(look, gathered.since + options.delivery_timeout_s)
            if lane.queue and lane.queue[0].place is None:
                look = min(look, lane.queue[0].since + options.delivery_timeout_s)
            if waiting and contact.ready and lane.resume_at > now:
                look = min(look, lane.resume_at)
        return look

    def _send(self, lane: Lane) -> None:
        contact, options, window = self.contact, self.options, self.window
        session, limits = contact.session, contact.limits
        assert session is not None and limits is not None  # noqa: PT018
        while (parcel := lane.next_to_send(window)) is not None:
            if self._in_flight_bytes and self._in_flight_bytes + parcel.size > limits.in_flight_bytes:
                return
            self.overflow.sending(parcel)
            part = AppendPart(contact.topic, parcel.size, lane.partition, None, contact.topic_id)
            data = self.overflow.load(parcel) if parcel.data is None else parcel.data
            correlation, buffers = session.request(Kind.APPEND, Append([part], options.acks), (data,))
            self.outgoing += buffers
            lane.mark_sent(parcel)
            if options.acks == "none":
                self._settle(lane, lane.answered(parcel, AppendedAt(-1, parcel.count, 0, -1)))
            else:
                self._asked[correlation] = (lane, parcel)
                self._in_flight_bytes += parcel.size

    def _expire(self, lane: Lane, before: float, now: float) -> None:
        if lane.queue[0].place is None:
            if not self.contact.ready and self.spill(now):
                return
            reason = (lane.refusal if self.contact.ready else self.contact.error) or "no node has answered"
            error = ConnectionLost(f"not written within {self.options.delivery_timeout_s:g} s: {reason}")
            self._settle(lane, [LaneVerdict(parcel, parcel.failure(error)) for parcel in lane.expired(before)])

    def _settle(self, lane: Lane, verdicts: Iterable[LaneVerdict]) -> None:
        settled = list(verdicts)
        self.ledger.settle(lane, settled)
        for parcel, _ in settled:
            self.overflow.settle(parcel)

    def spill(self, now: float) -> bool:
        """Put on disk whatever is in memory. Whether there is a spill file, and it took something."""
        try:
            return self.overflow.take(now)
        except OSError as error:
            also = f"; and {self.overflow.path}: {error}"
            if not str(self.contact.error).endswith(also):
                self.contact.error = ConnectionLost(f"{self.contact.error}{also}")
            return False

    def abandon(self, error: LogboomError) -> None:
        """Nothing is kept waiting any more. What was spilled stays in its file."""
        self._gather()
        for lane in self._active.values():
            for parcel in lane.unsettled():
                parcel.doubt = parcel.doubt or parcel.state is LaneState.SENT
                if parcel.place is None:
                    self.ledger.settle(lane, [LaneVerdict(parcel, parcel.failure(error))])
                else:
                    self.ledger.keep(parcel, OutcomeUnknown(f"it is in {self.overflow.path}, to be written later"))
            lane.remove(lane.queue)
            if lane.gathered.values:
                self.ledger.fail(lane.gathered, error)
                lane.gathered = Gathered()
        self._active.clear()
        self._asked.clear()

    def _despair(self) -> None:
        if self.contact.fatal is not None:
            self.bar()
            self.abandon(self.contact.fatal)
