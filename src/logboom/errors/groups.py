"""Consumers that share the logs of topics: what a group, or one of its members, cannot have."""

from __future__ import annotations

from logboom.errors.root import LogboomError


class GroupError(LogboomError):
    """Something about a group."""

    def __init__(self, group: str, message: str) -> None:
        super().__init__(message)
        self.group = group


class InvalidGroup(GroupError, ValueError):
    """A name, or a wish of a member, that means nothing."""


class GroupNotFound(GroupError):
    """No group has this name."""

    def __init__(self, group: str) -> None:
        super().__init__(group, f"there is no group {group!r}")


class GroupBusy(GroupError):
    """The group has members, who would not know of this."""

    def __init__(self, group: str, members: int) -> None:
        super().__init__(group, f"group {group!r} has members ({members}): stop them first")
        self.members = members


class GroupMismatch(GroupError):
    """The group is of the other mode: its logs are shared, or their records."""

    def __init__(self, group: str, mode: str, wanted: str) -> None:
        super().__init__(group, f"group {group!r} has mode {mode!r}, not {wanted!r}: use another name, or delete it")
        self.mode = mode
        self.wanted = wanted


class MemberUnknown(GroupError):
    """The group has no such member: it has left, or was not heard of for longer than its session lasts."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(
            group, f"group {group!r} has no member {member!r}: it was silent for too long, or has left; join again"
        )
        self.member = member


class LogNotHeld(GroupError):
    """A member speaks of a log that the group has given to another one, or took back."""

    def __init__(self, group: str, log: str, generation: int) -> None:
        super().__init__(
            group, f"{log} is not this member's in generation {generation}: group {group!r} has moved it to another"
        )
        self.log = log
        self.generation = generation


class JobNotHeld(GroupError):
    """A member speaks of records that it does not hold: its lease of them has run out, or they are settled."""

    def __init__(self, group: str, seqno: int, until: int) -> None:
        records = f"record {seqno}" if until == seqno + 1 else f"records {seqno} to {until - 1}"
        super().__init__(
            group, f"{records} are not this member's in group {group!r}: its lease has run out, or they are settled"
        )
        self.seqno = seqno
        self.until = until
