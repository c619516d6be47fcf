"""Who takes entries from a leader: a follower of one leader in one term, or of none yet; and who installs a snapshot.

The commit index counts, and entries are acknowledged, only as far as the log was compared with this leader's: what lies
above that (`RaftCore.verified`) may be another leader's.
"""

from __future__ import annotations

from typing import Final

from logboom.raft.core import ContractBroken, RaftCore
from logboom.raft.effects import RefusedRead
from logboom.raft.entry import RaftSnapshot
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
from logboom.raft.transitions import Cause, NodeRole


class Followership:
    role: Final = NodeRole.FOLLOWER
    __slots__ = ("_acknowledged", "_asked", "_core", "_owes_answer")

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._acknowledged = 0
        self._owes_answer = False
        self._asked: dict[int, int] = {}
        """Reads that the leader was asked for, and the ticks since."""

    def enter(self) -> Cause | None:
        return None

    def close(self, cause: Cause) -> None:
        self._core.refuse_reads(self._asked, "leader changed")

    def tick(self) -> Cause | None:
        core = self._core
        core.elapsed += 1
        if self._asked:
            self._expire_reads()
        if core.elapsed < core.patience or not core.may_campaign:
            return None
        return Cause.SILENCE

    def persisted(self) -> Cause | None:
        if self._owes_answer:
            self._acknowledge()
        return None

    def on_ask_vote(self, question: AskVote) -> Cause | None:
        self._core.answer_vote(question)
        return None

    def on_append(self, append: AppendEntries) -> Cause | None:
        core, log = self._core, self._core.log
        core.elapsed = 0
        entries, prev = append.entries, append.prev_index
        if entries and not (self._has_room() and entries[0].index == prev + 1 == entries[-1].index - len(entries) + 1):
            return None
        if prev < core.commit:
            core.verified = max(core.verified, core.commit)
            self._answer_again()
            return None
        if prev == log.last_index and append.prev_term == log.last_term:
            core.add_entries(entries)
        elif log.term(prev) == append.prev_term:
            self._merge(append)
        else:
            self._reject(append)
            return None
        last = prev + len(entries)
        core.verified = max(core.verified, last)
        core.commit_to(min(append.commit, last))
        if log.persisted < last:
            self._owes_answer = True
        else:
            self._answer_again()
        return None

    def on_commit(self, notice: CommitNotice) -> Cause | None:
        self._core.elapsed = 0
        self._core.commit_to(min(notice.commit, self._core.verified))
        return None

    def on_heartbeat(self, heartbeat: Heartbeat) -> Cause | None:
        core = self._core
        core.elapsed = 0
        core.commit_to(min(heartbeat.commit, core.verified))
        core.note_acknowledged(heartbeat.acknowledged)
        core.send(HeartbeatAnswer(core.member, heartbeat.sender, core.term, core.life, heartbeat.read_round))
        return None

    def on_install(self, message: InstallSnapshot) -> Cause | None:
        core, snapshot = self._core, message.snapshot
        core.elapsed = 0
        if snapshot.index <= core.commit or core.log.term(snapshot.index) == snapshot.term:
            core.commit_to(snapshot.index)
            core.verified = max(core.verified, core.commit)
            self._answer_again()
            return None
        core.begin_install(snapshot)
        return Cause.BEHIND

    def on_take_over(self, message: TakeOver) -> Cause | None:
        return Cause.CALLED if self._core.is_voter else None

    def ask_read(self, context: int) -> None:
        core = self._core
        if not core.leader:
            core.refuse_reads((context,), "no leader")
        elif len(self._asked) >= core.settings.reads:
            core.refuse_reads((context,), "too many reads")
        else:
            self._asked[context] = 0
            core.send(AskRead(core.member, core.leader, core.term, core.life, context))

    def on_answer_read(self, answer: AnswerRead) -> Cause | None:
        if self._asked.pop(answer.context, None) is not None:
            self._core.confirm_read(answer.context, answer.index)
        return None

    def installed(self) -> None:
        """A snapshot of this leader, or one before it: what is committed is in every log."""
        self._acknowledged = 0
        if self._core.leader:
            self._acknowledge()

    def _has_room(self) -> bool:
        log = self._core.log
        waiting = log.size(log.persisted + 1, log.last_index)
        return waiting < self._core.settings.unpersisted_bytes

    def _merge(self, append: AppendEntries) -> None:
        """Skip what is here, and where the logs part take this leader's."""
        core, log = self._core, self._core.log
        for place, entry in enumerate(append.entries):
            if log.term(entry.index) != entry.term:
                if entry.index <= log.last_index:
                    core.cut(entry.index)
                core.add_entries(append.entries[place:])
                return

    def _reject(self, append: AppendEntries) -> None:
        core = self._core
        if append.prev_index == core.commit:
            raise ContractBroken(f"entry {core.commit} is committed, and of another term at {append.sender}")
        hint_index, hint_term = core.log.meeting_point(append.prev_index, append.prev_term)
        answer = AppendAnswer(
            core.member, append.sender, core.term, core.life, append.prev_index, True, hint_index, hint_term
        )
        core.send(answer)

    def _answer_again(self) -> None:
        """Say how far it is, also where that is no news: what was said before may be lost."""
        self._acknowledged = 0
        self._acknowledge()

    def _acknowledge(self) -> None:
        core = self._core
        index = min(core.log.persisted, core.verified)
        self._owes_answer = index < core.verified
        if index > self._acknowledged:
            self._acknowledged = index
            core.send(AppendAnswer(core.member, core.leader, core.term, core.life, index))

    def _expire_reads(self) -> None:
        ticks = self._core.settings.election_ticks
        late = [context for context, waited in self._asked.items() if waited >= ticks]
        for context in late:
            del self._asked[context]
        self._core.refused_reads += [RefusedRead(context, "no answer") for context in late]
        for context in self._asked:
            self._asked[context] += 1


class Installation:
    """A snapshot replaces the log. The node answers that it is there, and nothing else."""

    role: Final = NodeRole.INSTALLER
    __slots__ = ("_core",)

    def __init__(self, core: RaftCore) -> None:
        self._core = core

    def enter(self) -> Cause | None:
        return None

    def close(self, cause: Cause) -> None:
        return None

    def tick(self) -> Cause | None:
        self._core.elapsed += 1
        return None

    def persisted(self) -> Cause | None:
        return None

    def on_heartbeat(self, heartbeat: Heartbeat) -> Cause | None:
        core = self._core
        core.elapsed = 0
        core.note_acknowledged(heartbeat.acknowledged)
        installs = self.snapshot.index
        core.send(HeartbeatAnswer(core.member, heartbeat.sender, core.term, core.life, 0, installs))
        return None

    def on_install(self, message: InstallSnapshot) -> Cause | None:
        """A newer one takes the place of the one under way."""
        self._core.elapsed = 0
        if message.snapshot.index > self.snapshot.index:
            self._core.begin_install(message.snapshot)
        return None

    @property
    def snapshot(self) -> RaftSnapshot:
        snapshot = self._core.installs
        assert snapshot is not None
        return snapshot


class Halt:
    """Says nothing and takes nothing."""

    role: Final = NodeRole.STOPPED
    __slots__ = ()

    def enter(self) -> Cause | None:
        return None

    def close(self, cause: Cause) -> None:
        return None

    def tick(self) -> Cause | None:
        return None

    def persisted(self) -> Cause | None:
        return None
