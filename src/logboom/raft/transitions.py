"""What a node is, why it becomes something else, and who answers which message: the tables of the state machine.

A role never makes another one itself. Its handlers say a cause, and `TRANSITIONS` says what that leads to; a cause that
has no line for a role cannot happen there. A message that has no line for a role is ignored by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class NodeRole(Enum):
    FOLLOWER = "follower"
    """Takes entries from a leader, votes. Learners are followers that never become anything else."""
    PRE_CANDIDATE = "pre-candidate"
    """Asks whether it would be elected. Nothing of that is remembered by anybody."""
    CANDIDATE = "candidate"
    LEADER = "leader"
    INSTALLER = "installer"
    """Replaces its log by a snapshot: neither votes nor acknowledges nor campaigns until that is done."""
    STOPPED = "stopped"
    """Says nothing until it is started again: its disk failed, or its life was disowned."""


class Cause(Enum):
    SILENCE = "no leader for an election time"
    CALLED = "the leader hands over"
    WOULD_WIN = "a majority would vote for it"
    WON = "a majority voted for it"
    LOST = "a majority refused"
    NEWER_TERM = "a newer term"
    LEADER_HEARD = "a leader of this term"
    NO_MAJORITY = "no majority answered for an election time"
    REMOVED = "its removal is committed"
    WRITE_FAILED = "a write failed"
    BEHIND = "the entries it needs are gone"
    INSTALLED = "the snapshot is installed"
    STOP = "failed disk or disowned"


_F, _P, _C, _L, _I, _S = NodeRole
TRANSITIONS: Final[Mapping[tuple[NodeRole, Cause], NodeRole]] = {
    (_F, Cause.SILENCE): _P,
    (_F, Cause.CALLED): _C,
    (_F, Cause.NEWER_TERM): _F,
    (_F, Cause.LEADER_HEARD): _F,
    (_F, Cause.BEHIND): _I,
    (_F, Cause.STOP): _S,
    (_P, Cause.SILENCE): _P,
    (_P, Cause.WOULD_WIN): _C,
    (_P, Cause.LOST): _F,
    (_P, Cause.NEWER_TERM): _F,
    (_P, Cause.LEADER_HEARD): _F,
    (_P, Cause.WRITE_FAILED): _F,
    (_P, Cause.STOP): _S,
    (_C, Cause.SILENCE): _P,
    (_C, Cause.WON): _L,
    (_C, Cause.LOST): _F,
    (_C, Cause.NEWER_TERM): _F,
    (_C, Cause.LEADER_HEARD): _F,
    (_C, Cause.WRITE_FAILED): _F,
    (_C, Cause.STOP): _S,
    (_L, Cause.NEWER_TERM): _F,
    (_L, Cause.NO_MAJORITY): _F,
    (_L, Cause.REMOVED): _F,
    (_L, Cause.WRITE_FAILED): _F,
    (_L, Cause.STOP): _S,
    (_F, Cause.WRITE_FAILED): _F,
    (_I, Cause.NEWER_TERM): _I,
    (_I, Cause.INSTALLED): _F,
    (_I, Cause.WRITE_FAILED): _I,
    (_I, Cause.STOP): _S,
}


def draw() -> str:
    """The table as a Mermaid state diagram; one arrow for all causes that lead from one role to the same other."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (role, cause), target in TRANSITIONS.items():
        arrows.setdefault((role.name.lower(), target.name.lower()), []).append(cause.value)
    lines = ["stateDiagram-v2", "    [*] --> follower"]
    lines += [f"    {role} --> {target}: {'; '.join(causes)}" for (role, target), causes in arrows.items()]
    return "\n".join(lines)
