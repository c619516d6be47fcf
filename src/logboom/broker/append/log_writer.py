"""The one owner of a log's writes: what is written when, by whom, and who is told.

    submit → (queue) → append → written → sync → durable → committed
                 inline or on a thread     by the SyncRounds, for many logs at once

Invariants. Batches enter the log in the order of `submit`. While a thread has the log (`busy`) nobody else calls
anything of it that writes; what comes meanwhile waits in the queue. An append is answered when its promise is kept and
waits for nothing else. When that is, and what readers may see, the Commitment says; readers are woken when it is more.

What waits for a sync waits for the round of the SyncRounds that brings it, and all of it is written with one call. What
does not is written at once. Either is done on the loop itself where it is small and the log is not being synced; else
on a thread, because writing takes long while the same file is synced.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Sequence
from typing import Final

from logboom.broker.append.commitment import Due
from logboom.broker.append.entry_appender import EntryAppender
from logboom.broker.append.entry_queue import EntryQueue
from logboom.broker.append.promise import Adoption, Entry
from logboom.broker.append.sync_rounds import SyncRounds
from logboom.broker.append.turn import LogTurn
from logboom.errors import LogboomError, LogReadOnly, Overloaded, SyncFailed
from logboom.storage.append import Answer
from logboom.storage.appender import PendingSync
from logboom.storage.data.topic import Settings
from logboom.storage.log import Log

INLINE_BYTES: Final = 1024 * 1024
"""More than this in one append is left to a thread."""
LAZY_SYNC_BYTES: Final = 32 * 1024 * 1024
"""With flush = os a sync is begun when so much is unsynced: so that a roll finds little to do."""
LAZY_SYNC_MS: Final = 1000
"""And after so long, however little it is."""


class LogWriter:
    """Implements turn.RoundLog."""

    def __init__(self, name: str, log: Log, settings: Settings, rounds: SyncRounds, term: int | None = None) -> None:
        self.name = name
        """`topic/partition`."""
        self.log = log
        self.commitment = rounds.commitment
        self.configure(settings)
        self._rounds = rounds
        self._account = rounds.open_account(self)
        self._loop: AbstractEventLoop = rounds.loop
        self._into_log = EntryAppender(name, log, rounds, term)
        self._term_index: int | None = None
        """Up to where the log must be durable to have it."""
        self.busy = False
        """Whether a thread has the log."""
        self._queue = EntryQueue()
        self._unsynced_from: deque[tuple[int, int]] = deque()
        """What each write added, with the last index of the write."""
        self._awaiting: deque[tuple[Due, Entry | Future[None]]] = deque()
        """Written, and to be answered when what is due has come."""
        self._late: PendingSync | None = None
        """A sync that has ended while a thread had the log."""
        self._untold = False
        """Whether more is committed than readers in other processes know."""
        self._waiters: dict[Future[None], None] = {}
        self._timer: TimerHandle | None = None
        self._patience: TimerHandle | None = None
        self._gone: LogboomError | None = None

    def configure(self, settings: Settings) -> None:
        flush = settings.flush
        self._commits_written = self.commitment.commits_written(flush)
        delay_ms = {"each": 0, "interval": flush.interval_ms, "os": LAZY_SYNC_MS}[flush.policy]
        self._sync_after_s = delay_ms / 1000

    def __repr__(self) -> str:
        return f"<LogWriter {self.name}>"

    @property
    def queued_bytes(self) -> int:
        return self._account.queued_bytes

    @property
    def unsynced_bytes(self) -> int:
        return self._account.unsynced_bytes

    @property
    def is_fresh(self) -> bool:
        return bool(self._queue.entries) and not self._account.unsynced_bytes

    @property
    def has_work(self) -> bool:
        return bool(self._queue.entries or self._awaiting or self.busy)

    def submit(self, entry: Entry) -> None:
        """Take an append in. Its promise is kept, or broken with a reason, in any case."""
        refusal = self._gone or self._rounds.failure
        if refusal is not None:
            return self.refuse(entry, refusal)
        if entry.acks != "durable" and self._is_quick(entry):
            return self._write_now((*self._take_queue(), entry))
        return self._enqueue(entry)

    def refuse(self, entry: Entry, error: LogboomError) -> None:
        """Nothing of this is written. What was written before, and is only sent again, gets its first answer."""
        firsts = [] if self._gone is not None or entry.stamped else list(map(self.log.first_answer, entry.batches))
        if not any(firsts):
            return self._rounds.refuse(entry, error)
        entry.answers = [first or error for first in firsts]
        due = self.commitment.due(self.log, self._rounds.counts.note(entry), entry.acks)
        if due is None or self._rounds.failure is not None:
            return entry.settle()
        self._awaiting.append((due, entry))
        return self._rounds.want(self)

    @property
    def _is_free(self) -> bool:
        return not self.busy and not self._rounds.paused

    def _is_quick(self, entry: Entry | None = None) -> bool:
        """Whether the loop itself may write what is queued, and this behind it: a hop to a thread would take longer."""
        work_bytes, size = self._queue.work_bytes, self._account.queued_bytes
        if entry is not None:
            work_bytes, size = work_bytes + entry.work_bytes, size + entry.size
        return work_bytes <= INLINE_BYTES and self._is_free and self.log.is_quick(size) and self._account.has_room(size)

    def _enqueue(self, entry: Entry) -> None:
        overloaded = self.overload(entry.size)
        if overloaded is not None:
            return self.refuse(entry, overloaded)
        entry.give_up_at = self._loop.time() + self._rounds.limits.append_wait_ms / 1000
        self._queue.put(entry)
        self._account.note_queued(entry.size)
        return self.go_on()

    def overload(self, size: int) -> Overloaded | None:
        """Why so many bytes more may not wait for this log."""
        return self._account.overload(self.name, size)

    def count_waiting(self, size: int) -> None:
        """So many bytes more, or less, wait for this log: in its queue, or before it."""
        self._account.note_queued(size)

    def _give_up(self) -> None:
        """Some have waited for room long enough."""
        self._patience = None
        now, most = self._loop.time(), self._rounds.limits.unsynced_bytes_per_log
        while self._queue.entries and self._queue.entries[0].give_up_at <= now and not self._account.has_room(0):
            entry = self._unqueue()
            self.refuse(entry, Overloaded(self.name, self.queued_bytes + self.unsynced_bytes, most))
        self.go_on()

    def _unqueue(self) -> Entry:
        """The first."""
        entry = self._queue.take()
        self._account.note_queued(-entry.size)
        return entry

    def go_on(self) -> None:
        """Write what is queued as soon as can be: with the next sync, or before it where somebody waits for no sync."""
        if not self._queue.entries:
            return
        if not self._is_free:
            if self._rounds.paused:
                self._rounds.hold_up(self)
            return
        has_room = self._account.has_room(0)
        if self._queue.eager and has_room and (entries := self._take_queue()):
            self._seize()
            self._rounds.run(self._write_queue, entries)
            return
        self._rounds.want(self)
        if not has_room and self._patience is None:
            self._patience = self._loop.call_at(self._queue.entries[0].give_up_at, self._give_up)

    def take_turn(self) -> LogTurn | None:
        if self._queue.entries and self._is_quick():
            self._write_now(self._take_queue())
        elif entries := self._take_queue():
            self._seize()
            return LogTurn(self, entries)
        if self.log.syncing or self._gone is not None:
            return None
        pending = self.log.begin_sync()
        if pending is None:
            self._catch_up()
            return None
        return LogTurn(self, [], pending)

    def write(self, turn: LogTurn) -> None:
        self._into_log.append(turn.entries)
        turn.pending = self.log.begin_sync()

    def written(self, turn: LogTurn) -> None:
        self._wrote(turn.entries)

    def synced(self, turn: LogTurn) -> None:
        if turn.pending is not None:
            self._end_sync(turn.pending)
        self.go_on()

    def _take_queue(self) -> list[Entry]:
        """What is to be written now: as much as there is room for, at least one entry."""
        queue, account, syncing = self._queue, self._account, self.log.syncing
        if not queue.entries:
            return []
        if not syncing and account.has_room(queue.size):
            account.note_queued(-queue.size)
            return queue.take_all()
        entries: list[Entry] = []
        taken = 0
        while queue.entries and (not entries or account.has_room(taken)):
            if syncing and isinstance(queue.entries[0], Adoption):
                break  # a segment must be rolled for it
            entry = self._unqueue()
            taken += entry.size
            entries.append(entry)
        return entries

    def _write_queue(self, entries: list[Entry]) -> None:
        """On a thread."""
        self._into_log.append(entries)
        self._rounds.call_soon(self._wrote, entries)

    def _wrote(self, entries: list[Entry]) -> None:
        self._written(entries)
        self._free()
        self.go_on()

    def _seize(self) -> None:
        """A thread gets the log."""
        self.busy = True
        self._account.note_seized()

    def _free(self) -> None:
        """No thread has the log any more."""
        self.busy = False
        self._account.note_freed()
        if self._untold:
            self.tell()
        if self._late is not None:
            pending, self._late = self._late, None
            self._end_sync(pending)
        self._rounds.freed()

    def _write_now(self, entries: Sequence[Entry]) -> None:
        """On the loop itself."""
        self._into_log.append(entries)
        self._written(entries)

    def _written(self, entries: Sequence[Entry]) -> None:
        """Answer those that wait for no more, and see to it that the others are synced."""
        log, counts, commitment = self.log, self._rounds.counts, self.commitment
        before, awaited = counts.bytes, False
        for entry in entries:
            due = commitment.due(log, counts.note(entry), entry.acks)
            if due is None:
                entry.settle()
            else:
                awaited = True
                self._awaiting.append((due, entry))
        if log.failed:
            return self._stop_all()
        size = counts.bytes - before
        if size:
            self._unsynced_from.append((log.last_index, size))
            self._account.note_unsynced(size)
            term = self._into_log.term
            if term is not None and self._term_index is None and log.term >= term:
                self._term_index = log.last_index
            if self._commits_written and term is None:
                log.commit(log.last_index, tell=False)
                self.wake()
                self._rounds.tell_later(self)
        durable = commitment.durable_index(log)
        if size and (durable > log.committed_index or durable == log.last_index):
            self.advance()
        elif awaited or size:
            self._see_to_sync(awaited)
        return None

    def _stop_all(self) -> None:
        failure = SyncFailed(self.log.refusal)
        self._rounds.fail(failure, None)
        self.break_off(LogReadOnly(str(failure)), failure)  # the node may have stopped before this came back

    def _see_to_sync(self, now: bool) -> None:
        """At once where somebody waits for it, or nothing can be shown before it; else as the topic says."""
        if now or not self._sync_after_s or self._into_log.term is not None or self.unsynced_bytes >= LAZY_SYNC_BYTES:
            self._rounds.want(self)
        elif self._timer is None:
            self._timer = self._loop.call_later(self._sync_after_s, self._due)

    def _due(self) -> None:
        self._timer = None
        if self.unsynced_bytes:
            self._rounds.want(self)

    def _end_sync(self, pending: PendingSync) -> None:
        """A sync has succeeded: commit, answer, wake. A roll that is due is left to a thread."""
        if self.busy:
            self._late = pending
        elif self.log.outgrown:
            self._seize()
            self._rounds.run(self._end_sync_on_thread, pending)
        else:
            self.log.end_sync(pending, tell=False)
            self.advance()

    def _end_sync_on_thread(self, pending: PendingSync) -> None:
        self.log.end_sync(pending)
        self._rounds.call_soon(self._rolled)

    def _rolled(self) -> None:
        self.advance()
        self._free()
        self.go_on()

    def _catch_up(self) -> None:
        """Where everything is durable already, by a roll before a write that failed: then no round says so."""
        if self.durable_index == self.log.last_index and (self._awaiting or self.unsynced_bytes):
            self.advance()

    def advance(self) -> None:
        """More may be durable: commit, answer, wake."""
        log, is_kept = self.log, self.commitment.is_kept
        if log.failed:
            return self._stop_all()
        durable = self.durable_index
        if self._term_index is not None and self._term_index <= durable:
            self._into_log.term = self._term_index = None
        while self._unsynced_from and self._unsynced_from[0][0] <= durable:
            self._account.note_unsynced(-self._unsynced_from.popleft()[1])
        if durable > log.committed_index:
            log.commit(durable, tell=False)
            self.wake()
        elif self._commits_written:
            self.wake()  # those who copy this log wait for what is durable
        log.tell()  # first: who is answered may look at the files next
        while self._awaiting and is_kept(log, self._awaiting[0][0]):
            _, waiting = self._awaiting.popleft()
            if isinstance(waiting, Entry):
                waiting.settle()
            elif not waiting.done():
                waiting.set_result(None)
        if log.failed:  # readers in other processes could not be told
            return self._stop_all()
        if self._awaiting or self.unsynced_bytes:
            self._see_to_sync(bool(self._awaiting))
        return None

    def tell(self) -> None:
        """Readers in other processes see what is committed."""
        self._untold = self.busy
        if not self.busy and not self.log.closed:
            self.log.tell()
            if self.log.failed and self._rounds.failure is None:
                self._stop_all()

    def wake(self) -> None:
        """Readers that wait are to look again."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def news(self) -> Future[None]:
        """Done when more is committed, or the log is gone."""
        waiter: Future[None] = self._loop.create_future()
        if self._gone is not None:
            waiter.set_result(None)
        else:
            self._waiters[waiter] = None
        return waiter

    def forget(self, waiter: Future[None]) -> None:
        """Nobody waits for this any more."""
        self._waiters.pop(waiter, None)

    @property
    def readers_waiting(self) -> int:
        return len(self._waiters)

    @property
    def durable_index(self) -> int:
        """Of the last batch that nothing takes back any more."""
        return self.commitment.durable_index(self.log)

    def due(self, index: int) -> Due | None:
        """What to wait for until nothing takes back the batch that is at this index now; None where nothing does."""
        return self.commitment.due(self.log, index)

    @property
    def end(self) -> Due | None:
        """The same, for everything that is written."""
        return self.due(self.log.last_index)

    def is_kept(self, due: Due | None) -> bool:
        return due is None or self.commitment.is_kept(self.log, due)

    def durable(self, due: Due | None) -> Future[None]:
        """Done when nothing takes it back any more."""
        waiter: Future[None] = self._loop.create_future()
        if due is None or self.commitment.is_kept(self.log, due):
            waiter.set_result(None)
        elif self._rounds.failure is not None:  # there will be no more rounds
            waiter.set_exception(SyncFailed(str(self._rounds.failure)))
        else:
            self._awaiting.append((due, waiter))
            self._rounds.want(self)
        return waiter

    @property
    def gone(self) -> LogboomError | None:
        """Why the log is not here any more."""
        return self._gone

    def leave(self, error: LogboomError) -> None:
        """The log is gone: nothing is taken any more, and who waits learns why."""
        self._gone = error
        self.break_off(error, error)

    def break_off(self, unwritten: LogboomError, written: LogboomError) -> None:
        """Nothing will be written or synced any more."""
        for timer in (self._timer, self._patience):
            if timer is not None:
                timer.cancel()
        self._timer = self._patience = None
        while self._queue.entries:
            self.refuse(self._unqueue(), unwritten)
        while self._awaiting:
            _, waiting = self._awaiting.popleft()
            if isinstance(waiting, Entry):
                answers: list[Answer] = [
                    answer if isinstance(answer, LogboomError) or self.due(answer.index) is None else written
                    for answer in waiting.answers
                ]
                waiting.answers, waiting.meter = answers, None
                waiting.settle()
            elif not waiting.done():
                waiting.set_exception(written)
        self._account.note_unsynced(-self.unsynced_bytes)
        self._unsynced_from.clear()
        self.wake()

    def begin_anew(self, log: Log) -> None:
        """Another log is in the place of this one, of which nobody waits for anything."""
        self.log = self._into_log.log = log
        self.wake()

    def begin_term(self, term: int) -> None:
        """What is appended from now on is of this term.

        Nothing of it is shown before it is durable: else it could be lost with what it tells of, and begin twice.
        """
        self._into_log.term, self._term_index = term, None

    def stop(self, error: OSError) -> None:
        """A sync of this or another log has failed: no more writes, though reads go on."""
        if not self.log.failed and not self.log.closed:
            self.log.fail_sync(error)
        failure = SyncFailed(self.log.refusal)
        self.break_off(LogReadOnly(str(failure)), failure)
