"""How many are enough: what a majority has reached, and what its votes say.

Nothing here knows who a member is. In a joint configuration both halves must agree, each with a majority of its own:
whoever asks takes the smaller of two results. An empty half has no objection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

VoteResult = Literal["won", "lost", "pending"]

UNLIMITED: Final = 2**64 - 1
"""What an empty half has reached: it never holds anybody back."""


def majority(count: int) -> int:
    """The least number of members that any other such number has one in common with."""
    return count // 2 + 1


def agreed(reached: list[int]) -> int:
    """The highest value that a majority has reached. Takes the list and sorts it."""
    if not reached:
        return UNLIMITED
    reached.sort()
    return reached[(len(reached) - 1) // 2]


def count_votes(voters: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Whether a majority of the voters has granted, or so many refused that none can any more."""
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    refused = sum(1 for voter in voters if votes.get(voter) is False)
    needed = majority(len(voters)) if voters else 0
    if granted >= needed:
        return "won"
    return "lost" if len(voters) - refused < needed else "pending"


def count_joint_votes(voters: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Both halves must be won; one that is lost loses."""
    results = (count_votes(voters, votes), count_votes(outgoing, votes))
    if "lost" in results:
        return "lost"
    return "won" if results == ("won", "won") else "pending"
