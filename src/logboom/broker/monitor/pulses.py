"""What each topic does, from sample to sample: the rates of the last one, and the records of the last minutes.

Counts are remembered by the topic as it is hosted, so one that is deleted and made again begins anew. Rings are there
only for topics that did something within RECENT samples. They have one slot more than anybody is shown: the one that is
written while a sample is taken.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logboom.broker.append.log_writer import LogWriter
from logboom.broker.catalog import Hosted

RECENT: Final = 150
"""Samples that are remembered of a topic."""
SLOTS: Final = RECENT + 1
REVIEW_EVERY: Final = 16
"""Samples: how often the size of a topic that is quiet is looked at. Retention may have dropped some of it."""
RECORDS_MAX: Final = 2**32 - 1


class Flow(NamedTuple):
    """What came and went: counted since the start, or per second."""

    records_in: float
    bytes_in: float
    records_out: float
    bytes_out: float

    def plus(self, other: Flow) -> Flow:
        return Flow(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    def per(self, seconds: float) -> Flow:
        return Flow(self[0] / seconds, self[1] / seconds, self[2] / seconds, self[3] / seconds)


NOTHING: Final = Flow(0.0, 0.0, 0.0, 0.0)


def _ring() -> array[int]:
    return array("I", [0]) * SLOTS


@dataclass(slots=True, eq=False)
class RecentRecords:
    """Records of the samples up to the last one that had any: what is behind that in the rings is of long ago."""

    came: array[int] = field(default_factory=_ring)
    went: array[int] = field(default_factory=_ring)

    def note(self, came: int, went: int, number: int, last: int) -> None:
        """The sample with this number; `last` is the one that was noted before."""
        for quiet in range(max(last + 1, number - RECENT), number):
            self.came[quiet % SLOTS] = self.went[quiet % SLOTS] = 0
        slot = number % SLOTS
        if number == last:  # a pass that had failed is taken again
            came, went = came + self.came[slot], went + self.went[slot]
        self.came[slot] = min(came, RECORDS_MAX)
        self.went[slot] = min(went, RECORDS_MAX)


@dataclass(slots=True, eq=False)
class Pulse:
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    rates: Flow = NOTHING
    """Of the sample `busy_at`."""
    busy_at: int = -1
    """The last sample that had something."""
    size_bytes: int = 0
    recent: RecentRecords | None = None

    def note(self, change: Flow, number: int, elapsed_s: float) -> None:
        """What came and went in the sample with this number."""
        self.rates = change.per(elapsed_s)
        if self.recent is None:
            self.recent = RecentRecords()
        self.recent.note(int(change.records_in), int(change.records_out), number, self.busy_at)
        self.busy_at = number


def shown_numbers(number: int) -> range:
    """The samples that are remembered while the one with this number is taken."""
    return range(max(0, number - RECENT), number)


class Pulses:
    def __init__(self) -> None:
        self._pulses: dict[Hosted, Pulse] = {}
        self.size_bytes = 0
        """Of all logs."""

    def take(self, some: Sequence[Hosted], number: int, elapsed_s: float) -> Flow:
        """One sample of these topics; how much came and went in all that are not internal."""
        pulses, turn = self._pulses, number % REVIEW_EVERY
        total = NOTHING
        for place, hosted in enumerate(some):
            meter = hosted.meter
            counts = meter.records_in, meter.bytes_in, meter.records_out, meter.bytes_out
            pulse = pulses.get(hosted)
            if pulse is None:
                pulse = pulses[hosted] = Pulse()
                self._review(hosted, pulse, number)
            if counts == pulse.counts:
                if place % REVIEW_EVERY == turn:
                    self._review(hosted, pulse, number)
                continue
            before, pulse.counts = pulse.counts, counts
            change = Flow(counts[0] - before[0], counts[1] - before[1], counts[2] - before[2], counts[3] - before[3])
            pulse.note(change, number, elapsed_s)
            self._review(hosted, pulse, number)
            if not hosted.topic.name.startswith("_"):
                total = total.plus(change)
        return total

    def keep_only(self, topics: Sequence[Hosted]) -> None:
        """The others are gone."""
        if len(self._pulses) != len(topics):
            self._pulses = {hosted: self._pulses[hosted] for hosted in topics if hosted in self._pulses}
            self.size_bytes = sum(pulse.size_bytes for pulse in self._pulses.values())

    def rates(self, hosted: Hosted, number: int) -> Flow:
        """Of the last sample before this one."""
        pulse = self._pulses.get(hosted)
        return NOTHING if pulse is None or pulse.busy_at < number - 1 else pulse.rates

    def recent(self, hosted: Hosted, number: int) -> tuple[list[int], list[int]]:
        """Records in and out of each sample that is remembered; two empty lists where there were none."""
        pulse, numbers = self._pulses.get(hosted), shown_numbers(number)
        if pulse is None or pulse.recent is None or pulse.busy_at < numbers.start:
            return [], []
        slots = [each % SLOTS for each in numbers if each <= pulse.busy_at]
        quiet = [0] * (len(numbers) - len(slots))
        came, went = pulse.recent.came, pulse.recent.went
        return [came[slot] for slot in slots] + quiet, [went[slot] for slot in slots] + quiet

    def _review(self, hosted: Hosted, pulse: Pulse, number: int) -> None:
        size = size_of(hosted)
        self.size_bytes += size - pulse.size_bytes
        pulse.size_bytes = size
        if pulse.busy_at < number - RECENT:
            pulse.recent = None


def size_of(hosted: Hosted) -> int:
    return sum([writer.log.size_bytes for writer in hosted.writers if isinstance(writer, LogWriter)])
