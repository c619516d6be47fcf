from __future__ import annotations

import errno
import io
import random
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from logboom.batch import Producer, build
from logboom.batch.codec import ZSTD
from logboom.batch.header import Buffer
from logboom.errors import (
    Damage,
    DirectoryUnusable,
    DumpCorrupt,
    DumpIncomplete,
    DumpMismatch,
    DumpOvertaken,
    DumpUnsupported,
    InvalidTopicName,
    LogboomError,
    LowSpace,
    SeqnoOutOfRange,
    TopicNotFound,
)
from logboom.storage import Appended, DataDirectory, Log
from logboom.storage.data.topic import Settings, Topic
from logboom.storage.files.disk import replace_file
from logboom.storage.health.check import check
from logboom.storage.health.repair import plan_repair
from logboom.storage.moving.dump import dump, plan_dump
from logboom.storage.moving.load import load
from logboom.storage.moving.origin import DumpOrigin
from logboom.storage.moving.outline import Request
from logboom.storage.moving.reappend import AppendLoader
from logboom.storage.moving.stream import HEADER_SIZE, PREAMBLE, DumpFrameReader
from logboom.storage.producers import ProducerBatch, ProducerStream
from logboom.storage.tail import Snapshot
from logboom.storage.upkeep.recompression import recompress
from support.disks.simulated import SimulatedDisk
from support.effort import strides
from support.simulation.dumps import (
    NOW,
    PLAIN,
    assert_same,
    assert_same_batches,
    commit,
    dump_of,
    dumped,
    fill,
    gone_on_with,
    load_equal,
    open_data,
    read_all,
)
from support.simulation.model import make_batch


@pytest.fixture
def data() -> DataDirectory:
    data = open_data(SimulatedDisk())
    fill(data)
    return data


@pytest.fixture
def other() -> DataDirectory:
    return open_data(SimulatedDisk())


def one_log(batches: int = 10, roll_every: int = 4, count: int = 2) -> tuple[DataDirectory, Log]:
    data = open_data(SimulatedDisk())
    data.create_topic("t")
    (log,) = data.open_topic("t")
    add(log, 0, batches, roll_every, count)
    return data, log


def add(log: Log, start: int, stop: int, roll_every: int = 4, count: int = 2) -> None:
    for number in range(start, stop):
        if number % roll_every == roll_every - 1:
            log.roll()
        log.append_one(make_batch(number, count, NOW + number, Producer(5, 0, number * count)), NOW + number)
    commit(log)


def values(log: Log) -> list[tuple[int, bytes | None]]:
    return [
        (record.seqno, record.value)
        for batch in log.batches()
        for record in batch.records()
        if record.seqno is not None and record.seqno >= log.first
    ]


def append(data: DataDirectory, content: bytes, name: str | None = None, now: int = NOW) -> list[tuple[int, int, int]]:
    loaded = load(io.BytesIO(content), AppendLoader(data, now, name))
    return [(topic.batches, topic.present, topic.skipped_lost) for topic in loaded.topics]


@pytest.mark.parametrize("compress", ["none", "lz4", "zstd"])
def test_a_loaded_directory_is_equal_to_the_one_that_was_dumped(
    data: DataDirectory, other: DataDirectory, compress: str
) -> None:
    content, done = dump_of(DumpOrigin.of(data), Request(compress=compress))
    assert done.written_bytes == len(content)
    loaded = load_equal(other, content)
    assert loaded.complete
    assert all(topic.complete for topic in loaded.topics)
    assert (done.batches, done.records, done.lost, done.logs) == (15, 59, 2, 4)
    assert_same(data, other)


def test_a_loaded_directory_is_sound_and_opens_again(data: DataDirectory) -> None:
    disk = SimulatedDisk()
    with open_data(disk) as other:
        load_equal(other, dumped(data))
    report = check(disk, "/data", is_directory=disk.is_directory)
    assert [finding for finding in report.findings if finding.severity != "info"] == []
    with open_data(disk) as other:
        assert other.was_clean
        assert_same(data, other)


