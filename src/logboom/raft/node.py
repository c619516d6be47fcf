"""One member of a Raft group, without I/O: events in, effects out.

    step(message)  tick()  propose(size)  change_members(...)  hand_over(member)  read(context)
    persisted(number)  applied(index)  installed(snapshot)  write_failed()  stop()
        → ready() → Effects, in the order that their docstring says

The driver calls one method after the other, from one task; after any of them it asks for what is `ready` when it likes,
and acknowledges what it did. Nothing that is not acknowledged is taken for done. Whatever is proposed is either given
back at once (`NotAppended`), or committed with its index and term, or given back in `Effects.lost`: as not appended
where nobody was told of it, as unknown where somebody was.

After a crash the node is made anew from what is on disk (`RaftStart`, `KeptEntries`), and says nothing before its new
life is on disk too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from logboom.raft.candidacy import Candidacy
from logboom.raft.core import PEERS_MAX, ContractBroken, RaftCore
from logboom.raft.effects import (
    Effects,
    FollowerStatus,
    NotAppended,
    Proposal,
    RaftStart,
    RaftStatus,
    RareEffects,
    Standing,
)
from logboom.raft.entry import KeptEntries, RaftEntry, RaftSnapshot
from logboom.raft.followership import Followership, Halt, Installation
from logboom.raft.leadership import Leadership
from logboom.raft.lives import RememberedLife, judge
from logboom.raft.membership import MemberChange
from logboom.raft.messages import (
    AnswerRead,
    AnswerVote,
    AppendAnswer,
    AppendEntries,
    AskRead,
    AskVote,
    CommitNotice,
    Disown,
    Heartbeat,
    HeartbeatAnswer,
    InstallSnapshot,
    Message,
    TakeOver,
)
from logboom.raft.settings import RaftSettings
from logboom.raft.transitions import TRANSITIONS, Cause, NodeRole

AnyRole: TypeAlias = Followership | Installation | Candidacy | Leadership | Halt
HANDLERS: Final[Mapping[NodeRole, Mapping[type[Message], Callable[[Any, Any], Cause | None]]]] = {
    NodeRole.FOLLOWER: {
        AskVote: Followership.on_ask_vote,
        AppendEntries: Followership.on_append,
        CommitNotice: Followership.on_commit,
        Heartbeat: Followership.on_heartbeat,
        InstallSnapshot: Followership.on_install,
        TakeOver: Followership.on_take_over,
        AnswerRead: Followership.on_answer_read,
    },
    NodeRole.PRE_CANDIDATE: {AskVote: Candidacy.on_ask_vote, AnswerVote: Candidacy.on_answer_vote},
    NodeRole.CANDIDATE: {AskVote: Candidacy.on_ask_vote, AnswerVote: Candidacy.on_answer_vote},
    NodeRole.LEADER: {
        AskVote: Leadership.on_ask_vote,
        AppendAnswer: Leadership.on_append_answer,
        HeartbeatAnswer: Leadership.on_heartbeat_answer,
        AskRead: Leadership.on_ask_read,
    },
    NodeRole.INSTALLER: {Heartbeat: Installation.on_heartbeat, InstallSnapshot: Installation.on_install},
    NodeRole.STOPPED: {},
}
"""What each role does with a message of its own term; what has no line is ignored."""
FROM_LEADER: Final = frozenset((AppendEntries, CommitNotice, Heartbeat, InstallSnapshot, TakeOver, AnswerRead))
COUNTED: Final = frozenset((AskVote, AnswerVote, AppendAnswer, HeartbeatAnswer))
"""What says something on which others rely: not before the life that says it is on disk here."""
POSTPONED_MAX: Final = 64
"""How many such messages wait for that."""
NOTHING_RARE: Final = RareEffects()
WHY_DISOWNED: Final = {
    "forgetful": "this life does not descend from the one that is remembered: a restored backup, or a copy",
    "short": "this life began with less than its member had acknowledged: its disk lost what it had synced",
}


class RaftNode:
    __slots__ = ("_core", "_role", "_shown")

    def __init__(self, start: RaftStart, kept: KeptEntries, settings: RaftSettings, random: Random) -> None:
        self._core = RaftCore(start, kept, settings, random)
        self._role: AnyRole = Installation(self._core) if start.installs else Followership(self._core)
        self._shown = Standing(NodeRole.STOPPED, -1, 0)

    # Events.

    def tick(self) -> None:
        """As much time has gone by as the settings call a tick."""
        cause = self._role.tick()
        if cause is not None:
            self._turn(cause)

    def step(self, message: Message) -> None:
        """A peer said something. Whoever is no peer was kept away by the driver."""
        core, kind = self._core, type(message)
        if self._role.role is NodeRole.STOPPED:
            return
        known = core.peers.get(message.sender)
        if (known is None or known.id != message.life.id) and not self._knows(message):
            return
        if kind is Disown:
            self._hear_disown(message)
            return
        if message.term != core.term and not self._meets_term(message):
            return
        if kind in FROM_LEADER and core.leader != message.sender:
            self._hear_leader(message.sender)
        handler = HANDLERS[self._role.role].get(kind)
        if handler is not None:
            cause = handler(self._role, message)
            if cause is not None:
                self._turn(cause)

    def propose(self, size: int) -> Proposal | NotAppended:
        """Append an entry of so many bytes: it is handed out to be written with the next effects."""
        role = self._role
        return role.propose(size) if isinstance(role, Leadership) else self._refuse()

    def change_members(self, changes: Iterable[MemberChange]) -> Proposal | NotAppended:
        """Append a membership, a joint one where voters change; the leader lets the final one follow by itself."""
        role = self._role
        return role.change_members(tuple(changes)) if isinstance(role, Leadership) else self._refuse()

    def hand_over(self, member: int) -> bool:
        """Let a voter lead. Whether it was begun; nothing is appended until it leads or an election time has passed."""
        return isinstance(self._role, Leadership) and self._role.hand_over(member)

    def read(self, context: int) -> None:
        """Ask for a linearizable read: confirmed when what it has to see is applied here, or refused."""
        role = self._role
        if isinstance(role, Leadership | Followership):
            role.ask_read(context)
        else:
            self._core.refuse_reads((context,), "no leader")

    # What the driver did.

    def persisted(self, number: int) -> None:
        """Everything that was handed out up to a number is on disk."""
        core, log = self._core, self._core.log
        for write in core.order.end(number):
            if write.last_index > log.persisted:
                log.persisted = write.last_index
            for known in write.lives:
                core.peers[known.member] = known.life
                if core.met.get(known.member) == known.life:
                    del core.met[known.member]
        if not core.hard_is_durable and not core.hard_is_changed and not core.order.awaits_hard_state:
            core.hard_is_durable = True
            core.outbox += core.held
            core.held.clear()
        core.forget_settled()
        cause = self._role.persisted()
        if cause is not None:
            self._turn(cause)
        if core.postponed:
            postponed, core.postponed = core.postponed, []
            for message in postponed:
                self.step(message)

    def applied(self, index: int) -> None:
        """Everything up to an index is applied."""
        self._core.note_applied(index)

    def installed(self, snapshot: RaftSnapshot) -> None:
        """The journal was replaced by a snapshot; one that is newer than what was asked for is welcome."""
        core = self._core
        if self._role.role is NodeRole.INSTALLER:
            leader = core.leader
            core.replace_log(snapshot)
            self._turn(Cause.INSTALLED)
            core.leader = leader
            if isinstance(self._role, Followership):
                self._role.installed()

    def write_failed(self) -> None:
        """What was handed out and is not persisted could not be written, and the journal ends where it is persisted.

        Leading ends; the entries are taken back. Where the term or vote was to be written, the node stops.
        """
        core = self._core
        if core.order.awaits_hard_state:
            self.stop()
        elif self._role.role is not NodeRole.STOPPED:
            self._turn(Cause.WRITE_FAILED)
            if core.log.persisted < core.log.last_index:
                core.take_back(core.log.persisted + 1)
            for member, life in core.order.abandon():
                core.meet(member, life)

    def stop(self, disowned: str = "") -> None:
        """A sync failed, or something like it: the node neither leads, votes nor acknowledges until a restart."""
        if self._role.role is not NodeRole.STOPPED:
            self._core.disowned = disowned
            self._turn(Cause.STOP)
            self._core.outbox.clear()
            self._core.held.clear()

    def unreachable(self, member: int) -> None:
        """The connection to a member broke: what was sent may be lost."""
        if isinstance(self._role, Leadership):
            self._role.look_again(member)

    # Effects.

    @property
    def has_ready(self) -> bool:
        core, log, role = self._core, self._core.log, self._role
        if role.role is NodeRole.STOPPED:
            return core.has_rare or self._is_changed
        return bool(
            core.outbox
            or log.handed < log.last_index
            or min(core.commit, log.persisted) > core.given
            or core.hard_is_changed
            or core.newly_met
            or (isinstance(role, Leadership) and role.is_dirty)
            or core.has_rare
            or self._is_changed
        )

    def ready(self) -> Effects:
        """What is to be done now. It is handed out once."""
        core, role, log = self._core, self._role, self._core.log
        if isinstance(role, Leadership) and role.is_dirty:
            role.flush()
        entries: tuple[RaftEntry, ...] = ()
        number, committed, standing, hard_state = 0, None, None, None
        remembered: tuple[RememberedLife, ...] = ()
        if role.role is not NodeRole.STOPPED:
            entries = log.hand_over()
            if core.hard_is_changed or core.newly_met:
                hard_state = core.hard_state() if core.hard_is_changed else None
                remembered = core.remember_met()
                core.hard_is_changed = False
            if entries or hard_state or remembered:
                number = core.order.begin(log.last_index if entries else 0, hard_state is not None, remembered)
            commit = min(core.commit, log.persisted)
            if commit > core.given:
                committed = (core.given + 1, commit)
                core.given = commit
        messages = tuple(core.outbox)
        core.outbox.clear()
        if self._is_changed:
            standing = self._shown = Standing(role.role, core.term, core.leader)
        rare = core.take_rare() if core.has_rare else NOTHING_RARE
        return Effects(
            rare.lost,
            standing,
            number,
            hard_state,
            remembered,
            entries,
            messages,
            core.commit,
            committed,
            rare.install,
            rare.reads,
            rare.refused_reads,
            core.disowned,
        )

    @property
    def _is_changed(self) -> bool:
        core, shown = self._core, self._shown
        return shown.role is not self._role.role or shown.term != core.term or shown.leader != core.leader

    def remembered(self) -> tuple[RememberedLife, ...]:
        """All that is to be kept of peers, for who has time to: what they acknowledged changes all the while."""
        return tuple(self._core.remember(member) for member in self._core.peers)

    def status(self) -> RaftStatus:
        core, log, role = self._core, self._core.log, self._role
        followers = role.progress.values() if isinstance(role, Leadership) else ()
        return RaftStatus(
            core.member,
            role.role,
            core.term,
            core.vote,
            core.leader,
            log.first_index,
            log.last_index,
            log.persisted,
            core.commit,
            core.applied,
            core.membership,
            tuple(
                FollowerStatus(
                    follower.member,
                    follower.state,
                    follower.match,
                    follower.next,
                    follower.flight_bytes,
                    follower.heard,
                    follower.caught_up,
                )
                for follower in followers
            ),
        )

    # Lives, terms and roles.

    def _knows(self, message: Message) -> bool:
        """Whether a message of a life that is not on disk here is to be taken; a new life is noted."""
        core, member, life = self._core, message.sender, message.life
        known = core.met.get(member) or core.peers.get(member)
        judgement = judge(known, core.acknowledged.get(member), life)
        if judgement == "past":
            return False
        if judgement in ("forgetful", "short"):
            if type(message) is not Disown:
                reason = WHY_DISOWNED[judgement]
                core.send(Disown(core.member, member, core.term, core.life, life.id, reason))
            return False
        if judgement == "next":
            if len(core.peers) + len(core.met) >= PEERS_MAX:
                return False
            core.meet(member, life)
            self.unreachable(member)
        is_trial = isinstance(message, AskVote | AnswerVote) and message.trial
        if is_trial or type(message) not in COUNTED:
            return True
        if len(core.postponed) < POSTPONED_MAX:
            core.postponed.append(message)
        return False

    def _meets_term(self, message: Message) -> bool:
        """Whether a message of another term is to be handled. A newer one mostly begins that term here."""
        core = self._core
        if message.term < core.term:
            self._answer_late(message)
            return False
        if isinstance(message, AskVote):
            if core.is_in_lease and not message.called:
                return False
            if message.trial:
                return True
        elif isinstance(message, AnswerVote) and message.trial and message.granted:
            return True
        self._turn(Cause.NEWER_TERM)
        core.enter_term(message.term)
        return True

    def _answer_late(self, message: Message) -> None:
        """Who leads in a term that is over, or asks for one, learns of the newer one."""
        core = self._core
        if isinstance(message, AppendEntries | Heartbeat | InstallSnapshot):
            core.send(AppendAnswer(core.member, message.sender, core.term, core.life, 0))
        elif isinstance(message, AskVote) and message.trial:
            core.send(AnswerVote(core.member, message.sender, core.term, core.life, False, True))

    def _hear_disown(self, message: Message) -> None:
        assert isinstance(message, Disown)
        if message.disowned == self._core.life.id and message.sender in self._core.membership.members:
            self.stop(message.reason)

    def _hear_leader(self, leader: int) -> None:
        core = self._core
        if core.leader:
            raise ContractBroken(f"term {core.term} has two leaders, {core.leader} and {leader}")
        if isinstance(self._role, Candidacy):
            self._turn(Cause.LEADER_HEARD)
        core.leader = leader

    def _turn(self, cause: Cause | None) -> None:
        """Become what the table says, and what follows from that."""
        core = self._core
        while cause is not None:
            target = TRANSITIONS.get((self._role.role, cause))
            if target is None:
                raise ContractBroken(f"a {self._role.role.value} met with: {cause.value}")
            self._role.close(cause)
            self._role = self._make_role(target, cause)
            if target in (NodeRole.FOLLOWER, NodeRole.INSTALLER, NodeRole.STOPPED):
                core.leader = core.leader if cause is Cause.BEHIND else 0
                core.wait_anew()
            cause = self._role.enter()

    def _make_role(self, role: NodeRole, cause: Cause) -> AnyRole:
        if role is NodeRole.FOLLOWER:
            return Followership(self._core)
        if role is NodeRole.LEADER:
            return Leadership(self._core)
        if role is NodeRole.INSTALLER:
            return Installation(self._core)
        if role is NodeRole.STOPPED:
            return Halt()
        return Candidacy(self._core, role, cause is Cause.CALLED)

    def _refuse(self) -> NotAppended:
        return NotAppended("not the leader", self._core.leader)
