"""Group commit for the whole node, without timers: a round begins when the last has ended and anybody wants one.

A round takes all logs that want a sync. Each writes what is queued for it with one call: on the loop, when it takes its
turn, or, where it is much, on the thread of the round. That thread then syncs all of them with one call of the disk.
The event loop hears of both steps: after the first nobody has the logs any more, and those whose promise is kept by
writing are answered; after the second the rest is. So one sync carries everything that came while the last one ran.

The rounds know logs only by what `turn.RoundLog` says, and write nothing of them; logs say what they want with `want`,
`hold_up`, `run`, `freed` and `fail`, and book what waits in the account that `open_account` gave them.

A failed sync stops the node's writes: no retry, no promise; only a restart recovers.
"""

from __future__ import annotations

import logging
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from logboom.broker.append.accounts import NodeAccount, WriteAccount
from logboom.broker.append.commitment import STANDALONE, Commitment
from logboom.broker.append.promise import Entry
from logboom.broker.append.turn import LogTurn, RoundLog
from logboom.broker.limits import Limits, Rejections, said_again
from logboom.broker.monitor.measures import Histogram
from logboom.broker.world import REAL, World
from logboom.errors import LogboomError, LogReadOnly, SequenceGap, SyncFailed, UnknownProducer
from logboom.storage.append import Appended
from logboom.storage.files.open_files import OpenFiles

if TYPE_CHECKING:
    from logboom.broker.append.log_writer import LogWriter

logger: Final = logging.getLogger("logboom.broker")