def test_producers_are_still_recognised_after_a_load(data: DataDirectory, other: DataDirectory) -> None:
    load_equal(other, dumped(data))
    log = other.open_topic("many")[0]
    (answer,) = log.append([make_batch(6, 2, NOW, Producer(7, 1, 12))], NOW)
    assert isinstance(answer, Appended)
    assert answer.repeat
    (answer,) = log.append([make_batch(7, 2, NOW, Producer(7, 1, 14))], NOW + 100)
    assert isinstance(answer, Appended)
    assert not answer.repeat


def test_a_dump_of_a_loaded_dump_holds_the_same(data: DataDirectory, other: DataDirectory) -> None:
    load_equal(other, dumped(data))
    third = open_data(SimulatedDisk())
    load_equal(third, dumped(other))
    assert_same(data, third)


def test_who_made_a_topic_stays_where_his_quota_is(data: DataDirectory, other: DataDirectory) -> None:
    made = msgspec.structs.replace(Topic.make("hers"), maker="alice")
    data.adopt_topic(made)
    content, _ = dump_of(DumpOrigin.of(data), Request(("hers",), compress="none"))
    assert b"alice" not in content
    load_equal(other, content)
    assert other.topic("hers") == msgspec.structs.replace(made, maker=msgspec.UNSET)
    assert data.configure_topic("hers", Settings()).maker == "alice"


def test_a_second_load_of_the_same_dump_changes_nothing(data: DataDirectory) -> None:
    content = dumped(data)
    disk = SimulatedDisk()
    with open_data(disk) as other:
        load_equal(other, content)
    before = {path: bytes(inode.cached) for path, inode in disk.names.items() if path.endswith((".log", ".snap"))}
    with open_data(disk) as other:
        loaded = load_equal(other, content)
        assert sum(topic.batches for topic in loaded.topics) == 0
        assert sum(topic.present for topic in loaded.topics) == 15
        assert_same(data, other)
    assert before == {path: bytes(disk.names[path].cached) for path in before}


def test_only_the_topics_asked_for_are_dumped_and_loaded(data: DataDirectory, other: DataDirectory) -> None:
    loaded = load_equal(other, dumped(data, Request(("late", "many"), compress="none")), names={"late"})
    assert [topic.name for topic in other.topics()] == ["late"]
    assert [topic.name for topic in loaded.topics] == ["late"]
    with pytest.raises(TopicNotFound):
        dumped(data, Request(("nothing",)))
    with pytest.raises(DumpMismatch, match="no topic 'nothing'"):
        load_equal(other, dumped(data), names={"nothing"})


def test_a_topic_can_get_another_name_and_keeps_its_id(data: DataDirectory, other: DataDirectory) -> None:
    content = dumped(data, Request(("late",), compress="none"))
    load_equal(other, content, name="early")
    assert [(topic.name, topic.id) for topic in other.topics()] == [("early", data.topic("late").id)]
    assert_same_batches(data.open_topic("late")[0], other.open_topic("early")[0])
    with pytest.raises(DumpMismatch, match="is here already, as 'early'"):
        load_equal(other, content)
    with pytest.raises(DumpMismatch, match="cannot all be called"):
        load_equal(other, dumped(data), name="one")
    with pytest.raises(InvalidTopicName):
        load_equal(other, content, name="../elsewhere")


def test_a_topic_of_the_same_name_is_refused_and_left_alone(data: DataDirectory, other: DataDirectory) -> None:
    other.create_topic("late")
    with pytest.raises(DumpMismatch, match="--as NAME"):
        load_equal(other, dumped(data, Request(("late",))))
    assert other.open_topic("late")[0].next == 0


def test_a_log_that_went_another_way_is_refused(other: DataDirectory) -> None:
    data, log = one_log(6)
    load_equal(other, dumped(data))
    (copy,) = other.open_topic("t")
    add(log, 6, 8)
    copy.append_one(make_batch(99, 2, NOW), NOW + 6)
    commit(copy)
    copy.close()
    with pytest.raises(DumpMismatch, match="another batch 7"):
        load_equal(other, dumped(data))


