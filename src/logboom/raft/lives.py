"""Which life of a member speaks, so that one that lost its memory does not vote as if it had it.

Every start of a node is a life with a random id; it names the lives before it and the end of the log it began with.
Peers remember the last life they met and the highest index that a member acknowledged and that is committed. A life
that does not descend from the remembered one (a restored backup, a copy), or that begins with less than was
acknowledged (a disk that lied), is told so and counts for nothing: it comes back as a new member with a new id. What
only dead peers knew stays undetected.

A life is on a peer's disk before anything that it says counts there.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

LIVES_KEPT: Final = 64
"""How many starts a member may have had since a peer last heard of it. One that had more is not known any more."""

Judgement = Literal["same", "next", "past", "forgetful", "short"]


class Life(msgspec.Struct, frozen=True, gc=False):
    """One start of a member. A driver sends it once for each connection, and puts it back into every message."""

    id: int
    before: tuple[int, ...] = ()
    """The lives before it, the latest first."""
    end: int = 0
    """The last index of its log when it began."""

    def next(self, life_id: int, end: int) -> Life:
        return Life(life_id, (self.id, *self.before)[:LIVES_KEPT], end)


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    """A member had everything up to an index on its disk, and it was committed."""

    member: int
    life: int
    """The id of the life that said so."""
    index: int


class RememberedLife(msgspec.Struct, frozen=True, gc=False):
    """What a peer keeps of a member: the life at once, what it acknowledged when there is time."""

    member: int
    life: Life
    acknowledged: Acknowledgement | None = None


def judge(known: Life | None, acknowledged: Acknowledgement | None, life: Life) -> Judgement:
    """What a life is to somebody who knows another one of the same member, or what it acknowledged."""
    if known is not None:
        if life.id == known.id:
            return "same"
        if life.id in known.before:
            return "past"
        if known.id not in life.before:
            return "forgetful"
    if acknowledged is not None and acknowledged.life != life.id:
        if acknowledged.life not in life.before:
            return "forgetful"
        if life.end < acknowledged.index:
            return "short"
    return "next"
