"""Reading cold segments again, so that damage is found while there is still a sound copy somewhere.

`scrub` reads one sealed segment from the disk, not from the cache, and goes on behind damage. `ScrubLedger` remembers,
for one data directory, which segment was read last and what was found. Nothing of a log is changed; the labels of a
segment, where nobody has made them yet, are written beside its index.

The ledger is replaced whole: after a crash it is the old one or the new one. One that cannot be read counts as empty:
everything is simply scrubbed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from logboom.errors import Damage
from logboom.storage.files import envelope
from logboom.storage.files.disk import Disk, read_file, replace_file
from logboom.storage.files.readonly import BLOCK, ReadOnlyFile
from logboom.storage.holes import NextNumbers, resume
from logboom.storage.labels import LabelMaker
from logboom.storage.scan import Bad, Window, scan
from logboom.storage.segment import Segment
from logboom.storage.tail import LogTail

MAGIC: Final = b"LGSC"
FINDINGS_MAX: Final = 100
"""How many findings of one segment are remembered."""
_TELL_BYTES: Final = 1 << 16  # tiny batches take long: a throttle must get its turn before a whole chunk is done

Throttle = Callable[[int], None]
"""Told how many bytes were just read; may wait, or raise to cancel."""


class ScrubResult(NamedTuple):
    """How much was read, how many batches are sound, and every hole between them."""

    bytes: int
    batches: int
    damage: list[Damage]
    has_labels: bool = False
    """Whether new labels were written, and are to be published."""


def scrub(segment: Segment, throttle: Throttle) -> ScrubResult:
    """Verify every batch of a sealed segment. What the device cannot read is damage like any other.

    Who reads everything learns the labels too: they are written where there are none yet, if all is sound.
    """
    assert segment.after is not None
    try:
        file = ReadOnlyFile(segment.open_anew())
    except FileNotFoundError as error:
        reason = f"it cannot be read: {error}"
        return ScrubResult(0, 0, [Damage(segment.log_path, 0, segment.first_seqno, segment.after[0], reason)])
    file.drop_cache()
    labels = _label_maker(segment)
    try:
        result = _Scrub(file, segment, NextNumbers(*segment.after), throttle, labels).run()
    finally:
        file.drop_cache()
    if labels is None or result.damage:
        return result
    try:
        segment.write_labels(labels.labels())
    except OSError:
        return result  # derived: the next scrub tries again
    return result._replace(has_labels=True)


def _label_maker(segment: Segment) -> LabelMaker | None:
    """None where the labels are known, or nothing can be known."""
    try:
        return None if segment.labels.is_made else LabelMaker()
    except OSError:
        return None


class _Scrub:
    """Over all batches of one segment and the holes between them."""

    def __init__(
        self, file: ReadOnlyFile, segment: Segment, limit: NextNumbers, throttle: Throttle, labels: LabelMaker | None
    ) -> None:
        self._labels = labels
        self._file = file
        self._size = file.size()
        self._window = Window(file, self._size)
        self._limit = limit
        self._tail = LogTail(segment.first_seqno, segment.first_index)
        self._throttle = throttle
        self._untold = 0
        self._batches = 0
        self._damage: list[Damage] = []

    def run(self) -> ScrubResult:
        position = 0
        while position < self._size:
            bad = self._follow(position)
            if bad is None:
                break
            position = self._pass_unknown(bad) or self._pass(bad)
        if self._untold:
            self._throttle(self._untold)
        tail, limit = self._tail, self._limit
        if (tail.next_seqno, tail.next_index) != limit:
            reason = f"it ends at batch {tail.next_index}, the next segment begins with {limit.index}"
            self._note(self._size, limit.seqno, reason)
        return ScrubResult(self._size, self._batches, self._damage)

    def _follow(self, position: int) -> Bad | None:
        """Take every batch up to the first that is not sound or belongs to the next segment."""
        tail, limit = self._tail, self._limit
        see = None if self._labels is None else self._labels.add
        for item in scan(self._window, position, self._size, tail, see):
            if isinstance(item, Bad):
                return item
            position, header = item
            if header.index >= limit.index or header.next_seqno > limit.seqno:
                tail.next_seqno, tail.next_index = header.base_seqno, header.index
                return Bad(position, f"batch {header.index} belongs behind the segment's end", self._size)
            self._batches += 1
            self._tell(header.size)
        return None

    def _pass_unknown(self, bad: Bad) -> int | None:
        """A batch of a newer release in its right place is no damage: where the next one begins; None for others."""
        if not bad.unsupported:
            return None
        header = self._window.header(bad.position)
        if self._tail.expects(header) is not None:
            return None
        if self._labels is not None:
            self._labels.give_up()
        self._tail.follow(header)
        self._batches += 1
        self._tell(header.size)
        return bad.next_position

    def _pass(self, bad: Bad) -> int:
        """Note the hole that begins here; returns where sound batches go on."""
        tail, limit, size = self._tail, self._limit, self._size
        found = resume(self._window, bad, size, tail, limit)
        end = found[0] if found else size
        seqno, index = (found[1].base_seqno, found[1].index) if found else limit
        blocks = sum(bad.position - BLOCK < block < end for block in self._file.unreadable)
        unreadable = f"; the device cannot read {blocks} blocks of it" if blocks else ""
        self._note(bad.position, seqno, bad.reason + unreadable)
        tail.next_seqno, tail.next_index = seqno, index
        self._tell(end - bad.position)
        return end

    def _note(self, position: int, seqno_until: int, reason: str) -> None:
        self._damage.append(Damage(self._file.path, position, self._tail.next_seqno, seqno_until, reason))

    def _tell(self, size: int) -> None:
        self._untold += size
        if self._untold >= _TELL_BYTES:
            self._throttle(self._untold)
            self._untold = 0


class ScrubFinding(msgspec.Struct, frozen=True):
    """One hole in a segment: seqnos from `seqno_from` up to and not including `seqno_until`."""

    log: str
    file: str
    position: int
    seqno_from: int
    seqno_until: int | None
    reason: str
    found_at: int


class ScrubCycle(msgspec.Struct, frozen=True):
    """How far a log has been scrubbed: when that began, when it went on last, and the segment scrubbed then.

    The segment is known by its index too, because one without records shares its first seqno with the next.
    """

    began_at: int
    scrubbed_at: int
    first_seqno: int
    first_index: int


class _Content(msgspec.Struct, frozen=True):
    """Fields may be added with defaults; they are never renamed."""

    findings: list[ScrubFinding] = []
    cycles: dict[str, ScrubCycle] = {}


_content: Final = msgspec.msgpack.Decoder(_Content)


class ScrubLedger:
    """Times are microseconds since 1970; a log's name is its directory relative to the data directory."""

    def __init__(self, path: str, content: _Content | None = None) -> None:
        self.path = path
        content = content or _Content()
        self._findings = list(content.findings)
        self._cycles = dict(content.cycles)

    @classmethod
    def load(cls, disk: Disk, path: str) -> ScrubLedger:
        """As it was saved; empty where it is missing or is not whole and ours."""
        try:
            data = read_file(disk, path)
            return cls(path, None if data is None else envelope.unpack(MAGIC, data, _content))
        except (OSError, ValueError):
            return cls(path)

    def save(self, disk: Disk) -> None:
        directory = os.path.dirname(self.path)
        if not disk.exists(directory):
            disk.make_directory(directory)
        replace_file(disk, self.path, envelope.pack(MAGIC, _Content(self._findings, self._cycles)))

    @property
    def findings(self) -> tuple[ScrubFinding, ...]:
        return tuple(self._findings)

    @property
    def logs(self) -> set[str]:
        """The names of all logs that something is remembered of."""
        return {*self._cycles, *(finding.log for finding in self._findings)}

    def next_due(self, log_name: str, segments: Sequence[Segment], now: int, every_us: int) -> Segment | None:
        """Which of a log's cold segments, oldest first, to scrub next; None where it is not yet time.

        From the oldest to the newest; then again, `every_us` after that began.
        """
        cycle = self._cycles.get(log_name)
        if cycle is not None:
            later = next((segment for segment in segments if segment.first_index > cycle.first_index), None)
            if later is not None or 0 <= now - cycle.began_at < every_us:
                return later
        return segments[0] if segments else None

    def record(self, log_name: str, segment: Segment, result: ScrubResult, now: int) -> None:
        """Note what a scrub found, in place of what earlier ones found in this segment."""
        name = os.path.basename(segment.log_path)
        self._findings = [
            finding for finding in self._findings if (finding.log, _numbers(finding.file)) != (log_name, _numbers(name))
        ] + [
            ScrubFinding(log_name, name, damage.position, damage.seqno_from, damage.seqno_until, damage.reason, now)
            for damage in result.damage[:FINDINGS_MAX]
        ]
        before = self._cycles.get(log_name)
        goes_on = before and segment.first_index > before.first_index
        began_at = before.began_at if before and goes_on else now
        self._cycles[log_name] = ScrubCycle(began_at, now, segment.first_seqno, segment.first_index)

    def forget(self, log_name: str, segments: Iterable[Segment]) -> None:
        """These segments are still there: what was found in others of the log went with them. None: the log is gone."""
        names = {os.path.basename(segment.log_path) for segment in segments}
        self._findings = [finding for finding in self._findings if finding.log != log_name or finding.file in names]
        if not names:
            self._cycles.pop(log_name, None)


def _numbers(name: str) -> str:
    """The file name of a segment without its generation."""
    return name.rpartition("-")[0]
