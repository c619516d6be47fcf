"""Who belongs to the group, and how that changes without a moment in which two majorities know nothing of each other.

A membership with `outgoing` voters is joint: elections and commits need a majority of both halves. A change of voters
goes through a joint one, which is left when it is committed; a change of learners alone needs none. A voter that
becomes a learner stays a voter of the outgoing half until the joint membership is left.

Values only. A membership counts on a node from when its entry is written there, and no longer when that is cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec


class InvalidMembership(ValueError):
    """A change that would leave nobody to vote, or that speaks of somebody in two ways."""


class MemberChange(msgspec.Struct, frozen=True, gc=False):
    """One step of a change: make a member a voter or a learner, or remove it."""

    action: Literal["voter", "learner", "remove"]
    member: int


class Membership(msgspec.Struct, frozen=True, gc=False):
    """All ids ascending. Nobody is both a voter and a learner; `learners_next` are voters of the outgoing half."""

    voters: tuple[int, ...]
    outgoing: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()

    @property
    def is_joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted({*self.voters, *self.outgoing, *self.learners, *self.learners_next}))

    def is_voter(self, member: int) -> bool:
        """Of either half."""
        return member in self.voters or member in self.outgoing

    def begin(self, changes: Iterable[MemberChange]) -> Membership:
        """The next membership on the way: joint where voters change, final where only learners do."""
        if self.is_joint:
            raise InvalidMembership("a membership change is under way")
        voters, learners, learners_next = set(self.voters), set(self.learners), set[int]()
        named = set[int]()
        for change in changes:
            if change.member <= 0:
                raise InvalidMembership(f"member ids are positive, not {change.member}")
            if change.member in named:
                raise InvalidMembership(f"member {change.member} is changed twice")
            named.add(change.member)
            voters.discard(change.member)
            learners.discard(change.member)
            if change.action == "voter":
                voters.add(change.member)
            elif change.action == "learner":
                (learners_next if change.member in self.voters else learners).add(change.member)
        if not voters:
            raise InvalidMembership("no voter would be left")
        outgoing = self.voters if voters != set(self.voters) else ()
        return Membership(_ascending(voters), outgoing, _ascending(learners), _ascending(learners_next))

    def leave(self) -> Membership:
        """The final membership that follows a joint one."""
        if not self.is_joint:
            raise InvalidMembership("no membership change is under way")
        return Membership(self.voters, learners=_ascending({*self.learners, *self.learners_next}))


def _ascending(members: set[int]) -> tuple[int, ...]:
    return tuple(sorted(members))