@dataclass(slots=True)
class AppendCounts:
    """Of all logs since the start."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    repeats: int = 0
    refused: int = 0
    syncs: int = 0
    synced_logs: int = 0
    sync_s: float = 0.0
    longest_sync_s: float = 0.0
    sync: Histogram = field(default_factory=Histogram)
    rejections: Rejections = field(default_factory=Rejections)
    issue_id: Callable[[], int] = lambda: 0
    """Another producer id, for one that is refused."""

    def note(self, entry: Entry) -> int:
        """Returns the highest index among the answers."""
        last = batches = records = 0
        size = entry.size
        for number, answer in enumerate(entry.answers):
            if isinstance(answer, Appended):
                last = max(last, answer.index)
                if not answer.repeat:
                    batches += 1
                    records += answer.record_count
                    continue
                self.repeats += 1
            else:
                self.refused += 1
                if isinstance(answer, UnknownProducer | SequenceGap):
                    answer.fresh_id = self.issue_id()
                self.rejections.note(said_again(answer))  # one error may be the answer to many
            size -= len(entry.batches[number].data)
        self.batches += batches
        self.records += records
        self.bytes += size
        entry.appended = (batches, records, size)
        return last


class SyncRounds:
    def __init__(
        self,
        loop: AbstractEventLoop,
        files: OpenFiles,
        threads: Executor,
        syncs: Executor,
        limits: Limits,
        dirty_max: int,
        commitment: Commitment = STANDALONE,
        world: World = REAL,
    ) -> None:
        self.loop = loop
        self.commitment = commitment
        self.limits = limits
        self.world = world
        self.counts = AppendCounts(rejections=Rejections(now_us=world.now_us))
        self.rejections = self.counts.rejections
        self.failure: LogReadOnly | None = None
        """Why the node takes no more writes."""
        self.paused = 0
        self._held_up: dict[RoundLog, None] = {}
        """Logs that appends wait for because of a pause."""
        self.writers: dict[LogWriter, None] = {}
        """The owners of all open logs, in the order in which they came, so that a run can be repeated."""
        self._account = NodeAccount(limits, dirty_max)
        self._files = files
        self._threads = threads
        self._syncs = syncs
        self._due: dict[RoundLog, None] = {}
        self._started = self._syncing = False
        self._quiet: list[Future[None]] = []
        self._untold: dict[RoundLog, None] = {}

    def open_account(self, log: RoundLog) -> WriteAccount:
        """Where the owner of a log books what waits for it."""
        return WriteAccount(self._account, log)

    @property
    def queued_bytes(self) -> int:
        return self._account.queued_bytes

    @property
    def unsynced_bytes(self) -> int:
        return self._account.unsynced_bytes

    @property
    def dirty(self) -> Collection[RoundLog]:
        """Logs with something that is written and not synced, or about to be written on a thread."""
        return self._account.dirty

    def refuse(self, entry: Entry, error: LogboomError) -> None:
        """Nothing of this was written."""
        self.counts.refused += len(entry.batches)
        self.rejections.note(said_again(error))
        entry.fail(error)

    def hold_up(self, log: RoundLog) -> None:
        """Appends wait for this log because of a pause: it goes on when that is over."""
        self._held_up[log] = None

    def want(self, log: RoundLog) -> None:
        """This log is to be in the next round."""
        self._due[log] = None
        if not self._started:
            self._started = True
            self.loop.call_soon(self._begin)

    def tell_later(self, log: RoundLog) -> None:
        """Readers in other processes learn what is committed once in a turn of the loop, not with every append."""
        if not self._untold:
            self.loop.call_soon(self._tell)
        self._untold[log] = None

    def _tell(self) -> None:
        logs, self._untold = self._untold, {}
        for log in logs:
            log.tell()

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """From any thread."""
        self.loop.call_soon_threadsafe(call, *arguments)

    def run(self, work: Callable[..., None], *arguments: Any) -> None:
        """On a thread; whatever goes wrong there stops the node's writes."""
        self._threads.submit(self._guarded, work, *arguments)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.call_soon(self.fail, SyncFailed(f"{type(error).__name__}: {error}"), error)

    def _begin(self) -> None:
        if self._syncing or self.paused or self.failure is not None:
            self._started = False
            return
        turns, account = [], self._account
        due = [log for log in self._due if not log.busy]  # the others come back when they are free
        fresh = [log for log in due if log.is_fresh]
        crowd = dict.fromkeys(fresh[max(1, account.dirty_max - len(account.dirty)) :])
        if crowd:  # there are no files for them before others are synced
            others = (log for log in account.dirty if not log.busy)
            due = [log for log in dict.fromkeys((*due, *others)) if log not in crowd]
        for log in due:
            turn = log.take_turn()
            self._due.pop(log, None)  # whatever it has wanted meanwhile is in its turn
            if turn is not None:
                turns.append(turn)
        if not turns:
            self._started = bool(crowd)
            if crowd:
                self.loop.call_soon(self._begin)
            return
        self._syncing = True
        self._syncs.submit(self._guarded, self._work, turns, [turn for turn in turns if turn.entries])

    def _work(self, turns: list[LogTurn], queued: list[LogTurn]) -> None:
        """On a thread: write, then sync."""
        for turn in queued:
            turn.log.write(turn)
        if queued:
            self.call_soon(self._written, queued)
        files = [turn.pending.file for turn in turns if turn.pending is not None]
        began, error = time.perf_counter(), None
        try:
            if files:
                self._files.disk.sync(files)
        except OSError as failed:
            error = failed
        self.call_soon(self._synced, turns, time.perf_counter() - began, error)

    def _written(self, turns: Iterable[LogTurn]) -> None:
        for turn in turns:
            turn.log.written(turn)

    def _synced(self, turns: list[LogTurn], took_s: float, error: OSError | None) -> None:
        self._syncing = self._started = False
        counts = self.counts
        counts.syncs += 1
        counts.synced_logs += len(turns)
        counts.sync_s += took_s
        counts.sync.note(took_s)
        counts.longest_sync_s = max(counts.longest_sync_s, took_s)
        if error is not None:
            self.fail(SyncFailed(f"a sync failed: {error}"), error)
            return
        for turn in turns:
            turn.log.synced(turn)
        if self._due and not self._started:
            self._started = True
            self._begin()
        self.freed()

    def freed(self) -> None:
        """A thread is done with a log, or with a round."""
        if self._due and not self._started:
            self._started = True
            self.loop.call_soon(self._begin)
        if self._quiet and self.is_quiet:
            quiet, self._quiet = self._quiet, []
            for waiter in quiet:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def is_quiet(self) -> bool:
        return not self._syncing and not self._account.seized

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """No thread has any log, and none gets one: for what changes logs besides appending. Appends wait meanwhile."""
        self.paused += 1
        try:
            while not self.is_quiet:
                waiter: Future[None] = self.loop.create_future()
                self._quiet.append(waiter)
                await waiter
            yield
        finally:
            self.paused -= 1
            if self._files.failure is not None:  # whoever had the logs met a sync that failed
                self.fail(SyncFailed(self._files.failure), None)
            if not self.paused:
                held_up, self._held_up = self._held_up, {}
                for log in held_up:
                    log.go_on()
                self.freed()

    def fail(self, failure: LogboomError, error: BaseException | None) -> None:
        """Stop the node's writes, once."""
        if self.failure is not None:
            return
        logger.critical("no more writes: %s; restart the node to recover", failure)
        self.failure = LogReadOnly(f"the node takes no more writes: {failure}; restart it to recover")
        self._syncing = False
        cause = error if isinstance(error, OSError) else OSError(str(failure))
        for writer in self.writers:
            writer.stop(cause)
        self.freed()