def test_a_log_that_is_ahead_of_the_dump_is_left_alone(other: DataDirectory) -> None:
    data, log = one_log(6)
    early = dumped(data)
    add(log, 6, 9)
    load_equal(other, dumped(data))
    loaded = load_equal(other, early)
    assert (loaded.topics[0].batches, loaded.topics[0].present) == (0, 6)
    assert_same(data, other)


def test_a_later_dump_of_the_same_log_adds_what_is_new(other: DataDirectory) -> None:
    data, log = one_log(6)
    load_equal(other, dumped(data))
    add(log, 6, 13)
    load_equal(other, dumped(data))
    assert_same(data, other)


def test_a_range_that_goes_on_where_a_loaded_log_ends_is_added_to_it(other: DataDirectory) -> None:
    data, log = one_log(6)
    load_equal(other, dumped(data))
    add(log, 6, 13)
    load_equal(other, dumped(data, Request(seqno_from=12, compress="none")))
    (copy,) = other.open_topic("t")
    assert values(copy) == values(log)
    assert copy.first == 0
    assert copy.tail == log.tail


def test_a_range_with_a_gap_before_it_is_refused(other: DataDirectory) -> None:
    data, log = one_log(6)
    load_equal(other, dumped(data))
    add(log, 6, 13)
    with pytest.raises(DumpMismatch, match="load the part between first"):
        load_equal(other, dumped(data, Request(seqno_from=14)))


@pytest.mark.parametrize("start", [0, 1, 5, 6, 7, 19, 20])
@pytest.mark.parametrize("length", [0, 1, 4, 20])
def test_a_range_begins_exactly_where_it_was_asked_to(start: int, length: int) -> None:
    data, log = one_log()
    other = open_data(SimulatedDisk())
    until = min(start + length, log.committed)
    load_equal(other, dumped(data, Request(seqno_from=start, seqno_until=until, compress="none")))
    (copy,) = other.open_topic("t")
    if start < until:
        assert copy.first == start
        assert copy.committed == (until + 1) // 2 * 2
        assert values(copy) == values(log)[start : copy.committed]
        if until == log.committed:
            assert copy.tail.producers == log.tail.producers
    else:
        assert values(copy) == []
        assert copy.next == start // 2 * 2
    assert copy.append_one(make_batch(50, 1, NOW), NOW + 99).base_seqno == copy.committed


def test_a_range_outside_of_the_log_is_refused(data: DataDirectory) -> None:
    late = ("late",)
    for request in (
        Request(late, seqno_from=5),
        Request(late, seqno_from=13),
        Request(late, seqno_until=13),
        Request(late, seqno_from=8, seqno_until=7),
    ):
        with pytest.raises(SeqnoOutOfRange):
            dumped(data, request)
    with pytest.raises(ValueError, match="a range is of one log"):
        dumped(data, Request(("many",), seqno_from=1))
    with pytest.raises(ValueError, match="partitions 0 to 0"):
        dumped(data, Request(("late",), partition=1))


def test_partitions_are_dumped_and_loaded_one_by_one(data: DataDirectory, other: DataDirectory) -> None:
    for partition in (1, 0, 2):
        load_equal(other, dumped(data, Request(("many",), partition, compress="none")))
    assert other.topic("many") == data.topic("many")
    for here, there in zip(data.open_topic("many"), other.open_topic("many"), strict=True):
        assert_same_batches(here, there)


def test_a_snapshot_that_a_repair_left_counts_in_the_copy_too(other: DataDirectory) -> None:
    data, log = one_log(8)
    disk, segment = data.files.disk, log.segments[-1]
    snapshot = DumpOrigin.of(data).snapshot(log, len(log.segments) - 1)
    data.close()
    producers = {77: ProducerStream(3, (ProducerBatch(0, 5, 1, 1, NOW),))}
    changed = msgspec.structs.replace(snapshot, producers=producers, floor=3)
    replace_file(disk, segment.snap_path, changed.encode())
    data = DataDirectory.open("/data", disk, reserve_bytes=0)
    load_equal(other, dumped(data))
    assert_same(data, other)
    assert other.open_topic("t")[0].producer(77) == producers[77]


