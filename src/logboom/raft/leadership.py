"""Who leads in one term: takes proposals, sends them, and says what is committed. It ends with the term.

Committed is what a majority has on its disk, this node counted as any other, and only up to an entry of this term:
what an earlier leader left is committed by what comes behind it. Messages with entries are made by `flush`, in the same
moment as these entries are handed out to be written, so nothing is ever on its way that this node may forget to write.

A read waits until a majority has answered a heartbeat that was sent after it came: so nobody else led at that moment,
or nobody could have committed anything.
"""

from __future__ import annotations

from typing import Final

from logboom.raft.core import RaftCore
from logboom.raft.effects import LostProposals, NotAppended, Proposal
from logboom.raft.entry import ENTRY_COST, RaftEntry
from logboom.raft.lives import Acknowledgement
from logboom.raft.membership import InvalidMembership, MemberChange, Membership
from logboom.raft.messages import (
    AnswerRead,
    AppendAnswer,
    AppendEntries,
    AskRead,
    AskVote,
    CommitNotice,
    Heartbeat,
    HeartbeatAnswer,
    InstallSnapshot,
    TakeOver,
)
from logboom.raft.progress import FollowerProgress
from logboom.raft.quorum import agreed
from logboom.raft.transitions import Cause, NodeRole


class Leadership:
    role: Final = NodeRole.LEADER
    __slots__ = (
        "_beat_ticks",
        "_core",
        "_first",
        "_first_commit",
        "_halves",
        "_handover_ticks",
        "_is_dirty",
        "_others",
        "_reads",
        "_round",
        "_round_is_sent",
        "_settles_membership",
        "_successor",
        "progress",
    )

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._first = core.log.last_index + 1
        """The first entry of this term: whatever is committed before it is not committed by counting."""
        self.progress: dict[int, FollowerProgress] = {}
        self._others: tuple[FollowerProgress, ...] = ()
        self._halves: tuple[tuple[tuple[FollowerProgress, ...], bool], ...] = ()
        """For each half of the membership its other voters, and whether this node is one."""
        self._beat_ticks = 0
        self._is_dirty = True
        self._settles_membership = True
        """Whether the newest membership is not committed yet, or is and asks for something."""
        self._successor = 0
        self._handover_ticks = 0
        self._round = 0
        self._round_is_sent = True
        self._reads: list[tuple[int, int, int, int]] = []
        """Of reads that wait: (round, index, who asks, context). Index -1 until an entry of this term is committed."""

    def enter(self) -> Cause | None:
        core = self._core
        core.leader = core.member
        core.elapsed = 0
        self._follow_membership()
        core.add_entry(RaftEntry(self._first, core.term, kind="empty"))
        return None

    def close(self, cause: Cause) -> None:
        """Give back what is not settled, and take back what nobody was told."""
        core, log = self._core, self._core.log
        if cause is Cause.REMOVED:
            self._notify_committed()
        first, last = max(core.commit + 1, self._first), log.last_index
        sent = max(log.handed, first - 1)
        if first <= sent:
            core.lost.append(LostProposals("unknown", core.term, first, sent))
        if sent < last:
            core.lost.append(LostProposals("not appended", core.term, sent + 1, last))
            core.cut(sent + 1)
        core.refuse_reads([context for _, _, who, context in self._reads if who == core.member], "leader changed")

    # What the driver asks for.

    def propose(self, size: int) -> Proposal | NotAppended:
        core, log = self._core, self._core.log
        if self._successor:
            return NotAppended("handing over", self._successor)
        waiting = log.size(min(core.commit, log.persisted) + 1, log.last_index)
        if waiting and waiting + size + ENTRY_COST > core.settings.uncommitted_bytes:
            return NotAppended("too much is not committed", core.member)
        entry = RaftEntry(log.last_index + 1, core.term, size)
        log.append(entry)
        self._is_dirty = True
        return Proposal(entry.index, entry.term)

    def change_members(self, changes: tuple[MemberChange, ...]) -> Proposal | NotAppended:
        core = self._core
        if self._successor:
            return NotAppended("handing over", self._successor)
        if core.memberships[-1][0] > core.commit or core.membership.is_joint:
            return NotAppended("a membership change is under way", core.member)
        if core.commit < self._first:
            return NotAppended("no entry of this term is committed", core.member)
        try:
            membership = core.membership.begin(changes)
        except InvalidMembership as error:
            return NotAppended("invalid membership", core.member, str(error))
        for member in membership.voters:
            if not core.membership.is_voter(member) and not self._has_caught_up(member):
                return NotAppended("a new voter has not caught up", core.member, f"member {member}")
        return self._append_membership(membership)

    def hand_over(self, member: int) -> bool:
        """Let a voter campaign as soon as it has everything. Whether it can; until then nothing is appended."""
        follower = self.progress.get(member)
        if follower is None or not self._core.membership.is_voter(member):
            return False
        self._successor = member
        self._handover_ticks = 0
        self._hand_over_when_ready(follower)
        self._is_dirty = True
        return True

    def ask_read(self, context: int) -> None:
        self._add_read(self._core.member, context)

    # Time.

    def tick(self) -> Cause | None:
        core = self._core
        core.elapsed += 1
        self._beat_ticks += 1
        for follower in self._others:
            follower.round_ticks += 1
        if self._successor:
            self._handover_ticks += 1
            if self._handover_ticks >= core.settings.election_ticks:
                self._successor = 0
        if core.elapsed >= core.settings.election_ticks:
            core.elapsed = 0
            if not self._majority_is_there():
                return Cause.NO_MAJORITY
        if self._beat_ticks >= core.settings.heartbeat_ticks:
            self._beat()
        return None

    def _majority_is_there(self) -> bool:
        is_there = all(
            agreed([int(follower.heard) for follower in others] + [1] * is_voter) > 0
            for others, is_voter in self._halves
        )
        for follower in self._others:
            follower.heard = False
        return is_there

    def _beat(self) -> None:
        core = self._core
        self._beat_ticks = 0
        self._round_is_sent = True
        self._note_acknowledged()
        acknowledged = tuple(core.acknowledged.values())
        for follower in self._others:
            commit = min(follower.match, core.commit)
            head = (core.member, follower.member, core.term, core.life)
            core.send(Heartbeat(*head, commit, self._round, acknowledged))

    def _note_acknowledged(self) -> None:
        core, known = self._core, self._core.acknowledged
        reached = [(follower.member, follower.match) for follower in self._others]
        for member, match in (*reached, (core.member, core.log.persisted)):
            index = min(match, core.commit)
            before = known.get(member)
            if index > 0 and (before is None or index > before.index):
                life = core.life if member == core.member else core.peers[member]
                known[member] = Acknowledgement(member, life.id, index)

    # What followers say.

    def on_append_answer(self, answer: AppendAnswer) -> Cause | None:
        follower = self.progress.get(answer.sender)
        if follower is None:
            return None
        follower.heard = True
        log = self._core.log
        if answer.rejected:
            hint = log.meeting_point(answer.hint_index, answer.hint_term)[0] if answer.hint_term else answer.hint_index
            if follower.rejected(answer.index, hint):
                self._is_dirty = True
            return None
        if answer.index > log.last_index:
            return None
        self._is_dirty = True
        if not follower.accepted(answer.index, log.first_index):
            return None
        follower.note_round(log.last_index)
        if answer.sender == self._successor:
            self._hand_over_when_ready(follower)
        return self._advance() if answer.index > self._core.commit else None

    def on_heartbeat_answer(self, answer: HeartbeatAnswer) -> Cause | None:
        follower = self.progress.get(answer.sender)
        if follower is None:
            return None
        follower.heard = True
        follower.is_paused = False
        if answer.installs:
            if follower.state != "snapshot":
                follower.install(answer.installs)
            return None
        if follower.state == "snapshot":
            follower.probe()
        if follower.match < self._core.log.last_index or follower.state == "probe":
            follower.wants_look = True
            self._is_dirty = True
        if answer.read_round > follower.read_round:
            follower.read_round = answer.read_round
            self._release_reads()
        return None

    def on_ask_vote(self, question: AskVote) -> Cause | None:
        self._core.answer_vote(question)
        return None

    def on_ask_read(self, question: AskRead) -> Cause | None:
        self._add_read(question.sender, question.context)
        return None

    def persisted(self) -> Cause | None:
        self._is_dirty = True
        return self._advance() if self._core.log.persisted > self._core.commit else None

    def look_again(self, member: int) -> None:
        """What was sent to a member may be lost, or the member is another life."""
        follower = self.progress.get(member)
        if follower is not None and follower.state == "replicate":
            follower.probe()
            self._is_dirty = True

    # What is committed.

    def _advance(self) -> Cause | None:
        core = self._core
        persisted = core.log.persisted
        index = min(
            agreed([follower.match for follower in others] + [persisted] * is_voter)
            for others, is_voter in self._halves
        )
        if index < self._first or not core.commit_to(index):
            return None
        self._is_dirty = True
        if self._reads and self._reads[-1][1] < 0:
            self._place_reads()
        return self._settle_membership() if self._settles_membership else None

    def _settle_membership(self) -> Cause | None:
        """The final membership follows a committed joint one; a leader that is in none any more has led till here."""
        core = self._core
        if core.memberships[-1][0] > core.commit:
            return None
        if core.membership.is_joint:
            self._append_membership(core.membership.leave())
            return self._advance()
        self._settles_membership = False
        return None if core.is_voter else Cause.REMOVED

    def _append_membership(self, membership: Membership) -> Proposal:
        core = self._core
        entry = RaftEntry(core.log.last_index + 1, core.term, 0, "membership", membership)
        core.add_entry(entry)
        self._settles_membership = self._is_dirty = True
        self._follow_membership()
        return Proposal(entry.index, entry.term)

    def _follow_membership(self) -> None:
        core, membership = self._core, self._core.membership
        last = core.log.last_index
        members = [member for member in membership.members if member != core.member]
        self.progress = {
            member: self.progress.get(member) or FollowerProgress(member, last, core.settings) for member in members
        }
        self._others = tuple(self.progress.values())
        self._halves = tuple(
            (tuple(self.progress[voter] for voter in half if voter != core.member), core.member in half)
            for half in (membership.voters, membership.outgoing)
            if half
        )
        if self._successor not in self.progress:
            self._successor = 0

    def _has_caught_up(self, member: int) -> bool:
        follower = self.progress.get(member)
        return follower is not None and follower.caught_up and follower.state == "replicate"

    def _hand_over_when_ready(self, follower: FollowerProgress) -> None:
        core = self._core
        if follower.match == core.log.last_index:
            core.send(TakeOver(core.member, follower.member, core.term, core.life))

    # Reads.

    def _add_read(self, who: int, context: int) -> None:
        core = self._core
        if len(self._reads) >= core.settings.reads:
            if who == core.member:
                core.refuse_reads((context,), "too many reads")
            return
        if self._round_is_sent:
            self._round += 1
            self._round_is_sent = False
        index = core.commit if core.commit >= self._first else -1
        self._reads.append((self._round, index, who, context))
        self._is_dirty = True

    def _place_reads(self) -> None:
        """The first entry of this term is committed: now it is known how far the log was."""
        commit = self._core.commit
        self._reads = [(turn, max(index, commit), who, context) for turn, index, who, context in self._reads]
        self._release_reads()

    def _release_reads(self) -> None:
        if not self._reads:
            return
        core = self._core
        confirmed = min(
            agreed([follower.read_round for follower in others] + [self._round] * is_voter)
            for others, is_voter in self._halves
        )
        count = 0
        for turn, index, who, context in self._reads:
            if turn > confirmed or index < 0:
                break
            count += 1
            if who == core.member:
                core.confirm_read(context, index)
            else:
                core.send(AnswerRead(core.member, who, core.term, core.life, context, index))
        del self._reads[:count]

    # What leaves.

    @property
    def is_dirty(self) -> bool:
        return self._is_dirty

    def flush(self) -> None:
        """Make the messages that are due. Only now, when all entries in them are handed out to be written."""
        self._is_dirty = False
        if not self._round_is_sent:
            self._beat()
            self._release_reads()
        for follower in self._others:
            self._feed(follower)
        self._notify_committed()

    def _feed(self, follower: FollowerProgress) -> None:
        log, last = self._core.log, self._core.log.last_index
        if follower.state == "replicate":
            while follower.next <= last and not follower.window_is_full:
                if not self._send_entries(follower):
                    return
        elif follower.state == "probe":
            if not follower.is_paused:
                self._send_entries(follower)
        elif follower.state == "snapshot":
            return
        if follower.wants_look:
            follower.wants_look = False
            if follower.state == "replicate" and follower.next < log.first_index:
                self._send_snapshot(follower)
            elif follower.state == "replicate":
                self._send(follower, ())

    def _send_entries(self, follower: FollowerProgress) -> bool:
        log, settings = self._core.log, self._core.settings
        if follower.next < log.first_index or log.term(follower.next - 1) is None:
            self._send_snapshot(follower)
            return False
        room = settings.window_bytes - follower.flight_bytes
        self._send(follower, log.entries(follower.next, min(settings.message_bytes, room)))
        follower.wants_look = False
        return True

    def _send(self, follower: FollowerProgress, entries: tuple[RaftEntry, ...]) -> None:
        core = self._core
        prev = follower.next - 1
        prev_term = core.log.term(prev) or 0
        head = (core.member, follower.member, core.term, core.life)
        core.send(AppendEntries(*head, prev, prev_term, entries, core.commit))
        last = prev + len(entries)
        if entries or follower.state == "probe":
            follower.sent(last, sum([entry.size + ENTRY_COST for entry in entries]))
        if follower.state == "replicate":
            follower.told = max(follower.told, min(core.commit, last))

    def _send_snapshot(self, follower: FollowerProgress) -> None:
        core = self._core
        snapshot = core.log.snapshot()
        if snapshot is not None:
            follower.install(snapshot.index)
            core.send(InstallSnapshot(core.member, follower.member, core.term, core.life, snapshot))

    def _notify_committed(self) -> None:
        core = self._core
        for follower in self._others:
            commit = min(core.commit, follower.match)
            if commit > follower.told:
                follower.told = commit
                core.send(CommitNotice(core.member, follower.member, core.term, core.life, commit))
