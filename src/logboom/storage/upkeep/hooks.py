"""The queue of delete hooks: which segments must be shown to a topic's command before retention may drop them.

Each change replaces the file whole and durably. One owner calls, one call at a time; the time is passed in.

Invariant: an entry that is done here is done on the disk. So a segment goes only after its hook's success was recorded,
and a hook runs at least once. Where a write fails nothing is changed; only `failed` keeps its back-off all the same.

After a crash the file is whole, as it was before or after the last change. Where it is missing or damaged the queue is
empty: retention queues its segments again, and their hooks run again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Annotated, Final, Literal

import msgspec

from logboom.storage.files import envelope
from logboom.storage.files.disk import Disk, read_file, replace_file

MAGIC: Final = b"LGHQ"
ERROR_BYTES_MAX: Final = 2048
"""How much of an error an entry keeps."""
_DOUBLINGS_MAX: Final = 40  # far beyond any cap, so that the power stays small

Reason = Literal["bytes", "age", "records", "trim"]


class HookEntry(msgspec.Struct, frozen=True):
    """One segment that waits for its hook, or for its drop. Fields may be added with defaults; never renamed."""

    log: Annotated[str, msgspec.Meta(pattern=r"^topics/[^/]+/(0|[1-9][0-9]{0,9})$")]
    """The log's path below the data directory."""
    first_seqno: int
    first_index: int
    next_seqno: int
    next_index: int
    reason: Reason
    queued_at: int
    attempts: int = 0
    """How often the hook has failed."""
    next_at: int = 0
    """Not to be run before."""
    failed_at: int | None = None
    failing_since: int | None = None
    last_error: str | None = None
    done: bool = False

    @property
    def topic(self) -> str:
        """The topic's directory below the data directory."""
        return os.path.dirname(self.log)

    @property
    def partition(self) -> int:
        return int(os.path.basename(self.log))

    @property
    def place(self) -> tuple[int, int]:
        """What tells this segment from the others of its log, whatever its generation."""
        return self.first_seqno, self.first_index

    @property
    def end(self) -> tuple[int, int]:
        return self.next_seqno, self.next_index

    def is_due(self, now: int) -> bool:
        """A clock that was set back to before the failure does not make it wait longer."""
        return self.next_at <= now or (self.failed_at is not None and now < self.failed_at)


class HookQueueBody(msgspec.Struct, frozen=True):
    """What follows the front of the file."""

    entries: list[HookEntry]


_body: Final = msgspec.msgpack.Decoder(HookQueueBody)
Logs = Mapping[str, tuple[HookEntry, ...]]
"""The entries of every log, by topic and partition, oldest first."""


