"""What publishes must be: all there or not at all, under each key once, and as their publishers were told.

    torn           some records of a publish are there, and others are not
    lost           it was answered as published, or as published before, and nothing of that key is there
    duplicate      two attempts at the same key are there
    reordered      a publish comes, in one of its logs, after one of the same name with a higher number
    inconsistent   it is not where its publisher was told
    aborted        it was refused, or never asked for, and records of it are there

An attempt is what one publisher has staged to be published together. That records of one stand in the order they were
staged, and none twice, is a rule for all records: their sequences rise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from checker.history import Publish, Published, Refused, Stage

Record = tuple[str, int]
Place = tuple[str, int]
"""A log and a seqno."""
Complain = Callable[[str, str], None]


@dataclass(slots=True)
class Attempt:
    name: str
    number: int
    label: str
    records: dict[Record, str] = field(default_factory=dict)
    """With the logs they are for."""
    is_asked: bool = False
    """Whether it was to be published."""
    is_refused: bool = False
    """When it was asked for last."""
    answers: list[Published] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name}/{self.number} as {self.label}"


class Publishes:
    """Of one history. `places` says where records are, `firsts` where the final read of each log began."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._of_records: dict[Record, Attempt] = {}

    def __contains__(self, record: Record) -> bool:
        return record in self._of_records

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts.values())

    def take(self, event: Stage | Publish | Published | Refused) -> None:
        attempt = self._attempts.get(event.attempt)
        if attempt is None:
            attempt = self._attempts[event.attempt] = Attempt(event.key, event.number, event.attempt)
        if isinstance(event, Stage):
            records = [(event.writer, sequence) for sequence in event.sequences]
            attempt.records.update(dict.fromkeys(records, event.log))
            self._of_records.update(dict.fromkeys(records, attempt))
        elif isinstance(event, Published):
            attempt.answers.append(event)
        else:
            attempt.is_asked, attempt.is_refused = True, isinstance(event, Refused)

    def judge(self, places: Mapping[Record, Place], firsts: Mapping[str, int | None], complain: Complain) -> set[str]:
        """The labels of those that are there."""
        there = [attempt for attempt in self if _is_there(attempt, places)]
        for attempt in there:
            _judge_presence(attempt, places, firsts, complain)
        by_name: dict[str, dict[int, Attempt]] = defaultdict(dict)
        for attempt in there:
            former = by_name[attempt.name].setdefault(attempt.number, attempt)
            if former is not attempt:
                complain("duplicate", f"{attempt} is there, and so is {former.label}")
        for numbers in by_name.values():
            _judge_order(numbers, places, complain)
        for attempt in self:
            for answer in attempt.answers:
                _judge_answer(attempt, answer, by_name[attempt.name], places, firsts, complain)
        return {attempt.label for attempt in there}


def _is_there(attempt: Attempt, places: Mapping[Record, Place]) -> bool:
    """Any of it. One without records is where it was said to be."""
    if not attempt.records:
        return any(not answer.repeat for answer in attempt.answers)
    return any(record in places for record in attempt.records)


def _judge_presence(
    attempt: Attempt, places: Mapping[Record, Place], firsts: Mapping[str, int | None], complain: Complain
) -> None:
    if not attempt.is_asked:
        complain("aborted", f"{attempt} was never to be published, and is there")
    elif attempt.is_refused and not attempt.answers:
        complain("aborted", f"{attempt} was refused, and is there")
    missing = _missing(attempt, places, firsts)
    if missing:
        example = f"{missing[0][0]}:{missing[0][1]}, for {attempt.records[missing[0]]}"
        complain("torn", f"{attempt}: {len(missing):,} of {len(attempt.records):,} records are missing, as {example}")
    astray = (record for record, log in attempt.records.items() if record in places and places[record][0] != log)
    for record in astray:
        complain("inconsistent", f"{attempt}: {record[0]}:{record[1]} is at {places[record][0]}:{places[record][1]}")


def _missing(attempt: Attempt, places: Mapping[Record, Place], firsts: Mapping[str, int | None]) -> list[Record]:
    """But for those that a log has dropped, of which later ones may be there."""
    kept = {log: not firsts.get(log) for log in attempt.records.values()}
    missing = []
    for record, log in attempt.records.items():
        if record in places:
            kept[log] = True
        elif kept[log]:
            missing.append(record)
    return missing


def _judge_order(numbers: Mapping[int, Attempt], places: Mapping[Record, Place], complain: Complain) -> None:
    ends: dict[str, tuple[int, Attempt]] = {}
    for number in sorted(numbers):
        attempt = numbers[number]
        spans: dict[str, list[int]] = defaultdict(list)
        for record in attempt.records:
            if record in places:
                spans[places[record][0]].append(places[record][1])
        for log, seqnos in spans.items():
            end, former = ends.get(log, (-1, attempt))
            if min(seqnos) < end:
                complain("reordered", f"{attempt} begins at {log}:{min(seqnos)}, {former} ends at {end}")
            ends[log] = max(seqnos), attempt


def _judge_answer(
    attempt: Attempt,
    answer: Published,
    there: Mapping[int, Attempt],
    places: Mapping[Record, Place],
    firsts: Mapping[str, int | None],
    complain: Complain,
) -> None:
    meant: Attempt | None = attempt
    if answer.repeat:
        meant = there.get(attempt.number)
        if meant is None and not any(number > attempt.number for number in there):
            complain("lost", f"{attempt} was answered as published before, and none of that number or above is there")
    elif not _is_there(attempt, places) and _missing(attempt, places, firsts):
        complain("lost", f"{attempt} was answered as published, and is not there")
    if meant is None or answer.parts is None:
        return
    told = {log: (first, next_) for log, first, next_ in answer.parts}
    for record, log in meant.records.items():
        first, next_ = told.get(log, (0, 0))
        if record in places and not first <= places[record][1] < next_:
            words = f"{record[0]}:{record[1]} is at {places[record][0]}:{places[record][1]}, {attempt} was told {told}"
            complain("inconsistent", words)
            return
