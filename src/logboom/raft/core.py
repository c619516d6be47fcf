"""What a node is, whatever its role: its term and vote, its log, its membership, and what waits to leave.

What must be on disk before what, and how that is enforced:

- A message leaves when the term and vote it was made under are on disk (`send`). So a vote, a candidacy and an answer
  are all kept back until then, and are dropped where a newer term comes first.
- What a follower acknowledges, and what a leader counts of itself, is read off `log.persisted`: no message can speak of
  an entry that is not synced.
- A candidate counts its own vote when that is on disk.
- What a peer's life says counts when that life is on disk here.
- Entries are handed out to be written before, or together with, the messages that carry them; the leader's own sync
  runs beside the others'.
- What is given to be applied is committed and persisted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from logboom.raft.effects import (
    ConfirmedRead,
    HardState,
    LostProposals,
    RaftStart,
    RareEffects,
    ReadRefusal,
    RefusedRead,
)
from logboom.raft.entry import KeptEntries, RaftEntry, RaftSnapshot
from logboom.raft.entry_log import EntryLog
from logboom.raft.lives import Acknowledgement, Life, RememberedLife
from logboom.raft.membership import Membership
from logboom.raft.messages import AnswerVote, AskVote, Message
from logboom.raft.settings import RaftSettings
from logboom.raft.write_order import WriteOrder

PEERS_MAX = 1_024
"""Members and former members whose lives are remembered."""


class ContractBroken(Exception):
    """What Raft excludes has happened: a peer or this node's own disk is not what it says. The node must not go on."""


