"""Which channels, tags and keys a sealed segment may hold: three Bloom filters, so that a filtered read can pass it by.

Invariant: what a segment holds, its labels never deny. They may be wrong the other way, about once in a hundred times,
and always where there are too many labels, where one could not be read, or where nobody has looked yet.

A channel stands there with each of its levels: of `site/7/temp` also `site` and `site/7`. So a pattern is looked up by
what stands before its first wildcard. Of every label the first 1024 bytes count.

Kept at the end of the .idx file, derived and never trusted like the rest of it. `docs/formats/files.md` has the hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logboom.batch import arrow, vector
from logboom.batch.batch import Batch
from logboom.batch.columns import CHANNEL, KEY, TAGS
from logboom.batch.header import ENCODING_COLUMNS, KIND_CONTROL, KIND_DATA, VERSION, Header
from logboom.batch.selection import Selection, pattern

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Hashes = np.ndarray[Any, np.dtype[np.uint64]]

COLUMNS: Final = CHANNEL | TAGS | KEY
"""The columns that labels are made of, as bits of a batch's header."""
TEXT_BYTES_MAX: Final = 1024
ENTRIES_MAX: Final = 200_000
"""More labels of one kind are not noted: then there may be anything."""
BITS_PER_ENTRY: Final = 10
PROBES: Final = 7

_ANYTHING: Final = 2**64 - 1
_UNSEEN: Final = 2**64 - 2
_SIZE = Struct("<Q")
_MASK: Final = 2**64 - 1
_SEED: Final = 0x9E3779B97F4A7C15
_FACTOR: Final = 0xD6E8FEB86659FD93
_WINDOW: Final = 65_536
_PENDING_BYTES: Final = 1 << 20


def label_columns(header: Header) -> int:
    """Which kinds of labels a batch may have: all where its records are not known."""
    if header.kind == KIND_DATA and header.version == VERSION and header.encoding == ENCODING_COLUMNS:
        return header.columns & COLUMNS
    return 0 if header.kind == KIND_CONTROL else COLUMNS if header.record_count else 0


class Marks(NamedTuple):
    """The labels of one kind, as the bits of a Bloom filter; or, for a size, that there may be anything."""

    size: int
    """How many bits; none of them where there is no label of this kind."""
    bits: bytes = b""

    @property
    def is_made(self) -> bool:
        return self.size != _UNSEEN

    def may_hold(self, text: bytes) -> bool:
        if self.size in (_ANYTHING, _UNSEEN) or not self.size:
            return bool(self.size)
        low, high = divmod(hash_text(text), 2**32)
        probes = ((low + number * (high | 1)) % self.size for number in range(PROBES))
        return all(self.bits[probe >> 3] >> (probe & 7) & 1 for probe in probes)


NOTHING: Final = Marks(0)
ANYTHING: Final = Marks(_ANYTHING)
UNSEEN: Final = Marks(_UNSEEN)


class Labels(NamedTuple):
    channels: Marks
    tags: Marks
    keys: Marks

    @classmethod
    def of_columns(cls, columns: int) -> Labels:
        """What is known once all headers were seen: kinds that no batch has are not there."""
        return cls(*(UNSEEN if columns & kind else NOTHING for kind in (CHANNEL, TAGS, KEY)))

    @property
    def columns(self) -> int:
        return sum(kind for kind, marks in zip((CHANNEL, TAGS, KEY), self, strict=True) if marks.size)

    @property
    def is_made(self) -> bool:
        """Whether somebody has looked at all kinds of labels there are."""
        return all(marks.is_made for marks in self)

    def may_hold(self, wanted: Selection) -> bool:
        """Whether a record may match. Seqnos are not asked for."""
        if wanted.key is not None and not self.keys.may_hold(wanted.key):
            return False
        if wanted.tags_any and not any(self.tags.may_hold(tag.encode()) for tag in wanted.tags_any):
            return False
        if not all(self.tags.may_hold(tag.encode()) for tag in wanted.tags_all):
            return False
        return wanted.channel is None or self._may_hold_channel(wanted.channel)

    def _may_hold_channel(self, text: str) -> bool:
        how, argument = pattern(text)
        if how == "exact":
            return self.channels.may_hold(argument.encode())
        levels = argument.split("/")[:-1] if how == "prefix" else _levels_before_wildcard(text)
        return self.channels.may_hold("/".join(levels).encode()) if levels else self.channels.size > 0

    def encode(self) -> bytes:
        return b"".join(_SIZE.pack(marks.size) + marks.bits for marks in self)

    @classmethod
    def decode(cls, data: memoryview) -> Labels | None:
        """None for anything that is not whole and ours."""
        kinds: list[Marks] = []
        offset = 0
        while offset + _SIZE.size <= len(data):
            (size,) = _SIZE.unpack_from(data, offset)
            offset += _SIZE.size
            length = 0 if size in (_ANYTHING, _UNSEEN) else size >> 3
            kinds.append(Marks(size, bytes(data[offset : offset + length])))
            if len(kinds[-1].bits) != length or (size & 63 and size < _UNSEEN):
                return None
            offset += length
        return cls(*kinds) if len(kinds) == 3 and offset == len(data) else None


def _levels_before_wildcard(text: str) -> list[str]:
    levels = text.split("/")
    return levels[: next(number for number, level in enumerate(levels) if level in ("+", "#"))]


