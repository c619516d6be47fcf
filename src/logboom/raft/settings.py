"""How fast the group notices, and how much it may have under way: one value, checked when it is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

RANGES: Final[dict[str, tuple[int, int]]] = {
    "tick_ms": (1, 1_000),
    "heartbeat_ms": (1, 10_000),
    "election_ms": (10, 120_000),
    "message_bytes": (1_024, 64 << 20),
    "window_bytes": (1_024, 1 << 30),
    "window_messages": (1, 4_096),
    "uncommitted_bytes": (1_024, 4 << 30),
    "unpersisted_bytes": (1_024, 4 << 30),
    "reads": (1, 1_000_000),
}
"""The least and the most of every setting."""
ELECTION_HEARTBEATS: Final = 3
"""An election time has at least so many heartbeats: one that is lost is no reason to vote."""


class RaftSettings(msgspec.Struct, frozen=True):
    """Equal on all members as far as times go. Raises ValueError with the name of the setting and its range."""

    tick_ms: int = 20
    """How often the driver calls `tick`."""
    heartbeat_ms: int = 100
    election_ms: int = 500
    """How long a leader must be silent before anybody votes; a node waits up to twice as long before it campaigns."""
    message_bytes: int = 1 << 20
    """Of entries in one message, unless it is one entry."""
    window_bytes: int = 16 << 20
    """Of entries on their way to one follower."""
    window_messages: int = 256
    uncommitted_bytes: int = 64 << 20
    """Of entries that are proposed and not committed: what comes beyond them is not appended."""
    unpersisted_bytes: int = 64 << 20
    """Of entries that wait for this node's disk: what comes beyond them is not taken."""
    reads: int = 10_000
    """Linearizable reads that wait."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(problem)

    @property
    def heartbeat_ticks(self) -> int:
        return self.heartbeat_ms // self.tick_ms

    @property
    def election_ticks(self) -> int:
        return self.election_ms // self.tick_ms

    def _problems(self) -> Iterator[str]:
        for name, (least, most) in RANGES.items():
            if not least <= getattr(self, name) <= most:
                yield f"{name} is {getattr(self, name)}: from {least} to {most}"
        if self.heartbeat_ms < self.tick_ms:
            yield f"heartbeat_ms is {self.heartbeat_ms}: at least tick_ms, {self.tick_ms}"
        if self.election_ms < ELECTION_HEARTBEATS * self.heartbeat_ms:
            least = ELECTION_HEARTBEATS * self.heartbeat_ms
            yield f"election_ms is {self.election_ms}: at least {ELECTION_HEARTBEATS} times heartbeat_ms, {least}"
