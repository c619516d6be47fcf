"""Which records of a batch: by seqno, time, tag, channel pattern, key. Evaluated on columns, never record by record.

Channel patterns are MQTT's: levels are separated by `/`, `+` stands for one level, a trailing `#` for any number of
levels including none. A trailing `*` makes what stands before it a prefix. Anything else is the channel itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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


def fits_channel(text: str, channel: str) -> bool:
    """Whether a pattern fits one channel.

    >>> fits_channel("site/+/temp", "site/7/temp"), fits_channel("site/#", "site"), fits_channel("a/*", "b/c")
    (True, True, False)
    """
    how, argument = pattern(text)
    if how == "exact":
        return channel == argument
    if how == "prefix":
        return channel.startswith(argument)
    wanted, levels = text.split("/"), channel.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(map(_is_level, wanted, levels))


def _is_level(wanted: str, level: str) -> bool:
    return wanted in ("+", level)


def fits_tag(name: str, tag: str) -> bool:
    """Whether a tag is this one; or begins so, where the name ends with a `*`."""
    return tag.startswith(name[:-1]) if name.endswith("*") else tag == name


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


def fitting_channels(column: pa.StringArray, patterns: Sequence[str]) -> Mask:
    """The records whose channel one of the patterns fits. Each different channel is looked at once."""
    exact = [text for text in patterns if pattern(text)[0] == "exact"]
    looks: list[Callable[[pa.StringArray], Mask]] = [partial(_is_in, wanted=exact)] if exact else []
    looks += [partial(_channel_mask, text=text) for text in patterns if pattern(text)[0] != "exact"]
    return _of_each(column, lambda names: _any(names, looks))


def fitting_tags(column: pa.ListArray, names: Sequence[str]) -> Mask:
    """The records with a tag that is one of these, or begins as one of them does that ends with a `*`."""
    import pyarrow.compute as pc

    whole = [name for name in names if not name.endswith("*")]
    begun = [name[:-1] for name in names if name.endswith("*")]
    looks: list[Callable[[pa.StringArray], Mask]] = [partial(_is_in, wanted=whole)] if whole else []
    looks += [partial(lambda tags, front: _to_mask(pc.starts_with(tags, front)), front=front) for front in begun]
    return _with_some(column, _of_each(column.values, lambda tags: _any(tags, looks)))


def _key_mask(column: pa.BinaryArray, key: bytes) -> Mask:
    import pyarrow as pa
    import pyarrow.compute as pc

    return _to_mask(pc.equal(column, pa.scalar(key, pa.binary())))


def _has_tag(column: pa.ListArray, wanted: tuple[str, ...]) -> Mask:
    return _with_some(column, _is_in(column.values, wanted))


def _is_in(column: pa.StringArray, wanted: Sequence[str]) -> Mask:
    import pyarrow as pa
    import pyarrow.compute as pc

    return _to_mask(pc.is_in(column, pa.array(wanted, pa.string())))


def _with_some(column: pa.ListArray, found: Mask) -> Mask:
    """The rows of lists of which an entry was found."""
    import numpy as np

    hits = np.zeros(len(column.values) + 1, np.int32)
    np.cumsum(found, out=hits[1:])
    steps = column.offsets.to_numpy()
    rows: Mask = hits[steps[1:]] > hits[steps[:-1]]
    return rows


def _of_each(column: pa.StringArray, look: Callable[[pa.StringArray], Mask]) -> Mask:
    """What is found of each different text, for all entries that have it. Where there is none nothing is found."""
    import numpy as np

    encoded = column.dictionary_encode()
    found = np.append(look(encoded.dictionary), False)
    rows: Mask = found[encoded.indices.fill_null(len(found) - 1).to_numpy(zero_copy_only=False)]
    return rows


def _any(column: pa.StringArray, looks: Sequence[Callable[[pa.StringArray], Mask]]) -> Mask:
    import numpy as np

    mask: Mask = np.zeros(len(column), np.bool_)
    for look in looks:
        mask |= look(column)
    return mask


def _to_mask(matches: pa.BooleanArray) -> Mask:
    mask: Mask = matches.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
