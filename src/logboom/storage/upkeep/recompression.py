"""A sealed segment written again with a stronger codec: a new generation, batch by batch.

Invariant: what is handed to the swap holds the same batches as the old file, with the same numbers, and was read back
from the disk to prove it. Batches are never merged; what would not shrink, and what holds no records, is copied.

Crash rule: nothing here touches the old file or a name that anybody reads. What a crash leaves is a `.tmp` that
opening removes, and perhaps an index of a generation that is not there, which goes with it. Every exception, also one
that `throttle` raises to cancel, removes both at once. Memory holds a few copies of one batch, and about a MiB.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from logboom.batch.batch import Batch
from logboom.batch.header import NO_TIMESTAMP
from logboom.batch.rewrite import equal, recompressed
from logboom.errors import BatchError, Damage, StorageError, UnsupportedBatch
from logboom.storage.files.disk import Disk, File, replace_file, write_all
from logboom.storage.index import EVERY_BYTES, BatchPlace, SparseIndex, Summary
from logboom.storage.labels import LabelMaker, Labels, label_columns
from logboom.storage.scan import Gap, Window, walk
from logboom.storage.segment import Segment
from logboom.storage.tail import LogTail, read_control

Throttle = Callable[[int], None]
"""Told how many bytes were just read; may wait, or raise to cancel."""

_CHUNK: Final = 1 << 20
_TELL_BYTES: Final = 1 << 16  # tiny batches take long: a throttle must get its turn before a whole chunk is done
_SAMPLES: Final = 16
_WALK_BYTES: Final = 4096


class Recompressed(NamedTuple):
    """What was written: how large the segment was and is, how many batches it holds, and what the swap needs."""

    bytes_before: int
    bytes_after: int
    batches: int
    summary: Summary
    index: SparseIndex  # type: ignore[assignment]
    labels: Labels


def worthwhile(segment: Segment, codec: int, level: int, min_gain: float) -> bool:
    """Whether a few batches from all over a sealed segment shrink enough. One that cannot be read is not worth it."""
    try:
        return _gains(*_sample(segment, codec, level), min_gain)
    except (BatchError, StorageError, OSError):
        return False


def recompress(
    disk: Disk,
    old: Segment,
    new: Segment,
    codec: int,
    level: int,
    min_gain: float,
    throttle: Throttle,
    index_bytes: int = EVERY_BYTES,
) -> Recompressed | None:
    """Write `new.temporary_path`, whole, synced and compared with the old file, and `new.index_path`.

    None, and no file, where the gain is too small, or where a batch is of a format this release must not rewrite.
    Raises Damage where the old segment is not sound, up to its end: a scrub tells how far that really reaches.
    Raises StorageError where what was written does not read back.
    """
    try:
        source = _open(disk, old)
        if disk.exists(new.temporary_path):
            disk.unlink(new.temporary_path)
        target = disk.create(new.temporary_path)
        done = _write(source, target, old, codec, level, throttle, index_bytes)
        if _gains(done.bytes_before, done.bytes_after, min_gain):
            target.sync()
            target.drop_cache()
            _compare(source, target, old, throttle)
            replace_file(disk, new.index_path, done.index.encode(done.summary, done.labels), durable=False)
            return done
    except UnsupportedBatch:
        pass
    except BaseException:
        _clear(disk, new)
        raise
    _clear(disk, new)
    return None


def _gains(bytes_before: int, bytes_after: int, min_gain: float) -> bool:
    return bytes_after < bytes_before and 1 - bytes_after / bytes_before >= min_gain


def _sample(segment: Segment, codec: int, level: int) -> tuple[int, int]:
    """Bytes before and after of the batches that lie at evenly spread places."""
    assert segment.after is not None
    file, index = segment.file(), segment.index
    end = BatchPlace(file.size(), *segment.after)
    before = after = reached = 0
    for number in range(_SAMPLES):
        wanted = end.position * number // _SAMPLES
        if wanted < reached:
            continue
        place = index.by_position(wanted) or segment.start
        for found in walk(Window(file, end.position, _WALK_BYTES), place, end):
            if isinstance(found, Gap):
                raise Damage(file.path, found.position, found.seqno_from, found.seqno_until, found.reason)
            position, header = found
            reached = position + header.size
            if reached > wanted:
                before += header.size
                after += recompressed(segment.batch(position, end), codec, level).header.size
                break
    return before, after


def _open(disk: Disk, segment: Segment) -> File:
    """A file of our own: this may run beside the segment's readers."""
    assert segment.after is not None
    try:
        return disk.open(segment.log_path)
    except FileNotFoundError as error:
        reason = f"it cannot be read: {error}"
        raise Damage(segment.log_path, 0, segment.first_seqno, segment.after[0], reason) from None


