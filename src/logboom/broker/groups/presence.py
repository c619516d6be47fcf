"""What a node knows of a member while it runs: when it was heard of, and what it was told. Nothing of it is kept.

After a restart every member has its whole session to be heard of again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from logboom.broker.caller import Caller
from logboom.broker.groups.group_entry import GrantEntry, GroupEntry, MemberEntry
from logboom.broker.groups.shares import LogId

BEATS: Final = 3
"""So many beats go into a session."""


@dataclass(slots=True, eq=False)
class MemberPresence:
    heard_s: float
    """Monotonic, as all times here."""
    session_s: float
    give_back_s: float
    caller: Caller
    knows: int = 0
    """The generation that it said it knows."""
    told_at: dict[LogId, float] = field(default_factory=dict)
    """When it was first told that a log is asked for."""
    is_ending: bool = False
    """Whether its session is over, and that is being written down: it cannot be told any more that it goes on."""
    is_heard: bool = True
    """Whether it has said anything since the node began: until then `caller` is what is kept of it."""

    @classmethod
    def of(cls, about: MemberEntry, caller: Caller, now_s: float, is_heard: bool = True) -> MemberPresence:
        return cls(now_s, about.session_ms / 1000, about.give_back_ms / 1000, caller, is_heard=is_heard)

    def take_after(self, before: MemberPresence | None) -> None:
        """It has joined again, and had been told this already."""
        if before is not None:
            self.knows, self.told_at = before.knows, before.told_at

    @property
    def beat_ms(self) -> int:
        """The longest it may wait with its next beat, and the longest that one waits for news."""
        return int(self.session_s * 1000) // BEATS

    @property
    def until_s(self) -> float:
        """When its session ends."""
        return self.heard_s + self.session_s

    def excuse(self, away_s: float, now_s: float) -> None:
        """Nobody listened for so long."""
        self.heard_s = min(now_s, self.heard_s + away_s)
        self.told_at = {log: min(now_s, told_s + away_s) for log, told_s in self.told_at.items()}

    def note_told(self, entry: GroupEntry, member: str, now_s: float) -> None:
        """It is being answered with what this entry says."""
        asked = {grant.log for grant in entry.grants if grant.member == member and grant.asked}
        self.told_at = {log: self.told_at.get(log, now_s) for log in asked}

    def given_back(self, entry: GroupEntry, member: str, held: Collection[tuple[str, int]]) -> set[GrantEntry]:
        """What it was asked for, knows of it, and does not hold any more."""
        return {
            grant
            for grant in entry.grants
            if grant.member == member
            and 0 < grant.asked <= self.knows
            and (grant.topic_id, grant.partition) not in held
        }

    def is_overdue(self, grant: GrantEntry, now_s: float) -> bool:
        """Whether it was told to give this back long ago, and has not."""
        told_s = self.told_at.get(grant.log)
        return told_s is not None and now_s >= told_s + self.give_back_s

    def next_due_s(self) -> float:
        """When something is to be done if nothing is heard."""
        return min([self.until_s, *(told_s + self.give_back_s for told_s in self.told_at.values())])
