"""A group as it is kept: its members, and who holds which log. One entry of the internal topic `_groups`.

An entry is never changed, but replaced by the next one: what members are told is always one that is durable.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.broker.api.groups import GroupMode, QueueSettings
from logboom.broker.groups.shares import LogId

TOPIC: Final = "_groups"
FILE: Final = "groups"
"""Its snapshot, below DATA/internal."""
LIMIT: Final = "limits.groups"


class MemberEntry(msgspec.Struct, frozen=True, array_like=True):
    """Fields may be added with defaults; never moved."""

    topics: str
    session_ms: int
    give_back_ms: int
    principal: str
    principal_groups: tuple[str, ...] = ()
    instance: str = ""
    client: str = ""
    address: str = ""
    joined: int = 0
    """When, microseconds."""
    changed: int = 0
    """The generation in which it was given, asked for, or lost a log last."""


class GrantEntry(msgspec.Struct, frozen=True, array_like=True):
    """A log in the hands of a member. Fields may be added with defaults; never moved."""

    topic: str
    topic_id: str
    partition: int
    member: str
    generation: int
    """In which it was given to this member."""
    asked: int = 0
    """The generation in which it was asked for; 0 where it was not."""
    heir: str = ""
    """Who is to have it then."""

    @property
    def log(self) -> LogId:
        return LogId(self.topic, self.topic_id, self.partition)


class GroupEntry(msgspec.Struct, frozen=True, array_like=True):
    """Fields may be added with defaults; never moved."""

    mode: GroupMode
    generation: int = 0
    """Rises with every change of who holds what."""
    members: dict[str, MemberEntry] = {}
    grants: tuple[GrantEntry, ...] = ()
    made: int = 0
    emptied: int = 0
    """When the last member went, microseconds; 0 while there are some."""
    queue: QueueSettings | None = None

    def grants_of(self, member: str) -> list[GrantEntry]:
        return [grant for grant in self.grants if grant.member == member]

    @property
    def is_moving(self) -> bool:
        return any(grant.asked for grant in self.grants)


def encode_group(entry: GroupEntry) -> bytes:
    return msgspec.msgpack.encode(entry)


def decode_group(value: bytes) -> GroupEntry:
    return msgspec.msgpack.decode(value, type=GroupEntry)