def _sound_batches(file: File, segment: Segment, throttle: Throttle) -> Iterator[Batch]:
    """Every batch of a file that must hold exactly what the segment does; Damage where it does not."""
    assert segment.after is not None
    tail = LogTail(segment.first_seqno, segment.first_index)
    size, position, untold = file.size(), 0, 0
    window = Window(file, size)
    while position < size:
        try:
            batch = window.batch(position)
            control = read_control(batch)
            reason = tail.expects(batch.header)
        except UnsupportedBatch:
            raise
        except BatchError as error:
            reason = str(error)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            reason = f"the device cannot read it: {error}"
        if reason is not None:
            raise Damage(file.path, position, tail.next_seqno, segment.after[0], reason)
        tail.follow(batch.header, control)
        position += batch.header.size
        untold += batch.header.size
        if untold >= _TELL_BYTES:
            throttle(untold)
            untold = 0
        yield batch
    if untold:
        throttle(untold)
    if (tail.next_seqno, tail.next_index) != segment.after:
        reason = f"it ends at batch {tail.next_index}, the next segment begins with {segment.after[1]}"
        raise Damage(file.path, size, tail.next_seqno, segment.after[0], reason)


def _write(
    source: File, target: File, old: Segment, codec: int, level: int, throttle: Throttle, index_bytes: int
) -> Recompressed:
    index, labels, pending = SparseIndex(index_bytes), LabelMaker(), bytearray()
    newest, last_crc = NO_TIMESTAMP, 0
    written = count = 0
    for batch in _sound_batches(source, old, throttle):
        result = recompressed(batch, codec, level)
        header = result.header
        position = written + len(pending)
        index.add(header.base_seqno, header.index, position, newest, columns=label_columns(header))
        labels.add(batch)
        newest, last_crc = max(newest, header.newest_timestamp(header.append_time)), header.header_crc
        count += 1
        pending += result.data
        if len(pending) >= _CHUNK:
            write_all(target, pending, written)
            written, pending = written + len(pending), bytearray()
    write_all(target, pending, written)
    written += len(pending)
    assert old.after is not None
    summary = Summary(written, *old.after, newest, last_crc)
    return Recompressed(source.size(), written, count, summary, index, labels.labels())


def _compare(source: File, target: File, old: Segment, throttle: Throttle) -> None:
    """Only what has come back from the disk equal to what was there may take its place."""
    try:
        both = zip(_sound_batches(source, old, throttle), _sound_batches(target, old, throttle), strict=True)
        for one, other in both:
            if not equal(one, other):
                raise StorageError(f"{target.path}: batch {one.header.index} reads back different from what it was")
    except Damage as damage:
        if damage.path != target.path:
            raise
        raise StorageError(f"what was written does not read back: {damage}") from None


def _clear(disk: Disk, new: Segment) -> None:
    """Best effort: what stays is removed when the log is opened."""
    for path in (new.temporary_path, new.index_path, f"{new.index_path}.tmp"):
        with suppress(OSError):
            if disk.exists(path):
                disk.unlink(path)
