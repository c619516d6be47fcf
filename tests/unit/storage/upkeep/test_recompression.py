"""A recompressed segment holds what the old one held; and until it is swapped in, nothing of the log has changed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from logboom.batch import KIND_CONTROL, KIND_LOST, Batch, Producer, build
from logboom.batch import codec as codecs
from logboom.batch.header import Buffer
from logboom.batch.rewrite import equal
from logboom.errors import Damage, StorageError
from logboom.storage import Log, LogConfig, OpenFiles
from logboom.storage.files.disk import replace_file
from logboom.storage.index import BatchPlace, SparseIndex
from logboom.storage.scan import Window
from logboom.storage.segment import Segment
from logboom.storage.upkeep.recompression import Recompressed, recompress, worthwhile
from support.disks.simulated import Call, PowerLoss, SimulatedDisk, SimulatedFile
from support.mutants.batches import with_fields
from support.simulation.broken import (
    all_rows,
    checked,
    content,
    copy_of,
    overwrite,
    remove,
    repaired,
    resize,
    rows,
    sound_disk,
)
from support.simulation.model import make_batch, open_log

LARGE = LogConfig(segment_bytes=16 << 20, index_bytes=512)
CODECS = (codecs.LZ4, codecs.ZSTD)
MAY_CHANGE = {"size", "codec", "flags", "batch_crc", "header_crc"}


class Cancelled(Exception):
    pass


def free(size: int) -> None:
    pass


def unpressable(number: int, size: int = 300) -> Batch:
    return build([Random(number).randbytes(size)], timestamps=[number])


def written(make: Callable[[int], Batch], batches: int) -> tuple[SimulatedDisk, Log]:
    """A log whose first segment holds these batches with a trim in the middle, and whose second holds one more."""
    disk = SimulatedDisk()
    log = open_log(disk, LARGE)
    for number in range(batches):
        log.append_one(make(number), 1_000 + number, 1 + number // 10)
        log.commit(log.sync())
        if number == batches // 2:
            log.trim(1, 1_000 + number)
    log.roll()
    log.append_one(make_batch(batches, 1, None), 5_000)
    log.commit(log.sync())
    return copy_of(disk), log


def pressable(number: int) -> Batch:
    """Of every codec, with and without timestamps (which go back and forth) and producers, tiny ones among them."""
    if number % 7 == 3:
        return build([b"x"])
    producer = Producer(1 + number) if number % 3 else Producer()
    times = None if number % 5 == 0 else [10_000 + (number * 37) % 50] * 30
    values = [b"%d/%d and then some more of it" % (number, offset) for offset in range(30)]
    return build(values, timestamps=times, codec=("none", "lz4", "zstd")[number % 3], producer=producer)


def swap_for(disk: SimulatedDisk, number: int = 0, before: SimulatedDisk | None = None) -> tuple[Segment, Segment]:
    """A sealed segment, as it was on the disk `before`, and its next generation; nothing on the disk is changed."""
    old = open_log(copy_of(before or disk), LARGE).segments[number]
    files = OpenFiles(disk, 4, 0)
    pair = []
    for generation in (old.generation, old.generation + 1):
        segment = Segment(files, old.directory, old.first_seqno, old.first_index, generation)
        segment.after = old.after
        pair.append(segment)
    return pair[0], pair[1]


def run(
    disk: SimulatedDisk,
    pair: tuple[Segment, Segment],
    codec: int = codecs.ZSTD,
    min_gain: float = 0.1,
    throttle: Callable[[int], None] = free,
) -> Recompressed | None:
    return recompress(disk, *pair, codec, 3, min_gain, throttle, 512)


def swap_in(disk: SimulatedDisk, old: Segment, new: Segment) -> None:
    disk.rename(new.temporary_path, new.log_path)
    disk.unlink(old.log_path)
    disk.unlink(old.index_path)


def batches_in(disk: SimulatedDisk, path: str) -> list[Batch]:
    file = disk.open(path)
    window, position, found = Window(file, file.size()), 0, []
    while position < file.size():
        found.append(window.batch(position))
        position += found[-1].header.size
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_the_new_file_is_smaller_and_holds_the_same_batches(codec: int) -> None:
    disk, _ = written(pressable, 40)
    old, new = swap_for(disk)
    done = run(disk, (old, new), codec)
    assert done is not None
    before, after = batches_in(disk, old.log_path), batches_in(disk, new.temporary_path)
    assert (done.bytes_before, done.bytes_after) == tuple(sum(b.header.size for b in side) for side in (before, after))
    assert done.bytes_after < 0.9 * done.bytes_before
    assert done.batches == len(before) == len(after) == 41
    for one, other in zip(before, after, strict=True):
        assert equal(one, other)
        fields, others = one.header._asdict(), other.header._asdict()
        assert {name for name in fields if fields[name] != others[name]} <= MAY_CHANGE
    assert {batch.header.codec for batch in after} >= {codec, codecs.NONE}


def test_the_index_and_the_summary_are_those_of_the_new_file() -> None:
    disk, _ = written(pressable, 40)
    old, new = swap_for(disk)
    done = run(disk, (old, new))
    assert done is not None
    decoded = SparseIndex.decode(content(disk)[new.index_path])
    assert decoded is not None
    assert decoded[1] == done.summary
    assert decoded[0].encode(done.summary) == done.index.encode(done.summary) == content(disk)[new.index_path]
    assert len(done.index) > 3
    last = batches_in(disk, new.temporary_path)[-1].header
    assert done.summary[1:] == (*(old.after or ()), old.max_timestamp, last.header_crc)
    assert done.summary.size == len(content(disk)[new.temporary_path])


def test_every_seqno_index_and_time_is_found_in_the_new_file_as_in_the_old() -> None:
    disk, _ = written(pressable, 40)
    old, new = swap_for(disk)
    before = copy_of(disk)
    assert run(disk, (old, new)) is not None
    swap_in(disk, old, new)
    assert old.after is not None
    ends = [BatchPlace(len(content(d)[s.log_path]), *old.after) for d, s in ((before, old), (disk, new))]
    old, _ = swap_for(before)
    for seqno in range(old.first_seqno, ends[0].seqno):
        one, other = old.find_seqno(seqno, ends[0]), new.find_seqno(seqno, ends[1])
        assert one is not None
        assert other is not None
        assert one[1].index == other[1].index
    for index in range(old.first_index, ends[0].index):
        assert [
            found and found[1].index for found in (old.find_index(index, ends[0]), new.find_index(index, ends[1]))
        ] == [index] * 2
    for moment in range(9_990, 10_060):
        one, other = old.find_time(moment, 0, ends[0]), new.find_time(moment, 0, ends[1])
        assert (one and one[1].index) == (other and other[1].index)
    assert new.max_timestamp == old.max_timestamp


def test_a_log_with_the_new_file_swapped_in_reads_the_same() -> None:
    disk, _ = written(pressable, 40)
    expected = all_rows(disk)
    log = open_log(disk, LARGE)
    log.commit(log.last_index)
    old, new = pending = log.begin_swap(log.cold_segments()[0])
    done = run(disk, (old, new))
    assert done is not None
    assert log.end_swap(pending, done.summary, done.index)
    assert rows(log) == all_rows(disk) == expected
    assert not disk.exists(old.log_path)
    assert log.segments[0].size == done.bytes_after
    assert checked(disk).findings == []
    assert run(disk, swap_for(disk), min_gain=0) is None


def test_control_and_lost_batches_are_copied_as_they_are() -> None:
    disk = sound_disk(floor=3)
    old = open_log(copy_of(disk)).segments[1]
    overwrite(disk, old.log_path, 120, b"damage")
    repaired(disk)
    old, new = swap_for(disk, 1)
    assert run(disk, (old, new), min_gain=0) is not None
    plain = {
        batch.header.index: batch.data for batch in batches_in(disk, old.log_path) if batch.header.kind == KIND_LOST
    }
    assert plain
    for batch in batches_in(disk, new.temporary_path):
        assert batch.header.index not in plain or batch.data == plain[batch.header.index]
    controls, _ = written(pressable, 4)
    pair = swap_for(controls)
    assert run(controls, pair) is not None
    assert [b.header.kind for b in batches_in(controls, pair[1].temporary_path)].count(KIND_CONTROL) == 1


@pytest.mark.parametrize(("make", "min_gain"), [(unpressable, 0.0), (unpressable, 0.1), (pressable, 0.99)])
def test_a_gain_that_is_too_small_leaves_no_file_behind(make: Callable[[int], Batch], min_gain: float) -> None:
    disk, _ = written(make, 20)
    before = content(disk)
    assert run(disk, swap_for(disk), min_gain=min_gain) is None
    assert content(disk) == before


@pytest.mark.parametrize("codec", CODECS)
def test_a_sample_tells_whether_it_is_worthwhile(codec: int) -> None:
    disk, _ = written(pressable, 40)
    old, new = swap_for(disk)
    assert worthwhile(old, codec, 3, 0.1)
    assert not worthwhile(old, codec, 3, 0.95)
    assert run(disk, (old, new), codec) is not None
    swap_in(disk, old, new)
    assert not worthwhile(new, codec, 3, 0.1)
    assert not worthwhile(swap_for(written(unpressable, 40)[0])[0], codec, 3, 0.0)


def test_a_sample_reads_little_of_a_large_segment() -> None:
    disk, _ = written(lambda number: make_batch(number, 100, number, size=200), 300)
    old, _ = swap_for(disk)
    reads: list[str] = []
    disk.fault = lambda call: reads.append(call.path) if call.name == "read" else None
    assert worthwhile(old, codecs.ZSTD, 3, 0.5)
    assert reads.count(old.log_path) < 100


@pytest.mark.parametrize("position", [0, 100, 4_000])
def test_a_damaged_segment_is_not_worthwhile_and_is_never_rewritten(position: int) -> None:
    disk, _ = written(lambda number: make_batch(number, 100, number), 6)
    old, new = swap_for(disk)
    overwrite(disk, old.log_path, position, b"damage")
    before = content(disk)
    assert not worthwhile(old, codecs.ZSTD, 3, 0.1)
    with pytest.raises(Damage) as caught:
        run(disk, (old, new))
    assert caught.value.path == old.log_path
    assert caught.value.position <= position
    assert caught.value.seqno_from <= (0 if position < 1_000 else 200)
    assert content(disk) == before


def test_every_byte_of_the_old_segment_is_verified() -> None:
    sound, _ = written(lambda number: make_batch(number, 2, number, size=200), 3)
    old, new = swap_for(sound)
    for position in range(len(content(sound)[old.log_path])):
        disk = copy_of(sound)
        inode = disk.names[old.log_path]
        inode.cached[position] ^= 4
        inode.durable[position] ^= 4
        with pytest.raises(Damage):
            run(disk, (old, new), min_gain=0)
        assert content(disk).keys() == content(sound).keys()


@pytest.mark.parametrize("change", ["shorter", "longer", "missing"])
def test_a_segment_that_ends_too_early_too_late_or_is_missing_is_damage(change: str) -> None:
    disk, _ = written(pressable, 10)
    sound = copy_of(disk)
    old, new = swap_for(disk, before=sound)
    last, size = batches_in(sound, old.log_path)[-1], len(content(sound)[old.log_path])
    if change == "shorter":
        resize(disk, old.log_path, size - last.header.size)
    elif change == "longer":
        overwrite(disk, old.log_path, size, bytes(last.data))
    else:
        remove(disk, old.log_path)
        assert not worthwhile(old, codecs.ZSTD, 3, 0.1)
    names = content(disk).keys()
    with pytest.raises(Damage):
        run(disk, (old, new))
    assert content(disk).keys() == names


def test_a_batch_of_a_newer_release_is_never_rewritten() -> None:
    disk, _ = written(pressable, 10)
    old, new = swap_for(disk)
    first = batches_in(disk, old.log_path)[0]
    overwrite(disk, old.log_path, 0, with_fields(first.data, version=2))
    before = content(disk)
    assert run(disk, (old, new)) is None
    assert content(disk) == before


def test_what_the_device_cannot_read_is_damage() -> None:
    disk, _ = written(pressable, 10)
    old, new = swap_for(disk)
    names = content(disk).keys()

    def fail(call: Call) -> None:
        if call.name == "read" and call.path == old.log_path:
            raise OSError(errno.EIO, "Input/output error")

    disk.fault = fail
    assert not worthwhile(old, codecs.ZSTD, 3, 0.1)
    with pytest.raises(Damage, match="device"):
        run(disk, (old, new))
    disk.fault = None
    assert content(disk).keys() == names


@pytest.mark.parametrize("calls_before", range(4))
def test_a_throttle_that_raises_cancels_and_leaves_nothing(calls_before: int) -> None:
    disk, _ = written(lambda number: make_batch(number, 1_000, number, size=500), 4)
    before = content(disk)
    left = calls_before

    def throttle(size: int) -> None:
        nonlocal left
        if not left:
            raise Cancelled
        left -= 1

    with pytest.raises(Cancelled):
        run(disk, swap_for(disk), throttle=throttle)
    assert content(disk) == before


def test_a_large_segment_is_read_and_written_in_pieces_and_every_byte_read_is_told() -> None:
    disk, _ = written(lambda number: make_batch(number, 1_000, number, size=300), 16)
    old, new = swap_for(disk)
    told: list[int] = []
    writes: list[int] = []
    disk.fault = lambda call: writes.append(call.size) if call.name == "write" else None
    done = run(disk, (old, new), throttle=told.append)
    assert done is not None
    assert sum(told) == 2 * done.bytes_before + done.bytes_after
    assert max(told) < 2**19
    mixed, _ = written(lambda number: unpressable(number, 300_000) if number % 2 else pressable(number), 24)
    mixed.fault = lambda call: writes.append(call.size) if call.name == "write" else None
    assert run(mixed, swap_for(mixed), min_gain=0) is not None
    assert sum(size > 2**19 for size in writes) >= 3
    assert max(writes) < 1.5 * 2**20


def test_a_stale_temporary_file_is_replaced() -> None:
    disk, _ = written(pressable, 10)
    old, new = swap_for(disk)
    replace_file(disk, new.temporary_path, b"stale" * 100_000)
    replace_file(disk, new.index_path, b"stale")
    done = run(disk, (old, new))
    assert done is not None
    assert len(content(disk)[new.temporary_path]) == done.bytes_after
    assert SparseIndex.decode(content(disk)[new.index_path]) is not None


@pytest.mark.parametrize("how", ["flipped", "another batch", "shorter"])
def test_a_file_that_does_not_read_back_is_not_handed_out(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache shows what was written, the disk holds something else."""
    disk, _ = written(pressable, 10)
    old, new = swap_for(disk)
    before = content(disk)
    sync = SimulatedFile.sync

    def lie(file: SimulatedFile) -> None:
        sync(file)
        durable = file.inode.durable
        if how == "flipped":
            durable[500] ^= 1
        elif how == "shorter":
            del durable[-last_size:]
        else:
            first = Batch.parse(bytes(durable))
            durable[: first.header.size] = with_fields(first.data, producer_id=99)

    last_size = batches_in(disk, old.log_path)[-1].header.size
    monkeypatch.setattr(SimulatedFile, "sync", lie)
    with pytest.raises(StorageError, match=r"reads? back") as caught:
        run(disk, (old, new))
    assert not isinstance(caught.value, Damage)
    assert content(disk) == before


