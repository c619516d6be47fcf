"""Groups: consumers that share the logs of topics, and one place in each log that is theirs together.

A member joins, and then beats: it says what it holds, and is told what it is to hold. A log moves only when its holder
has given it back, or is gone; the others go on meanwhile. Each time a log is given to somebody that has a generation of
its own, a number that only rises in a group, so that whoever was thought dead can move nothing any more.

The members, and who holds what, survive a crash and a take-over, as the places do.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from logboom.broker.api.reads import Start
from logboom.broker.caller import Caller

GroupMode = Literal["logs", "queue"]
"""Whether members share the logs, or single records of all of them."""
GroupState = Literal["empty", "stable", "moving"]


class GroupCalls(Protocol):
    """For those who read together."""

    async def join_group(self, join: GroupJoin, *, caller: Caller) -> GroupStanding:
        """Become a member, or say anew which topics. A repeat of it, with the same member, changes nothing.

        Raises GroupMismatch, InvalidGroup, LimitExceeded.
        """
        ...

    async def beat_group(
        self, group: str, member: str, generation: int, held: list[HeldLog], wait_ms: int = 0, *, caller: Caller
    ) -> GroupStanding:
        """The member lives, was told `generation` last, and holds these logs: others that it was asked for it has given
        back. Waits up to `wait_ms` for something new to it. Raises MemberUnknown.
        """
        ...

    async def leave_group(self, group: str, member: str, *, caller: Caller) -> None:
        """Its logs go to the others at once; those of a member with an instance wait for it until its session ends."""
        ...

    async def commit_group(
        self, group: str, member: str, moves: list[GroupMove], *, caller: Caller
    ) -> list[RefusedMove]:
        """Move the group's places in logs that this member holds; durable when this returns.

        Those that are refused are returned, the others are made all the same. Raises MemberUnknown.
        """
        ...

    async def list_groups(self, prefix: str = "", *, caller: Caller) -> list[GroupInfo]: ...

    async def describe_group(self, group: str, *, caller: Caller) -> GroupDescription:
        """Raises GroupNotFound."""
        ...

    async def reset_group(
        self, group: str, topics: str, start: Start, dry_run: bool = False, *, caller: Caller
    ) -> list[GroupReset]:
        """Put the group's places in all logs of these topics elsewhere, and say where; makes the group where there is
        none. Raises GroupBusy while it has members. `dry_run` only says.
        """
        ...

    async def delete_group(self, group: str, *, caller: Caller) -> None:
        """With its places. Raises GroupNotFound, and GroupBusy while it has members."""
        ...


class QueueSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a group of mode `queue` goes about its records: what the member that joined last has said."""

    lease_ms: int = 30_000
    """A record that is neither acknowledged nor given back for so long is given to another member."""
    tries: int = 5
    """So often a record is given to somebody, at most."""
    retry_delay_ms: int = 0
    """A record that was given back rests for so long."""
    dead_letter: str = ""
    """The topic for records that were tried in vain; without one they are given up."""


class GroupJoin(msgspec.Struct, frozen=True, omit_defaults=True):
    group: str
    member: str
    """An id that nobody else has, made up by the member: 16 to 64 letters, digits, `-` or `_`."""
    topics: str
    """Topics, partitions, patterns, as `ReadRequest.topic` has them for reads of several."""
    mode: GroupMode = "logs"
    instance: str = ""
    """A name that outlives the process: who joins with it takes over what the one before had."""
    client: str = ""
    """What its program calls itself: for people."""
    session_ms: int = 20_000
    """Who is silent for so long is out."""
    give_back_ms: int = 60_000
    """A log that it was asked for and keeps for so long is taken."""
    start: Start = Start()
    """For logs in which the group has no place yet: `at`, or `time`. Topics that come later are read from their first
    record on."""
    queue: QueueSettings | None = None


class HeldLog(msgspec.Struct, frozen=True, array_like=True):
    topic_id: str
    partition: int


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """A log that a member holds."""

    topic: str
    topic_id: str
    partition: int
    generation: int
    """In which it was given to the member."""
    bookmark: str | None = None
    """Where the group stands in it; None where it has no place there: its first record."""
    is_asked_back: bool = False
    """To be given back: commit, then leave it out of what is held."""


class GroupStanding(msgspec.Struct, frozen=True):
    """What a member is told. Logs that are not here it does not hold, whatever it was told before."""

    generation: int
    beat_ms: int
    """The longest it may wait with its next beat."""
    grants: list[Grant]
    member: str = ""
    """Its id."""


class GroupMove(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    partition: int
    bookmark: str
    generation: int
    """Of the member's grant."""


class RefusedMove(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    code: str
    """Of the error, as `errors.CODES` has it."""
    reason: str


class GroupInfo(msgspec.Struct, frozen=True):
    group: str
    mode: GroupMode
    state: GroupState
    members: int
    logs: int
    lag: int
    """Records between its places and the ends of their logs, in all of them."""
    generation: int = 0
    lags: dict[str, int] = {}
    """The same by topic."""


class MemberInfo(msgspec.Struct, frozen=True):
    member: str
    instance: str
    client: str
    principal: str
    address: str
    topics: str
    joined: int
    """When, microseconds."""
    session_ms: int
    silent_ms: int
    """Since its last beat."""
    logs: list[str]
    """Those that it holds, as `topic/partition`."""


class GroupLog(msgspec.Struct, frozen=True):
    """One log of a group: where it stands, who holds it."""

    topic: str
    topic_id: str
    partition: int
    member: str | None
    generation: int
    seqno: int | None
    """None where it has no place yet."""
    bookmark: str | None
    first: int
    committed: int
    lag: int
    updated: int | None
    """When its place was moved, microseconds."""
    is_asked_back: bool = False
    in_flight: int = 0
    """Records of a queue that somebody works on."""
    delayed: int = 0
    """Records of a queue that rest."""


class GroupDescription(msgspec.Struct, frozen=True):
    group: str
    mode: GroupMode
    state: GroupState
    generation: int
    members: list[MemberInfo]
    logs: list[GroupLog]
    queue: QueueSettings | None = None
    lag: int = 0


class GroupReset(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    seqno_from: int | None
    """None where it had no place."""
    seqno: int
