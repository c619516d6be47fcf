"""Recompression of a node's cold segments: one at a time, slowly, until each was tried once.

Which segment is next is decided on the owner's thread, and so are the swap's beginning and end; only the sampling and
the writing run as a job. A segment is tried once in this process with the same settings: one that would not shrink
enough is remembered by its path until it is gone.

Crash rule: that of `storage/upkeep/recompression.py` and of `Log.end_swap`; nothing more is kept on the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

from logboom.batch.codec import CODECS
from logboom.broker.upkeep.jobs import Jobs, ScrubJob, SwapJob
from logboom.broker.upkeep.retainer import Kept, doomed, is_bare, key_of, range_of, stored_bytes
from logboom.broker.upkeep.stats import RecompressionStats, Tally, logger
from logboom.broker.upkeep.throttle import Throttle
from logboom.storage.data.topic import RecompressionSettings
from logboom.storage.files.disk import Disk
from logboom.storage.files.open_files import OpenFiles
from logboom.storage.segment import Segment
from logboom.storage.upkeep.recompression import Recompressed, recompress, worthwhile

Queued = Collection[tuple[str, tuple[int, int]]]
"""Segments that wait for a hook: their log's name, and where they begin."""


class Recompressor:
    def __init__(self, files: OpenFiles, tally: Tally, jobs: Jobs, throttle: Throttle) -> None:
        self.throttle = throttle
        self._files = files
        self._tally = tally
        self._jobs = jobs
        self._turns: deque[str] = deque()
        """Logs that may have something to recompress."""
        self._tried: dict[str, RecompressionSettings] = {}
        self._later: set[str] = set()
        """Paths of segments that could not be written now; the next pass tries again."""

    @property
    def swapping(self) -> Segment | None:
        """The segment that is being stored anew."""
        return next((job.swap.old for job in self._jobs.of(SwapJob)), None)

    @property
    def stats(self) -> RecompressionStats:
        tally = self._tally
        return RecompressionStats(tally.recompressed, tally.bytes_before, tally.bytes_after, tally.left_alone)

    def begin_pass(self, logs: Mapping[str, Kept]) -> None:
        self._later.clear()
        if self._tried:
            paths = {segment.log_path for kept in logs.values() for segment in kept.log.segments}
            self._tried = {path: tried for path, tried in self._tried.items() if path in paths}
        if not self._turns:
            self._turns.extend(name for name, kept in logs.items() if _is_wanted(kept))

    def look_again(self, name: str) -> None:
        """A segment of this log is free again."""
        if name not in self._turns:
            self._turns.append(name)

    def start(self, now: int, logs: Mapping[str, Kept], queued: Queued, logs_max: int) -> bool:
        """Begin with the next segment, if none is under way. True where there were too many logs to look at."""
        if self.swapping is not None:
            return False
        for _ in range(min(logs_max, len(self._turns))):
            kept = logs.get(self._turns[0])
            if kept is not None:
                with self._tally.guard(kept.label):
                    segment = self._next(kept, now, queued)
                    if segment is not None:
                        self._start(kept, segment)
                        return False
            self._turns.popleft()
        return bool(self._turns)

    def _next(self, kept: Kept, now: int, queued: Queued) -> Segment | None:
        if kept.log.refusal is not None or not _is_wanted(kept):
            return None
        untried = [segment for segment in kept.log.cold_segments() if self._is_untried(kept, segment, queued)]
        going = {key_of(item.segment) for item in doomed(kept, now)} if untried else ()
        for segment in untried:
            size = stored_bytes(segment)
            if key_of(segment) in going or not size:
                continue
            if self._files.disk.free_bytes() - size >= self._files.space.reserve_bytes:
                return segment
            self._later.add(segment.log_path)
        return None

    def _is_untried(self, kept: Kept, segment: Segment, queued: Queued) -> bool:
        path = segment.log_path
        if path in self._later or self._tried.get(path) == kept.topic.settings.recompression or is_bare(segment):
            return False
        is_scrubbed = any(job.segment is segment for job in self._jobs.of(ScrubJob))
        return not is_scrubbed and (kept.name, (segment.first_seqno, segment.first_index)) not in queued

    def _start(self, kept: Kept, segment: Segment) -> None:
        wanted = kept.topic.settings.recompression
        swap = kept.log.begin_swap(segment)
        job = SwapJob(kept, f"recompressing {kept.label}, {range_of(*key_of(segment))}", swap, wanted)
        throttle, every = job.throttled(self.throttle), kept.log.config.index_bytes
        try:
            self._jobs.start(job, partial(_rewrite, self._files.disk, *swap, wanted, throttle, every))
        except OSError:
            kept.log.cancel_swap(swap)
            raise

    def cancel_if(self, is_vain: Callable[[SwapJob], bool]) -> None:
        for job in self._jobs.of(SwapJob):
            if is_vain(job):
                job.cancelled.set()

    def ended(self, job: SwapJob) -> None:
        """Put the new file in its place, or forget about it. The log is open."""
        log, (old, new) = job.kept.log, job.swap
        if old not in log.segments or job.cancelled.is_set():
            log.cancel_swap(job.swap)
            return
        try:
            done = job.future.result()
        except Exception as error:
            log.cancel_swap(job.swap)
            self._tally.note_error(job.kept.label, error, job.what)
            if isinstance(error, OSError):
                self._later.add(old.log_path)
            else:
                self._leave_alone(old, job.settings)
            return
        if done is None:
            log.cancel_swap(job.swap)
            self._leave_alone(old, job.settings)
            return
        self._later.add(old.log_path)
        if log.end_swap(job.swap, done.summary, done.index):
            self._tried[new.log_path] = job.settings
            self._count(job, done)

    def _leave_alone(self, segment: Segment, settings: RecompressionSettings) -> None:
        self._tried[segment.log_path] = settings
        self._tally.left_alone += 1

    def _count(self, job: SwapJob, done: Recompressed) -> None:
        self._tally.recompressed += 1
        self._tally.bytes_before += done.bytes_before
        self._tally.bytes_after += done.bytes_after
        logger.info(
            "%s: recompressed %s, %d bytes are %d now",
            *(job.kept.label, range_of(*key_of(job.swap.new)), done.bytes_before, done.bytes_after),
        )


def _is_wanted(kept: Kept) -> bool:
    return kept.topic.settings.recompression.codec != "none"


def _rewrite(
    disk: Disk,
    old: Segment,
    new: Segment,
    wanted: RecompressionSettings,
    throttle: Callable[[int], None],
    index_bytes: int,
) -> Recompressed | None:
    """The job. Sampling first: most segments that gain nothing are not read whole."""
    codec = CODECS[wanted.codec]
    throttle(0)
    if not worthwhile(old, codec, wanted.level, wanted.min_gain):
        return None
    return recompress(disk, old, new, codec, wanted.level, wanted.min_gain, throttle, index_bytes)
