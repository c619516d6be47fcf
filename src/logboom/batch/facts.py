"""What the headers and columns of many batches say, in vectors with one entry per batch.

For a long stretch of stored batches this takes the place of `Batch.verify`, for batches that are plain: data, not
compressed, with timestamps, keys and values and nothing else. `Facts.plain` makes every check of `read_header`,
`check_header`, `find_columns` and `check_body` but those that look at every byte or record, and `sweep` makes the rest.
They only ever say yes: whatever is not plain, or not sound, is left to `Batch`. Nothing is read through an offset.

Every batch begins at a multiple of 8, and so does every buffer in it: a stretch is a vector of 64-bit words.

Where another thread can help, bodies are checked with one checksum for all of them. CRCs add up: that of a stretch
follows from those that its batches say they have, and from how far each lies from the end. So a single call goes over
all the bytes, which needs no interpreter. Where the sums differ each batch is looked at. A sum misses no more than a
checksum of one batch does: any three wrong bits are noticed, in up to 256 MiB, any burst of 32, and all but one in 2^32
of everything else. To sum up costs as much as it saves: without a thread each batch is checked by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import islice, pairwise, starmap
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

from logboom.batch import vector
from logboom.batch.columns import KEY, TIMESTAMP, VALUE
from logboom.batch.header import (
    BATCH_SIZE_MAX,
    ENCODING_COLUMNS,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    SEQUENCE_MODULUS,
    VERSION,
)

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[Any]]
    _Pass = Callable[[int, int], int]
    """Looks at the batches from one up to another: at the first that is not sound, or the end."""
    Aside = Callable[[Callable[[], None]], Callable[[], object]]
    """Has a call made on another thread, and gives what waits for its end."""

_LOW: Final = 2**32 - 1
_FULL: Final = 2**64 - 1
_MAGIC_NUMBER: Final = int.from_bytes(MAGIC, "little")
_PLAIN_KIND: Final = VERSION | ENCODING_COLUMNS << 16
"""Bytes 40..44 of a plain batch: version, kind 0, encoding, codec 0."""
TEXTS: Final = KEY | VALUE
_NUMBER_MAX: Final = 2**62
"""Seqnos and indexes above are left to `Batch`: below, sums of them never leave 64 bits."""
_REACH: Final = 2**31
"""Offsets counted from the start of the stretch have 32 bits."""

_WINDOW: Final = 65_536
"""About so many records are looked at in every way before the next: what is made of them stays in the cache."""

LARGE_RECORDS: Final = 2048
"""Batches with more records, on average, are made into arrays one by one, without a copy."""

_SPAN_BATCHES: Final = 16
"""Plain batches that follow each other, on average, for their checksums to be worth summing up."""
ASIDE_BYTES: Final = 4 * 1024 * 1024
"""For less a thread is not worth its while."""

SUM_BYTES_MAX: Final = 2**28
"""No stretch is longer for which checksums are summed up."""
_POLYNOMIAL: Final = 0x82F63B78
_HEADER_CRC: Final = crc32c(crc32c(b"").to_bytes(4, "little"))
"""Of anything that ends with its own CRC: of every sound header."""
_ANY_HEADER: Final = bytes(HEADER_SIZE - 4) + crc32c(bytes(HEADER_SIZE - 4)).to_bytes(4, "little")
_DIGIT_BITS: Final = 5
_DIGITS: Final = 5
"""Distances in words of 8 bytes, up to `SUM_BYTES_MAX`, in digits of so many bits."""

_CLAIMS = Struct("<I36xII").unpack_from
ROW_BYTES: Final = 32
"""What a row costs beyond its values: seqno, timestamp, offsets."""
_HEAD = Struct("92s4x").iter_unpack
_SIGNED = Struct("40x48s8x").iter_unpack


def find_batches(data: memoryview, budget_bytes: int) -> tuple[list[int], bool]:
    """Where each batch begins and at last where the last one ends, going by sizes that a batch can have.

    Also whether it stopped because what the batches say they inflate to is more than the budget; one may be more.
    """
    bounds, at, end = [0], 0, len(data) - HEADER_SIZE
    while at <= end:
        size, count, body_size = _CLAIMS(data, at + 4)
        if size < HEADER_SIZE or size > BATCH_SIZE_MAX or size & 7 or size - HEADER_SIZE > end - at:
            break
        budget_bytes -= max(size, body_size) + ROW_BYTES * count
        if budget_bytes < 0 and at:
            return bounds, True
        at += size
        bounds.append(at)
    return bounds, False


class Texts(NamedTuple):
    """A column of byte strings of every batch: where in the stretch its bitmaps, offsets and bytes begin."""

    bitmaps: Vector
    offsets: Vector
    content: Vector


class BatchFacts(NamedTuple):
    """One entry per batch each; positions are in the stretch."""

    words: Vector
    rows: Vector
    """The headers, a word of all of them in each row."""
    starts: Vector
    ends: Vector
    before: Vector
    """How many seqnos all batches before have; one entry more, for all of them."""
    counts: Vector
    columns: Vector
    terms: Vector
    lows: Vector
    highs: Vector
    moments: Vector
    """What readers see as timestamp of every record, where a batch has no column of them."""
    texts: dict[int, Texts]
    plain: Vector
    """Which batches are plain, and sound as far as was looked: `sweep` looks at the rest."""


def gather(data: memoryview, bounds: list[int], base_seqno: int, first_index: int) -> BatchFacts:
    """The facts of the batches between these bounds, the first of which should have these numbers."""
    np = vector.np
    words = np.frombuffer(data, np.uint64, len(data) >> 3)
    places = np.array(bounds, np.uint64)
    starts, ends = places[:-1], places[1:]
    rows = words[(starts >> 3) + np.arange(HEADER_SIZE >> 3, dtype=np.uint64)[:, None]]
    front, bases, indexes, append_times, terms, kinds, sizes, lows, highs, _, sequences, _ = rows
    counts = kinds >> 32
    columns = sizes >> 32 & 0xFFFF
    within = base_seqno < _NUMBER_MAX and first_index < _NUMBER_MAX
    before = np.zeros(len(places), np.uint64)
    np.cumsum(counts, out=before[1:])
    if not within:
        base_seqno = first_index = 0
    plain = (
        (front & _LOW == _MAGIC_NUMBER)
        & (kinds & _LOW == _PLAIN_KIND)
        & (sizes & _LOW == ends - starts - HEADER_SIZE)
        & (sequences < SEQUENCE_MODULUS)  # flags, the upper half, are 0: no padding
        & (counts > 0)
        & (columns > 0)
        & (columns <= TIMESTAMP | TEXTS)
        & (ends < _REACH)
        & (bases == before[:-1] + base_seqno)
        & (indexes == np.arange(first_index, first_index + len(starts), dtype=np.uint64))
        & within
    )
    lows, highs = lows.view(np.int64), highs.view(np.int64)
    plain &= np.where(columns & TIMESTAMP, lows != NO_TIMESTAMP, lows == highs)
    texts: dict[int, Texts] = {}
    at = starts + HEADER_SIZE + (columns & TIMESTAMP) * counts * 8
    for bit in (KEY, VALUE):
        held = columns & bit > 0
        if held.any():
            texts[bit], after, sound = _find_texts(words, at, counts, ends)
            plain &= sound | ~held
            at = np.where(held, after, at)
    plain &= at == ends
    times = append_times.view(np.int64)
    moments = np.where(lows == NO_TIMESTAMP, times, lows)
    return BatchFacts(
        words, rows, starts, ends, before, counts, columns, terms & _LOW, lows, highs, moments, texts, plain
    )


def _find_texts(words: Vector, at: Vector, counts: Vector, ends: Vector) -> tuple[Texts, Vector, Vector]:
    """Columns with a bitmap that begin at `at`, where they end, and which are sound; as `columns.find_columns` does.

    What a batch claims may lie anywhere: a place is looked at only inside the batch, and where that is another place
    than the claimed one, the batch is not sound already.
    """
    np = vector.np
    last_words = (ends >> 3) - 1
    offsets = at + (counts + 63 >> 6 << 3)
    content = offsets + (4 * counts + 11 & ~np.uint64(7))
    sound = content <= ends
    # The last offset shares a word with the one before it, or with padding, which makes the word too large.
    sizes = words[np.minimum((content >> 3) - 1, last_words)] >> (counts % 2 * 32)
    after = content + (sizes + 7 & ~np.uint64(7))
    sound &= (sizes < _REACH) & (after <= ends)
    sound &= words[np.minimum(offsets >> 3, last_words)] & _LOW == 0
    rest = sizes & 7
    sound &= (words[np.minimum((after >> 3) - 1, last_words)] >> rest * 8 == 0) | (rest == 0)
    rest = counts & 63
    sound &= (words[np.minimum((offsets >> 3) - 1, last_words)] >> rest == 0) | (rest == 0)
    return Texts(at, offsets, content), after, sound


class Plain(NamedTuple):
    """The records of plain batches as vectors. Of offsets a batch has one more than records, as Arrow wants it."""

    numbers: Vector
    counts: Vector
    firsts: Vector
    """The first offset of each batch."""
    offsets: dict[int, Vector]
    """By column, counted from the start of the stretch; of batches that lack the column they span nothing.

    None where batches are large: to make something of each costs less than to copy its offsets.
    """
    moments: Vector
    """One for each record; without a stride where all are the same."""


def sweep(data: memoryview, facts: BatchFacts, timestamps: bool, aside: Aside | None = None) -> Plain:
    """Look at every byte of the plain batches, up to the first that is not sound: from there on none is plain.

    Whether timestamps are wanted: they are looked at in any case, and made only if they are. Where there is an
    `aside` the checksums of a long stretch are taken there.
    """
    np = vector.np
    numbers = np.flatnonzero(facts.plain)
    counts = facts.counts[numbers].view(vector.I64)
    firsts = np.cumsum(counts + 1) - counts - 1
    size, moments = int(counts.sum()), np.zeros(0, vector.I64)
    checksums = _Checksums(data, facts, numbers, aside)
    small = size < LARGE_RECORDS * len(numbers)
    offsets = {bit: room(size + len(numbers), vector.I32) for bit in facts.texts if small}
    passes = [_read_offsets(facts, bit, numbers, firsts, offsets.get(bit)) for bit in facts.texts]
    if (facts.columns[numbers] & TIMESTAMP).any():
        moments = room(size, vector.I64)
        passes.append(_read_moments(facts, numbers, firsts, moments))
    elif timestamps and size:
        said = facts.moments[numbers]
        if (said == said[0]).all():
            moments = np.broadcast_to(said[0], size)
        else:
            moments = room(size, vector.I64)
            passes.append(_spread_moments(said, counts, moments))
    end, edges = len(numbers), np.flatnonzero(np.diff(firsts // _WINDOW, prepend=-1)).tolist()
    for window in pairwise([*edges, end]):
        sound = min((look(*window) for look in passes), default=end)
        if sound < window[1]:
            end = sound
            break
    end = checksums.check(end)
    if end < len(numbers):
        facts.plain[numbers[end] :] = False
    return Plain(numbers[:end], counts[:end], firsts[:end], offsets, moments)


class _Checksums:
    """Of headers and bodies, one by one; of bodies in another thread, all in one, where that is worth its while."""

    def __init__(self, data: memoryview, facts: BatchFacts, numbers: Vector, aside: Aside | None) -> None:
        np, headers = vector.np, facts.rows[:, numbers]
        content, crcs = headers.T.tobytes(), headers[-1]
        self._sound = _sound_headers(content, crcs)
        self._data = data
        self._seeds = list(starmap(crc32c, _SIGNED(content)))
        self._said = crcs & _LOW
        self._starts, self._ends = facts.starts[numbers], facts.ends[numbers]
        self._spans = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        """Where plain batches begin that follow each other."""
        few = len(self._spans) <= 1 + len(numbers) // _SPAN_BATCHES
        self._found: list[int] = []
        self._wait: Callable[[], object] | None = None
        if few and aside is not None and self._sound == len(numbers) > 0 and ASIDE_BYTES <= len(data) <= SUM_BYTES_MAX:
            self._wait = aside(self._sum)

    def _sum(self) -> None:
        lasts = vector.np.append(self._spans[1:], len(self._ends)) - 1
        for begin, end in zip(self._starts[self._spans].tolist(), self._ends[lasts].tolist(), strict=True):
            self._found.append(crc32c(self._data[begin:end]))

    def check(self, end: int) -> int:
        """The first of the batches before `end` that is not sound, or `end`."""
        if self._wait is not None:
            sums = sum_up(vector.np.array(self._seeds), self._said, self._ends - self._starts, self._ends, self._spans)
            self._wait()
            if sums == self._found:
                return end
        end = min(end, self._sound)
        spans = map(slice, (self._starts + HEADER_SIZE).tolist(), self._ends.tolist())
        found = list(islice(map(crc32c, map(self._data.__getitem__, spans), self._seeds), end))
        wrong = vector.np.array(found, vector.np.uint64) != self._said[:end]
        return int(wrong.argmax()) if wrong.any() else end


def _sound_headers(headers: bytes, crcs: Vector) -> int:
    """How many there are before the first that is not sound. Sound ones have the CRC of any others, all together."""
    if crc32c(headers) == crc32c(_ANY_HEADER * len(crcs)):
        return len(crcs)
    np = vector.np
    wrong = np.array(list(starmap(crc32c, _HEAD(headers))), np.uint64) != crcs >> 32
    return int(wrong.argmax()) if wrong.any() else len(crcs)


def sum_up(seeds: Vector, crcs: Vector, sizes: Vector, ends: Vector, spans: Vector) -> list[int]:
    """The CRC that each span of neighbouring batches must have. A span begins at the numbers that `spans` tells.

    Of each batch: the CRC of bytes 40..88, what it says its batch_crc is, its size, and where it ends.
    """
    np = vector.np
    bodies = _shift(seeds.astype(np.uint32) ^ np.uint32(_HEADER_CRC), sizes - HEADER_SIZE) ^ crcs.astype(np.uint32)
    lengths = np.diff(spans, append=len(ends))
    lasts = np.repeat(ends[spans + lengths - 1], lengths)
    found: list[int] = np.bitwise_xor.reduceat(_shift(bodies, lasts - ends), spans).tolist()
    return found


def _shift(crcs: Vector, distances: Vector) -> Vector:
    """As if so many zero bytes followed each: distances are multiples of 8."""
    np = vector.np
    words, tables = (distances >> 3).astype(np.int64), _tables()
    columns = (np.arange(4) << 8)[:, None]
    for digit in range(_DIGITS):
        if not words.any():
            break
        places = columns + ((words & 2**_DIGIT_BITS - 1) << 10)
        places += crcs.view(np.uint8).reshape(-1, 4).T
        crcs = np.bitwise_xor.reduce(tables[digit].take(places), axis=0)
        words >>= _DIGIT_BITS
    return crcs


@lru_cache(maxsize=1)
def _tables() -> list[Vector]:
    """By digit: for each value it may have and each byte of a CRC, what that byte becomes behind so many zeros."""
    np = vector.np
    bytes_ = np.arange(256, dtype=np.uint32)
    word: Vector = np.array([bytes_ << shift for shift in range(0, 32, 8)], np.uint32)
    for _ in range(64):
        word = word >> 1 ^ (word & 1) * np.uint32(_POLYNOMIAL)
    tables = []
    for _ in range(_DIGITS):
        steps = [np.array([bytes_ << shift for shift in range(0, 32, 8)], np.uint32)]
        for _ in range(2**_DIGIT_BITS):
            steps.append(_through(word, steps[-1]))
        tables.append(np.array(steps[:-1], np.uint32).reshape(-1))
        word = steps[-1]
    return tables


def _through(table: Vector, crcs: Vector) -> Vector:
    found: Vector = table[0][crcs & 255]
    for number in (1, 2, 3):
        found = found ^ table[number][crcs >> 8 * number & 255]
    return found


def _read_offsets(facts: BatchFacts, bit: int, numbers: Vector, firsts: Vector, offsets: Vector | None) -> _Pass:
    """Offsets never go back. Where there are to be `offsets` for all batches, they are copied."""
    np, texts, lengths = vector.np, facts.texts[bit], (facts.counts[numbers] + 1).view(vector.I64)
    pieces = _pieces(facts.words.view(vector.I32), texts.offsets[numbers] >> 2, lengths)
    held = facts.columns[numbers] & bit > 0
    for i in np.flatnonzero(~held).tolist():
        pieces[i] = np.zeros(lengths[i], vector.I32)
    shifts = np.where(held, texts.content[numbers], facts.starts[numbers]).astype(vector.I32)
    marks = [*firsts.tolist(), int(lengths.sum())]

    def look(begin: int, end: int) -> int:
        entries = None if offsets is None else offsets[marks[begin] : marks[end]]
        entries = np.concatenate(pieces[begin:end], out=entries)
        back = entries[1:] < entries[:-1]
        back[firsts[begin + 1 : end] - marks[begin] - 1] = False
        if offsets is not None:
            entries += np.repeat(shifts[begin:end], lengths[begin:end])
        if not back.any():
            return end
        return int(np.searchsorted(firsts, marks[begin] + back.argmax(), "right")) - 1

    return look


def _read_moments(facts: BatchFacts, numbers: Vector, firsts: Vector, moments: Vector) -> _Pass:
    """The header's minimum and maximum match the column, if there is one."""
    np, counts, held = vector.np, facts.counts[numbers].view(vector.I64), facts.columns[numbers] & TIMESTAMP > 0
    pieces = _pieces(facts.words.view(vector.I64), facts.starts[numbers] + HEADER_SIZE >> 3, counts)
    for i in np.flatnonzero(~held).tolist():
        pieces[i] = np.full(counts[i], facts.moments[numbers[i]])
    lows, highs, places = facts.lows[numbers], facts.highs[numbers], firsts - np.arange(len(firsts))
    marks = [*places.tolist(), len(moments)]

    def look(begin: int, end: int) -> int:
        entries, starts = moments[marks[begin] : marks[end]], places[begin:end] - marks[begin]
        np.concatenate(pieces[begin:end], out=entries)
        wrong = np.minimum.reduceat(entries, starts) != lows[begin:end]
        wrong |= np.maximum.reduceat(entries, starts) != highs[begin:end]
        wrong &= held[begin:end]
        return begin + int(wrong.argmax()) if wrong.any() else end

    return look