class LabelMaker:
    """Looks at every batch of a segment, and knows its labels at last. Holds on to a MiB of batches, or to one."""

    def __init__(self) -> None:
        self._kinds = {kind: _Entries(kind == CHANNEL) for kind in (CHANNEL, TAGS, KEY)}
        self._pending_bytes = 0

    def add(self, batch: Batch) -> None:
        """Every batch, verified."""
        header = batch.header
        columns = label_columns(header)
        if columns and header.kind != KIND_DATA:
            self.give_up()
        for kind, entries in self._kinds.items():
            if columns & kind and entries.hashes is not None:
                entries.pending.append(_texts(batch, kind))
        self._pending_bytes += max(header.size, header.body_size)
        if self._pending_bytes >= _PENDING_BYTES:
            self._hash()

    def _hash(self) -> None:
        for entries in self._kinds.values():
            entries.hash()
        self._pending_bytes = 0

    def give_up(self) -> None:
        """There is a batch whose records nobody knows."""
        for entries in self._kinds.values():
            entries.hashes = None

    def labels(self) -> Labels:
        self._hash()
        return Labels(*(entries.marks() for entries in self._kinds.values()))


class _Entries:
    """The labels of one kind."""

    def __init__(self, with_levels: bool) -> None:
        self._with_levels = with_levels
        self.pending: list[pa.Array] = []
        self.hashes: list[Hashes] | None = []
        """Of all different ones; None where there are too many, or unknown ones."""
        self._count = 0

    def hash(self) -> None:
        import pyarrow.compute as pc

        if self.pending and self.hashes is not None:
            texts = pc.unique(vector.pa.chunked_array(self.pending)).drop_null()
            texts = pc.binary_slice(texts.cast(vector.pa.binary()), 0, TEXT_BYTES_MAX)
            for start in range(0, len(texts), _WINDOW):
                self._take(_hash_array(texts.slice(start, _WINDOW), self._with_levels))
        self.pending.clear()

    def _take(self, found: Iterator[Hashes]) -> None:
        for hashes in found:
            if self.hashes is None:
                return
            self.hashes.append(hashes)
            self._count += len(hashes)
            if self._count > 2 * ENTRIES_MAX:
                self._merge()

    def _merge(self) -> None:
        assert self.hashes is not None
        merged = vector.np.unique(vector.np.concatenate(self.hashes))
        self.hashes = [merged] if len(merged) <= ENTRIES_MAX else None
        self._count = len(merged)

    def marks(self) -> Marks:
        if self.hashes:
            self._merge()
        if self.hashes is None:
            return ANYTHING
        if not self.hashes:
            return NOTHING
        np = vector.np
        (hashes,) = self.hashes
        size = BITS_PER_ENTRY * len(hashes) + 63 & ~63
        low, high = hashes >> np.uint64(32), hashes & np.uint64(2**32 - 1) | np.uint64(1)
        flags = np.zeros(size, np.bool_)
        for number in range(PROBES):
            flags[(low + np.uint64(number) * high) % np.uint64(size)] = True
        return Marks(size, np.packbits(flags, bitorder="little").tobytes())


def _texts(batch: Batch, kind: int) -> pa.Array:
    if kind == TAGS:
        return arrow.column(batch, "tags").values
    return arrow.column(batch, "key" if kind == KEY else "channel")


def _hash_array(texts: pa.BinaryArray, with_levels: bool) -> Iterator[Hashes]:
    np = vector.np
    _, offsets, content = texts.buffers()
    steps = np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset).astype(np.int64)
    data = np.zeros(int(steps[-1] - steps[0]) + 8, np.uint8)
    if content is not None:
        data[:-8] = np.frombuffer(content, np.uint8)[steps[0] : steps[-1]]
    steps -= steps[0]
    starts = steps[:-1]
    yield _hash_spans(data, starts, np.diff(steps))
    slashes = np.flatnonzero(data[:-8] == ord("/")) if with_levels else starts[:0]
    for begin in range(0, len(slashes), _WINDOW):
        ends = slashes[begin : begin + _WINDOW]
        owners = starts[np.searchsorted(steps, ends, "right") - 1]
        yield np.unique(_hash_spans(data, owners, ends - owners))


def _hash_spans(data: Any, starts: Any, lengths: Any) -> Hashes:
    """As `hash_text`, of many texts at once. Behind the last there are 8 bytes more."""
    np = vector.np
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    hashes: Hashes = lengths.astype(np.uint64) ^ np.uint64(_SEED)
    for position in range(0, int(lengths.max(initial=0)), 8):
        at = np.flatnonzero(lengths > position)
        found = words[starts[at] + position]
        beyond = np.maximum(0, position + 8 - lengths[at]).astype(np.uint64) * np.uint64(8)
        hashes[at] = _mix_many(hashes[at] ^ (found << beyond >> beyond))
    return _mix_many(hashes)


def _mix_many(numbers: Hashes) -> Hashes:
    half, factor = vector.np.uint64(32), vector.np.uint64(_FACTOR)
    for _ in range(2):
        numbers = (numbers ^ numbers >> half) * factor
    return numbers ^ numbers >> half


def hash_text(text: bytes) -> int:
    """64 bits, from the length and the words of 8 bytes."""
    text = text[:TEXT_BYTES_MAX]
    number = len(text) ^ _SEED
    for position in range(0, len(text), 8):
        number = _mix(number ^ int.from_bytes(text[position : position + 8], "little"))
    return _mix(number)


def _mix(number: int) -> int:
    for _ in range(2):
        number = (number ^ number >> 32) * _FACTOR & _MASK
    return number ^ number >> 32
