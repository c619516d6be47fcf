"""The settings of a node's broker and its upkeep, validated once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final, Literal

from logboom.broker.access.audit_trail import AuditSettings
from logboom.broker.allowances import Allowances
from logboom.broker.limits import Limits, TopicRules
from logboom.errors import ConfigError
from logboom.storage.config import DAY_US, MIB

RANGES: Final = {
    "recompress_bytes_per_second": (1, 2**40),
    "scrub_bytes_per_second": (1, 2**40),
    "scrub_every_ms": (1, 2**52),
    "hooks_max": (1, 256),
    "retention_every_ms": (1, 2**40),
}
_MAY_BE_NONE: Final = ("recompress_bytes_per_second", "scrub_bytes_per_second")


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    recompress_bytes_per_second: int | None = 32 * MIB
    """Bytes read in order to recompress, by the whole node; None is no limit."""
    scrub_bytes_per_second: int | None = 16 * MIB
    """Bytes read in order to find damage, by the whole node; None is no limit."""
    scrub_every_ms: int = 7 * DAY_US // 1000
    """Every cold segment is read again after so long."""
    hooks_max: int = 4
    """How many hooks run at once, over all topics; of one topic there is never more than one."""
    retention_every_ms: int = 10_000
    """How often it is decided what may go."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            low, high = RANGES[setting.name]
            if value is None and setting.name in _MAY_BE_NONE:
                continue
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{setting.name} is {value!r}, allowed are {low} to {high}")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    limits: Limits = field(default_factory=Limits)
    topics: TopicRules = field(default_factory=TopicRules)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    threads: int = 4
    """For writes that take long, filters, and reads of what is not in memory."""
    reserve_bytes: int = 64 * MIB
    """Free space on the volume below which nothing is written."""
    files_max: int = 512
    """Files of logs that are kept open because they were used lately."""
    dirty_logs_max: int = 2**30
    """Logs that are written and not synced at the same time: each of them holds a file open."""
    allowed: Allowances = field(default_factory=Allowances)
    """What topics may have the node do outside of itself."""
    anonymous: Literal["all", "none"] = "all"
    """What those may do who have not signed in: everything, or what rules say of them."""
    audit: AuditSettings = field(default_factory=AuditSettings)

    @property
    def is_audited(self) -> bool:
        """Unless somebody has said so, where callers have names."""
        return self.anonymous == "none" if self.audit.enabled is None else self.audit.enabled

    def __post_init__(self) -> None:
        self.limits.check()
        self.topics.check()
        self.audit.check()
        try:
            self.allowed.check(self.topics.settings)
        except ConfigError as error:
            raise ConfigError(f"topics.settings.{error.key}", error.reason) from None
        if not 1 <= self.threads <= 256:
            raise ValueError(f"threads is {self.threads}, allowed are 1 to 256")