def test_swapped_segments_are_dumped_as_they_are_now(other: DataDirectory) -> None:
    data = open_data(SimulatedDisk())
    data.create_topic("t")
    (log,) = data.open_topic("t")
    for number in range(3):
        log.append_one(build([b"the same again " * 9] * 20), NOW + number)
        log.roll()
    commit(log)
    for segment in log.cold_segments()[:2]:
        pending = log.begin_swap(segment)
        made = recompress(data.files.disk, pending.old, pending.new, ZSTD, 3, 0.1, lambda size: None)
        assert made is not None
        assert log.end_swap(pending, made.summary, made.index)
    load_equal(other, dumped(data))
    assert_same(data, other)


def test_damage_stops_a_dump_and_a_range_behind_it_does_not(other: DataDirectory) -> None:
    data, log = one_log(10)
    inode = data.files.disk.names[log.segments[1].log_path]  # type: ignore[attr-defined]
    inode.cached[150] ^= 1
    with pytest.raises(Damage) as caught:
        dumped(data)
    assert caught.value.path == log.segments[1].log_path
    assert (caught.value.seqno_from, caught.value.seqno_until) == (6, 8)
    load_equal(other, dumped(data, Request(seqno_from=14, compress="none")))
    (copy,) = other.open_topic("t")
    assert values(copy) == values_from(log, 14)


def values_from(log: Log, seqno: int) -> list[tuple[int, bytes | None]]:
    return [
        (record.seqno, record.value)
        for batch in log.batches(seqno)
        for record in batch.records()
        if record.seqno is not None and record.seqno >= seqno
    ]


def test_a_log_whose_tail_is_damaged_is_not_dumped_as_if_it_were_whole() -> None:
    data, log = one_log(10, roll_every=100)
    disk = data.files.disk
    data.close()
    inode = disk.names[log.segments[0].log_path]  # type: ignore[attr-defined]
    inode.cached[-20] ^= 1
    inode.durable[-20] ^= 1
    data = DataDirectory.open("/data", disk, reserve_bytes=0)
    with pytest.raises(Damage):
        dumped(data)
    content = dumped(data, Request(seqno_until=18, compress="none"))
    assert read_all(content).totals.records == 18


def test_a_repaired_log_is_dumped_with_its_lost_batch() -> None:
    data, log = one_log(10)
    disk = data.files.disk
    data.close()
    inode = disk.names[log.segments[1].log_path]  # type: ignore[attr-defined]
    inode.cached[150] ^= 1
    inode.durable[150] ^= 1
    for step in plan_repair(disk, "/data", is_directory=disk.is_directory).steps:
        step.run()
    data = DataDirectory.open("/data", disk, reserve_bytes=0)
    other = open_data(SimulatedDisk())
    loaded = load_equal(other, dumped(data))
    assert loaded.totals.lost == 2
    assert_same(data, other)


def test_appending_a_dump_twice_is_appending_it_once(data: DataDirectory, other: DataDirectory) -> None:
    content = dumped(data)
    assert append(other, content) == [(0, 0, 0), (2, 0, 0), (10, 0, 2)]
    counts = {topic.name: [log.next for log in other.open_topic(topic.name)] for topic in other.topics()}
    assert append(other, content, now=NOW + 5) == [(0, 0, 0), (0, 2, 0), (0, 10, 2)]
    assert counts == {topic.name: [log.next for log in other.open_topic(topic.name)] for topic in other.topics()}
    assert {topic.id for topic in other.topics()}.isdisjoint(topic.id for topic in data.topics())


def test_appended_records_are_the_visible_ones_in_their_order(data: DataDirectory, other: DataDirectory) -> None:
    append(other, dumped(data))
    for topic in data.topics():
        for log, copy in zip(data.open_topic(topic.name), other.open_topic(topic.name), strict=True):
            wanted = [
                (record.key, record.value)
                for batch in log.batches(skip_damage=True)
                for record in batch.records()
                if record.seqno is not None and record.seqno >= log.first
            ]
            found = [(record.key, record.value) for batch in copy.batches() for record in batch.records()]
            assert found == wanted