class RaftCore:
    __slots__ = (
        "acknowledged",
        "applied",
        "commit",
        "disowned",
        "elapsed",
        "given",
        "hard_is_changed",
        "hard_is_durable",
        "held",
        "install",
        "installs",
        "leader",
        "life",
        "log",
        "lost",
        "member",
        "membership",
        "memberships",
        "met",
        "newly_met",
        "order",
        "outbox",
        "patience",
        "peers",
        "postponed",
        "random",
        "reads",
        "refused_reads",
        "settings",
        "term",
        "unsettled_reads",
        "verified",
        "vote",
    )

    def __init__(self, start: RaftStart, kept: KeptEntries, settings: RaftSettings, random: Random) -> None:
        self.member = start.member
        self.settings = settings
        self.random = random
        self.log = EntryLog(kept)
        self.term = max(start.hard_state.term, self.log.last_term)
        self.vote = start.hard_state.vote if self.term == start.hard_state.term else 0
        self.life = start.hard_state.life.next(start.life_id, self.log.last_index)
        self.leader = 0
        self.verified = 0
        """The last index up to which the log was compared with that of this term's leader."""
        self.order = WriteOrder()
        self.commit = min(max(start.committed, start.applied, self.log.first_index - 1), self.log.last_index)
        self.applied = start.applied
        self.given = start.applied
        """The last index that was given to be applied."""
        self.memberships = _uncommitted_memberships(kept, self.log.last_index, self.commit)
        """The one that is committed, and those above it: (index where it was written, membership)."""
        self.membership = self.memberships[-1][1]
        self.outbox: list[Message] = []
        self.held: list[Message] = []
        """Messages of this term, which is not on disk yet."""
        self.hard_is_changed = True
        self.hard_is_durable = False
        self.peers = {known.member: known.life for known in start.remembered}
        self.acknowledged = {known.member: known.acknowledged for known in start.remembered if known.acknowledged}
        self.met: dict[int, Life] = {}
        """New lives of peers that are not on disk yet."""
        self.newly_met: list[int] = []
        """Those of them that are not handed out to be written."""
        self.postponed: list[Message] = []
        """What such lives have said that counts."""
        self.reads: list[ConfirmedRead] = []
        self.unsettled_reads: list[ConfirmedRead] = []
        """They wait until what they have to see is applied."""
        self.refused_reads: list[RefusedRead] = []
        self.lost: list[LostProposals] = []
        self.installs = start.installs
        """The snapshot that is being installed."""
        self.install = start.installs
        """The same, where the driver was not told yet."""
        self.disowned = ""
        self.elapsed = 0
        self.patience = 0
        self.wait_anew()

    @property
    def is_voter(self) -> bool:
        return self.membership.is_voter(self.member)

    @property
    def may_campaign(self) -> bool:
        """Also who is no voter any more, until that is known to be committed: the others may lack the entry, and then
        cannot elect anybody against its log.
        """
        return any(membership.is_voter(self.member) for _, membership in self.memberships)

    @property
    def is_in_lease(self) -> bool:
        """Whether a leader was heard so recently that nobody else gets a vote."""
        return self.leader != 0 and self.elapsed < self.settings.election_ticks

    def wait_anew(self) -> None:
        """Begin to wait for a leader, for one to two election times."""
        ticks = self.settings.election_ticks
        self.elapsed = 0
        self.patience = ticks + int(self.random.random() * ticks)

    def send(self, message: Message) -> None:
        (self.outbox if self.hard_is_durable else self.held).append(message)

    def enter_term(self, term: int, vote: int = 0) -> None:
        self.term, self.vote = term, vote
        self.verified = 0
        self.held.clear()
        self._change_hard_state()

    def vote_for(self, member: int) -> None:
        self.vote = member
        self._change_hard_state()

    def _change_hard_state(self) -> None:
        self.hard_is_changed = True
        self.hard_is_durable = False

    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote, self.life)

    def answer_vote(self, question: AskVote) -> None:
        """Grant or refuse, by what is written here, synced or not. A trial changes nothing."""
        is_free = self.vote == question.sender or (self.vote == 0 and self.leader == 0)
        may_vote = is_free or (question.trial and question.term > self.term)
        granted = may_vote and self.log.is_covered_by(question.last_index, question.last_term)
        if granted and not question.trial:
            self.elapsed = 0
            if self.vote != question.sender:
                self.vote_for(question.sender)
        term = question.term if granted else self.term
        self.send(AnswerVote(self.member, question.sender, term, self.life, granted, question.trial))

    def add_entry(self, entry: RaftEntry) -> None:
        self.log.append(entry)
        if entry.membership is not None:
            self.memberships.append((entry.index, entry.membership))
            self.membership = entry.membership

    def add_entries(self, entries: Iterable[RaftEntry]) -> None:
        for entry in entries:
            self.add_entry(entry)

    def cut(self, index: int) -> None:
        """Take back entries, and the memberships that they brought."""
        if index <= self.commit:
            raise ContractBroken(f"entry {index} is committed and would be cut, {self.commit} are")
        self.log.cut(index)
        self.order.cut(index)
        self.verified = min(self.verified, index - 1)
        while self.memberships[-1][0] >= index:
            self.memberships.pop()
        self.membership = self.memberships[-1][1]

    def commit_to(self, index: int) -> bool:
        """Note that everything up to an index is committed. Whether that is news."""
        if index <= self.commit:
            return False
        self.commit = index
        if len(self.memberships) > 1 or self.log.persisted >= index:
            self.forget_settled()
        return True

    def forget_settled(self) -> None:
        """What is committed and persisted nobody takes back: the journal has it."""
        index = min(self.commit, self.log.persisted)
        while len(self.memberships) > 1 and self.memberships[1][0] <= index:
            del self.memberships[0]
        self.log.trim(index)

    def take_back(self, index: int) -> None:
        """Cut what could not be written, and what is known of others' agreement to it: as a restart would."""
        self.commit = min(self.commit, index - 1)
        self.cut(index)

    def begin_install(self, snapshot: RaftSnapshot) -> None:
        self.install = self.installs = snapshot

    def replace_log(self, snapshot: RaftSnapshot) -> None:
        self.installs = self.install = None
        self.order.cut(1)
        self.verified = snapshot.index
        self.log.restart(snapshot.index, snapshot.term)
        self.commit = self.applied = self.given = snapshot.index
        self.memberships = [(snapshot.index, snapshot.membership)]
        self.membership = snapshot.membership

    def confirm_read(self, context: int, index: int) -> None:
        (self.reads if index <= self.applied else self.unsettled_reads).append(ConfirmedRead(context, index))

    def refuse_reads(self, contexts: Iterable[int], reason: ReadRefusal) -> None:
        self.refused_reads.extend(RefusedRead(context, reason) for context in contexts)

    def note_applied(self, index: int) -> None:
        self.applied = max(self.applied, index)
        if self.unsettled_reads:
            self.reads += [read for read in self.unsettled_reads if read.index <= self.applied]
            self.unsettled_reads = [read for read in self.unsettled_reads if read.index > self.applied]

    @property
    def has_rare(self) -> bool:
        return bool(self.lost or self.reads or self.refused_reads or self.install)

    def take_rare(self) -> RareEffects:
        found = RareEffects(tuple(self.lost), self.install, tuple(self.reads), tuple(self.refused_reads))
        self.install = None
        for taken in (self.lost, self.reads, self.refused_reads):
            taken.clear()
        return found

    def meet(self, member: int, life: Life) -> None:
        """A new life of a peer, to be put on disk."""
        if member not in self.newly_met:
            self.newly_met.append(member)
        self.met[member] = life

    def note_acknowledged(self, acknowledged: Iterable[Acknowledgement]) -> None:
        for entry in acknowledged:
            known = self.acknowledged.get(entry.member)
            is_news = len(self.acknowledged) < PEERS_MAX if known is None else entry.index > known.index
            if is_news:
                self.acknowledged[entry.member] = entry

    def remember_met(self) -> tuple[RememberedLife, ...]:
        """New lives, to be put on disk now."""
        found = tuple([self.remember(member) for member in self.newly_met])
        self.newly_met.clear()
        return found

    def remember(self, member: int) -> RememberedLife:
        life = self.met.get(member) or self.peers[member]
        return RememberedLife(member, life, self.acknowledged.get(member))


def _uncommitted_memberships(kept: KeptEntries, last: int, commit: int) -> list[tuple[int, Membership]]:
    """What the journal knows above the commit index, and the one that counts there; the latest last."""
    found = [kept.membership(last)]
    while found[-1][0] > commit:
        found.append(kept.membership(found[-1][0] - 1))
    return found[::-1]
