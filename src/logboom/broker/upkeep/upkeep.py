"""The life of all logs of a node: retention with its hooks, recompression, scrubbing, and emptying the trash.

`step` is called again and again by whoever owns the logs, and does what is due; what takes long runs on threads, and
its results touch a log only inside `step`. So logs keep their one owner, and there are no locks.

    pass (every `retention_every_ms`)   topics come and go; roll, queue and drop; findings of what is gone; trash
    hooks         one at a time for each topic, `hooks_max` over all, topics in turn
    recompression one segment at a time: cold ones that stay, hold records, and were not tried yet
    scrubbing     one segment at a time: what the ledger says is due
    trash         what deleted topics left, file by file

Invariant: a segment is never in two hands: one that is queued for its hook or scrubbed is not swapped, one that is
swapped is neither queued nor scrubbed. A result whose segment or log is gone is thrown away.

Trouble with one log is counted, logged and tried again at the next pass; the others go on. After a crash everything
begins where the disk says it was; what was half done is done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from logboom.broker.allowances import Allowances
from logboom.broker.config import UpkeepSettings
from logboom.broker.read.archives import Archives
from logboom.broker.upkeep.hook import TERM_GRACE_S, environment_of, run_hook
from logboom.broker.upkeep.jobs import HookJob, Jobs, SwapJob
from logboom.broker.upkeep.recompressor import Recompressor
from logboom.broker.upkeep.retainer import Kept, Retainer, doomed, key_of, range_of, stored_bytes
from logboom.broker.upkeep.scrubber import Scrubber
from logboom.broker.upkeep.stats import HookStats, Tally, UpkeepStats, logger
from logboom.broker.upkeep.throttle import Throttle
from logboom.broker.upkeep.trash import Trash
from logboom.broker.world import REAL, World
from logboom.errors import LogboomError
from logboom.storage.data.directory import DataDirectory
from logboom.storage.data.role import is_copying, read_role
from logboom.storage.data.topic import Topic
from logboom.storage.segment import Segment
from logboom.storage.upkeep.hooks import HookEntry
from logboom.storage.upkeep.scrub import ScrubFinding

LOGS_PER_STEP: Final = 64
"""A step looks at so many logs at most: the owner has other things to do."""


class Upkeep:
    def __init__(
        self,
        data: DataDirectory,
        settings: UpkeepSettings = UpkeepSettings(),  # noqa: B008
        wake: Callable[[], object] | None = None,
        threads: Executor | None = None,
        archives: Archives | None = None,
        allowed: Allowances | None = None,
        world: World = REAL,
    ) -> None:
        """`wake` is called, on any thread, when a job has ended and `step` has something to take.

        Of hooks only those are run that are `allowed`. What waits for another one waits on.

        Without `archives` nothing is archived: what retention is to keep until it is stays.
        """
        self._archives = archives or Archives()
        self._allowed = allowed or Allowances()
        self._data = data
        self._settings = settings
        self._tally = Tally()
        self._jobs = Jobs(settings.hooks_max + 3, wake, threads, world)
        self._retainer = Retainer(data.files.disk, f"{data.path}/internal/hooks", self._tally, self._allowed)
        recompressed = Throttle(settings.recompress_bytes_per_second, world.monotonic_s, world.wait)
        self._rewriter = Recompressor(data.files, self._tally, self._jobs, recompressed)
        scrubbed = Throttle(settings.scrub_bytes_per_second, world.monotonic_s, world.wait)
        self._scrubber = Scrubber(
            *(data.files.disk, f"{data.path}/internal/scrub", self._tally, self._jobs),
            *(scrubbed, settings.scrub_every_ms * 1000),
        )
        self._trash = Trash(data, self._tally, self._jobs)
        self.retains = not is_copying(read_role(data.files.disk, data.path))
        """Whether retention and its hooks are this node's to do: of a copy they are the source's."""
        self._logs: dict[str, Kept] = {}
        self._passed_at: int | None = None
        self._round: deque[str] = deque()
        """Logs whose turn in this pass is still to come."""
        self._turns: dict[str, int] = {}
        """When each topic had a hook started last, as a count of starts."""
        self._blocked: set[str] = set()
        """Logs whose next hook cannot be started before the next pass."""
        self._closed = False

    def step(self, now: int) -> int | None:
        """Do what is due. Returns when to call again at the latest, or None where there is no topic to look after."""
        if self._closed:
            return None
        self._take(now)
        every_us = self._settings.retention_every_ms * 1000
        if not self._round and (self._passed_at is None or not 0 <= now - self._passed_at < every_us):
            self._begin_pass(now)
        self._retain([self._round.popleft() for _ in range(min(LOGS_PER_STEP, len(self._round)))], now)
        self._start_hooks(now)
        more = self._rewriter.start(now, self._logs, self._queued(), LOGS_PER_STEP)
        more |= self._scrubber.start(now, self._logs, LOGS_PER_STEP)
        if self._round or more or self._passed_at is None:
            return now
        if not self._data.topics() and not self._jobs:
            return None
        hook_at = self._next_hook(now)
        return self._passed_at + every_us if hook_at is None else min(hook_at, self._passed_at + every_us)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a job has ended, for a caller that has nothing else to do than `step` and `wait`."""
        self._jobs.wait(timeout_s)

    def scrub_all(self) -> None:
        """Read every cold segment now, however long ago that was done last."""
        self._scrubber.force()
        self._passed_at = None

    @property
    def under_way(self) -> list[str]:
        """What runs on threads, in words."""
        return self._jobs.under_way + self._trash.under_way

    @property
    def stats(self) -> UpkeepStats:
        tally = self._tally
        return UpkeepStats(
            dropped=dict(tally.dropped),
            dropped_without_hook=tally.dropped_without_hook,
            dropped_without_archive=tally.dropped_without_archive,
            waiting=self._retainer.waiting,
            hooks=HookStats(
                run=tally.hooks_run,
                failed=tally.hooks_failed,
                running=len(self._jobs.of(HookJob)),
                pending=self._retainer.pending,
                failing=self._retainer.failing(self._data.topics()),
            ),
            recompression=self._rewriter.stats,
            scrub=self._scrubber.stats,
            trash_emptied=tally.trash_emptied,
            errors=tally.errors,
            last_error=tally.last_error,
        )

    def findings_of(self, log_name: str) -> list[ScrubFinding]:
        """What scrubs have found in a log."""
        return self._scrubber.findings_of(log_name)

    def hurry(self) -> None:
        """Hooks that `close` stops are killed at once, without time to end properly. Also from a signal handler."""
        self._jobs.hurried = True

    def close(self) -> None:
        """Stop hooks and jobs, and wait for their threads. A hook that succeeded is still recorded as such.

        Before the data directory is closed. What was stopped begins anew at the next start.
        """
        if self._closed:
            return
        self._closed = True
        self._rewriter.throttle.stop()
        self._scrubber.throttle.stop()
        self._trash.stop()
        for job in self._jobs.of(HookJob):
            job.cancelled.set()
        for ended in self._jobs.close():
            match ended:
                case HookJob() if ended.outcome().error is None:
                    with self._tally.guard("the hook queue"):
                        self._retainer.queue.succeeded(ended.entry)
                case SwapJob():
                    ended.kept.log.cancel_swap(ended.swap)

    def _begin_pass(self, now: int) -> None:
        self._passed_at = now
        self._blocked.clear()
        self._find_logs()
        self._tally.forget_others(self._all_labels())
        with self._tally.guard("the hook queue"):
            self._retainer.forget_others(self._data.topics(), self._logs)
        self._turns = {topic: turn for topic, turn in self._turns.items() if topic in self._topics_kept()}
        self._round.extend(self._logs)
        self._rewriter.begin_pass(self._logs)
        self._scrubber.begin_pass(self._logs, self._all_names())
        self._trash.begin_pass()

    def _all_names(self) -> set[str]:
        """Of the logs of all topics, also of those that could not be opened."""
        return {name for topic in self._data.topics() for name in topic.log_names}

    def _all_labels(self) -> set[str]:
        return {f"{topic.name}/{number}" for topic in self._data.topics() for number in range(topic.partitions)}

    def _topics_kept(self) -> set[str]:
        return {kept.opened.directory for kept in self._logs.values()}

    def _find_logs(self) -> None:
        """Open what is new or was closed; a log that is open is the owner's own, which keeps its position."""
        before, self._logs = self._logs, {}
        for topic in self._data.topics():
            for partition, name in enumerate(topic.log_names):
                kept = before.get(name)
                if kept is None or kept.log.closed:
                    kept = self._open(topic, partition)
                if kept is not None:
                    self._logs[name] = kept

    def _open(self, topic: Topic, partition: int) -> Kept | None:
        """None where it cannot be opened: that is its own trouble, not its siblings'."""
        label = f"{topic.name}/{partition}"
        try:
            log = self._data.open_partition(topic.name, partition)
        except (OSError, LogboomError, RuntimeError) as error:  # the last one: no thread could be made
            self._tally.note_error(label, error)
            return None
        kept = Kept(self._data, topic, topic.log_name(partition), log, self._archives)
        if log.recovered.missing is not None:
            self._tally.note_error(label, log.recovered.missing)
        with self._tally.guard(label):
            self._retainer.adopt(kept)
        return kept

    def _retain(self, names: list[str], now: int) -> None:
        logs = [self._logs[name] for name in names if name in self._logs and not self._logs[name].log.closed]
        if not self.retains:  # the node's own topics are nobody's copies
            logs = [kept for kept in logs if kept.topic.name.startswith("_")]
        if not logs:
            return
        swapping = self._rewriter.swapping
        self._retainer.retain(logs, now, swapping, self._running())
        if swapping is not None:
            self._rewriter.cancel_if(lambda job: self._is_doomed(job.kept, job.swap.old, now))

    def _is_doomed(self, kept: Kept, segment: Segment, now: int) -> bool:
        """Whether a segment may go, or has gone."""
        if not kept.exists:
            return True
        with self._tally.guard(kept.label):
            return segment not in kept.log.segments or any(item.segment is segment for item in doomed(kept, now))
        return False

    def _queued(self) -> set[tuple[str, tuple[int, int]]]:
        return {(entry.log, entry.place) for entry in self._retainer.queue.entries}

    def _running(self) -> list[HookEntry]:
        return [job.entry for job in self._jobs.of(HookJob)]

    def _take(self, now: int) -> None:
        """Apply what jobs have brought, and let the logs concerned go on at once."""
        touched: dict[str, None] = {}
        self._trash.take()
        for job in self._jobs.take():
            kept = self._logs.get(job.kept.name)
            with self._tally.guard(job.kept.label, job.what):
                if isinstance(job, HookJob):
                    if kept is not None and kept.exists:  # that the log is closed does not matter
                        self._retainer.ended(kept, job.entry, job.outcome(), now)
                        touched[kept.name] = None
                elif kept is None or kept.log is not job.kept.log or kept.log.closed:
                    if isinstance(job, SwapJob):
                        job.kept.log.cancel_swap(job.swap)
                elif isinstance(job, SwapJob):
                    touched[kept.name] = None
                    self._scrubber.look_again(kept.name)
                    self._rewriter.ended(job)
                else:
                    self._rewriter.look_again(kept.name)
                    self._scrubber.ended(job, now)
        self._retain(list(touched), now)

    def _start_hooks(self, now: int) -> None:
        if not self.retains:
            return
        running = {entry.topic for entry in self._running()}
        tries = 0
        while tries < LOGS_PER_STEP and (due := self._retainer.queue.due(now, running, self._blocked)):
            tries += len(due)
            for entry in sorted(due, key=lambda entry: self._turns.get(entry.topic, 0)):
                if len(running) >= self._settings.hooks_max:
                    return
                if self._try_hook(entry, now):
                    running.add(entry.topic)
                else:
                    self._blocked.add(entry.log)

    def _try_hook(self, entry: HookEntry, now: int) -> bool:
        kept = self._logs.get(entry.log)
        if kept is None or not kept.exists:
            return False
        with self._tally.guard(kept.label):
            return self._start_hook(kept, entry, now)
        return False

    def _start_hook(self, kept: Kept, entry: HookEntry, now: int) -> bool:
        """False where the segment is not to go any more: the next pass withdraws it. And where its hook is not ours."""
        hook, topic = kept.topic.settings.hook, kept.topic
        command = None if hook.delete is None else self._allowed.hooks.get(hook.delete)
        wanted = (entry.place, entry.end)
        segment = next((item.segment for item in doomed(kept, now) if key_of(item.segment) == wanted), None)
        if command is None or kept.log.refusal is not None or segment is None:
            return False
        environment = environment_of(entry, topic.name, topic.id, segment.log_path, stored_bytes(segment))
        job = HookJob(kept, f"delete hook of {kept.label}, {range_of(*wanted)}", entry)
        log_line = partial(logger.info, "%s: hook: %s", kept.label)
        limits = hook.timeout_ms / 1000, log_line, job.cancelled, TERM_GRACE_S, lambda: self._jobs.hurried
        self._jobs.start(job, partial(run_hook, command, environment, *limits))
        self._turns[entry.topic] = max(self._turns.values(), default=0) + 1
        return True

    def _next_hook(self, now: int) -> int | None:
        running = {entry.topic for entry in self._running()}
        if len(running) >= self._settings.hooks_max or not self.retains:
            return None
        return self._retainer.queue.next_due(now, running, self._blocked)
