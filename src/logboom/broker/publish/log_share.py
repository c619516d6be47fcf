"""What one log gets of a publish: how much, from where on, and how far it has come.

Progress is nowhere stored. `find_progress` reads it from the log: batches of a stage carry its producer id, which no
other writer has, and their place in its stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from logboom.batch import Batch
from logboom.batch.header import SEQUENCE_MODULUS
from logboom.broker.api import PublishedPart
from logboom.broker.append.commitment import Due
from logboom.broker.append.log_writer import LogWriter
from logboom.broker.catalog import Hosted
from logboom.broker.publish.stage import Stage
from logboom.storage.append import Appended
from logboom.storage.log import Log
from logboom.storage.staged.bundle import Bundle
from logboom.storage.staged.stage import StageTarget


@dataclass(slots=True)
class LogShare:
    """One of the logs, while records go into it."""

    target: StageTarget
    hosted: Hosted
    writer: LogWriter
    index: int
    """Of the first batch that may be one of the publish."""
    records: int
    """What it is to get."""
    next: int
    first: int | None = None
    due: Due | None = None
    """What is to be durable before the publish is done."""
    done: dict[int, int] = field(default_factory=dict)
    """How far it has them already: where in a stage's stream, by the producer id of the stage."""

    def note(self, appended: Appended) -> None:
        self.first = appended.base_seqno if self.first is None else self.first
        self.next, self.due = appended.next_seqno, self.writer.due(appended.index)

    def part(self) -> PublishedPart:
        first = self.next if self.first is None else self.first
        return PublishedPart(*_fields(self.target), first, self.next, self.records)


def find_progress(log: LogShare, producers: set[int]) -> None:
    """On a thread: which of these producers' batches are in the log, from where they can be on."""
    storage = log.writer.log
    index = max(log.index, storage.first_index)
    for batch in _batches(storage, index):
        header = batch.header
        if header.producer_id in producers:
            log.note(Appended(header.base_seqno, header.record_count, header.index, header.append_time))
            done = log.done.get(header.producer_id, 0)
            ahead = (header.producer_seq + header.record_count - done) % SEQUENCE_MODULUS
            log.done[header.producer_id] = done + ahead


def _batches(log: Log, index: int) -> Iterator[Batch]:
    while index <= log.last_index:
        run = log.read_index(index)
        if run is None:
            return
        yield from run.batches()
        index = run.next_index


def count_records(stages: Sequence[Stage], bundle: Bundle | None = None) -> dict[StageTarget, int]:
    """The records for each log."""
    counts: dict[StageTarget, int] = {}
    for stage in stages:
        for target, number in stage.loaded.targets.items():
            counts[target] = counts.get(target, 0) + stage.loaded.counts[number]
    if bundle is not None:
        counts.update(zip(bundle.targets, bundle.counts, strict=True))
    return counts


def _fields(target: StageTarget) -> tuple[str, str, int]:
    return target.topic, target.topic_id, target.partition
