"""What is archived of the logs of a node: where reads go on that begin before a log's own first record.

The broker knows no archive. Whoever does puts here what it has of each log, as an `ArchivedLog`; nobody need. A log and
its archive are one: it begins where the archive does, if that reaches up to the log's own first record, and never below
the floor. An archive that ends before that has a gap behind it, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from logboom.storage.log import Log
from logboom.storage.run import Run


class ArchivedLog(Protocol):
    """Some of a log's records, from a seqno on, without a gap. What reads may take long: it is for a thread."""

    @property
    def first(self) -> int: ...
    @property
    def until(self) -> int: ...

    def read(self, seqno: int, max_bytes: int, max_records: int | None = None) -> Run:
        """As `Log.read`: batches from exactly this record on; at least one. Raises Damage."""
        ...

    def seqno_at(self, timestamp: int, seqno_from: int) -> int | None:
        """The first record, from this one on, at or after this time; None where there is none. Raises Damage."""
        ...

    def term_before(self, seqno: int) -> int | None:
        """The term of the record before this one; None where nobody knows."""
        ...


class Archives:
    """By topic id and partition. Of one event loop."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, int], ArchivedLog] = {}
        self.on_change: Callable[[], None] = lambda: None

    def put(self, logs: Mapping[tuple[str, int], ArchivedLog]) -> None:
        """From now on there are these and no others."""
        self._logs = dict(logs)
        self.on_change()

    def find(self, topic_id: str, partition: int) -> ArchivedLog | None:
        return self._logs.get((topic_id, partition))

    def first_of(self, topic_id: str, partition: int, log: Log) -> int:
        """The first readable seqno of a log, archived or not."""
        first = log.first
        archived = self._logs.get((topic_id, partition)) if first else None
        if archived is None or archived.until < first:
            return first
        return min(first, max(archived.first, log.floor))
