"""What must hold after every step of a group, whatever happened: it is looked at as the steps are made.

An entry is known by the hash of everything up to it, so one comparison stands for a whole prefix. What is committed is
kept for ever, outside of all members: nobody may ever contradict it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logboom.raft import (
    ConfirmedRead,
    Effects,
    LostProposals,
    Membership,
    Message,
    NodeRole,
    Proposal,
    RaftEntry,
)
from logboom.raft.messages import AnswerVote, AppendAnswer, AppendEntries, AskVote
from logboom.raft.quorum import majority

if TYPE_CHECKING:
    from support.raft.stage import StageMember


class InvariantBroken(AssertionError):
    """The first word says which."""


def broken(rule: str, detail: str) -> InvariantBroken:
    return InvariantBroken(f"{rule}: {detail}")


def follow(chain: int, entry: RaftEntry) -> int:
    """The hash of a log, from that of the log without its last entry."""
    return hash((chain, entry.term, entry.size, entry.kind, entry.membership and hash(str(entry.membership))))


class Invariants:
    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        """(term, voter) to candidate."""
        self.prefixes: dict[tuple[int, int], int] = {}
        """(index, term) to the hash of the log up to there."""
        self.committed: list[int] = [0]
        """Hash by index."""
        self.committed_terms: list[int] = [0]
        self.memberships: list[tuple[int, Membership]] = []
        self.not_appended: set[tuple[int, int]] = set()
        self.open: dict[int, dict[int, int]] = {}
        """Proposals that wait, by member: index to term."""
        self.lost_disks: dict[int, dict[int, int]] = {}
        """What disks that are lost had synced: hash by index. It was acknowledged, and counts until others know."""
        self.settled = 0
        self.unknown = 0

    @property
    def commit(self) -> int:
        return len(self.committed) - 1

    # What a member does.

    def sees_entries(self, member: StageMember, entries: tuple[RaftEntry, ...]) -> None:
        """Before they are written."""
        if not entries:
            return
        first = entries[0].index
        if member.role() is NodeRole.LEADER and first <= member.disk.last_index and member.led_term == member.term():
            raise broken("leader append-only", f"{member.member} replaces its own entries from {first} on")
        before = member.chain_at(first - 1)
        assert before is not None
        chain = before
        for entry in entries:
            chain = follow(chain, entry)
            known = self.prefixes.setdefault((entry.index, entry.term), chain)
            if known != chain:
                raise broken("log matching", f"{member.member} has another log up to {entry.index} of {entry.term}")

    def sees_message(self, member: StageMember, message: Message) -> None:
        """Before it leaves."""
        disk = member.disk
        is_trial = isinstance(message, AskVote | AnswerVote) and message.trial
        if not is_trial and message.term > max(disk.hard_state.term, disk.synced[-1].term if disk.synced else 0):
            raise broken("persistence", f"{member.member} speaks of term {message.term}, which is not on its disk")
        if not is_trial and disk.hard_state.life != message.life:
            raise broken("persistence", f"{member.member} speaks in a life that is not on its disk")
        if isinstance(message, AskVote) and not message.trial:
            self._vote(message.term, member.member, member.member)
            if disk.hard_state.vote != member.member and disk.hard_state.term == message.term:
                raise broken("persistence", f"{member.member} campaigns before its own vote is on its disk")
        elif isinstance(message, AnswerVote) and message.granted and not message.trial:
            self._vote(message.term, member.member, message.to)
            if (disk.hard_state.term, disk.hard_state.vote) < (message.term, 0) or (
                disk.hard_state.term == message.term and disk.hard_state.vote != message.to
            ):
                raise broken("persistence", f"the vote of {member.member} for {message.to} is not on its disk")
        elif isinstance(message, AppendAnswer) and not message.rejected and message.index > disk.synced_index:
            raise broken(
                "persistence", f"{member.member} acknowledges {message.index}, its disk has {disk.synced_index}"
            )
        elif isinstance(message, AppendEntries):
            for entry in message.entries:
                if not disk.first_index <= entry.index <= disk.last_index:
                    raise broken("persistence", f"{member.member} sends {entry.index}, which is not in its journal")

    def _vote(self, term: int, voter: int, candidate: int) -> None:
        if self.votes.setdefault((term, voter), candidate) != candidate:
            raise broken("one vote", f"{voter} votes for {candidate} and another in term {term}")

    def sees_state(self, member: StageMember, members: Iterable[StageMember]) -> None:
        """After every step of a member."""
        core = member.node._core
        if core.term < member.term_seen:
            raise broken("terms", f"{member.member} went back from term {member.term_seen} to {core.term}")
        member.term_seen = core.term
        if member.role() is NodeRole.LEADER:
            self._sees_leader(member)
        if core.commit > self.commit:
            self._commit_more(member, members)
        if core.commit > member.commit_seen:
            self._compare_commit(member)
        member.commit_seen = core.commit

    def _sees_leader(self, member: StageMember) -> None:
        core = member.node._core
        if self.leaders.setdefault(core.term, member.member) != member.member:
            raise broken("election safety", f"{member.member} leads term {core.term}, and another does")
        if member.led_term != core.term:
            member.led_term = core.term
            if core.log.last_index < self.commit or member.chain_at(self.commit) not in (
                None,
                self.committed[self.commit],
            ):
                raise broken("leader completeness", f"{member.member} leads and lacks what is committed")
        open_changes = [index for index, _ in core.memberships if index > max(self.commit, core.commit)]
        if len(open_changes) > 1:
            raise broken("one change", f"{member.member} has membership changes at {open_changes}")

    def _commit_more(self, member: StageMember, members: Iterable[StageMember]) -> None:
        core = member.node._core
        everybody = list(members)
        for index in range(self.commit + 1, core.commit + 1):
            chain = member.chain_at(index)
            assert chain is not None
            term = member.disk.term(index)
            if (index, term) in self.not_appended:
                raise broken("proposals", f"{index} of term {term} was said not to be appended")
            if member.role() is NodeRole.LEADER:
                holders = {other.member for other in everybody if other.synced_chain_at(index) == chain}
                holders |= {lost for lost, had in self.lost_disks.items() if had.get(index) == chain}
                for half in (core.membership.voters, core.membership.outgoing):
                    if half and len(holders & set(half)) < majority(len(half)):
                        raise broken("commit", f"{member.member} commits {index}, which only {sorted(holders)} have")
            self.committed.append(chain)
            self.committed_terms.append(term)

    def _compare_commit(self, member: StageMember) -> None:
        core = member.node._core
        chain = member.chain_at(core.commit)
        if chain is not None and chain != self.committed[core.commit]:
            raise broken("state-machine safety", f"{member.member} has committed another log up to {core.commit}")

    def sees_applied(self, member: StageMember, effects: Effects) -> None:
        if effects.committed is None:
            return
        first, last = effects.committed
        if first != member.applied + 1:
            raise broken("state-machine safety", f"{member.member} applies {first} after {member.applied}")
        if last > member.disk.synced_index:
            raise broken("persistence", f"{member.member} applies {last}, its disk has {member.disk.synced_index}")
        if last > self.commit or member.chain_at(last) != self.committed[last]:
            raise broken("state-machine safety", f"{member.member} applies something else up to {last}")
        waiting = self.open.get(member.member, {})
        for index in [index for index in waiting if first <= index <= last]:
            if waiting.pop(index) == self.committed_terms[index]:
                self.settled += 1
            else:
                raise broken("proposals", f"{index} at {member.member} was replaced, and nobody told")

    def sees_read(self, member: StageMember, read: ConfirmedRead, floor: int) -> None:
        if read.index < floor or member.applied < read.index:
            raise broken("reads", f"{member.member} reads at {min(read.index, member.applied)}, {floor} was committed")

    def sees_proposal(self, member: StageMember, proposal: Proposal) -> None:
        self.open.setdefault(member.member, {})[proposal.index] = proposal.term

    def sees_lost(self, member: StageMember, lost: LostProposals) -> None:
        waiting = self.open.get(member.member, {})
        for index in range(lost.first, lost.last + 1):
            waiting.pop(index, None)
            if lost.outcome == "not appended":
                self.not_appended.add((index, lost.term))
                if (index, lost.term) in self.prefixes:
                    raise broken("proposals", f"{index} of {lost.term} was given away and is said not to be appended")
            else:
                self.unknown += 1

    def sees_crash(self, member: StageMember) -> None:
        self.open.pop(member.member, None)

    def sees_loss(self, member: StageMember) -> None:
        """A disk is lost with all that it has: what was said before is another life's."""
        had = {index: member.synced_chain_at(index) for index in range(1, member.disk.synced_index + 1)}
        self.lost_disks[member.member] = {index: chain for index, chain in had.items() if chain is not None}
        self.votes = {key: vote for key, vote in self.votes.items() if key[1] != member.member}

    def sees_rest(self, members: Iterable[StageMember]) -> None:
        """When all is healed and done: nothing waits that was neither settled nor given back."""
        for member in members:
            left = {index: term for index, term in self.open.get(member.member, {}).items() if index <= member.applied}
            if left:
                raise broken("proposals", f"{member.member} never heard of {left}")
