"""Which batches of a log a dump takes, and each one's proof on the way.

Whole batches: the one that holds `seqno_from` is the first, the one that holds the record before `seqno_until` the
last. What the first one holds below `seqno_from` is hidden by the floor. A snapshot between segment borders is made as
every tail is: by following batches from the snapshot before.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from logboom.batch.batch import Batch
from logboom.batch.header import BATCH_SIZE_MAX, Header
from logboom.batch.validation import check_crc, check_header
from logboom.errors import BatchError, Damage, IndexOutOfRange, SeqnoOutOfRange
from logboom.storage.config import LogConfig
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import LogBegin, Request
from logboom.storage.readable_log import ReadableLog
from logboom.storage.run import Run
from logboom.storage.tail import LogTail, Snapshot, read_control

RUN_BYTES: Final = 1024 * 1024
_PRODUCERS_MAX: Final = LogConfig().producers_max


def span_of(origin: DumpOrigin, log: ReadableLog, partition: int, request: Request) -> LogBegin:
    """What to dump of a log, fixed now. Raises Damage where a part of it is known to be missing."""
    missing, damaged = origin.damage(log)
    seqno_from, seqno_until = request.seqno_from, request.seqno_until
    if missing is not None and (seqno_from is None or seqno_from < (missing.seqno_until or 0)):
        raise missing
    if damaged is not None and (seqno_until is None or seqno_until > damaged.seqno_from):
        raise damaged
    first = log.first if seqno_from is None else seqno_from
    until = log.committed if seqno_until is None else seqno_until
    if not log.first <= first <= until <= log.committed:
        outside = first if not log.first <= first <= log.committed else until
        raise SeqnoOutOfRange(outside, log.first, log.committed)
    start = log.segments[0].first_seqno, log.first_index
    end = log.committed, log.committed_index + 1
    if seqno_from is not None:
        start = _start_of(log, first)
    if seqno_until is not None:
        end = _end_of(log, until) if until > first else start
    # Beside a writer a floor at the very end of the log may not be seen; that it counts is.
    hides = seqno_from is not None or (origin.live and first > start[0])
    first = min(first, end[0])
    return LogBegin(partition, *start, *end, first, first if hides else 0, _size_of(log, end[1] - start[1]))


def _size_of(log: ReadableLog, batches: int) -> int:
    """About how many bytes so many of a log's batches have."""
    try:
        return log.size_bytes * batches // max(1, log.committed_index + 1 - log.first_index)
    except FileNotFoundError:  # dropped or swapped just now
        return 0


def _start_of(log: ReadableLog, seqno: int) -> tuple[int, int]:
    """The first batch of a range that begins with this record; batches without records belong to what follows them."""
    base, index = log.committed, log.committed_index + 1
    if seqno != log.committed:
        run = log.read(seqno, 1)
        assert run is not None
        base, index = run.base_seqno, run.first_index
    while base == seqno and index > log.first_index:
        try:
            before = log.read_index(index - 1, 1)
        except Damage:
            break
        if before is None or before.base_seqno != before.next_seqno:
            break
        index -= 1
    return base, index


def _end_of(log: ReadableLog, seqno: int) -> tuple[int, int]:
    run = log.read(seqno - 1, 1)
    assert run is not None
    return run.next_seqno, run.next_index


def segment_at(log: ReadableLog, index: int) -> int:
    """The number of the segment that holds this batch, or will."""
    if not log.first_index <= index <= log.last_index + 1:
        raise IndexOutOfRange(index, log.first_index, log.last_index + 1)
    return bisect_right(log.segments, index, key=lambda segment: segment.first_index) - 1


def run_at(log: ReadableLog, index: int) -> Run:
    run = log.read_index(index, RUN_BYTES)
    if run is None:
        raise IndexOutOfRange(index, log.first_index, log.last_index)
    return run


def check_batch(run: Run, data: memoryview, offset: int, tail: LogTail) -> Header:
    """The batch at this offset of a run: header, checksum, and place. Its structure was checked when it came."""
    until = None
    try:
        batch = Batch.parse(data[offset:])
        header = batch.header
        reason = tail.expects(header)
        if reason is None:
            until = header.next_seqno
            check_header(header, BATCH_SIZE_MAX)
            check_crc(header, batch.data)
    except BatchError as error:
        reason = str(error)
    if reason is not None:
        raise Damage(run.file.path, run.position + offset, tail.next_seqno, until, reason)
    return header


def follow_to(log: ReadableLog, snapshot: Snapshot, index: int) -> Snapshot:
    """The snapshot that a segment beginning with this batch would have."""
    tail = LogTail.at(snapshot, _PRODUCERS_MAX)
    while tail.next_index < index:
        for batch in run_at(log, tail.next_index).batches():
            if tail.next_index == index:
                break
            tail.follow(batch.header, read_control(batch))
    return tail.snapshot(snapshot.generation)
