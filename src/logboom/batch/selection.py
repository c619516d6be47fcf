"""Which records of a batch: by seqno, time, tag, channel pattern, key. Evaluated on columns, never record by record.

Channel patterns are MQTT's: levels are separated by `/`, `+` stands for one level, a trailing `#` for any number of
levels including none. A trailing `*` makes what stands before it a prefix. Anything else is the channel itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from logboom.batch import arrow
from logboom.batch.columns import CHANNEL, KEY, TAGS
from logboom.batch.header import ENCODING_COLUMNS, KIND_DATA, NO_TIMESTAMP, VERSION, Header
from logboom.errors import InvalidPattern

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from logboom.batch.batch import Batch

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

PATTERN_BYTES_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Selection:
    """What a reader wants. Fields that are None (or empty) do not restrict."""

    seqno_from: int | None = None
    seqno_until: int | None = None
    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    channel: str | None = None
    key: bytes | None = None
    time_from: int | None = None
    """Microseconds; so is `time_until`, which is not included."""
    time_until: int | None = None

    def __post_init__(self) -> None:
        if self.channel is not None:
            pattern(self.channel)
        for tag in (*self.tags_any, *self.tags_all):
            _encoded(tag)

    def mask(self, batch: Batch) -> pa.BooleanArray | None:
        """True for every record wanted; None where that is all of them."""
        import numpy as np
        import pyarrow as pa

        _ = batch.columns  # verifies record_count before anything of that size is made
        parts: list[Mask] = []
        seqnos = batch.seqnos()
        low = seqnos.start if self.seqno_from is None else max(seqnos.start, self.seqno_from)
        high = seqnos.stop if self.seqno_until is None else min(seqnos.stop, self.seqno_until)
        if low > seqnos.start or high < seqnos.stop:
            inside = np.zeros(len(seqnos), np.bool_)
            inside[max(0, low - seqnos.start) : max(0, high - seqnos.start)] = True
            parts.append(inside)
        parts += self.match(partial(arrow.column, batch))
        return pa.array(np.logical_and.reduce(parts)) if parts else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `match` looks at."""
        asked = {
            "timestamp": self.time_from is not None or self.time_until is not None,
            "key": self.key is not None,
            "channel": self.channel is not None,
            "tags": bool(self.tags_any or self.tags_all),
        }
        return tuple(name for name, is_asked in asked.items() if is_asked)

    def may_hold(self, header: Header) -> bool:
        """Whether a record of a batch with this header may match; seqnos are not asked for."""
        if header.version != VERSION or header.kind != KIND_DATA or header.encoding != ENCODING_COLUMNS:
            return True  # nobody knows: left to those who verify
        needed = sum(bit for name, bit in _BITS.items() if name in self.columns)
        if header.columns & needed != needed:
            return False
        if self.time_from is not None and header.newest_timestamp(header.append_time) < self.time_from:
            return False
        return self.time_until is None or _oldest(header) < self.time_until

    def match(self, column: Callable[[str], pa.Array]) -> list[Mask]:
        """What all but seqnos say, each by itself; `column` gives a whole column of any number of records."""
        masks: list[Mask] = []
        if self.time_from is not None or self.time_until is not None:
            masks.append(_time_mask(column("timestamp"), self.time_from, self.time_until))
        if self.tags_any:
            masks.append(_has_tag(column("tags"), self.tags_any))
        masks += [_has_tag(column("tags"), (tag,)) for tag in self.tags_all]
        if self.channel is not None:
            masks.append(_channel_mask(column("channel"), self.channel))
        if self.key is not None:
            masks.append(_key_mask(column("key"), self.key))
        return masks


_BITS: Final = {"key": KEY, "channel": CHANNEL, "tags": TAGS}


def _oldest(header: Header) -> int:
    """No record of the batch shows an older timestamp."""
    if header.max_timestamp == NO_TIMESTAMP:
        return header.append_time
    return header.min_timestamp  # the least number there is, where one of them has none


@lru_cache(maxsize=1024)
def pattern(text: str) -> tuple[str, str]:
    """How to match a channel pattern: ("exact" | "prefix" | "regex", argument)."""
    if not 1 <= len(_encoded(text)) <= PATTERN_BYTES_MAX:
        raise InvalidPattern(f"a channel pattern has 1 to {PATTERN_BYTES_MAX} bytes")
    levels = text.split("/")
    if "#" in text and (levels[-1] != "#" or text.count("#") > 1):
        raise InvalidPattern(f"{text!r}: # stands alone as the last level")
    if any("+" in level and level != "+" for level in levels):
        raise InvalidPattern(f"{text!r}: + stands alone in its level")
    if "+" not in text and "#" not in text:
        return ("prefix", text[:-1]) if text.endswith("*") else ("exact", text)
    if text.endswith("*"):
        raise InvalidPattern(f"{text!r}: a prefix holds no + and no #")
    body = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels if level != "#")
    if levels[-1] == "#":
        body += "(/.*)?" if len(levels) > 1 else ".*"
    return "regex", f"(?s)^{body}$"


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidPattern(f"{text!r} is text that UTF-8 cannot hold: {error.reason}") from None


def _time_mask(column: pa.TimestampArray, time_from: int | None, time_until: int | None) -> Mask:
    import numpy as np
    import pyarrow as pa

    moments = column.view(pa.int64()).to_numpy()
    mask: Mask = np.ones(len(moments), np.bool_) if time_from is None else moments >= time_from
    return mask if time_until is None else mask & (moments < time_until)


def _channel_mask(column: pa.StringArray, text: str) -> Mask:
    import pyarrow.compute as pc

    how, argument = pattern(text)
    if how == "exact":
        matches = pc.equal(column, argument)
    elif how == "prefix":
        matches = pc.starts_with(column, argument)
    else:
        matches = pc.match_substring_regex(column, argument)
    return _to_mask(matches)


def _key_mask(column: pa.BinaryArray, key: bytes) -> Mask:
    import pyarrow as pa
    import pyarrow.compute as pc

    return _to_mask(pc.equal(column, pa.scalar(key, pa.binary())))


def _has_tag(column: pa.ListArray, wanted: tuple[str, ...]) -> Mask:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    hits = np.zeros(len(column.values) + 1, np.int32)
    np.cumsum(_to_mask(pc.is_in(column.values, pa.array(wanted, pa.string()))), out=hits[1:])
    steps = column.offsets.to_numpy()
    found: Mask = hits[steps[1:]] > hits[steps[:-1]]
    return found


def _to_mask(matches: pa.BooleanArray) -> Mask:
    mask: Mask = matches.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
