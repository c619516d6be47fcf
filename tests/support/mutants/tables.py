"""Stretches of batches with something wrong in them, and a judge of what `to_table` makes of them.

Every stretch follows from (seed, number) alone: sound batches, and among them a mutant that has the right numbers and
mostly the right checksums. `python -m support.mutants.tables SEED COUNT` runs a range in this process.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple
from unittest.mock import patch

import pyarrow as pa

from logboom.batch import HEADER_SIZE, KIND_DATA, KIND_LOST, Batch, build, facts, schema, stamp, to_table
from logboom.batch.tables import FEW, LOST, BatchFailure, TableStretch
from logboom.errors import BatchError
from support.mutants.batches import mutant, seal, sources
from support.mutants.driver import drive, judging


class Numbers(NamedTuple):
    """Where a stretch stands in its log."""

    base_seqno: int
    first_index: int


START: Final = Numbers(1000, 7)


def chain(batches: Iterable[bytes | memoryview], numbers: Numbers = START, term: int = 3) -> bytes:
    """Stored batches one after another, numbered as a log numbers them."""
    (seqno, index), parts = numbers, []
    for data in batches:
        parts.append(stamp(data[:HEADER_SIZE], seqno, index, 1_700_000_000_000_000 + index, term, 1))
        parts.append(bytes(data[HEADER_SIZE:]))
        seqno, index = seqno + Batch.parse(data).header.record_count, index + 1
    return b"".join(parts)


def read_slowly(data: memoryview, numbers: Numbers, columns: Sequence[str] | None = None) -> TableStretch:
    """What `to_table` promises, batch by batch."""
    (seqno, index), offset, term = numbers, 0, 0
    names = schema().names if columns is None else list(columns)
    tables: list[pa.RecordBatch] = []
    failure = None
    while offset < len(data) and failure is None:
        until = None
        try:
            batch = Batch.parse(data[offset:])
            header = batch.header
            if (header.base_seqno, header.index) != (seqno, index):
                raise BatchError(f"batch {header.index} stands where {index} must be")
            until = header.next_seqno
            batch.verify()
            if header.kind == KIND_LOST and header.record_count:
                raise BatchError(LOST)
        except BatchError as error:
            failure = BatchFailure(offset, seqno, until, str(error))
            continue
        if header.kind == KIND_DATA:
            tables.append(batch.to_arrow(names))
        offset, seqno, index, term = offset + header.size, header.next_seqno, index + 1, header.term
    table = pa.Table.from_batches(tables, schema(tuple(names)))
    return TableStretch(table, seqno, index, term, offset, failure)


def judge(data: bytes, numbers: Numbers = START, columns: Sequence[str] | None = None) -> str:
    """ "sound", or why reading stopped. Anything but what the slow way gives is a bug and raises."""
    slow = read_slowly(memoryview(data), numbers, columns)
    for few, large in ((0, facts.LARGE_RECORDS), (0, 0), (FEW, 0)):
        with patch.object(facts, "LARGE_RECORDS", large):
            ours = to_table(memoryview(data), *numbers, columns, few)
        assert ours[1:] == slow[1:], f"{ours[1:]}, but slowly {slow[1:]}"
        ours.table.validate(full=True)
        assert ours.table.schema == slow.table.schema
        assert ours.table.equals(slow.table)
    return "sound" if ours.failure is None else ours.failure.reason


def stretch(seed: int, number: int) -> bytes:
    """The stretch of this number in the sequence of this seed."""
    random = Random(seed << 40 | number)
    before = [random.choice(_sound()) for _ in range(random.randrange(3))]
    after = [random.choice(_sound()) for _ in range(random.randrange(3))]
    wrong = mutant(seed, number) if random.random() < 0.5 else _break_plain(random)
    seqno = START.base_seqno + sum(Batch.parse(data).header.record_count for data in before)
    place = Numbers(seqno, START.first_index + len(before))
    if len(wrong) >= HEADER_SIZE and random.random() < 0.9:
        stamped = stamp(wrong[:HEADER_SIZE], *place, 1_700_000_000_000_000, 3, 1) + wrong[HEADER_SIZE:]
        wrong = stamped if random.random() < 0.1 else seal(stamped)
        place = Numbers(seqno + int.from_bytes(wrong[44:48], "little"), place.first_index + 1)
    return chain(before) + wrong + chain(after, place)


def _sound() -> tuple[bytes, ...]:
    return tuple(source for source in sources() if Batch.parse(source).header.kind != KIND_LOST) + _plain()


def _plain() -> tuple[bytes, ...]:
    values = [b"v" * (n % 13) for n in range(70)]
    keys = [b"k%d" % n for n in range(70)]
    moments = list(range(100, 170))
    batches = (
        build(values),
        build(values[:64], keys=keys[:64]),
        build(values[:63], keys=keys[:63], timestamps=moments[:63]),
        build([*values, None], keys=[None, *keys], timestamps=[5, *moments]),
        build([None] * 3, keys=keys[:3], timestamps=7),
        build([None] * 4, timestamps=moments[:4]),
        build(values[:1], keys=keys[:1]),
    )
    return tuple(bytes(batch.data) for batch in batches)


def _break_plain(random: Random) -> bytes:
    """A plain batch with one to three bits of the body or of a header field flipped, the checksums mended."""
    data = bytearray(random.choice(_plain()))
    for _ in range(random.choice((1, 1, 2, 3))):
        # Offsets, bitmaps and padding lie in the first part of these bodies, mostly.
        place = random.choice((random.randrange(44, 72), random.randrange(HEADER_SIZE, len(data))))
        data[place] ^= 1 << random.randrange(8)
    return seal(data)


def run(seed: int, count: int, start: int = 0) -> Counter[str]:
    """Judge a range of stretches. A failure names the stretch."""
    verdicts: Counter[str] = Counter()
    for number in range(start, start + count):
        with judging(seed, number, what="stretch"):
            verdicts["sound" if judge(stretch(seed, number)) == "sound" else "refused"] += 1
    return verdicts


def main(arguments: Sequence[str]) -> None:
    drive(run, *map(int, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
