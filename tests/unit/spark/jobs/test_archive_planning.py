"""What of a log is to be archived, where it has more segments than a node lists at once."""

from __future__ import annotations

from itertools import pairwise

import pytest

from logboom.broker.api import PartitionInfo, SegmentInfo
from logboom.client.node_catalog import SEGMENTS_MAX
from logboom.results.archive import ArchivedFile, ArchiveManifest, LostRecords
from logboom.results.archive_file import ArchivePiece
from logboom.spark.jobs import archive_spans
from logboom.spark.jobs.archive_task import ArchiveOrder

EACH = 10


def segment(number: int) -> SegmentInfo:
    first = number * EACH
    return SegmentInfo(first, first + EACH, number + 1, 0, 4096, True, None, None, None)


def stored(seqno_from: int, seqno_until: int) -> ArchivedFile:
    return ArchivedFile("path", 0, seqno_from, seqno_until, 1, 1, 0, 0, 0, ((seqno_from, 0),))


@pytest.mark.parametrize("archived", [0, 1, 20_000, 24_999])
def test_of_many_segments_each_record_is_planned_once_if_it_is_not_archived(archived: int) -> None:
    count = 25_000
    log = PartitionInfo(0, 0, count * EACH, count * EACH)
    listed = [segment(number) for number in range(count - SEGMENTS_MAX, count)]
    segments = archive_spans.sealed(listed, log)
    assert [(one.next_seqno, other.first_seqno) for one, other in pairwise(segments)] == [
        (one.next_seqno, one.next_seqno) for one in segments[:-1]
    ]
    files: list[ArchivedFile | LostRecords] = [
        stored(EACH * number, EACH * number + EACH) for number in range(archived)
    ]
    files.append(LostRecords(0, archived * EACH, archived * EACH + 3))
    spans = [
        span for one in segments for span in archive_spans.without(one.first_seqno, one.next_seqno, files)
    ]  # fmt: skip
    assert [seqno for low, high in spans for seqno in range(low, high)] == list(
        range(archived * EACH + 3, count * EACH)
    )


def test_many_small_segments_share_tasks() -> None:
    orders = [ArchiveOrder(ArchivePiece(0, number, number + 1, 0, ()), 4096) for number in range(40_000)]
    tasks = list(archive_spans.group_orders(orders))
    assert [order for task in tasks for order in task] == orders
    assert [len(task) for task in tasks] == [16_384, 16_384, 7232]


def test_what_was_lost_is_no_gap_and_what_was_dropped_is_one() -> None:
    files = [stored(0, 10), stored(15, 20), stored(30, 40)]
    cut_off, kept, lost = archive_spans.sever(files, [LostRecords(0, 10, 15), LostRecords(0, 40, 44)])
    assert (cut_off, kept, lost) == (files[:2], files[2:], [LostRecords(0, 40, 44)])
    manifest = ArchiveManifest(1, "events", "ab", tuple(kept), tuple(cut_off), tuple(lost))
    assert list(archive_spans.gaps_of(manifest)) == [(10, 15), (20, 30)]
    cut_off, kept, lost = archive_spans.sever(files[:2], [LostRecords(0, 10, 15)])
    assert (cut_off, kept, lost) == ([], files[:2], [LostRecords(0, 10, 15)])
