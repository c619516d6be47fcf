"""Counts a cell of a log for a report: from its batches to its sums, in vectors.

Batches are gone through one by one, for what their headers say; their records are put together to blocks, and of each
block only what the sums need is kept. Nothing loops over records.

Of a batch that begins before the cell, or ends behind it, only the records in the cell count. The batch itself counts
where its last record does.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from logboom.batch import HEADER_SIZE, NO_TIMESTAMP, Batch, Header, vector
from logboom.batch.codec import CODECS
from logboom.batch.columns import ABSENT
from logboom.results.report.sums import (
    COPIES_KEPT,
    DISTINCT_KEPT,
    NAME_BYTES_MAX,
    NAMES_KEPT,
    PRODUCERS_KEPT,
    SILENCES_KEPT,
    STEPS,
    TIMES_KEPT,
    WIDTHS,
    Codec,
    HashSample,
    Presence,
    ProducerSums,
    Rates,
    ReportSums,
    Spread,
    Weight,
    Weights,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Vector = np.ndarray[Any, np.dtype[Any]]

BLOCK_BYTES: Final = 8 << 20
COLUMNS: Final = ("timestamp", "key", "value", "channel")
_CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MULTIPLIERS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_NULL: Final = 0x6A09E667F3BCC909


def count_cell(
    batches: Iterable[Batch], seqno_from: int, seqno_until: int, topic_id: str, partition: int, late_us: int
) -> ReportSums:
    """Of the records from one seqno until before another. The batches follow each other, and hold all of them."""
    count = _Count(topic_id, partition)
    for batch in batches:
        header = batch.header
        low, high = max(seqno_from, header.base_seqno), min(seqno_until, header.next_seqno)
        if low < high:
            count.add(batch, low - header.base_seqno, high - low)
    return count.end(late_us)


class _Count:
    def __init__(self, topic_id: str, partition: int) -> None:
        self._seed = int.from_bytes(blake2b(f"{topic_id}/{partition}".encode(), digest_size=8).digest(), "little")
        self._sums = ReportSums()
        self._block: list[pa.RecordBatch] = []
        self._block_bytes = 0
        self._moments: list[Vector] = []
        self._sizes: list[Vector] = []
        self._hashes: list[Vector] = []
        self._keys: list[pa.Table] = []
        self._channels: list[pa.Table] = []
        self._append_times: list[int] = []
        self._batches: list[tuple[int, int, int]] = []
        """For each batch that is counted: its records and its bytes; and of each, how many of its records are here."""

    def add(self, batch: Batch, skip: int, count: int) -> None:
        header = batch.header
        self._sums.untimed += _untimed(batch, skip, count)
        self._note(header, count, skip + count == header.record_count)
        self._block.append(batch.to_arrow(COLUMNS).slice(skip, count))
        self._block_bytes += header.body_size * count // header.record_count
        if self._block_bytes >= BLOCK_BYTES:
            self._end_block()

    def _note(self, header: Header, count: int, is_counted: bool) -> None:
        sums, size = self._sums, header.size if is_counted else 0
        epochs = header.producer_epoch, header.producer_epoch
        producer = sums.producers.setdefault(header.producer_id, ProducerSums(0, 0, 0, epochs))
        codec = sums.codecs.setdefault(_CODEC_NAMES.get(header.codec, str(header.codec)), Codec())
        producer.records += count
        producer.batches += is_counted
        producer.size_bytes += size
        producer.epochs = min(producer.epochs[0], epochs[0]), max(producer.epochs[1], epochs[1])
        codec.records += count
        codec.batches += is_counted
        codec.stored += size
        codec.plain += HEADER_SIZE + (header.body_size + 7 & ~7) if is_counted else 0
        self._append_times.append(header.append_time)
        self._batches.append((count, size, header.record_count if is_counted else 0))

    def _end_block(self) -> None:
        """Of the values only their sizes and hashes stay, of keys and channels the different ones."""
        np, pa = vector.np, vector.pa
        table = pa.Table.from_batches(self._block)
        self._block, self._block_bytes = [], 0
        moments = table.column("timestamp").cast(pa.int64()).to_numpy()
        keys, values = _Texts(table.column("key")), _Texts(table.column("value"))
        sizes = keys.lengths + values.lengths
        marks = _mix(moments.view(np.uint64) + np.uint64(self._seed))
        self._moments.append(moments)
        self._sizes.append(sizes)
        self._hashes.append(_mix(_mix(marks + keys.hashes()) + values.hashes()))
        self._keys.append(_group(keys.array, sizes))
        self._channels.append(_group(table.column("channel").cast(pa.binary()).combine_chunks(), sizes))
        self._sums.tombstones += values.array.null_count

    def end(self, late_us: int) -> ReportSums:
        if self._block:
            self._end_block()
        sums = self._sums
        if not self._moments:
            return sums
        np = vector.np
        moments, sizes = np.concatenate(self._moments), np.concatenate(self._sizes)
        sums.records, sums.size_bytes = len(moments), int(sizes.sum())
        sums.times = int(moments.min()), int(moments.max())
        sums.rates = _rates(moments, np.ones(len(moments), np.int64), sizes)
        sums.sizes = _spread(sizes)
        sums.keys, sums.channels = _weights(self._keys), _weights(self._channels)
        hashes = _distinct(np.concatenate(self._hashes))[0]
        sums.repeats, sums.copies = len(moments) - len(hashes), _sample(hashes, COPIES_KEPT)
        sums.behind, sums.late = _lateness(moments, late_us)
        sums.presence = _presence(moments)
        self._end_batches()
        return sums

    def _end_batches(self) -> None:
        np, sums = vector.np, self._sums
        times, batches = np.array(self._append_times, np.int64), np.array(self._batches, np.int64)
        counted = batches[batches[:, 2] > 0]
        sums.appended = int(times.min()), int(times.max())
        sums.growth = _rates(times, batches[:, 0], batches[:, 1])
        sums.batch_records, sums.batch_bytes = _spread(counted[:, 2]), _spread(counted[:, 1])
        if len(sums.producers) > PRODUCERS_KEPT:
            order = sorted(sums.producers, key=lambda number: (-sums.producers[number].records, number))
            others = [sums.producers.pop(number) for number in order[PRODUCERS_KEPT:]]
            lows, highs = zip(*(other.epochs for other in others), strict=True)
            counts = sum(other.records for other in others), sum(other.batches for other in others)
            epochs = min(lows), max(highs)
            sums.other_producers = ProducerSums(*counts, sum(other.size_bytes for other in others), epochs)


def _untimed(batch: Batch, skip: int, count: int) -> int:
    if batch.header.min_timestamp != NO_TIMESTAMP:
        return 0
    start = batch.columns.timestamp
    if start == ABSENT:
        return count
    np = vector.np
    moments = np.frombuffer(batch.body, np.int64, batch.header.record_count, start)
    return int((moments[skip : skip + count] == NO_TIMESTAMP).sum())


class _Texts:
    """A column of byte strings in one piece."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        np = vector.np
        self.array: pa.Array = column.combine_chunks()
        valid, offsets, data = self.array.buffers()
        edges = np.frombuffer(offsets, np.int32, len(self.array) + 1, 4 * self.array.offset).astype(np.int64)
        self._data = data
        self._starts = edges[:-1]
        self._valid = None if valid is None or not self.array.null_count else self.array.is_valid().to_numpy(False)
        self.lengths: Vector = np.diff(edges)
        if self._valid is not None:
            self.lengths *= self._valid

    def hashes(self) -> Vector:
        """Of 64 bits: the sum of each eight bytes, mixed with where they stand, mixed with the length."""
        np = vector.np
        counts = self.lengths + 7 >> 3
        total = int(counts.sum())
        found = np.zeros(len(counts), np.uint64)
        if total:
            firsts = np.cumsum(counts) - counts
            steps = np.arange(total) - np.repeat(firsts, counts)
            words = self._words(np.repeat(self._starts, counts) + 8 * steps)
            rest = np.repeat(self.lengths, counts) - 8 * steps
            words &= _masks()[np.minimum(rest, 8)]
            terms = _mix(words + (steps.view(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN))
            some = counts > 0
            found[some] = np.add.reduceat(terms, firsts[some])
        found += self.lengths.view(np.uint64) * np.uint64(_MULTIPLIERS[0])
        if self._valid is not None:
            found += np.where(self._valid, np.uint64(0), np.uint64(_NULL))
        return _mix(found)

    def _words(self, places: Vector) -> Vector:
        """Eight bytes from each place on; those behind the end are zero."""
        np = vector.np
        data = np.concatenate((np.frombuffer(self._data, np.uint8), np.zeros(8, np.uint8)))
        words: Vector = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[places]
        return words


def _masks() -> Vector:
    np = vector.np
    return np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


def _mix(words: Vector) -> Vector:
    """Every bit of a word changes every bit of the answer (Stafford's mix 13)."""
    np = vector.np
    first, second = map(np.uint64, _MULTIPLIERS)
    words = (words ^ words >> np.uint64(30)) * first
    words = (words ^ words >> np.uint64(27)) * second
    words ^= words >> np.uint64(31)
    return words


def _rates(moments: Vector, records: Vector, sizes: Vector) -> Rates:
    np, rung = vector.np, 0
    buckets = _distinct(moments // WIDTHS[0])[0]
    while len(buckets) > TIMES_KEPT:
        rung += 1
        buckets = _distinct(buckets // (WIDTHS[rung] // WIDTHS[rung - 1]))[0]
    places = np.searchsorted(buckets, moments // WIDTHS[rung])
    counts = _sums_by(places, records, len(buckets)).tolist(), _sums_by(places, sizes, len(buckets)).tolist()
    return Rates(rung, dict(zip(buckets.tolist(), zip(*counts, strict=True), strict=True)))


def _sums_by(places: Vector, numbers: Vector, count: int) -> Vector:
    """Exactly: as floats, as `bincount` has them, they would not be."""
    np = vector.np
    found = np.zeros(count, np.int64)
    np.add.at(found, places, numbers)
    return found


def _distinct(numbers: Vector) -> tuple[Vector, Vector]:
    """In their order, and how often each is there. NumPy's own hashes them first, which takes far longer."""
    np = vector.np
    ordered = np.sort(numbers)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.diff(starts, append=len(ordered))


def _spread(numbers: Vector) -> Spread:
    if not len(numbers):
        return Spread()
    np = vector.np
    numbers = numbers.astype(np.uint64)
    powers = np.maximum(np.frexp(numbers.astype(np.float64))[1] - 5, 0).astype(np.uint64)
    # As a float a number may be rounded up to the next power of two.
    powers -= (powers > 0) & (numbers >> powers < STEPS)
    buckets, counts = _distinct(np.uint64(STEPS) * powers + (numbers >> powers))
    found = dict(zip(buckets.tolist(), counts.tolist(), strict=True))
    total = int((numbers >> np.uint64(32)).sum()) << 32
    total += int((numbers & np.uint64(2**32 - 1)).sum())
    return Spread(len(numbers), total, int(numbers.min()), int(numbers.max()), found)


def _sample(hashes: Vector, most: int) -> HashSample:
    """Of different ones, in their order."""
    np, level = vector.np, 0
    while (kept := int(np.searchsorted(hashes, np.uint64(2 ** (64 - level) - 1), "right"))) > most:
        level += 1
    return HashSample(level, dict.fromkeys(hashes[:kept].tolist(), 1))


def _lateness(moments: Vector, late_us: int) -> tuple[int, Spread]:
    np = vector.np
    newest = np.maximum.accumulate(moments)
    # The newest is never less: as unsigned numbers the difference is right, however far they lie apart.
    behind = newest.view(np.uint64) - moments.view(np.uint64)
    return int((behind > 0).sum()), _spread(behind[behind > late_us])


def _presence(moments: Vector) -> Presence:
    np = vector.np
    times = _distinct(moments)[0]
    silences = times[1:].view(np.uint64) - times[:-1].view(np.uint64)
    missed = 0
    longest = np.lexsort((times[1:], ~silences))
    if len(longest) > SILENCES_KEPT:
        missed = int(silences[longest[SILENCES_KEPT]])
    cuts = np.sort(longest[:SILENCES_KEPT])
    lows, highs = times[np.concatenate(([0], cuts + 1))], times[np.concatenate((cuts, [len(times) - 1]))]
    return Presence(list(zip(lows.tolist(), highs.tolist(), strict=True)), missed)


def _group(names: pa.Array, sizes: Vector) -> pa.Table:
    pa = vector.pa
    table = pa.table({"name": names, "size": pa.array(sizes), "records": pa.array(vector.np.ones(len(sizes), "i8"))})
    return _regroup(table)


def _regroup(table: pa.Table) -> pa.Table:
    grouped = table.group_by("name").aggregate([("size", "sum"), ("records", "sum")])
    return grouped.rename_columns({"size_sum": "size", "records_sum": "records"}).select(["name", "size", "records"])


def _weights(groups: list[pa.Table]) -> Weights:
    np, pa = vector.np, vector.pa
    table = _regroup(pa.concat_tables(groups))
    named = table.column("name").is_valid()
    absent, table = table.filter(pa.compute.invert(named)), table.filter(named)
    found = Weights(absent_records=_total(absent, "records"), absent_bytes=_total(absent, "size"))
    if not table.num_rows:
        return found
    found.records, found.size_bytes = _total(table, "records"), _total(table, "size")
    hashes = _Texts(table.column("name")).hashes()
    records, sizes = table.column("records").to_numpy(), table.column("size").to_numpy()
    # Among equals the hash decides, so that the same are kept whoever counts.
    by_records, by_bytes = np.lexsort((hashes, -records)), np.lexsort((hashes, -sizes))
    kept = np.union1d(by_records[:NAMES_KEPT], by_bytes[:NAMES_KEPT])
    left = np.ones(len(records), bool)
    left[kept] = False
    found.missed_records = int(records[left].max()) if left.any() else 0
    found.missed_bytes = int(sizes[left].max()) if left.any() else 0
    known = found.missed_records, found.missed_bytes
    for row in table.take(pa.array(kept)).to_pylist():
        found.names[_shorten(row["name"])] = Weight(row["records"], row["size"], *known)
    found.distinct = _sample(np.sort(hashes), DISTINCT_KEPT)
    return found


def _total(table: pa.Table, name: str) -> int:
    return sum(table.column(name).to_pylist()) if table.num_rows < 2 else int(table.column(name).to_numpy().sum())


def _shorten(name: bytes) -> bytes:
    """A long one is its beginning, and a hash of all of it."""
    if len(name) <= NAME_BYTES_MAX:
        return name
    return name[: NAME_BYTES_MAX - 19] + "…".encode() + blake2b(name, digest_size=8).hexdigest().encode()
