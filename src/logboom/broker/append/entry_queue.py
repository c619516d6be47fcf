"""What waits to be written to one log, in its order, and what it comes to."""

from __future__ import annotations

from collections import deque

from logboom.broker.append.promise import Entry


class EntryQueue:
    __slots__ = ("_entries", "eager", "size", "work_bytes")

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.size = 0
        """Bytes of all."""
        self.work_bytes = 0
        """The same, as their bodies will be inflated."""
        self.eager = 0
        """How many do not wait for a sync."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first(self) -> Entry:
        return self._entries[0]

    def put(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.size += entry.size
        self.work_bytes += entry.work_bytes
        if entry.acks != "durable":
            self.eager += 1

    def take(self) -> Entry:
        """The first."""
        entry = self._entries.popleft()
        self.size -= entry.size
        self.work_bytes -= entry.work_bytes
        if entry.acks != "durable":
            self.eager -= 1
        return entry

    def take_all(self) -> list[Entry]:
        entries = list(self._entries)
        self._entries.clear()
        self.size = self.work_bytes = self.eager = 0
        return entries
