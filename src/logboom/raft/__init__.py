"""The consensus core: Raft as a library without sockets, files, clocks or an event loop.

`RaftNode` is one member of a group. A driver tells it what happens and does what it says; `Effects` has the order.
docs/raft.md explains it, rule by rule.

    RaftNode        events in, effects out                                  node.py
      RaftCore      term, vote, log, membership, what waits to leave        core.py
      roles         Followership, Installation, Candidacy, Leadership       transitions.py: the table
      EntryLog      the journal, and what is not in it yet                  entry_log.py
    quorum, membership, lives, progress, write_order: what they are called

Crash rule: nothing here survives. What must, is in `Effects` before anything that depends on it.
"""

from logboom.raft.core import ContractBroken
from logboom.raft.effects import (
    ConfirmedRead,
    Effects,
    FollowerStatus,
    HardState,
    LostProposals,
    NotAppended,
    Proposal,
    RaftStart,
    RaftStatus,
    RefusedRead,
    Standing,
)
from logboom.raft.entry import ENTRY_COST, EntryKind, KeptEntries, RaftEntry, RaftSnapshot
from logboom.raft.lives import Acknowledgement, Life, RememberedLife
from logboom.raft.membership import InvalidMembership, MemberChange, Membership
from logboom.raft.messages import AnyMessage, Message
from logboom.raft.node import RaftNode
from logboom.raft.settings import RaftSettings
from logboom.raft.transitions import Cause, NodeRole

__all__ = [
    "ENTRY_COST",
    "Acknowledgement",
    "AnyMessage",
    "Cause",
    "ConfirmedRead",
    "ContractBroken",
    "Effects",
    "EntryKind",
    "FollowerStatus",
    "HardState",
    "InvalidMembership",
    "KeptEntries",
    "Life",
    "LostProposals",
    "MemberChange",
    "Membership",
    "Message",
    "NodeRole",
    "NotAppended",
    "Proposal",
    "RaftEntry",
    "RaftNode",
    "RaftSettings",
    "RaftSnapshot",
    "RaftStart",
    "RaftStatus",
    "RefusedRead",
    "RememberedLife",
    "Standing",
]
