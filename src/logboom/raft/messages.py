"""What members say to each other: plain values, all with the same four fields in front.

`term` is the sender's, but that of a vote that is only asked about is the term it would be. A message may be lost,
doubled, late or overtaken; none depends on any other having come.
"""

from __future__ import annotations

import msgspec

from logboom.raft.entry import RaftEntry, RaftSnapshot
from logboom.raft.lives import Acknowledgement, Life


class Message(msgspec.Struct, frozen=True, tag=True, gc=False):
    sender: int
    to: int
    term: int
    life: Life


class AskVote(Message, frozen=True, tag=True, gc=False):
    last_index: int
    last_term: int
    trial: bool = False
    """Whether it only asks what the answer would be: a pre-vote. Nobody's term changes."""
    called: bool = False
    """Whether the leader itself wants this election, to hand over: nobody defends him."""


class AnswerVote(Message, frozen=True, tag=True, gc=False):
    granted: bool
    trial: bool = False


class AppendEntries(Message, frozen=True, tag=True, gc=False):
    """Entries that follow one that the receiver has to have; none where only that is to be found out."""

    prev_index: int
    prev_term: int
    entries: tuple[RaftEntry, ...]
    commit: int


class AppendAnswer(Message, frozen=True, tag=True, gc=False):
    """Accepted: the receiver's disk has the leader's log up to `index`. Rejected: it lacks the entry at `index`."""

    index: int
    rejected: bool = False
    hint_index: int = 0
    """Where to try next: no entry of the sender between there and `index` can be equal."""
    hint_term: int = 0


class CommitNotice(Message, frozen=True, tag=True, gc=False):
    """How far the log is committed, as far as the receiver has it. Not answered."""

    commit: int


class Heartbeat(Message, frozen=True, tag=True, gc=False):
    commit: int
    read_round: int = 0
    """Whoever answers this round still took the sender for the leader after it began."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    """What each member has on its disk and is committed."""


class HeartbeatAnswer(Message, frozen=True, tag=True, gc=False):
    read_round: int = 0
    installs: int = 0
    """The index of the snapshot that it is installing."""


class InstallSnapshot(Message, frozen=True, tag=True, gc=False):
    """What the receiver needs is gone: it is to fetch a snapshot, this one or a newer."""

    snapshot: RaftSnapshot


class TakeOver(Message, frozen=True, tag=True, gc=False):
    """The leader wants the receiver to lead: campaign now."""


class AskRead(Message, frozen=True, tag=True, gc=False):
    """A follower wants to know how far it must have applied to read what is newest."""

    context: int


class AnswerRead(Message, frozen=True, tag=True, gc=False):
    context: int
    index: int


class Disown(Message, frozen=True, tag=True, gc=False):
    """The receiver's life is not one that its member can have had: it counts for nothing here."""

    disowned: int
    """The id of that life."""
    reason: str


AnyMessage = (
    AskVote
    | AnswerVote
    | AppendEntries
    | AppendAnswer
    | CommitNotice
    | Heartbeat
    | HeartbeatAnswer
    | InstallSnapshot
    | TakeOver
    | AskRead
    | AnswerRead
    | Disown
)
"""All there are: what a driver decodes into."""
