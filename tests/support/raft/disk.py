"""The disk of a simulated member: what is written, what of that is synced, and what a crash leaves.

Writes are synced in their order; the file of votes and lives and the journal are two files, so a crash may leave more
of one than of the other, and of the last write of the journal only its first entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import structs

from logboom.raft import (
    Effects,
    HardState,
    Membership,
    RaftEntry,
    RaftSnapshot,
    RaftStart,
    RememberedLife,
)


class RaftDisk:
    """Implements KeptEntries."""

    def __init__(self, membership: Membership) -> None:
        self.base = RaftSnapshot(0, 0, membership)
        self.log: list[RaftEntry] = []
        """What is written, from behind the base on."""
        self.pending: list[Effects] = []
        """What is written and not synced."""
        self.synced: list[RaftEntry] = []
        """What of that would survive any crash."""
        self.hard_state = HardState()
        self.remembered: dict[int, RememberedLife] = {}
        self.installs: RaftSnapshot | None = None
        self.applied = 0
        """Of what a checkpoint covers."""

    @property
    def first_index(self) -> int:
        return self.base.index + 1

    @property
    def last_index(self) -> int:
        return self.base.index + len(self.log)

    @property
    def synced_index(self) -> int:
        return self.base.index + len(self.synced)

    def term(self, index: int) -> int:
        assert self.base.index <= index <= self.last_index, f"the term of {index} is not kept"
        return self.base.term if index == self.base.index else self.log[index - self.first_index].term

    def entries(self, first: int, last: int, bytes_max: int) -> Sequence[RaftEntry]:
        assert self.first_index <= first <= last <= self.last_index
        found: list[RaftEntry] = []
        for entry in self.log[first - self.first_index : last - self.base.index]:
            bytes_max -= entry.size
            if found and bytes_max < 0:
                break
            found.append(entry)
        return found

    def membership(self, index: int) -> tuple[int, Membership]:
        for place in range(index - self.first_index, -1, -1):
            membership = self.log[place].membership
            if membership is not None:
                return self.first_index + place, membership
        return self.base.index, self.base.membership

    def snapshot(self) -> RaftSnapshot | None:
        return self.base

    def start(self, member: int, life_id: int) -> RaftStart:
        remembered = tuple(self.remembered.values())
        return RaftStart(member, life_id, self.hard_state, self.applied, self.applied, remembered, self.installs)

    def write(self, effects: Effects) -> None:
        if effects.number:
            self.pending.append(effects)
            self._replace(self.log, effects.entries)

    def sync(self, count: int | None = None) -> int:
        """Sync the first writes, by default all that there are now. The number of the last one, or 0."""
        done = self.pending[:count]
        del self.pending[:count]
        for effects in done:
            self._keep(effects)
            self._replace(self.synced, effects.entries)
        return done[-1].number if done else 0

    def crash(self, random: Random) -> None:
        """Lose what is not synced, or some of it; what is lost of two files is lost of each by itself."""
        for effects in self.pending[: random.randint(0, len(self.pending))]:
            self._keep(effects)
        writes = [effects.entries for effects in self.pending]
        kept = random.randint(0, len(writes))
        for entries in writes[:kept]:
            self._replace(self.synced, entries)
        if kept < len(writes) and writes[kept]:
            self._replace(self.synced, writes[kept][: random.randrange(len(writes[kept]) + 1)])
        self.fail()

    def fail(self) -> None:
        """What is not synced is gone."""
        self.log = list(self.synced)
        self.pending.clear()

    def compact(self, index: int) -> None:
        """Forget entries that a checkpoint covers; they are synced."""
        if index > self.base.index:
            count = index - self.base.index
            self.base = RaftSnapshot(index, self.term(index), self.membership(index)[1])
            del self.log[:count], self.synced[:count]
            self.applied = index

    def install(self, snapshot: RaftSnapshot) -> None:
        """Replace everything by a snapshot, in one step."""
        self.base = snapshot
        self.log, self.synced = [], []
        self.applied = snapshot.index
        self.installs = None
        self.pending = [
            structs.replace(effects, entries=()) for effects in self.pending if effects.hard_state or effects.remembered
        ]

    def _keep(self, effects: Effects) -> None:
        if effects.hard_state is not None:
            self.hard_state = effects.hard_state
        for known in effects.remembered:
            self.remembered[known.member] = known

    def _replace(self, log: list[RaftEntry], entries: tuple[RaftEntry, ...]) -> None:
        if entries:
            place = entries[0].index - self.first_index
            assert 0 <= place <= len(log), "a write leaves a gap"
            del log[place:]
            log += entries
