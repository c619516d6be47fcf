"""The rules, and what breaks them.

    lost           promised, or seen by a reader, and not in the final read
    duplicate      the same record of a writer at two seqnos
    reordered      records of one writer in one log not in the order in which it wrote them
    inconsistent   two observers disagree about what is at a seqno; a writer who was told one is an observer
    aborted        a write that was refused was seen
    phantom        a record that nobody wrote was seen
    backwards      a reader was given a seqno that is not behind its last one
    skipped        a reader was led past a seqno, and not told so
    torn           a part of a publish is there; more rules for publishes are in `publishes`

Every log that was written to must have been read at last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from checker.history import (
    AnyEvent,
    Begin,
    Fail,
    Final,
    Gap,
    Invoke,
    Ok,
    Poll,
    Publish,
    Published,
    Refused,
    Stage,
    Unknown,
    identity,
)
from checker.publishes import Attempt, Publishes

KINDS = ("lost", "duplicate", "reordered", "inconsistent", "aborted", "phantom", "backwards", "skipped", "torn")
SHOWN_MAX = 20
"""How many anomalies of each kind are kept."""

Record = tuple[str, int]
"""A writer, and the number of the record among those it wrote."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    words: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


@dataclass(slots=True)
class Report:
    counts: Counter[str] = field(default_factory=Counter)
    """Of every kind of anomaly."""
    anomalies: list[Anomaly] = field(default_factory=list)
    """The first of each kind."""
    writers: int = 0
    readers: int = 0
    logs: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    """Without an answer, or with an honest one; some of them may be there."""
    records: int = 0
    """In the final reads."""
    publishes: int = 0
    """That were seen."""

    @property
    def clean(self) -> bool:
        return not self.counts

    def add(self, kind: str, words: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.anomalies.append(Anomaly(kind, words))

    def __str__(self) -> str:
        seen = (
            f"{self.records:,} records in {self.logs:,} logs; {self.writers:,} writers: {self.acknowledged:,} "
            f"acknowledged, {self.refused:,} refused, {self.unknown:,} unknown; {self.readers:,} readers"
        )
        if self.publishes:
            seen += f"; {self.publishes:,} publishes"
        if self.clean:
            verdict = "nothing lost, nothing twice, every writer's order kept, all readers saw the same"
            return f"{seen}\nclean: {verdict}"
        found = ", ".join(f"{self.counts[kind]:,} {kind}" for kind in KINDS if self.counts[kind])
        return "\n".join((seen, f"NOT CLEAN: {found}", *map(str, self.anomalies)))


def check(events: Iterable[AnyEvent]) -> Report:
    """What these events, of all processes together, say. Events of one reader come in their order."""
    history = _History()
    for event in events:
        history.take(event)
    return history.judge()


class _Log:
    """What was seen of one log."""

    __slots__ = ("final_first", "finals", "seen", "sources")

    def __init__(self) -> None:
        self.seen: dict[int, str] = {}
        self.sources: dict[int, str] = {}
        """Who saw it first."""
        self.finals: set[int] = set()
        self.final_first: int | None = None


class _History:
    def __init__(self) -> None:
        self.report = Report()
        self._outcomes: dict[Record, AnyEvent] = {}
        self._logs: dict[str, _Log] = {}
        self._positions: dict[tuple[str, str], int | None] = {}
        """The seqno each reader of each log must see next; None where it may begin anywhere."""
        self._publishes = Publishes()

    def take(self, event: AnyEvent) -> None:
        if isinstance(event, Invoke):
            self._outcomes.setdefault((event.writer, event.sequence), event)
        elif isinstance(event, Ok | Fail | Unknown):
            self._settle((event.writer, event.sequence), event)
        elif isinstance(event, Poll):
            self._follow(event.reader, event.log, event.records)
            self._see(event.log, event.records, event.reader)
        elif isinstance(event, Final):
            self._finish(event.log, event.records, event.first)
        elif isinstance(event, Stage | Publish | Published | Refused):
            self._publishes.take(event)
        else:
            self._begin(event)

    def _begin(self, event: Begin | Gap) -> None:
        """A reader may go back, and may be told of a gap; where it begins beyond its last place it has missed some."""
        stood = self._positions.get((event.reader, event.log))
        if isinstance(event, Begin) and stood is not None and event.seqno is not None and event.seqno > stood:
            words = f"{event.reader} began again at {event.log}:{event.seqno}, and never saw {stood}"
            self.report.add("skipped", words)
        self._positions[event.reader, event.log] = event.seqno

    def _settle(self, record: Record, event: AnyEvent) -> None:
        """A writer that was killed and sent a record again may have two answers: what is promised once stays so."""
        former = self._outcomes.get(record)
        if isinstance(former, Ok):
            if isinstance(event, Ok) and (event.log, event.seqno) != (former.log, former.seqno):
                self.report.add("duplicate", f"{_name(record)} was promised at {_at(former)} and again at {_at(event)}")
            return
        self._outcomes[record] = event

    def _follow(self, reader: str, log: str, records: list[tuple[int, str]]) -> None:
        expected = self._positions.get((reader, log))
        for seqno, _ in records:
            if expected is not None and seqno != expected:
                if seqno < expected:
                    self.report.add("backwards", f"{reader} saw {log}:{seqno} where {expected} comes next")
                else:
                    self.report.add("skipped", f"{reader} saw {log}:{seqno}, and never {expected} to {seqno - 1}")
            expected = seqno + 1
        self._positions[reader, log] = expected

    def _see(self, log: str, records: list[tuple[int, str]], observer: str) -> None:
        found = self._logs.setdefault(log, _Log())
        seen, sources = found.seen, found.sources
        for seqno, value in records:
            known = seen.get(seqno)
            if known is None:
                seen[seqno], sources[seqno] = value, observer
            elif known != value:
                words = f"{log}:{seqno} is {_short(known)} for {sources[seqno]}, {_short(value)} for {observer}"
                self.report.add("inconsistent", words)

    def _finish(self, log: str, records: list[tuple[int, str]], first: int) -> None:
        found = self._logs.setdefault(log, _Log())
        found.final_first = first if found.final_first is None else min(first, found.final_first)
        found.finals.update(seqno for seqno, _ in records)
        reader = f"the final read of {log}"
        if (reader, log) not in self._positions:
            self._positions[reader, log] = first
        self._follow(reader, log, records)
        self._see(log, records, "the final read")

    def judge(self) -> Report:
        places: dict[Record, tuple[str, int]] = {}
        for name, log in self._logs.items():
            self._judge_log(name, log, places)
        for record, outcome in self._outcomes.items():
            self._judge_outcome(record, outcome, places.get(record))
        report = self.report
        firsts = {name: log.final_first for name, log in self._logs.items()}
        there = self._publishes.judge(places, firsts, report.add)
        report.publishes = len(there)
        for attempt in self._publishes:
            self._count(attempt, attempt.label in there)
        staged = (record for attempt in self._publishes for record in attempt.records)
        report.writers = len({writer for writer, _ in (*self._outcomes, *staged)})
        report.readers = len({reader for reader, log in self._positions if reader != f"the final read of {log}"})
        report.logs = len(self._logs)
        return report

    def _judge_log(self, name: str, log: _Log, places: dict[Record, tuple[str, int]]) -> None:
        report, latest = self.report, dict[str, int]()
        report.records += len(log.finals)
        for seqno in sorted(log.seen):
            value = log.seen[seqno]
            record = identity(value)
            if log.final_first is not None and seqno >= log.final_first and seqno not in log.finals:
                report.add("lost", f"{name}:{seqno}, {_short(value)}, was seen by {log.sources[seqno]}, and is gone")
            if record is None or not (record in self._outcomes or record in self._publishes):
                report.add("phantom", f"{name}:{seqno} is {_short(value)}, which nobody wrote")
                continue
            place = places.setdefault(record, (name, seqno))
            if place != (name, seqno):
                report.add("duplicate", f"{_name(record)} is at {place[0]}:{place[1]} and at {name}:{seqno}")
            writer, sequence = record
            if sequence < latest.get(writer, -1):
                report.add("reordered", f"{_name(record)} at {name}:{seqno} comes after {writer}:{latest[writer]}")
            latest[writer] = max(sequence, latest.get(writer, -1))

    def _judge_outcome(self, record: Record, outcome: AnyEvent, place: tuple[str, int] | None) -> None:
        report = self.report
        if isinstance(outcome, Ok):
            report.acknowledged += 1
            log = self._logs.get(outcome.log)
            if log is None or log.final_first is None:
                report.add("lost", f"{_name(record)} was promised at {_at(outcome)}; that log was never read at last")
            elif place is None:
                if outcome.seqno >= log.final_first:
                    report.add("lost", f"{_name(record)} was promised at {_at(outcome)}, and is nowhere")
            elif place != (outcome.log, outcome.seqno):
                words = f"{_name(record)} is at {place[0]}:{place[1]}, its writer was told {_at(outcome)}"
                report.add("inconsistent", words)
        elif isinstance(outcome, Fail):
            report.refused += 1
            if place is not None:
                report.add("aborted", f"{_name(record)} was refused, and is at {place[0]}:{place[1]}")
        else:
            report.unknown += 1

    def _count(self, attempt: Attempt, is_there: bool) -> None:
        """Of several attempts at a key all but one come too late: they are as good as refused."""
        count = len(attempt.records)
        if attempt.answers and is_there:
            self.report.acknowledged += count
        elif attempt.is_asked and not attempt.is_refused and not attempt.answers:
            self.report.unknown += count
        else:
            self.report.refused += count


def _name(record: Record) -> str:
    return f"{record[0]}:{record[1]}"


def _at(outcome: Ok) -> str:
    return f"{outcome.log}:{outcome.seqno}"


def _short(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:40] + "…")
