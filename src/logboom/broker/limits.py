"""What a node allows: limits that are always on, rules for topics, and a count of every time one said no."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from logboom import errors as e
from logboom.batch import BATCH_SIZE_DEFAULT, BATCH_SIZE_MAX
from logboom.broker.monitor.incidents import Incidents
from logboom.broker.world import REAL
from logboom.errors import ConfigError, LimitExceeded, LogboomError, TopicNotAllowed
from logboom.storage.config import MIB
from logboom.storage.data.topic import PARTITIONS_MAX, Settings


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    connections: int = 20_000
    connections_per_second: int = 2_000
    """Beyond this the node accepts later, it does not refuse."""
    topics: int = 20_000
    topics_per_connection: int = 10_000
    """Different topics one connection may name."""
    subscriptions_per_connection: int = 1_000
    logs_per_subscription: int = 1_000
    """One that reads whole topics. A bookmark of as many fits the head of a request."""
    subscribed_logs: int = 200_000
    """Of all subscriptions of whole topics together."""
    in_flight_bytes: int = 32 * MIB
    """Of one connection: appends without an answer, answers not sent. Beyond this it is not read from."""
    receive_bytes: int = 1024 * MIB
    """Of the node: frames that have not come whole yet."""
    batch_bytes: int = BATCH_SIZE_DEFAULT
    read_bytes: int = 16 * MIB
    """The most one read gives, unless a single batch is larger."""
    unsynced_bytes_per_log: int = 256 * MIB
    unsynced_bytes: int = 1024 * MIB
    """Of the node: written or waiting to be, and not yet synced. Beyond this appends wait."""
    append_wait_ms: int = 10_000
    """How long they wait before they fail as not appended."""
    read_wait_ms: int = 60_000
    idle_ms: int = 600_000
    hello_ms: int = 10_000
    """A connection that has not said hello by then is closed."""
    cursors: int = 100_000
    stages: int = 10_000
    staged_bytes: int = 65_536 * MIB
    """Of all stages together."""
    stage_idle_ms: int = 86_400_000
    """A stage is thrown away when nothing was staged or published for so long."""
    publish_keys: int = 20_000
    """Names that last and that something was published under."""
    groups: int = 20_000
    """Of consumers. They are kept in memory."""
    group_members: int = 1_000
    """Of one group."""
    group_logs: int = 10_000
    """Of one group: of more, the last by name are given to nobody."""
    group_idle_ms: int = 30 * 86_400_000
    """A group that nobody has been a member of for so long is forgotten, with its places."""
    queue_window: int = 65_536
    """Records of one log between the first that is not done and the last that was leased, in one group."""
    queue_in_flight: int = 200_000
    """Records of one group that are leased at one time."""
    queue_member_in_flight: int = 20_000
    """Of these, to one member."""
    queue_blocks: int = 100_000
    """Entries that all queues together keep of records that are not done: one is of up to 1,024."""
    access_entries: int = 100_000
    """Users, tokens, roles, rules and quotas together."""

    def check(self) -> Limits:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"limits.{name}", f"is {value:,}, allowed are {low:,} to {high:,}")
        return self


RANGES: Final = {
    "connections": (1, 1_000_000),
    "connections_per_second": (1, 1_000_000),
    "topics": (1, 1_000_000),
    "topics_per_connection": (1, 1_000_000),
    "subscriptions_per_connection": (1, 1_000_000),
    "logs_per_subscription": (1, 1_000),
    "subscribed_logs": (1, 10_000_000),
    "in_flight_bytes": (64 * 1024, 2**40),
    "receive_bytes": (MIB, 2**40),
    "batch_bytes": (4096, BATCH_SIZE_MAX),
    "read_bytes": (4096, 256 * MIB),
    "unsynced_bytes_per_log": (64 * 1024, 2**40),
    "unsynced_bytes": (64 * 1024, 2**40),
    "append_wait_ms": (0, 3_600_000),
    "read_wait_ms": (0, 3_600_000),
    "idle_ms": (1_000, 2**40),
    "hello_ms": (100, 3_600_000),
    "cursors": (1, 10_000_000),
    "stages": (0, 1_000_000),
    "staged_bytes": (0, 2**50),
    "stage_idle_ms": (1_000, 2**40),
    "publish_keys": (1, 10_000_000),
    "groups": (1, 10_000_000),
    "group_members": (1, 100_000),
    "group_logs": (1, 100_000),
    "group_idle_ms": (60_000, 2**40),
    "queue_window": (1, 1_000_000),
    "queue_in_flight": (1, 10_000_000),
    "queue_member_in_flight": (1, 1_000_000),
    "queue_blocks": (10, 10_000_000),
    "access_entries": (1, 10_000_000),
}


class TopicRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which topics there may be, and what one that a write makes is like. Names are matched as a shell does files."""

    allowed: tuple[str, ...] = ("*",)
    denied: tuple[str, ...] = ()
    auto_create: bool = True
    """A write to a topic that is not there makes it."""
    partitions: int = 1
    settings: Settings = Settings()
    """Of topics that are made without any."""

    def check(self) -> TopicRules:
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            raise ConfigError("topics.partitions", f"is {self.partitions}, allowed are 1 to {PARTITIONS_MAX}")
        try:
            self.settings.check()
        except ValueError as error:
            raise ConfigError("topics.settings", str(error)) from None
        return self

    def admit(self, name: str, count: int, limits: Limits, by_write: bool) -> None:
        """Raises where a topic of this name may not be made, while there are `count` already."""
        if name.startswith("_"):
            raise TopicNotAllowed(name, "a leading _ is for internal topics")
        denied = next((rule for rule in self.denied if fnmatchcase(name, rule)), None)
        if denied is not None:
            raise TopicNotAllowed(name, f"topics.denied has {denied!r}")
        if not any(fnmatchcase(name, rule) for rule in self.allowed):
            raise TopicNotAllowed(name, f"topics.allowed has only {', '.join(self.allowed)}")
        if by_write and not self.auto_create:
            raise TopicNotAllowed(name, "it does not exist, and topics.auto_create is off: create it first")
        if count >= limits.topics:
            raise LimitExceeded("limits.topics", limits.topics, "delete some, or raise it")


