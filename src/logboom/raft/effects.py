"""What goes into a node besides messages, and what comes out: plain values."""

from __future__ import annotations

from typing import Literal

import msgspec

from logboom.raft.entry import RaftEntry, RaftSnapshot
from logboom.raft.lives import Life, RememberedLife
from logboom.raft.membership import Membership
from logboom.raft.messages import Message
from logboom.raft.progress import ProgressState
from logboom.raft.transitions import NodeRole

NotAppendedReason = Literal[
    "not the leader",
    "handing over",
    "too much is not committed",
    "a membership change is under way",
    "no entry of this term is committed",
    "a new voter has not caught up",
    "invalid membership",
]
ReadRefusal = Literal["no leader", "leader changed", "no answer", "too many reads"]


class HardState(msgspec.Struct, frozen=True, gc=False):
    """What a node must not forget, besides its entries."""

    term: int = 0
    vote: int = 0
    """For whom in this term; 0 for nobody."""
    life: Life = Life(0)


class RaftStart(msgspec.Struct, frozen=True):
    """With what a node begins, from its disk; `life_id` is new and random at every start."""

    member: int
    life_id: int
    hard_state: HardState = HardState()
    committed: int = 0
    """As far as known."""
    applied: int = 0
    remembered: tuple[RememberedLife, ...] = ()
    installs: RaftSnapshot | None = None
    """A snapshot whose installation had begun."""


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """Where a proposed entry is; it is settled when this index is committed with this term, or given back as lost."""

    index: int
    term: int


class NotAppended(msgspec.Struct, frozen=True, gc=False):
    """It was not and will not be appended."""

    reason: NotAppendedReason
    leader: int = 0
    """Who may be asked instead, where that is known."""
    detail: str = ""


class LostProposals(msgspec.Struct, frozen=True, gc=False):
    """What became of entries that this node proposed as the leader of a term and will not see settled."""

    outcome: Literal["not appended", "unknown"]
    term: int
    first: int
    last: int


class ConfirmedRead(msgspec.Struct, frozen=True, gc=False):
    """It may be answered from what is applied now."""

    context: int
    index: int


class RefusedRead(msgspec.Struct, frozen=True, gc=False):
    context: int
    reason: ReadRefusal


class Standing(msgspec.Struct, frozen=True, gc=False):
    """Who leads, as far as this node knows. Tells of a change; nothing depends on it."""

    role: NodeRole
    term: int
    leader: int


class Effects(msgspec.Struct, frozen=True, gc=False):
    """What the driver has to do, in the order of the fields.

    1. Give back what is lost, before anything of a later term is answered.
    2. Write entries and what is to be remembered, in the order of their numbers, and begin to sync them.
    3. Send messages: they need nothing that is written here to be synced, only the entries to be readable.
    4. Apply what is committed; install; answer reads.
    5. When the sync is done: `persisted(number)`, in order, for all up to a number at once if it likes.
    """

    lost: tuple[LostProposals, ...] = ()
    standing: Standing | None = None
    number: int = 0
    """Of what is to be written; 0 where there is nothing."""
    hard_state: HardState | None = None
    remembered: tuple[RememberedLife, ...] = ()
    entries: tuple[RaftEntry, ...] = ()
    """They replace everything in the journal from the index of the first one on."""
    messages: tuple[Message, ...] = ()
    commit: int = 0
    """The highest index known to be committed: for the heads of journal records."""
    committed: tuple[int, int] | None = None
    """The first and last index to be applied now: all of them are on this node's disk."""
    install: RaftSnapshot | None = None
    """Begin to install it, or this one instead of the one under way; mark that durably first."""
    reads: tuple[ConfirmedRead, ...] = ()
    refused_reads: tuple[RefusedRead, ...] = ()
    disowned: str = ""
    """Why peers do not accept this life: the node has stopped, and comes back as a new member."""


class RareEffects(msgspec.Struct, frozen=True, gc=False):
    """The fields of Effects that are mostly empty."""

    lost: tuple[LostProposals, ...] = ()
    install: RaftSnapshot | None = None
    reads: tuple[ConfirmedRead, ...] = ()
    refused_reads: tuple[RefusedRead, ...] = ()


class FollowerStatus(msgspec.Struct, frozen=True):
    member: int
    state: ProgressState
    match: int
    next: int
    flight_bytes: int
    heard: bool
    caught_up: bool


class RaftStatus(msgspec.Struct, frozen=True):
    member: int
    role: NodeRole
    term: int
    vote: int
    leader: int
    first: int
    last: int
    persisted: int
    committed: int
    applied: int
    membership: Membership
    followers: tuple[FollowerStatus, ...] = ()