class HookQueue:
    def __init__(self, disk: Disk, path: str, entries: Iterable[HookEntry] = (), damaged: str | None = None) -> None:
        self.damaged = damaged
        """Why what the file said was not believed when it was opened."""
        self._disk = disk
        self._path = path
        self._logs = _sort(entries)
        self._has_directory = False

    @classmethod
    def open(cls, disk: Disk, path: str) -> HookQueue:
        """The queue in this file. Reads only: file and directory are made by the first change."""
        try:
            data = read_file(disk, path)
            return cls(disk, path, () if data is None else decode(data))
        except (OSError, ValueError) as error:
            return cls(disk, path, damaged=f"{path}: {error}")

    @property
    def entries(self) -> list[HookEntry]:
        """All of them, by topic, partition and seqno."""
        return [entry for entries in self._logs.values() for entry in entries]

    @property
    def failing(self) -> list[HookEntry]:
        """Those whose hook has failed and not yet succeeded."""
        return [entry for entry in self.entries if entry.failing_since is not None]

    def push(self, entries: Iterable[HookEntry]) -> None:
        """Queue segments, all with one write. One that is queued already stays as it is, done or not.

        One that begins as a queued segment does and ends elsewhere is another segment, and takes its place.
        """
        known = {(entry.log, entry.place): entry for entry in self.entries}
        fresh: dict[tuple[str, tuple[int, int]], HookEntry] = {}
        for entry in entries:
            key = entry.log, entry.place
            queued = fresh.get(key) or known.get(key)
            if queued is None or queued.end != entry.end:
                fresh[key] = entry
        if fresh:
            self._record(_sort((known | fresh).values()))

    def withdraw(self, entries: Iterable[HookEntry]) -> None:
        """These segments are to stay after all: forget them, all with one write. One that is done stays done."""
        unwanted = {(entry.log, entry.place, entry.end) for entry in entries}
        left = {
            log: tuple(entry for entry in queued if entry.done or (log, entry.place, entry.end) not in unwanted)
            for log, queued in self._logs.items()
        }
        if left != self._logs:
            self._record(left)

    def due(self, now: int, running: Collection[str] = (), blocked: Collection[str] = ()) -> list[HookEntry]:
        """What may run now: at most one entry for each topic that is not `running`, given by its directory.

        A log's entries run in their order. The lowest partition goes first; while it waits for its back-off, has
        nothing left, or its log is `blocked`, the others have their turn.
        """
        found: dict[str, HookEntry] = {}
        for head in self._heads(running, blocked):
            if head.topic not in found and head.is_due(now):
                found[head.topic] = head
        return list(found.values())

    def next_due(self, now: int, running: Collection[str] = (), blocked: Collection[str] = ()) -> int | None:
        """When `due` with the same topics and logs may give something, never before now; None where nothing waits."""
        heads = self._heads(running, blocked)
        return min((now if head.is_due(now) else head.next_at for head in heads), default=None)

    def _heads(self, running: Collection[str], blocked: Collection[str]) -> Iterable[HookEntry]:
        for log, entries in self._logs.items():
            if log in blocked:
                continue
            head = next((entry for entry in entries if not entry.done), None)
            if head is not None and head.topic not in running:
                yield head

    def succeeded(self, entry: HookEntry) -> None:
        """Its hook ran: durable when this returns. An entry that has gone meanwhile is ignored."""
        queued = self._find(entry)
        if queued is not None and not queued.done:
            done = msgspec.structs.replace(queued, done=True, failing_since=None, last_error=None)
            self._record(_exchange(self._logs, done))

    def failed(self, entry: HookEntry, now: int, error: str, backoff_ms: int, backoff_max_ms: int) -> HookEntry | None:
        """Its hook failed: try again later, each time after twice the wait. Returns the entry as it is now.

        The back-off holds also where the write raises. An entry that has gone, or is done, is ignored.
        """
        queued = self._find(entry)
        if queued is None or queued.done:
            return None
        wait_ms = min(backoff_ms << min(queued.attempts, _DOUBLINGS_MAX), backoff_max_ms)
        later = msgspec.structs.replace(
            queued,
            attempts=queued.attempts + 1,
            next_at=now + wait_ms * 1000,
            failed_at=now,
            failing_since=now if queued.failing_since is None else queued.failing_since,
            last_error=error.encode("utf-8", "replace")[:ERROR_BYTES_MAX].decode("utf-8", "ignore"),
        )
        self._logs = _exchange(self._logs, later)
        self._record(self._logs)
        return later

    def dropped(self, log: str, below_seqno: int) -> None:
        """The segments of this log wholly below a seqno are gone, and their entries with them."""
        entries = self._logs.get(log, ())
        left = tuple(entry for entry in entries if entry.next_seqno > below_seqno)
        if len(left) < len(entries):
            self._record({name: left if name == log else kept for name, kept in self._logs.items()})

    def forget(self, topic: str) -> None:
        """The topic with this directory below the data directory was deleted."""
        left = {log: entries for log, entries in self._logs.items() if os.path.dirname(log) != topic}
        if len(left) < len(self._logs):
            self._record(left)

    def done_until(self, log: str) -> int | None:
        """The seqno below which all segments of this log, from the first queued one on, have had their hooks.

        `Log.drop` with it drops none that has not; of what lies before the first queued one it knows nothing. A segment
        without records ends at the seqno at which the one before it ends: until it is done, both are held.
        """
        until: tuple[int, int] | None = None
        for entry in self._logs.get(log, ()):
            follows = until is None or entry.place == until
            if follows and entry.done:
                until = entry.end
                continue
            if until is None:
                return None
            held_seqno = entry.next_seqno if follows else entry.first_seqno
            return until[0] - 1 if held_seqno <= until[0] else until[0]
        return None if until is None else until[0]

    def _find(self, entry: HookEntry) -> HookEntry | None:
        same = (queued for queued in self._logs.get(entry.log, ()) if queued.place == entry.place)
        return next((queued for queued in same if queued.end == entry.end), None)

    def _record(self, logs: Logs) -> None:
        """On the disk first, then here."""
        if not self._has_directory:
            self._disk.make_directory(os.path.dirname(self._path))
            self._has_directory = True
        replace_file(self._disk, self._path, encode(entry for entries in logs.values() for entry in entries))
        self._logs = {log: entries for log, entries in logs.items() if entries}


def encode(entries: Iterable[HookEntry]) -> bytes:
    return envelope.pack(MAGIC, HookQueueBody(list(entries)))


def decode(data: bytes) -> list[HookEntry]:
    """The entries in a file's bytes; ValueError says why they are none of ours."""
    return envelope.unpack(MAGIC, data, _body).entries


def _sort(entries: Iterable[HookEntry]) -> Logs:
    ordered = sorted(entries, key=lambda entry: (entry.topic, entry.partition, entry.place))
    return {log: tuple(group) for log, group in groupby(ordered, key=lambda entry: entry.log)}


def _exchange(logs: Logs, entry: HookEntry) -> Logs:
    """The same logs with this entry in place of its former self."""
    entries = tuple(entry if queued.place == entry.place else queued for queued in logs[entry.log])
    return {**logs, entry.log: entries}