def _spread_moments(said: Vector, counts: Vector, moments: Vector) -> _Pass:
    """What each batch says is true of all its records."""
    np = vector.np
    marks = [0, *np.cumsum(counts).tolist()]

    def look(begin: int, end: int) -> int:
        moments[marks[begin] : marks[end]] = np.repeat(said[begin:end], counts[begin:end])
        return end

    return look


def _pieces(column: Vector, begins: Vector, lengths: Vector) -> list[Vector]:
    spans = map(slice, begins.tolist(), (begins.view(vector.I64) + lengths).tolist())
    return list(map(column.__getitem__, spans))


def read_valid(facts: BatchFacts, bit: int, plain: Plain) -> Vector | None:
    """One bitmap for all offsets of a column; None where there are no nulls."""
    np = vector.np
    held = facts.columns[plain.numbers] & bit > 0
    where = np.flatnonzero(held)
    bitmaps, counts = facts.texts[bit].bitmaps[plain.numbers[where]], facts.counts[plain.numbers[where]]
    widths = (counts + 63 >> 6).view(vector.I64)
    begins = np.cumsum(widths) - widths
    places = np.repeat((bitmaps >> 3).view(vector.I64) - begins, widths)
    places += np.arange(len(places))
    bits, rest = facts.words[places], counts & 63
    bits[begins + widths - 1] |= np.where(rest > 0, np.uint64(_FULL) << rest, np.uint64(0))
    full = bits == _FULL
    if full.all() and len(where) == len(held):
        return None
    octets, valid = facts.words.view(np.uint8), np.repeat(held, plain.counts + 1)
    for i in np.flatnonzero(~np.logical_and.reduceat(full, begins)).tolist():
        first, count, bitmap = int(plain.firsts[where[i]]), int(counts[i]), int(bitmaps[i])
        bytes_ = octets[bitmap : bitmap + (count + 7 >> 3)]
        valid[first : first + count] = np.unpackbits(bytes_, count=count, bitorder="little")
    return np.packbits(valid, bitorder="little")


def room(count: int, kind: np.dtype[Any]) -> Vector:
    """Memory for a vector, from Arrow: its pool keeps what is given back, so that it need not be made anew."""
    return vector.np.frombuffer(vector.pa.allocate_buffer(count * kind.itemsize), kind)