def said_again(error: LogboomError) -> LogboomError:
    """One that is kept, and said to everybody who asks: it counts each time."""
    error.counted = False
    return error


SLIPS: Final = (
    e.ConfigError,
    e.CursorNotFound,
    e.GroupMismatch,
    e.GroupNotFound,
    e.InvalidBookmark,
    e.InvalidColumn,
    e.InvalidCursorName,
    e.InvalidGroup,
    e.InvalidKey,
    e.InvalidPattern,
    e.InvalidTopicName,
    e.PartitionNotFound,
    e.RecordNotAllowed,
    e.StageNotFound,
    e.TopicExists,
    e.TopicNotFound,
)
"""Somebody has misspelt or mistaken something, and was told so: nothing that anybody else need know."""


class Rejections(Counter[str]):
    """How often each rule, limit or error has said no, by its name; `incidents` says to what, but for slips."""

    def __init__(self, *counts: Mapping[str, int], now_us: Callable[[], int] = REAL.now_us) -> None:
        super().__init__(*counts)
        self.incidents = Incidents(now_us)

    def note(self, error: LogboomError) -> LogboomError:
        """An error counts once, however many pass it on."""
        if getattr(error, "counted", False):
            return error
        error.counted = True
        name = error.limit if isinstance(error, LimitExceeded) else type(error).__name__
        if isinstance(error, SLIPS) or getattr(error, "is_slip", False):
            self[name] += 1
        else:
            self.count(name, str(error))
        return error

    def count(self, name: str, text: str) -> int:
        """For what is no error. Returns how often that was."""
        self[name] = times = self[name] + 1
        self.incidents.note("rejection", name, text)
        return times
