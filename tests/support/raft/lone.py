"""One real member whose peers are the test: what they say is made up, what it does is looked at."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from logboom.raft import (
    ConfirmedRead,
    Effects,
    HardState,
    Life,
    LostProposals,
    Membership,
    Message,
    NodeRole,
    RaftEntry,
    RaftNode,
    RaftSettings,
    RefusedRead,
    RememberedLife,
)
from logboom.raft.messages import AnswerVote, AppendAnswer
from support.raft.disk import RaftDisk
from support.raft.group import SETTINGS

Kind = TypeVar("Kind", bound=Message)


def life_of(member: int) -> Life:
    return Life(1_000 + member)


class LoneMember:
    """Member 1. Its log is given as the terms of its entries; it is synced at once unless `holds_disk`."""

    def __init__(
        self,
        voters: int | tuple[int, ...] = 3,
        terms: tuple[int, ...] = (),
        term: int = 0,
        vote: int = 0,
        committed: int = 0,
        settings: RaftSettings = SETTINGS,
        learners: tuple[int, ...] = (),
    ) -> None:
        members = tuple(range(1, voters + 1)) if isinstance(voters, int) else voters
        self.disk = RaftDisk(Membership(members, learners=learners))
        self.disk.log = [RaftEntry(index, at, 10) for index, at in enumerate(terms, 1)]
        self.disk.synced = list(self.disk.log)
        self.disk.hard_state = HardState(term, vote)
        self.disk.applied = committed
        for member in range(2, 10):
            self.disk.remembered[member] = RememberedLife(member, life_of(member))
        self.settings = settings
        self.holds_disk = False
        self.node = RaftNode(self.disk.start(1, 77), self.disk, settings, Random(1))
        self.said: list[Message] = []
        self.applied: list[int] = []
        self.reads: list[ConfirmedRead] = []
        self.refused_reads: list[RefusedRead] = []
        self.lost: list[LostProposals] = []
        self.effects: list[Effects] = []
        self.take()

    def role(self) -> NodeRole:
        return self.node.status().role

    @property
    def term(self) -> int:
        return self.node.status().term

    @property
    def committed(self) -> int:
        return self.node.status().committed

    @property
    def terms(self) -> list[int]:
        """Of the entries in its journal."""
        return [entry.term for entry in self.disk.log]

    def hear(self, kind: type[Message], sender: int, term: int, *fields: Any, **named: Any) -> list[Message]:
        """What it says to a message from a peer."""
        self.node.step(kind(sender, 1, term, life_of(sender), *fields, **named))
        return self.take()

    def take(self) -> list[Message]:
        said: list[Message] = []
        while self.node.has_ready:
            effects = self.node.ready()
            self.effects.append(effects)
            self.disk.write(effects)
            said += effects.messages
            if effects.committed is not None:
                self.applied += range(effects.committed[0], effects.committed[1] + 1)
                self.node.applied(effects.committed[1])
            self.reads += effects.reads
            self.refused_reads += effects.refused_reads
            self.lost += effects.lost
            if not self.holds_disk:
                self.sync()
        self.said += said
        return said

    def sync(self, count: int | None = None) -> None:
        number = self.disk.sync(count)
        if number:
            self.node.persisted(number)

    def tick(self, count: int = 1) -> list[Message]:
        said: list[Message] = []
        for _ in range(count):
            self.node.tick()
            said += self.take()
        return said

    def wait_for(self, role: NodeRole) -> list[Message]:
        """Until its patience ends."""
        for _ in range(3 * self.settings.election_ticks):
            said = self.tick()
            if self.role() is role:
                return said
        raise AssertionError(f"it is a {self.role().value}")

    def campaign(self) -> list[Message]:
        """Until it is a candidate: a majority says that it would vote."""
        self.wait_for(NodeRole.PRE_CANDIDATE)
        said: list[Message] = []
        for member in self.node.status().membership.voters:
            if member != 1 and self.role() is NodeRole.PRE_CANDIDATE:
                said += self.hear(AnswerVote, member, self.term + 1, True, True)
        assert self.role() is NodeRole.CANDIDATE
        return said

    def lead(self, answered: bool = True) -> list[Message]:
        """Until it leads and, if its peers answer, its first entry is committed."""
        said = self.campaign()
        for member in self.node.status().membership.voters:
            if member != 1 and self.role() is NodeRole.CANDIDATE:
                said += self.hear(AnswerVote, member, self.term, True)
        assert self.role() is NodeRole.LEADER
        if answered:
            for member in self.node.status().membership.members:
                if member != 1:
                    said += self.hear(AppendAnswer, member, self.term, self.node.status().last)
        return said


def of_kind(kind: type[Kind], messages: list[Message], to: int = 0) -> list[Kind]:
    return [message for message in messages if isinstance(message, kind) and to in (0, message.to)]
