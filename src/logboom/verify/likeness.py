"""Are two replicas of a log equal, as far as both have it?

Digests of blocks tell where they cannot differ. Where two blocks have other digests, or do not reach equally far,
because one replica is ahead or has dropped what is old, their batches are read again and compared one by one.

Equal is what `rewrite.equal` calls so: another codec, another roll and another time of syncing make no difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from logboom.batch import vector
from logboom.batch.batch import Batch
from logboom.batch.header import KIND_DATA, PADDING_MASK, Header
from logboom.batch.rewrite import equal
from logboom.storage.scan import Window
from logboom.verify.examination import BLOCK_BATCHES
from logboom.verify.plan import Block, Examined, LogPlan, VerifyProblem, open_directory

if TYPE_CHECKING:
    import pyarrow as pa


class BatchSpan(msgspec.Struct, frozen=True):
    """Batches of one file."""

    path: str
    block: Block


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of two replicas that may differ; by index."""

    topic: str
    partition: int
    directory: str
    one: tuple[BatchSpan, ...]
    other_directory: str
    other: tuple[BatchSpan, ...]


def find_suspects(one: LogPlan, examined: list[Examined], other: LogPlan, others: list[Examined]) -> list[Suspect]:
    """Where these two may differ in what both have."""
    ours, theirs = _by_block(one, examined), _by_block(other, others)
    return [
        Suspect(
            topic=one.topic,
            partition=one.partition,
            directory=one.directory,
            one=tuple(ours[number]),
            other_directory=other.directory,
            other=tuple(theirs[number]),
        )
        for number in sorted(ours.keys() & theirs.keys())
        if _sum(ours[number]) != _sum(theirs[number])
    ]


def _by_block(log: LogPlan, examined: Iterable[Examined]) -> dict[int, list[BatchSpan]]:
    spans: dict[int, list[BatchSpan]] = defaultdict(list)
    for piece, found in zip(log.pieces, examined, strict=True):
        for block in found.blocks:
            spans[block.index // BLOCK_BATCHES].append(BatchSpan(piece.path, block))
    return spans


def _sum(spans: list[BatchSpan]) -> tuple[int, int, int, int]:
    """How far they reach, how many batches they have, and the digest of all."""
    blocks = [span.block for span in spans]
    count = sum(block.until - block.index for block in blocks)
    return blocks[0].index, blocks[-1].until, count, sum(block.digest for block in blocks) % 2**64


def compare(suspect: Suspect) -> VerifyProblem | None:
    """The first difference. Raises FileNotFoundError where a file has gone since, and BatchError where it changed."""
    ours, theirs = _read(suspect.directory, suspect.one), _read(suspect.other_directory, suspect.other)
    left, right = next(ours, None), next(theirs, None)
    while left is not None and right is not None:
        if left[2].header.index < right[2].header.index:
            left = next(ours, None)
        elif left[2].header.index > right[2].header.index:
            right = next(theirs, None)
        else:
            found = difference(left[2], right[2])
            if found is not None:
                seqno, what = found
                return VerifyProblem(
                    kind="replica",
                    directory=suspect.other_directory,
                    topic=suspect.topic,
                    partition=suspect.partition,
                    file=right[0],
                    position=right[1],
                    seqno=seqno,
                    index=right[2].header.index,
                    reason=f"{what} as in {left[0]} at byte {left[1]}",
                )
            left, right = next(ours, None), next(theirs, None)
    return None


def _read(directory: str, spans: Iterable[BatchSpan]) -> Iterator[tuple[str, int, Batch]]:
    disk = open_directory(directory)
    for span in spans:
        position, end = span.block.position, span.block.end
        window = Window(disk.open(span.path), end)
        while position < end:
            batch = window.batch(position)
            yield span.path, position, batch
            position += batch.header.size


def difference(one: Batch, other: Batch) -> tuple[int, str] | None:
    """The seqno where `other` is not equal to `one`, and in what; None where they are equal."""
    if equal(one, other):
        return None
    seqno = other.header.base_seqno
    for name, expected, found in zip(Header._fields, _comparable(one.header), _comparable(other.header), strict=True):
        if expected != found:
            return seqno, f"{name} is {found}, not {expected}"
    if one.header.kind == KIND_DATA:
        return first_difference(_table(one), _table(other)) or (seqno, "the same records are stored otherwise")
    return seqno, "the body is another"


def _table(batch: Batch) -> pa.Table:
    return vector.pa.Table.from_batches([batch.to_arrow()])


def _comparable(header: Header) -> Header:
    return header._replace(size=0, synced=0, codec=0, flags=header.flags & ~PADDING_MASK, batch_crc=0, header_crc=0)


def first_difference(one: pa.Table, other: pa.Table) -> tuple[int, str] | None:
    """The seqno of the first record of `one` that `other`, of as many records, has otherwise, and in what."""
    if one.equals(other):
        return None
    low, high = 0, one.num_rows  # those before `low` are equal, and one before `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        same = one.slice(low, middle - low).equals(other.slice(low, middle - low))
        low, high = (middle, high) if same else (low, middle)
    seqno: int = one.column("seqno")[low].as_py()
    for name in one.schema.names:
        expected, found = one.column(name)[low].as_py(), other.column(name)[low].as_py()
        if expected != found:
            return seqno, f"{name} is {_short(found)}, not {_short(expected)}"
    return seqno, "the record is another"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
