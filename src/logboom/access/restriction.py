"""Which records somebody may read, or write, by their channels and tags. Evaluated on columns, where they are not few.

A record is let through where nothing that is denied fits its channel or any of its tags; where some channels are
allowed, only if one of them fits its channel; and where some tags are allowed, only if one of them fits one of its
tags. A record without a channel is fitted by no pattern, one without tags by no tag.

Channels are patterns as readers have them (`batch/selection.py`). A tag is exact, or with a `*` at its end what all
that are meant begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from logboom.batch import arrow
from logboom.batch.columns import CHANNEL, TAGS
from logboom.batch.selection import PATTERN_BYTES_MAX, fits_channel, fits_tag, fitting_channels, fitting_tags
from logboom.errors import InvalidPattern

if TYPE_CHECKING:
    import pyarrow as pa

    from logboom.batch.batch import Batch
    from logboom.batch.selection import Mask

FEW: Final = 8
"""Records that are looked at one by one."""
NAME_SHOWN: Final = 200
"""Characters of a channel or tag that somebody is told of."""


class RefusedRecord(NamedTuple):
    """Why a record is not let through."""

    kind: Literal["channel", "tag"]
    name: str
    """Empty where it has none, and needs one."""


@dataclass(frozen=True, slots=True)
class Restriction:
    channels: tuple[str, ...] | None = None
    """Of these one must fit; None where it need not."""
    channels_denied: tuple[str, ...] = ()
    tags: tuple[str, ...] | None = None
    tags_denied: tuple[str, ...] = ()

    @property
    def needed_columns(self) -> int:
        """A batch without one of these has no record that is let through: bits of its header."""
        return (0 if self.channels is None else CHANNEL) | (0 if self.tags is None else TAGS)

    @property
    def pattern_count(self) -> int:
        named = self.channels or (), self.channels_denied, self.tags or (), self.tags_denied
        return sum(map(len, named))

    def match(self, column: Callable[[str], pa.Array]) -> list[Mask]:
        """True for every record let through, as channels and tags say each by itself; `column` gives a whole column."""
        return [mask for _, _, mask in self._looks(column)]

    def find_refused(self, batch: Batch) -> RefusedRecord | None:
        """A record of a verified batch that is not let through, as it is refused for; None where all are."""
        if len(batch) <= FEW:
            found = map(self._refuse, batch.channels(), batch.tags())
            return next(filter(None, found), None)
        for kind, column, mask in self._looks(partial(arrow.column, batch)):
            if not mask.all():
                found = column[int(mask.argmin())].as_py()
                name = (found or "") if kind == "channel" else self._refused_tag(found)
                return RefusedRecord(kind, name[:NAME_SHOWN])
        return None

    def _refuse(self, channel: str | None, tags: Sequence[str]) -> RefusedRecord | None:
        """The same of one record: where there are few, Arrow would cost more than the loop."""

        def has_channel(patterns: Sequence[str]) -> bool:
            return channel is not None and any(fits_channel(pattern, channel) for pattern in patterns)

        def has_tag(names: Sequence[str]) -> bool:
            return any(fits_tag(name, tag) for tag in tags for name in names)

        if has_channel(self.channels_denied) or not (self.channels is None or has_channel(self.channels)):
            return RefusedRecord("channel", (channel or "")[:NAME_SHOWN])
        if has_tag(self.tags_denied) or not (self.tags is None or has_tag(self.tags)):
            return RefusedRecord("tag", self._refused_tag(tags)[:NAME_SHOWN])
        return None

    def _looks(self, column: Callable[[str], pa.Array]) -> Iterator[tuple[Literal["channel", "tag"], pa.Array, Mask]]:
        if self.channels is not None or self.channels_denied:
            channels = column("channel")
            fits = partial(fitting_channels, channels)
            yield "channel", channels, _let_through(self.channels, self.channels_denied, fits, len(channels))
        if self.tags is not None or self.tags_denied:
            tags = column("tags")
            fits = partial(fitting_tags, tags)
            yield "tag", tags, _let_through(self.tags, self.tags_denied, fits, len(tags))

    def _refused_tag(self, tags: Sequence[str]) -> str:
        denied = (tag for tag in tags if any(fits_tag(name, tag) for name in self.tags_denied))
        return next(denied, next(iter(tags), ""))


def _let_through(
    allowed: tuple[str, ...] | None, denied: tuple[str, ...], fits: Callable[[tuple[str, ...]], Mask], count: int
) -> Mask:
    import numpy as np

    mask: Mask = np.ones(count, np.bool_) if allowed is None else fits(allowed)
    return mask & ~fits(denied) if denied else mask


def check_tag(name: str) -> None:
    """Raises InvalidPattern for what names no tags."""
    if not 1 <= len(name.encode()) <= PATTERN_BYTES_MAX or "*" in name[:-1]:
        raise InvalidPattern(f"{name[:100]!r} is no tag: it is exact or a prefix*, of 1 to {PATTERN_BYTES_MAX} bytes")