def test_a_dump_is_appended_to_what_is_there(data: DataDirectory, other: DataDirectory) -> None:
    other.create_topic("mine", 2)
    log = other.open_topic("mine")[0]
    log.append_one(make_batch(1, 3, NOW), NOW + 10**9)
    commit(log)
    log.close()
    append(other, dumped(data, Request(("late",), compress="none")), name="mine")
    log = other.open_topic("mine")[0]
    assert log.next == 3 + 6
    with pytest.raises(DumpMismatch, match="2 partitions here and 3 in the dump"):
        append(other, dumped(data, Request(("many",))), name="mine")


def test_an_append_that_was_cut_off_goes_on_where_it_ended(data: DataDirectory) -> None:
    content = dumped(data)
    for cut in range(0, len(content), 97):
        other = open_data(SimulatedDisk())
        with pytest.raises(DumpIncomplete):
            append(other, content[:cut])
        append(other, content, now=NOW + 1)
        assert [log.next for log in other.open_topic("many")] == [11, 37, 0]


@pytest.mark.parametrize("compress", ["none", "zstd"])
@pytest.mark.parametrize("stride", strides(3))
def test_a_dump_cut_at_any_byte_is_gone_on_with(compress: str, stride: int) -> None:
    data, log = one_log(4, 3)
    log.trim(3, NOW + 9)
    commit(log)
    origin, request = DumpOrigin.of(data), Request(compress=compress)
    content = dump_of(origin, request)[0]
    head_end = frame_ends(content)[0]
    for cut in range(0, len(content) + 1, stride):
        whole = gone_on_with(origin, content[:cut], request)
        if cut >= head_end:
            assert whole == content
        else:
            assert read_all(whole).complete


def frame_ends(content: bytes) -> list[int]:
    return [frame.end for frame in DumpFrameReader(io.BytesIO(content)).frames()]


def test_what_a_crash_left_behind_the_last_whole_frame_is_cut_off(data: DataDirectory) -> None:
    origin, content = DumpOrigin.of(data), dumped(data)
    for end in frame_ends(content)[:-1]:
        for garbage in (bytes(500), random.Random(end).randbytes(500), content[:500]):
            assert gone_on_with(origin, content[:end] + garbage) == content


def test_a_dump_goes_on_although_the_log_grew_and_dropped_what_was_dumped(other: DataDirectory) -> None:
    data, log = one_log(10)
    content = dumped(data)
    cut = frame_ends(content)[7]
    add(log, 10, 15)
    log.drop(8)
    assert log.first_index > 1
    assert gone_on_with(DumpOrigin.of(data), content[:cut]) == content


def test_only_the_same_dump_is_gone_on_with(data: DataDirectory, other: DataDirectory) -> None:
    content = dumped(data)
    with pytest.raises(DumpMismatch, match="it is a dump of node"):
        gone_on_with(DumpOrigin.of(other), content[:-10])
    with pytest.raises(DumpMismatch, match="compress was none, is lz4"):
        gone_on_with(DumpOrigin.of(data), content[:-10], Request(compress="lz4"))
    with pytest.raises(DumpUnsupported):
        gone_on_with(DumpOrigin.of(data), b"what I wrote last summer")
    data.delete_topic("late")
    with pytest.raises(DumpMismatch, match="not there any more"):
        gone_on_with(DumpOrigin.of(data), content[:-10])


@pytest.mark.parametrize("stride", strides(3))
def test_a_dump_cut_at_any_byte_is_told_from_a_whole_one_and_loads_as_far_as_it_goes(stride: int) -> None:
    data, _ = one_log(7)
    content = dumped(data)
    ends = frame_ends(content)
    for cut in range(0, len(content), stride):
        other = open_data(SimulatedDisk())
        with pytest.raises(DumpIncomplete):
            load_equal(other, content[:cut])
        assert (other.topics() != []) == (cut >= ends[-2])
        if cut % 7 == 0:
            load_equal(other, content)
            assert_same(data, other)


def test_every_flipped_byte_of_a_dump_is_noticed() -> None:
    data = open_data(SimulatedDisk())
    fill(data, 4)
    content = dumped(data, Request(("many",), compress="none"))
    for position in range(len(content)):
        mutant = bytearray(content)
        mutant[position] ^= 1 << position % 8
        with pytest.raises((DumpCorrupt, DumpUnsupported, DumpIncomplete)):
            read_all(bytes(mutant))


