"""Who wants to lead: first asks whether it would be elected, and only then begins a term.

So a node that was cut off, or was removed and does not know it, raises nobody's term. Both rounds count the same way;
the trial is remembered by nobody, a real vote is counted when it is on disk, the candidate's own too.
"""

from __future__ import annotations

from logboom.raft.core import RaftCore
from logboom.raft.messages import AnswerVote, AskVote
from logboom.raft.quorum import count_joint_votes
from logboom.raft.transitions import Cause, NodeRole


class Candidacy:
    __slots__ = ("_called", "_core", "_is_trial", "_votes", "role")

    def __init__(self, core: RaftCore, role: NodeRole, called: bool) -> None:
        self.role = role
        self._core = core
        self._is_trial = role is NodeRole.PRE_CANDIDATE
        self._called = called
        self._votes: dict[int, bool] = {}

    def enter(self) -> Cause | None:
        core = self._core
        core.leader = 0
        core.wait_anew()
        if self._is_trial:
            term = core.term + 1
        else:
            term = core.term + 1
            core.enter_term(term, core.member)
        for member in {*core.membership.voters, *core.membership.outgoing}:
            if member != core.member:
                last = (core.log.last_index, core.log.last_term)
                core.send(AskVote(core.member, member, term, core.life, *last, self._is_trial, self._called))
        return self._count(core.member, True) if self._is_trial else None

    def close(self, cause: Cause) -> None:
        return None

    def tick(self) -> Cause | None:
        core = self._core
        core.elapsed += 1
        return Cause.SILENCE if core.elapsed >= core.patience else None

    def persisted(self) -> Cause | None:
        """Its own vote, as soon as that is on disk."""
        if self._is_trial or not self._core.hard_is_durable or self._core.member in self._votes:
            return None
        return self._count(self._core.member, True)

    def on_ask_vote(self, question: AskVote) -> Cause | None:
        self._core.answer_vote(question)
        return None

    def on_answer_vote(self, answer: AnswerVote) -> Cause | None:
        if answer.trial != self._is_trial:
            return None
        return self._count(answer.sender, answer.granted)

    def _count(self, member: int, granted: bool) -> Cause | None:
        membership = self._core.membership
        self._votes.setdefault(member, granted)
        result = count_joint_votes(membership.voters, membership.outgoing, self._votes)
        if result == "lost":
            return Cause.LOST
        if result == "pending":
            return None
        return Cause.WOULD_WIN if self._is_trial else Cause.WON
