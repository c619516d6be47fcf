"""How a writer writes, as one value, validated once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, get_args

from logboom.batch import BATCH_SIZE_DEFAULT
from logboom.batch.codec import CODECS
from logboom.client.read.start import CONNECT_PATIENCE_S
from logboom.errors import ConfigError
from logboom.storage.data.topic import Acks

OnFull = Literal["block", "error", "drop"]

_RANGES: Final[dict[str, tuple[float, float]]] = {
    "batch_bytes": (1, BATCH_SIZE_DEFAULT),
    "linger_ms": (0, 3_600_000),
    "buffer_bytes": (1024, 2**40),
    "delivery_timeout_s": (0.001, 2**31),
    "spill_bytes": (1024, 2**50),
    "connect_timeout_s": (0, 2**31),
}
_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "acks": (None, *get_args(Acks)),
    "codec": tuple(CODECS),
    "on_full": get_args(OnFull),
}


class WriterArguments(TypedDict, total=False):
    """The options as a writer's constructor takes them, by name."""

    acks: Acks | None
    partition: int | None
    batch_bytes: int
    linger_ms: float
    codec: str
    buffer_bytes: int
    on_full: OnFull
    idempotent: bool
    delivery_timeout_s: float
    spill: str | os.PathLike[str] | None
    spill_bytes: int
    connect_timeout_s: float


@dataclass(frozen=True, slots=True)
class WriterOptions:
    acks: Acks | None = None
    """When a record counts as written; None leaves it to the topic."""
    partition: int | None = None
    """Everything goes to this one; None leaves it to key, channel or chance."""
    batch_bytes: int = 256 * 1024
    """A batch goes when it has so much, before compression."""
    linger_ms: float = 5
    """Or when its first record has waited so long, and the log can take it."""
    codec: str = "none"
    buffer_bytes: int = 32 * 1024 * 1024
    """Written and not yet answered, at most."""
    on_full: OnFull = "block"
    """Where there is no room: wait for it, raise BufferFull, or drop the record and count it."""
    idempotent: bool = True
    """Number the batches, so that one that is sent again is not appended again."""
    delivery_timeout_s: float = 120.0
    """A record that is not in its log after so long has failed."""
    spill: str | os.PathLike[str] | None = None
    """A file for what the buffer cannot hold while no server can be reached."""
    spill_bytes: int = 1024 * 1024 * 1024
    """It grows no larger; then `on_full` counts."""
    connect_timeout_s: float = CONNECT_PATIENCE_S
    """How long a new writer looks for a server before it raises: one may just be restarting."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(name, f"{value!r} is not one of {', '.join(map(repr, choices))}")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise ConfigError(name, f"is {value!r}, allowed are {low} to {high}")
        if self.partition is not None and (not isinstance(self.partition, int) or self.partition < 0):
            raise ConfigError("partition", f"is {self.partition!r}, allowed are 0 and more, or None")
        if self.spill is not None and not self.is_numbered:
            raise ConfigError("spill", "needs idempotent=True and acks other than 'none': else records come twice")

    @property
    def is_numbered(self) -> bool:
        """Whether batches carry producer numbers. Without answers a lost one would leave a gap nobody hears of."""
        return self.idempotent and self.acks != "none"