@pytest.mark.parametrize("stride", strides(17))
def test_a_load_of_a_damaged_dump_leaves_nothing_wrong_behind(stride: int) -> None:
    data = open_data(SimulatedDisk())
    fill(data, 4)
    content = dumped(data, Request(("many",), compress="zstd"))
    for position in range(0, len(content), stride):
        other = open_data(SimulatedDisk())
        mutant = bytearray(content)
        mutant[position] ^= 0x40
        with pytest.raises(LogboomError):
            load_equal(other, bytes(mutant))
        load_equal(other, content)
        assert [topic.name for topic in other.topics()] == ["many"]
        for here, there in zip(data.open_topic("many"), other.open_topic("many"), strict=True):
            assert_same_batches(here, there)


def reframed(content: bytes, change: Callable[[list[bytes]], list[bytes]], renumber: bool = True) -> bytes:
    """The dump with its frames changed and every number and checksum of a header made right again."""
    starts = [len(PREAMBLE), *frame_ends(content)]
    frames = change([content[a:b] for a, b in pairwise(starts)])
    out = [PREAMBLE]
    for number, frame in enumerate(frames):
        front = bytearray(frame[: HEADER_SIZE - 4])
        if renumber:
            front[12:16] = number.to_bytes(4, "little")
        out += [bytes(front), crc32c(bytes(front)).to_bytes(4, "little"), frame[HEADER_SIZE:]]
    return b"".join(out)


def test_frames_that_are_missing_doubled_or_swapped_are_noticed(data: DataDirectory) -> None:
    content = dumped(data)
    count = len(frame_ends(content))
    for n in range(count - 1):
        changes: list[Callable[[list[bytes]], list[bytes]]] = [
            lambda frames, n=n: frames[:n] + frames[n + 1 :],  # type: ignore[misc]
            lambda frames, n=n: [*frames[: n + 1], *frames[n:]],  # type: ignore[misc]
            lambda frames, n=n: [*frames[:n], frames[n + 1], frames[n], *frames[n + 2 :]],  # type: ignore[misc]
        ]
        for change in changes:
            for renumber in (False, True):
                with pytest.raises((DumpCorrupt, DumpIncomplete)):
                    read_all(reframed(content, change, renumber))


def test_bytes_behind_the_end_are_refused(data: DataDirectory) -> None:
    content = dumped(data)
    with pytest.raises(DumpCorrupt, match="bytes follow"):
        read_all(content + b"\0")


def test_a_newer_format_an_unknown_frame_and_what_is_no_dump_are_refused_by_name(data: DataDirectory) -> None:
    content = dumped(data)
    with pytest.raises(DumpUnsupported, match="format 2"):
        read_all(content[:6] + b"\2\0" + content[8:])
    with pytest.raises(DumpUnsupported, match="not a dump"):
        read_all(b"\x1f\x8b" + content)

    def changed(position: int, value: int) -> Callable[[list[bytes]], list[bytes]]:
        return lambda frames: [
            frames[0],
            frames[1][:position] + bytes((value,)) + frames[1][position + 1 :],
            *frames[2:],
        ]

    for position, value in ((0, 8), (0, 0), (1, 3), (2, 1)):
        with pytest.raises(DumpUnsupported):
            read_all(reframed(content, changed(position, value)))


