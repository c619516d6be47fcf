"""How much waits to be written and to be synced, of each log and of the node, and which logs threads have.

A log's account is written by its owner alone, and every entry in it counts for the node at once: the sums always agree.
All of it belongs to the event loop. Nothing here outlives the process.
"""

from __future__ import annotations

from logboom.broker.append.turn import RoundLog
from logboom.broker.limits import Limits
from logboom.errors import Overloaded


class NodeAccount:
    """The sums."""

    __slots__ = ("dirty", "dirty_max", "limits", "queued_bytes", "seized", "unsynced_bytes")

    def __init__(self, limits: Limits, dirty_max: int) -> None:
        self.limits = limits
        self.dirty_max = dirty_max
        self.queued_bytes = 0
        self.unsynced_bytes = 0
        self.seized = 0
        """How many logs threads have."""
        self.dirty: dict[RoundLog, None] = {}
        """Logs with something that is written and not synced, or about to be written on a thread."""


class WriteAccount:
    """Of one log."""

    __slots__ = ("_log", "_node", "queued_bytes", "unsynced_bytes")

    def __init__(self, node: NodeAccount, log: RoundLog) -> None:
        self._node = node
        self._log = log
        self.queued_bytes = 0
        self.unsynced_bytes = 0

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more may be unsynced. An idle log has room for one batch of any size, as long as there
        are files: it holds one open until it is synced."""
        node = self._node
        if not self.unsynced_bytes:
            return len(node.dirty) < node.dirty_max
        limits = node.limits
        return (
            self.unsynced_bytes + size <= limits.unsynced_bytes_per_log
            and node.unsynced_bytes + size <= limits.unsynced_bytes
        )

    def overload(self, name: str, size: int) -> Overloaded | None:
        """Why so many bytes more may not wait for this log, which is called so."""
        waiting, most = self.queued_bytes, self._node.limits.unsynced_bytes_per_log
        if not waiting or waiting + size <= most:
            waiting, most = self._node.queued_bytes, self._node.limits.unsynced_bytes
            if not waiting or waiting + size <= most:
                return None
        return Overloaded(name, waiting, most)

    def note_queued(self, size: int) -> None:
        """So many bytes more, or less, wait to be written."""
        self.queued_bytes += size
        self._node.queued_bytes += size

    def note_unsynced(self, size: int) -> None:
        """So many bytes more, or less, are written and wait for a sync."""
        node = self._node
        self.unsynced_bytes += size
        node.unsynced_bytes += size
        if not self.unsynced_bytes:
            node.dirty.pop(self._log, None)
        elif size > 0:
            node.dirty[self._log] = None

    def note_seized(self) -> None:
        """A thread gets the log."""
        self._node.dirty[self._log] = None
        self._node.seized += 1

    def note_freed(self) -> None:
        """No thread has the log any more."""
        if not self.unsynced_bytes:
            self._node.dirty.pop(self._log, None)
        self._node.seized -= 1