@pytest.mark.parametrize("fields", [{"term": 0}, {"append_time": 5}, {"base_seqno": 1}, {"index": 9}])
def test_sound_batches_whose_numbers_do_not_follow_are_damage(fields: dict[str, int]) -> None:
    disk, _ = written(pressable, 10)
    old, new = swap_for(disk)
    first, second, *_ = batches_in(disk, old.log_path)
    overwrite(disk, old.log_path, first.header.size, with_fields(second.data, **fields))
    with pytest.raises(Damage) as caught:
        run(disk, (old, new))
    assert caught.value.position == first.header.size


def test_no_batch_is_sampled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _ = written(lambda number: make_batch(number, 1_000, number), 3)
    deflate, sizes = codecs.deflate, []

    def count_deflate(body: memoryview, codec: int, level: int | None = None) -> Buffer:
        sizes.append(len(body))
        return deflate(body, codec, level)

    monkeypatch.setattr(codecs, "deflate", count_deflate)
    assert worthwhile(swap_for(disk)[0], codecs.ZSTD, 3, 0.1)
    assert len(sizes) == 3


@pytest.mark.parametrize("name", ["create", "write", "sync", "rename"])
def test_an_error_of_the_disk_leaves_no_file_behind(name: str) -> None:
    disk, _ = written(pressable, 10)
    pair, before = swap_for(disk), content(disk)

    def fail(call: Call) -> None:
        if call.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.fault = fail
    with pytest.raises(OSError, match="No space"):
        run(disk, pair)
    disk.fault = None
    assert content(disk) == before


def test_after_a_power_loss_at_any_call_the_log_reads_the_old_segment() -> None:
    for number in count(1):
        disk, _ = written(pressable, 6)
        old, new = swap_for(disk)
        expected, names, old_bytes = all_rows(disk), set(content(disk)), content(disk)[old.log_path]
        replace_file(disk, new.temporary_path, b"stale")
        whole = lose_power_at(disk, number, (old, new))
        for survivor in [*disk.power_losses(), *(disk.power_loss(Random(seed)) for seed in range(20)), disk]:
            assert rows(open_log(survivor, LARGE)) == expected
            assert set(content(survivor)) == names
            assert content(survivor)[old.log_path] == old_bytes
        if whole:
            assert number > 7
            return


def lose_power_at(disk: SimulatedDisk, number: int, pair: tuple[Segment, Segment]) -> bool:
    """Whether the run was over before that call."""

    def lose_power(call: Call) -> None:
        if call.number >= number:
            raise PowerLoss(call.size // 2)

    disk.calls, disk.fault = 0, lose_power
    try:
        return run(disk, pair) is not None
    except PowerLoss:
        return False
    finally:
        disk.kill()