@pytest.mark.parametrize(("stored", "raw"), [(2**32 - 1, 2**32 - 1), (64 << 20, 64 << 20), (100, 2**32 - 1)])
def test_lengths_that_lie_allocate_nothing(stored: int, raw: int) -> None:
    front = bytes((1, 0 if stored == raw else 2, 0, 0)) + stored.to_bytes(4, "little") + raw.to_bytes(4, "little")
    front += bytes(8)
    content = PREAMBLE + front + crc32c(front).to_bytes(4, "little") + bytes(100)
    tracemalloc.start()
    with pytest.raises((DumpCorrupt, DumpIncomplete)):
        read_all(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_dump_that_does_not_fit_is_refused_before_anything_is_written(data: DataDirectory) -> None:
    disk = SimulatedDisk()
    other = open_data(disk)
    disk.free = 1000
    for loader in (load_equal, append):
        with pytest.raises(LowSpace):
            loader(other, dumped(data))
    assert other.topics() == []


def test_a_topic_name_that_leads_elsewhere_is_refused(data: DataDirectory, other: DataDirectory) -> None:
    content = dumped(data, Request(("late",), compress="none"))

    def evil(frames: list[bytes]) -> list[bytes]:
        front, payload = frames[1][:HEADER_SIZE], frames[1][HEADER_SIZE:].replace(b"\xa4late", b"\xa4../x")
        return [frames[0], front[:16] + crc32c(payload).to_bytes(4, "little") + front[20:] + payload, *frames[2:]]

    with pytest.raises(DumpCorrupt, match="a topic that cannot be"):
        load_equal(other, reframed(content, evil))


def test_a_load_under_another_name_takes_over_what_an_unfinished_one_left() -> None:
    data, _ = one_log(6)
    content = dumped(data)
    other = open_data(SimulatedDisk())
    with pytest.raises(DumpIncomplete):
        load_equal(other, content[:-150])
    load_equal(other, content, name="better")
    assert [topic.name for topic in other.topics()] == ["better"]
    assert_same_batches(data.open_topic("t")[0], other.open_topic("better")[0])


def test_a_deleted_topic_is_loaded_again_under_its_old_id(data: DataDirectory, other: DataDirectory) -> None:
    content = dumped(data)
    load_equal(other, content)
    other.delete_topic("many")
    load_equal(other, content)
    other.empty_trash()
    assert_same(data, other)


def test_what_is_not_committed_is_not_dumped() -> None:
    data, log = one_log(6)
    log.append_one(make_batch(6, 2, NOW), NOW + 6)
    assert read_all(dumped(data)).totals.batches == 6


def test_an_empty_directory_makes_an_empty_dump(other: DataDirectory) -> None:
    content = dumped(other)
    assert read_all(content).complete
    assert load_equal(open_data(SimulatedDisk()), content).topics == []


def test_what_has_no_node_is_no_directory_to_dump_from() -> None:
    with pytest.raises(DirectoryUnusable):
        DumpOrigin.beside("/data", SimulatedDisk())


def test_a_snapshot_survives_the_stream_as_it_is() -> None:
    data, log = one_log(3)
    frames = list(DumpFrameReader(io.BytesIO(dumped(data, PLAIN))).frames())
    snapshots = [Snapshot.decode(bytes(frame.payload)) for frame in frames if frame.kind == 4]
    assert snapshots == [DumpOrigin.of(data).snapshot(log, number) for number in range(len(log.segments))]


class Meddling(io.BytesIO):
    """A sink with a writer that goes on behind the dump's back whenever a frame is written."""

    def __init__(self, meddle: Callable[[int], None]) -> None:
        super().__init__()
        self._meddle = meddle
        self._writes = 0

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]
        self._writes += 1
        self._meddle(self._writes)
        return super().write(data)


def beside(data: DataDirectory) -> DumpOrigin:
    return DumpOrigin.beside(data.path, data.files.disk)


def dump_beside(data: DataDirectory, meddle: Callable[[int], None]) -> bytes:
    origin, sink = beside(data), Meddling(meddle)
    dump(origin, plan_dump(origin, PLAIN, NOW), sink)
    return sink.getvalue()


def test_a_dump_beside_the_writer_holds_what_was_committed_when_it_began(other: DataDirectory) -> None:
    data, log = one_log(20)

    def meddle(step: int) -> None:
        add(log, 19 + step, 20 + step, roll_every=2)

    load_equal(other, dump_beside(data, meddle))
    found = values(other.open_topic("t")[0])
    assert 40 <= len(found) < len(values(log))
    assert found == values(log)[: len(found)]
    other.open_topic("t")[0].close()
    load_equal(other, dump_beside(data, lambda step: None))
    assert_same(data, other)


