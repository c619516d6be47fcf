"""A group of members in one process whose messages go where a test says: for tests and stories.

Every member has a disk and does what its core says as soon as it is told to. Messages stay on the wire until they are
delivered, in their order, or dropped; `settle` delivers until nobody has anything to say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from logboom.raft import (
    ConfirmedRead,
    LostProposals,
    Membership,
    Message,
    NodeRole,
    NotAppended,
    Proposal,
    RaftNode,
    RaftSettings,
    RefusedRead,
)
from support.raft.disk import RaftDisk

SETTINGS = RaftSettings(tick_ms=10, heartbeat_ms=10, election_ms=100)
SETTLED_MAX = 100_000


class GroupMember:
    def __init__(self, member: int, membership: Membership, settings: RaftSettings = SETTINGS) -> None:
        self.member = member
        self.settings = settings
        self.disk = RaftDisk(membership)
        self.random = Random(member)
        self.is_up = False
        self.disk_is_held = False
        """Whether what is written is left unsynced."""
        self.applied: list[tuple[int, int]] = []
        """(index, term) of everything that was applied, in its order."""
        self.reads: list[ConfirmedRead] = []
        self.refused_reads: list[RefusedRead] = []
        self.lost: list[LostProposals] = []
        self.start()

    def start(self) -> None:
        start = self.disk.start(self.member, self.random.getrandbits(63) + 1)
        self.node = RaftNode(start, self.disk, self.settings, self.random)
        self.is_up = True

    def crash(self) -> None:
        """Lose all that is not synced."""
        self.disk.fail()
        self.is_up = False

    def role(self) -> NodeRole:
        return self.node.status().role

    def take(self) -> list[Message]:
        """Do what there is to do, until there is nothing. What is to be sent."""
        messages: list[Message] = []
        while self.is_up and self.node.has_ready:
            effects = self.node.ready()
            self.disk.write(effects)
            messages += effects.messages
            if effects.committed is not None:
                first, last = effects.committed
                self.applied += [(index, self.disk.term(index)) for index in range(first, last + 1)]
                self.node.applied(last)
            self.reads += effects.reads
            self.refused_reads += effects.refused_reads
            self.lost += effects.lost
            self.disk.installs = effects.install or self.disk.installs
            if not self.disk_is_held:
                self.sync()
        return messages

    def sync(self) -> None:
        number = self.disk.sync()
        if number:
            self.node.persisted(number)

    def finish_install(self) -> None:
        snapshot = self.disk.installs
        assert snapshot is not None
        self.disk.install(snapshot)
        self.node.installed(snapshot)


class RaftGroup:
    def __init__(
        self,
        voters: Iterable[int],
        learners: Iterable[int] = (),
        spare: Iterable[int] = (),
        settings: RaftSettings = SETTINGS,
    ) -> None:
        membership = Membership(tuple(voters), learners=tuple(learners))
        everybody = (*membership.members, *spare)
        self.members = {member: GroupMember(member, membership, settings) for member in everybody}
        self.wire: deque[Message] = deque()
        self.cut_links: set[tuple[int, int]] = set()
        """(from, to): what is sent there is lost."""

    def __getitem__(self, member: int) -> RaftNode:
        return self.members[member].node

    @property
    def leader(self) -> int:
        """The leader of the newest term."""
        statuses = [member.node.status() for member in self.members.values() if member.is_up]
        leaders = {status.term: status.member for status in statuses if status.role is NodeRole.LEADER}
        return leaders[max(leaders)] if leaders else 0

    def collect(self) -> None:
        for member in self.members.values():
            self.wire += member.take()

    def deliver(self, wanted: Callable[[Message], bool] = lambda message: True) -> int:
        """Hand over what is on the wire now and wanted, and what is said to that stays there. How many there were."""
        self.collect()
        messages = [message for message in self.wire if wanted(message)]
        self.wire = deque(message for message in self.wire if not wanted(message))
        for message in messages:
            receiver = self.members.get(message.to)
            if receiver is not None and receiver.is_up and (message.sender, message.to) not in self.cut_links:
                receiver.node.step(message)
        self.collect()
        return len(messages)

    def settle(self) -> None:
        for _ in range(SETTLED_MAX):
            if not self.deliver():
                return
        raise AssertionError("they never come to an end")

    def elect(self, member: int) -> None:
        """Let a member's patience end, and the others forget their leader without losing theirs."""
        for _ in range(10):
            for other in self.members.values():
                if other.is_up and other.role() is not NodeRole.LEADER:
                    core = other.node._core
                    core.elapsed = core.patience if other.member == member else core.settings.election_ticks - 1
                    if other.member == member or core.patience > core.settings.election_ticks:
                        other.node.tick()
            self.settle()
            if self.members[member].role() is NodeRole.LEADER:
                return
        raise AssertionError(f"{member} is not elected")

    def tick(self, count: int = 1) -> None:
        """Time goes by for all who are up."""
        for _ in range(count):
            for member in self.members.values():
                if member.is_up:
                    member.node.tick()
            self.settle()

    def propose(self, size: int = 100) -> Proposal:
        """To the leader; nothing is sent yet."""
        proposal = self[self.leader].propose(size)
        assert isinstance(proposal, Proposal), proposal
        return proposal

    def refusal(self, member: int) -> NotAppended:
        refusal = self[member].propose(1)
        assert isinstance(refusal, NotAppended)
        return refusal

    def cut_off(self, *members: int) -> None:
        """They reach each other and nobody else."""
        for one in self.members:
            for other in self.members:
                if (one in members) != (other in members):
                    self.cut_links.add((one, other))

    def heal(self) -> None:
        self.cut_links.clear()
