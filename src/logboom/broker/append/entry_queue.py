"""What waits to be written to one log, in its order, and what it comes to."""

from __future__ import annotations

from collections import deque

from logboom.broker.append.promise import Entry


class EntryQueue:
    __slots__ = ("eager", "entries", "size", "work_bytes")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        """To look at: they are put in and taken out below."""
        self.size = 0
        """Bytes of all."""
        self.work_bytes = 0
        """The same, as their bodies will be inflated."""
        self.eager = 0
        """How many do not wait for a sync."""

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.size += entry.size
        self.work_bytes += entry.work_bytes
        if entry.acks != "durable":
            self.eager += 1

    def take(self) -> Entry:
        """The first."""
        entry = self.entries.popleft()
        self.size -= entry.size
        self.work_bytes -= entry.work_bytes
        if entry.acks != "durable":
            self.eager -= 1
        return entry

    def take_all(self) -> list[Entry]:
        entries = list(self.entries)
        self.entries.clear()
        self.size = self.work_bytes = self.eager = 0
        return entries
