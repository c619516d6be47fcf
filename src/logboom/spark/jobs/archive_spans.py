"""Spans of seqnos, as the archive's plan needs them: what is sealed, archived, lost, or still missing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, pairwise
from typing import Final

import msgspec

from logboom.client.node_catalog import SEGMENTS_MAX
from logboom.client.values import PartitionInfo, SegmentInfo
from logboom.results.archive import ArchivedFile, ArchiveManifest, LostRecords
from logboom.results.archive_file import ArchivePiece
from logboom.spark.jobs.archive_task import ArchiveOrder

TASK_BYTES: Final = 64 * 1024 * 1024
"""Of segments that one task archives; it takes at least one."""
NAMED_MAX: Final = 20
"""Of what was lost, how many ranges a summary names."""


def clip(file: ArchivedFile, floor: int) -> ArchiveOrder:
    """What of it lies above the floor."""
    before = max(start for start, _ in file.terms if start <= floor)
    terms = tuple((max(start, floor), term) for start, term in file.terms if start >= before)
    return ArchiveOrder(ArchivePiece(file.partition, floor, file.seqno_until, file.append_time, terms), file.size, file)


def sealed(segments: Sequence[SegmentInfo], partition: PartitionInfo) -> list[SegmentInfo]:
    """Those with committed records that will never change. What is before the first is cut as if it were like these."""
    found = [segment for segment in segments if segment.sealed and segment.next_seqno <= partition.committed]
    found = [segment for segment in found if max(segment.first_seqno, partition.first) < segment.next_seqno]
    if not found or found[0].first_seqno <= partition.first or len(segments) < SEGMENTS_MAX:
        return found
    step = max(1, (found[-1].next_seqno - found[0].first_seqno) // len(found))
    size = sum(segment.size_bytes for segment in found) // len(found)
    edges = [*range(partition.first, found[0].first_seqno, step), found[0].first_seqno]
    unlisted = [
        msgspec.structs.replace(found[0], first_seqno=low, next_seqno=high, size_bytes=size)
        for low, high in pairwise(edges)
    ]
    return [*unlisted, *found]


def without(low: int, high: int, files: Sequence[ArchivedFile | LostRecords]) -> Iterator[tuple[int, int]]:
    """The parts of a span that none of these holds. They follow each other by seqno."""
    for file in islice(files, bisect_right(files, low, key=lambda each: each.seqno_until), None):
        if file.seqno_from >= high:
            break
        if low < file.seqno_from:
            yield low, file.seqno_from
        low = max(low, file.seqno_until)
    if low < high:
        yield low, high


def group_orders(orders: Sequence[ArchiveOrder]) -> Iterator[list[ArchiveOrder]]:
    """Small ones together."""
    task: list[ArchiveOrder] = []
    size = 0
    for order in orders:
        if task and size + order.size > TASK_BYTES:
            yield task
            task, size = [], 0
        task.append(order)
        size += order.size
    if task:
        yield task


def own_first(partition: PartitionInfo) -> int:
    """The first record that the log has in its own files."""
    return partition.first if partition.first_stored is None else partition.first_stored


def has_file(log: PartitionInfo, file: ArchivedFile) -> bool:
    """Whether all records of a file that still count are in the log itself too."""
    return max(file.seqno_from, log.floor) >= own_first(log)


def position_of(each: ArchivedFile | LostRecords) -> tuple[int, int]:
    return each.partition, each.seqno_from


def join_files(
    some: Iterable[ArchivedFile | LostRecords], others: Iterable[ArchivedFile | LostRecords]
) -> list[ArchivedFile | LostRecords]:
    return sorted([*some, *others], key=position_of)


def above(lost: Iterable[LostRecords], floors: Mapping[int, int]) -> Iterator[LostRecords]:
    """What of it is above the floor of its log."""
    for each in lost:
        low = max(each.seqno_from, floors[each.partition])
        if low < each.seqno_until:
            yield msgspec.structs.replace(each, seqno_from=low)


def sever(
    files: Iterable[ArchivedFile], lost: Iterable[LostRecords]
) -> tuple[list[ArchivedFile], list[ArchivedFile], list[LostRecords]]:
    """Of each partition the files before the last gap; and what follows it, files and what was lost between them."""
    cut_off: list[ArchivedFile] = []
    kept: list[ArchivedFile | LostRecords] = []
    for _, group in groupby(join_files(files, lost), lambda each: each.partition):
        whole: list[ArchivedFile | LostRecords] = []
        for each in group:
            if whole and whole[-1].seqno_until != each.seqno_from:
                cut_off += [before for before in whole if isinstance(before, ArchivedFile)]
                whole = []
            whole.append(each)
        kept += whole
    return (
        cut_off,
        [each for each in kept if isinstance(each, ArchivedFile)],
        [each for each in kept if isinstance(each, LostRecords)],
    )


def gaps_of(manifest: ArchiveManifest) -> Iterator[tuple[int, int]]:
    """Where records of a partition are missing that were dropped."""
    for before, after in pairwise(join_files([*manifest.cut_off, *manifest.files], manifest.lost)):
        if before.partition == after.partition and before.seqno_until < after.seqno_from:
            yield before.seqno_until, after.seqno_from


def name_lost(lost: Sequence[LostRecords]) -> str:
    """By partition and seqnos."""
    named = [f"{each.partition}/{each.seqno_from}-{each.seqno_until - 1}" for each in lost[:NAMED_MAX]]
    return ", ".join(named) + (f", and {len(lost) - NAMED_MAX:,} more" if len(lost) > NAMED_MAX else "")


def count_of(file: ArchivedFile | LostRecords) -> int:
    return file.seqno_until - file.seqno_from