def test_a_dump_beside_the_writer_follows_segments_that_are_stored_anew(
    other: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.storage.moving.span.RUN_BYTES", 2000)
    data = open_data(SimulatedDisk())
    data.create_topic("t")
    (log,) = data.open_topic("t")
    for number in range(12):
        log.append([build([b"the same again " * 9] * 10) for _ in range(4)], NOW + number)
        log.roll()
    commit(log)
    swapped = 0

    def meddle(step: int) -> None:
        nonlocal swapped
        cold = [segment for segment in log.cold_segments() if segment.generation == 0]
        if cold and step % 3 == 0:
            pending = log.begin_swap(cold[step % len(cold)])
            made = recompress(data.files.disk, pending.old, pending.new, ZSTD, 3, 0.1, lambda size: None)
            assert made is not None
            swapped += log.end_swap(pending, made.summary, made.index)

    content = dump_beside(data, meddle)
    assert swapped == 12
    load_equal(other, content)
    assert_same(data, other)


def test_a_dump_that_retention_overtakes_says_so() -> None:
    data, log = one_log(40)

    def meddle(step: int) -> None:
        if step == 10:
            log.drop(60)

    with pytest.raises(DumpOvertaken):
        dump_beside(data, meddle)


def test_a_floor_that_stands_at_the_end_counts_in_a_dump_beside_the_writer(other: DataDirectory) -> None:
    data, log = one_log(10)
    log.trim(13, NOW + 50)
    commit(log)
    load_equal(other, dump_beside(data, lambda step: None))
    (copy,) = other.open_topic("t")
    assert copy.first == 13
    assert values(copy) == values(log)


def test_a_dump_that_began_without_a_writer_goes_on_beside_one() -> None:
    data, _ = one_log(10)
    content = dumped(data)
    ends = frame_ends(content)
    for end in ends:
        whole = gone_on_with(beside(data), content[:end])
        assert read_all(whole).totals.records == 20


def no_writing(*_: object) -> DataDirectory:
    raise OSError(errno.EROFS, "Read-only file system")


def test_a_directory_that_cannot_be_written_to_is_dumped_if_it_was_closed_properly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path)
    with DataDirectory.open(path) as data:
        fill(data)
    with monkeypatch.context() as patch:
        patch.setattr(DataDirectory, "open", no_writing)
        with DumpOrigin.open(path) as origin:
            assert origin.live
            content, done = dump_of(origin)
    assert done.records == 59
    assert read_all(content).complete
    data = DataDirectory.open(path)
    del data  # as a crash leaves it
    with monkeypatch.context() as patch:
        patch.setattr(DataDirectory, "open", no_writing)
        with pytest.raises(DirectoryUnusable, match="was not closed properly"):
            DumpOrigin.open(path)


def test_a_dump_after_a_crash_recovers_every_log_and_leaves_the_directory_closed(tmp_path: Path) -> None:
    path = str(tmp_path)
    data = DataDirectory.open(path)
    fill(data)
    log = data.open_topic("late")[0]
    log.append_one(make_batch(9, 1, NOW), NOW + 9)
    log.sync()
    del data, log
    with DumpOrigin.open(path) as origin:
        assert not origin.live
        assert dump_of(origin, Request(("late",)))[1].records == 7
    with DataDirectory.open(path) as data:
        assert data.was_clean


def test_a_snapshot_that_no_log_could_have_is_refused(data: DataDirectory, other: DataDirectory) -> None:
    content = dumped(data, Request(("late",), compress="none"))
    (log,) = data.open_topic("late")
    sound = DumpOrigin.of(data).snapshot(log, 0)
    replace = msgspec.structs.replace
    for wrong in (
        replace(sound, floor=2**40),
        replace(sound, floor=-1),
        replace(sound, term=2**32),
        replace(sound, generation=2**40),
        replace(sound, append_time=2**63),
        replace(sound, producers={1: ProducerStream(0, ())}),
    ):

        def evil(frames: list[bytes], payload: bytes = wrong.encode()) -> list[bytes]:
            size = len(payload).to_bytes(4, "little")
            front = frames[3][:4] + size + size + frames[3][12:16] + crc32c(payload).to_bytes(4, "little")
            return [*frames[:3], front + bytes(4) + payload, *frames[4:]]

        with pytest.raises(DumpCorrupt, match="says what cannot be"):
            load_equal(other, reframed(content, evil))
